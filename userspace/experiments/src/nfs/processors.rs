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

/// The processors that this process may run on: what private hosts of it share.
pub(super) fn usable() -> Result<Vec<usize>> {
    let all = sched_getaffinity(Pid::from_raw(0)).context("asking for the processors")?;
    Ok((0..CpuSet::count())
        .filter(|&number| all.is_set(number).unwrap_or(false))
        .collect())
}

/// Keeps this process, and the reception of its host's packets, on the host's share of the processors; the server's process
/// is started by the client's, which keeps to its own. To be called before threads are started. Whether there were enough to
/// share.
pub(super) fn keep_to_own(side: Side, processors: &[usize]) -> Result<bool> {
    let own = share(side, processors);
    if own.is_empty() {
        return Ok(false);
    }
    let mut set = CpuSet::new();
    for &number in own {
        set.set(number).context("choosing processors")?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).context("keeping to processors")?;
    let numbers: Vec<u32> = own.iter().filter_map(|&number| number.try_into().ok()).collect();
    receive_on(&numbers)?;
    Ok(true)
}

/// A host's part; none where there are too few.
fn share(side: Side, processors: &[usize]) -> &[usize] {
    if processors.len() < 2 {
        return &[];
    }
    let (client, server) = processors.split_at(processors.len() / 2);
    match side {
        Side::Client => client,
        Side::Server => server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_no_processor_in_common() {
        let parts =
            |processors: &[usize]| [Side::Client, Side::Server].map(|side| share(side, processors).to_vec());
        assert_eq!(parts(&[0, 3]), [[0], [3]]);
        assert_eq!(parts(&[1, 2, 5]), [vec![1], vec![2, 5]]);
        assert!(parts(&[4]).concat().is_empty());
    }
}
