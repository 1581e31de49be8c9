//! How many packets wait for a processor: `net.core.netdev_max_backlog`, of all namespaces at once.
//!
//! What leaves the hold device and the splitter crosses the backlog of a processor (`enqueue_to_backlog`, `net/core/dev.c`).
//! The kernel's own limit of 1000 packets is less than one super-packet burst that was cut (64 of 45 packets), and what does not fit
//! is dropped.

use std::{fs, io, path::Path, sync::OnceLock};

use crate::namespace::Namespace;

/// Packets that a backlog should hold at least while packets are held.
pub const LEAST: u32 = 65_536;

const SETTING: &str = "/proc/sys/net/core/netdev_max_backlog";

/// The limit, packets.
pub fn read() -> io::Result<u32> {
    let text = at_home(|| fs::read_to_string(SETTING))?;
    text.trim()
        .parse()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Sets it.
pub fn write(packets: u32) -> io::Result<()> {
    at_home(|| fs::write(SETTING, packets.to_string()))
}

/// In the first network namespace, the only one that shows the setting.
fn at_home<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    if Path::new(SETTING).exists() {
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
    let first = Namespace::open(Path::new("/proc/1/ns/net"))?;
    Ok(FIRST.get_or_init(|| first))
}
