//! Which processor takes the packets that a device receives.
//!
//! A veth pair hands a packet over on the processor that sent it (`veth_forward_skb`, `netif_rx`), and sch_fq sends on
//! whichever processor enqueues or takes the timer. Two packets of a flow that leave on two processors lie in two backlogs,
//! and the later one may be served first. Receive packet steering (`get_rps_cpu`, `net/core/dev.c`) puts every packet into the
//! backlog of a processor that its hash chooses: one for each flow, first in, first out. Receive flow steering chooses the
//! processor on which the flow's receiver last read (`rps_record_sock_flow`), without loss of order, where it is switched on.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
};

use rustix::{
    fs::{Dir, Mode, OFlags, openat},
    mount::{
        FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, fsconfig_create, fsconfig_reconfigure,
        fsconfig_set_flag, fsmount, fsopen, fspick,
    },
};

/// Where sysfs lists the processors that run.
const ONLINE: &str = "devices/system/cpu/online";

/// Flows that a device remembers the processors of, as many as the kernel's guide proposes for a device of one queue
/// (`Documentation/networking/scaling.rst`); of all devices together by `rps_sock_flow_entries`.
pub(crate) const FLOWS: u32 = 32_768;

/// Why packets could not be assigned to processors.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// The namespace's own view of sysfs.
    #[error("mounting sysfs for this network namespace: {0} (needs CAP_SYS_ADMIN)")]
    Mount(io::Error),
    /// The list of processors.
    #[error("reading /sys/{ONLINE}: {0}")]
    Online(io::Error),
    /// What the list says.
    #[error("/sys/{ONLINE} says {0:?}, which is no list of processors")]
    List(String),
    /// The device's queues.
    #[error("looking for the receive queues of {device} (/sys/class/net/{device}/queues): {source}")]
    Queues {
        /// The device.
        device: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The setting.
    #[error(
        "assigning the packets of {device} to processors (/sys/class/net/{device}/queues/{queue}/{setting}): {source}; \
         on several processors flows would lose their order, and a receiver's overhead would be another's"
    )]
    Set {
        /// The device.
        device: String,
        /// Its queue.
        queue: String,
        setting: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Processors for the packets of the devices of a network namespace.
#[derive(Debug)]
pub struct Steering {
    sysfs: OwnedFd,
    online: Vec<u32>,
}

impl Steering {
    /// For devices of the calling thread's namespace: sysfs shows those of whoever mounted it (`sysfs_init_fs_context`), so
    /// it is mounted once more, where nobody sees it.
    pub fn here() -> Result<Self, SteeringError> {
        let mount = || {
            let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        };
        let sysfs = mount().map_err(|error| SteeringError::Mount(error.into()))?;
        let mut list = String::new();
        let online = match open(&sysfs, ONLINE, OFlags::RDONLY) {
            // A kernel for one processor.
            Err(error) if error.kind() == io::ErrorKind::NotFound => vec![0],
            opened => {
                let read = opened.and_then(|mut file| file.read_to_string(&mut list));
                read.map_err(SteeringError::Online)?;
                processors(&list).ok_or(SteeringError::List(list))?
            }
        };
        Ok(Self { sysfs, online })
    }

    /// How many processors there are.
    #[must_use]
    pub fn processors(&self) -> u32 {
        u32::try_from(self.online.len()).unwrap_or(u32::MAX)
    }

    /// Has each packet that a device receives served by the processor that its hash chooses.
    pub fn apply(&self, device: &str) -> Result<(), SteeringError> {
        self.assign(device, &self.online)
    }

    /// The same, by some of the processors only.
    pub fn assign(&self, device: &str, processors: &[u32]) -> Result<(), SteeringError> {
        if self.online.len() < 2 {
            return Ok(());
        }
        self.set(device, "rps_cpus", &mask(processors))
    }

    /// Has each packet served by the processor on which its receiver runs, as far as the kernel knows it: for TCP and for
    /// connected UDP, and as long as `rps_sock_flow_entries` is not 0. What else comes is served by its hash.
    pub fn follow(&self, device: &str) -> Result<(), SteeringError> {
        if self.online.len() < 2 {
            return Ok(());
        }
        self.set(device, "rps_flow_cnt", &FLOWS.to_string())?;
        self.apply(device)
    }

    /// Sets something of all receive queues.
    fn set(&self, device: &str, setting: &'static str, value: &str) -> Result<(), SteeringError> {
        let queues = self.queues(device).map_err(|source| SteeringError::Queues {
            device: device.into(),
            source,
        })?;
        for queue in queues {
            let path = format!("class/net/{device}/queues/{queue}/{setting}");
            self.write(&path, value).map_err(|source| SteeringError::Set {
                device: device.into(),
                queue,
                setting,
                source,
            })?;
        }
        Ok(())
    }

    /// Writes a value. All mounts of a namespace's sysfs have one super block, and that of a container may be read-only: MS_RDONLY of
    /// mount(2), as runc calls it, is the super block's and the mount's. It is made writable for this moment; the container's mount
    /// stays as it is.
    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let write = || open(&self.sysfs, path, OFlags::WRONLY)?.write_all(value.as_bytes());
        match write() {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                self.reconfigure("rw")?;
                let written = write();
                // Whoever else writes there keeps it writable; nothing of this emulation depends on that.
                let _ = self.reconfigure("ro");
                written
            }
            done => done,
        }
    }

    fn reconfigure(&self, flag: &str) -> io::Result<()> {
        let context = fspick(
            &self.sysfs,
            "",
            FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH,
        )?;
        fsconfig_set_flag(&context, flag)?;
        Ok(fsconfig_reconfigure(&context)?)
    }

    /// Names of a device's receive queues.
    fn queues(&self, device: &str) -> io::Result<Vec<String>> {
        let path = format!("class/net/{device}/queues");
        let names = Dir::read_from(open(&self.sysfs, &path, OFlags::RDONLY | OFlags::DIRECTORY)?)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(names.into_iter().filter(|name| name.starts_with("rx-")).collect())
    }
}

fn open(sysfs: &OwnedFd, path: &str, how: OFlags) -> io::Result<File> {
    Ok(openat(sysfs, path, how | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// The numbers in a list such as `0-3,8` (`cpumask_list`); `None` if it is none.
pub(crate) fn processors(list: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        all.extend((first <= last).then_some(first..=last)?);
    }
    Some(all)
}

/// A set of processors as the kernel reads it (`bitmap_parse`): words of 32 bits in hexadecimal, the highest first.
fn mask(processors: &[u32]) -> String {
    let words = processors.iter().max().map_or(1, |last| last / 32 + 1);
    let word = |at: u32| {
        processors
            .iter()
            .filter(|processor| *processor / 32 == at)
            .fold(0u32, |word, processor| word | 1 << (processor % 32))
    };
    let words: Vec<String> = (0..words).rev().map(|at| format!("{:x}", word(at))).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::{mask, processors};

    #[test]
    fn lists_are_read() {
        assert_eq!(processors("0\n"), Some(vec![0]));
        assert_eq!(processors("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        for wrong in ["", "a", "3-1", "1-"] {
            assert_eq!(processors(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn masks_are_words_the_highest_first() {
        assert_eq!(mask(&[0]), "1");
        assert_eq!(mask(&[0, 1, 2, 3]), "f");
        assert_eq!(mask(&[0, 31, 32, 64]), "1,1,80000001");
    }
}
