//! Processors of private hosts.
//!
//! Model: private hosts are namespaces of one machine, so that any processor may run either, and a packet is received
//! on the processor that has sent it. With a burnt service time, as with overhead, it matters whose time is
//! taken: the machine's processors are parted, h1's process runs on the first half and h2's on the second, and the
//! kernel is told (receive packet steering, `rps_cpus`) to receive each host's packets there. What is lacking: a
//! machine with one processor cannot be parted.

use anyhow::{Context as _, Result};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use perturb_emulator::lab::receive_on;

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
    let numbers: Vec<u32> = own.iter().filter_map(|&number| number.try_into().ok()).collect();
    receive_on(&numbers)?;
    Ok(true)
}
