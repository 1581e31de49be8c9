//! Processors of private hosts.
//!
//! Model: private hosts are namespaces of one machine, so that any processor may run either, and a packet is received
//! on the processor that has sent it. With a burnt service time, as with overhead, it matters whose time is
//! taken: the machine's processors are parted, h1's process runs on the first half and h2's on the second, and the
//! kernel is told (receive packet steering, `rps_cpus`) to receive each host's packets there. What is lacking: a
//! machine with one processor cannot be parted.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, unshare},
    unistd::Pid,
};

use crate::lab::INTERFACE;

/// A private host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// h1.
    Client,
    /// h2.
    Server,
}

/// Keeps this process, and the reception of its host's packets, on the host's share of the processors. To be called
/// before threads are started. Whether there were enough to share.
pub(super) fn keep_to_own(side: Side) -> Result<bool> {
    let this = Pid::from_raw(0);
    let all = sched_getaffinity(this).context("asking for the processors")?;
    let usable: Vec<usize> = (0..CpuSet::count())
        .filter(|&number| all.is_set(number).unwrap_or(false))
        .collect();
    let (client, server) = usable.split_at(usable.len() / 2);
    if client.is_empty() {
        return Ok(false);
    }
    let own = match side {
        Side::Client => client,
        Side::Server => server,
    };
    let mut set = CpuSet::new();
    for &number in own {
        set.set(number).context("choosing processors")?;
    }
    sched_setaffinity(this, &set).context("keeping to processors")?;
    receive_on(own, side)?;
    Ok(true)
}

fn receive_on(processors: &[usize], side: Side) -> Result<()> {
    if side == Side::Server {
        // /sys shows h1's devices, in whose namespace it was mounted.
        unshare(CloneFlags::CLONE_NEWNS).context("making a mount namespace")?;
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .context("making mounts private")?;
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none).context("mounting /sys")?;
    }
    let queues = Path::new("/sys/class/net").join(INTERFACE).join("queues");
    for entry in fs::read_dir(&queues).with_context(|| format!("reading {}", queues.display()))? {
        let path = entry?.path().join("rps_cpus");
        if path.exists() {
            fs::write(&path, mask(processors)).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

/// Processors as the kernel's masks are written: groups of 32 bits, the highest first.
fn mask(processors: &[usize]) -> String {
    let highest = processors.iter().copied().max().unwrap_or(0);
    let mut groups = vec![0_u32; highest / 32 + 1];
    for &number in processors {
        groups[number / 32] |= 1 << (number % 32);
    }
    let groups: Vec<String> = groups.iter().rev().map(|group| format!("{group:08x}")).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_the_kernels() {
        assert_eq!(mask(&[1]), "00000002");
        assert_eq!(mask(&[0, 33]), "00000002,00000001");
    }
}
