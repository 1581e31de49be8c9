//! Reads and writes over TCP, whose number is known.

use std::{net::IpAddr, time::Instant};

use perturb_stats::SplitMix64;

use super::Outcome;
use crate::mesh::{MeshError, Process};

/// What each process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// Reads so many values of others, one after another.
    Reads(u64),
    /// Writes so many values to others, without waiting.
    Writes(u64),
    /// Rounds in which it writes so many bytes to each other process, each with a barrier.
    Bulk {
        /// How many rounds.
        rounds: u64,
        /// Bytes to each other process in a round.
        bytes: u64,
    },
}

/// Words of a value.
const VALUE: usize = 4;
/// Words that are written at once in bulk.
const BULK: usize = 2 << 10;

/// Runs process `rank` of those on hosts with these addresses.
pub(super) fn run(plain: Plain, rank: usize, addresses: &[IpAddr]) -> Result<Outcome, MeshError> {
    Process::connect(rank, addresses, BULK)?.run(|process| {
        process.barrier()?;
        let before = process.traffic().messages;
        let start = Instant::now();
        execute(plain, process)?;
        process.barrier()?;
        Ok(Outcome {
            run_time_s: start.elapsed().as_secs_f64(),
            messages: process.traffic().messages - before,
            remap: None,
        })
    })
}

fn execute(plain: Plain, process: &mut Process) -> Result<(), MeshError> {
    let mut random = SplitMix64::new(process.rank() as u64 + 1);
    let others: Vec<usize> = process.others().collect();
    let mut any = || others[random.below(others.len() as u64) as usize];
    match plain {
        Plain::Reads(count) => (0..count).try_for_each(|_| process.read_words(any(), 0, VALUE).map(|_| ())),
        Plain::Writes(count) => {
            (0..count).try_for_each(|_| process.write_words(any(), 0, &[0; VALUE]))?;
            process.fence()
        }
        Plain::Bulk { rounds, bytes } => (0..rounds).try_for_each(|_| {
            let words = (bytes as usize).div_ceil(8);
            for peer in &others {
                for start in (0..words).step_by(BULK) {
                    process.write_words(*peer, 0, &[0; BULK][..BULK.min(words - start)])?;
                }
            }
            process.settle()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::on_loopback;

    #[test]
    fn processes_send_what_they_are_told_to() {
        // Besides there are fences of its own; answers to others may come after it has counted.
        let least = |plain, processes, messages: u64| {
            let outcomes = on_loopback(processes, |rank, addresses| run(plain, rank, addresses).unwrap());
            assert!(
                outcomes.iter().all(|outcome| outcome.messages >= messages),
                "{outcomes:?}"
            );
        };
        least(Plain::Reads(40), 2, 40);
        least(Plain::Writes(40), 3, 40 + 2);
        let (rounds, bytes) = (2, 100_000);
        least(Plain::Bulk { rounds, bytes }, 2, 2 * (25 + 1));
    }
}
