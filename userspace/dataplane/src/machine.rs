//! Settings of the machine's receive side that emulations raise as long as they run, of all namespaces at once.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::namespace::Namespace;

/// A number below /proc/sys.
#[derive(Debug)]
pub struct Setting {
    /// Its name in /proc/sys/net/core.
    pub name: &'static str,
    /// What it should be at least.
    pub least: u32,
    /// What is wrong without that.
    pub lack: &'static str,
}

/// How many packets wait for a processor. What leaves the hold device and the splitter crosses the backlog of a processor
/// (`enqueue_to_backlog`, `net/core/dev.c`). The kernel's own limit of 1000 packets is less than one super-packet burst that
/// was cut (64 of 45 packets), and what does not fit is dropped.
pub const BACKLOG: Setting = Setting {
    name: "netdev_max_backlog",
    least: 65_536,
    lack: "bursts may be dropped, and are counted as unintended drops",
};

/// Of how many flows the kernel knows the processor on which their receiver runs (`rps_sock_flow_table`, `net/core/dev.c`);
/// 0 switches receive flow steering off.
pub const RECEIVERS: Setting = Setting {
    name: "rps_sock_flow_entries",
    least: crate::steering::FLOWS,
    lack: "a receiver's overhead may be burnt by another processor than its own",
};

/// All of them.
pub const ALL: [&Setting; 2] = [&BACKLOG, &RECEIVERS];

impl Setting {
    /// What it is now.
    pub fn read(&self) -> io::Result<u32> {
        let path = self.path();
        let text = at_home(&path, || fs::read_to_string(&path))?;
        text.trim()
            .parse()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Sets it.
    pub fn write(&self, value: u32) -> io::Result<()> {
        let path = self.path();
        at_home(&path, || fs::write(&path, value.to_string()))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/proc/sys/net/core").join(self.name)
    }
}

/// In the first network namespace, the only one that shows these settings.
fn at_home<T: Send>(path: &Path, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    if path.exists() {
        return work();
    }
    reach()?.enter(work)?
}

/// Opens the first network namespace, once. A process that is about to give up CAP_SYS_PTRACE, without which
/// `/proc/1/ns/net` is closed (`proc_ns_get_link`), calls this before.
pub fn reach() -> io::Result<&'static Namespace> {
    static FIRST: OnceLock<Namespace> = OnceLock::new();
    if let Some(first) = FIRST.get() {
        return Ok(first);
    }
    let first = Namespace::open("/proc/1/ns/net".as_ref())?;
    Ok(FIRST.get_or_init(|| first))
}
