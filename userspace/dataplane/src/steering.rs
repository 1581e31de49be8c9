//! Which processor takes a packet from the far end of a veth pair.
//!
//! A veth pair hands a packet over on the processor that sent it (`veth_forward_skb`, `netif_rx`), and sch_fq sends on
//! whichever processor enqueues or takes the timer. Two packets of a flow that leave on two processors lie in two backlogs,
//! and the later one may be served first. Receive packet steering (`get_rps_cpu`, `net/core/dev.c`) puts every packet into the
//! backlog of a processor that its hash chooses: one for each flow, first in, first out.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
};

use rustix::{
    fs::{Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

/// Where sysfs lists the processors that run.
const ONLINE: &str = "devices/system/cpu/online";

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
    /// The setting.
    #[error(
        "assigning the packets of {device} to processors (/sys/class/net/{device}/queues/rx-0/rps_cpus): {source}; \
         without it flows lose their order on several processors"
    )]
    Set {
        /// The far end.
        device: String,
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
    pub fn apply(&self, device: &str, queues: u32) -> Result<(), SteeringError> {
        if self.online.len() < 2 {
            return Ok(());
        }
        let mask = mask(&self.online);
        for queue in 0..queues.max(1) {
            open(
                &self.sysfs,
                &format!("class/net/{device}/queues/rx-{queue}/rps_cpus"),
                OFlags::WRONLY,
            )
            .and_then(|mut file| file.write_all(mask.as_bytes()))
            .map_err(|source| SteeringError::Set {
                device: device.into(),
                source,
            })?;
        }
        Ok(())
    }
}

fn open(sysfs: &OwnedFd, path: &str, how: OFlags) -> io::Result<File> {
    Ok(openat(sysfs, path, how | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// The numbers in a list such as `0-3,8` (`cpumask_list`); `None` if it is none.
fn processors(list: &str) -> Option<Vec<u32>> {
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
