//! The Diamond DAG of Moritz and Frank 2001, 5.2: a table in which each value depends on its neighbors below and to the left,
//! as when two chains of DNA are compared.
//!
//! Model. The table is cut into one stripe per process and each stripe into blocks. A process takes the upper row of the block
//! below, computes its own, and sends its upper row on, block after block. As in the [remap](super::remap) a processor is
//! waited for, not burnt: W for a block, O_s = o_s + (B - 1) G for a send, O_r = (B - 1 - a) G for what is received.
//!
//! The table is small and its values are real: the last one is compared with that of one process alone. A message has B bytes,
//! whatever the row takes of them, as in the paper's experiment.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{MsgFlags, recv};
use perturb_stats::SplitMix64;

use super::{
    Outcome, PatternError,
    remap::{INTERRUPT, Mapping, PART, endpoint},
};
use crate::mesh::{MeshError, PATIENCE, Process, socket};

/// A Diamond DAG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diamond {
    /// Which process has which stripe.
    pub mapping: Mapping,
    /// Hosts along the mesh's first dimension: in the perfect mapping the next stripe is on a neighbor.
    pub row: usize,
    /// b: blocks of a stripe.
    pub blocks: u32,
    /// B: bytes of a message, at least [`LEAST`].
    pub message: u64,
    /// W: computing a block.
    pub work: Duration,
    /// o_s.
    pub send: Duration,
    /// G.
    pub per_byte: Duration,
    /// Of the random mapping.
    pub seed: u64,
}

/// Port of all processes.
const PORT: u16 = 7704;
/// Rows of a stripe, and columns of a block.
const ROWS: usize = 4;
const COLUMNS: usize = 8;
/// Block and part, in front of a datagram's values.
const HEADER: usize = 8;
/// Bytes that a message needs for its values.
pub const LEAST: u64 = (HEADER + 8 * COLUMNS) as u64;

/// One value from those below, to the left, and between.
fn value(below: u64, left: u64, corner: u64, column: u64, row: u64) -> u64 {
    let own = (column << 32) ^ row;
    below.wrapping_mul(3) ^ left.wrapping_mul(5) ^ corner ^ own
}

/// What a stripe keeps from one block to the next: its column to the left, from the row below it upward.
struct Stripe {
    number: usize,
    left: [u64; ROWS + 1],
}

impl Stripe {
    fn new(number: usize) -> Self {
        Self {
            number,
            left: [1; ROWS + 1],
        }
    }

    /// The block's upper row, from the row below it.
    fn block(&mut self, block: u32, below: [u64; COLUMNS]) -> [u64; COLUMNS] {
        let mut upper = [0; COLUMNS];
        for (place, below) in below.into_iter().enumerate() {
            let column = (block as usize * COLUMNS + place) as u64;
            let mut own = [below; ROWS + 1];
            for row in 1..=ROWS {
                let number = (self.number * ROWS + row) as u64;
                own[row] = value(own[row - 1], self.left[row], self.left[row - 1], column, number);
            }
            (self.left, upper[place]) = (own, own[ROWS]);
        }
        upper
    }
}

/// Below the first stripe.
const FLOOR: [u64; COLUMNS] = [1; COLUMNS];

impl Diamond {
    /// Which process has the stripes, from the first to the last.
    fn owners(&self, size: usize) -> Vec<usize> {
        let mut owners: Vec<usize> = (0..size).collect();
        match self.mapping {
            Mapping::Random => SplitMix64::new(self.seed).shuffle(&mut owners),
            Mapping::Linear => {}
            // Every other row backwards.
            Mapping::Perfect => {
                for row in owners.chunks_mut(self.row.max(1)).skip(1).step_by(2) {
                    row.reverse();
                }
            }
        }
        owners
    }

    /// The last value of all.
    fn answer(&self, size: usize) -> u64 {
        let mut stripes: Vec<Stripe> = (0..size).map(Stripe::new).collect();
        let mut last = FLOOR;
        for block in 0..self.blocks {
            last = FLOOR;
            for stripe in &mut stripes {
                last = stripe.block(block, last);
            }
        }
        last[COLUMNS - 1]
    }

    fn parts(&self) -> u64 {
        self.message.div_ceil(PART)
    }

    /// G for so many bytes.
    fn transfer(&self, bytes: u64) -> Duration {
        self.per_byte
            .saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// Takes a block's row: with when its first and its last part were there, if they were waited for.
    fn receive(
        &self,
        endpoint: &UdpSocket,
        block: u32,
        from: usize,
    ) -> Result<([u64; COLUMNS], [Option<Instant>; 2]), PatternError> {
        let misplaced = PatternError::Misplaced { from, number: block };
        let mut row = None;
        let mut arrivals = [None; 2];
        let mut datagram = [0; PART as usize];
        for part in 0..self.parts() as u32 {
            let waited = match recv(endpoint.as_raw_fd(), &mut datagram, MsgFlags::MSG_DONTWAIT) {
                Ok(_) => false,
                Err(_) => {
                    let came = endpoint.recv(&mut datagram);
                    came.map_err(|_| MeshError::Silence)?;
                    true
                }
            };
            arrivals[usize::from(part > 0)] = waited.then(Instant::now);
            let word = |at: usize| {
                let bytes: [u8; 8] = datagram[at..at + 8].try_into().unwrap_or_default();
                u64::from_le_bytes(bytes)
            };
            if word(0) != (u64::from(block) << 32) | u64::from(part) {
                return Err(misplaced);
            }
            if part == 0 {
                row = Some(std::array::from_fn(|place| word(HEADER + 8 * place)));
            }
        }
        row.map(|row| (row, arrivals)).ok_or(misplaced)
    }

    /// Sends a block's row from `start` on; when its last byte has left.
    fn send(
        &self,
        endpoint: &UdpSocket,
        to: SocketAddr,
        block: u32,
        row: [u64; COLUMNS],
        start: Instant,
    ) -> Result<Instant, PatternError> {
        for part in 0..self.parts() {
            let before = part * PART;
            until(start + self.transfer(before));
            let mut datagram = vec![0; (self.message - before).clamp(HEADER as u64, PART) as usize];
            datagram[..8].copy_from_slice(&((u64::from(block) << 32) | part).to_le_bytes());
            if part == 0 {
                for (place, value) in row.into_iter().enumerate() {
                    let at = HEADER + 8 * place;
                    datagram[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
            }
            socket("sending", endpoint.send_to(&datagram, to))?;
        }
        Ok(start + self.transfer(self.message - 1))
    }
}

/// Runs process `rank` of a Diamond DAG between hosts with these addresses.
pub(super) fn run(dag: &Diamond, rank: usize, addresses: &[IpAddr]) -> Result<Outcome, PatternError> {
    let owners = dag.owners(addresses.len());
    let number = owners.iter().position(|owner| *owner == rank).unwrap_or(0);
    let endpoint = endpoint(SocketAddr::new(addresses[rank], PORT), PATIENCE)?;
    let next = owners
        .get(number + 1)
        .map(|owner| SocketAddr::new(addresses[*owner], PORT));
    let before = number.checked_sub(1).map(|number| owners[number]);
    Process::connect(rank, addresses, 0)?.run(|mesh| {
        mesh.barrier()?;
        let start = Instant::now();
        let mut at = start;
        let mut stripe = Stripe::new(number);
        let mut last = FLOOR;
        for block in 0..dag.blocks {
            let mut below = FLOOR;
            if let Some(from) = before {
                // It is taken while it arrives, and not before its end is there.
                let (row, [first, last]) = dag.receive(&endpoint, block, from)?;
                at = first.map_or(at, |first| at.max(first));
                at += dag.transfer(dag.message.saturating_sub(1 + INTERRUPT));
                at = last.map_or(at, |last| at.max(last));
                below = row;
            }
            last = stripe.block(block, below);
            at += dag.work;
            until(at);
            if let Some(next) = next {
                at = dag.send(&endpoint, next, block, last, at + dag.send)?;
            }
        }
        until(at);
        if next.is_none() && last[COLUMNS - 1] != dag.answer(addresses.len()) {
            return Err(PatternError::Misplaced {
                from: rank,
                number: dag.blocks,
            });
        }
        mesh.barrier()?;
        Ok(Outcome {
            run_time_s: start.elapsed().as_secs_f64(),
            messages: if next.is_some() { dag.blocks.into() } else { 0 },
            remap: None,
        })
    })
}

fn until(time: Instant) {
    thread::sleep(time.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::on_loopback;

    const SMALL: Diamond = Diamond {
        mapping: Mapping::Perfect,
        row: 2,
        blocks: 6,
        message: 600,
        work: Duration::from_millis(2),
        send: Duration::from_micros(100),
        per_byte: Duration::from_micros(1),
        seed: 3,
    };

    fn all(dag: Diamond) -> f64 {
        on_loopback(4, |rank, addresses| {
            run(&dag, rank, addresses).unwrap().run_time_s
        })
        .into_iter()
        .fold(0.0, f64::max)
    }

    #[test]
    fn the_last_value_is_that_of_one_process() {
        for mapping in [Mapping::Random, Mapping::Linear, Mapping::Perfect] {
            let time = all(Diamond { mapping, ..SMALL });
            // The last of four stripes begins when three blocks are done, and computes six: (15) without messages.
            assert!(time >= 0.018, "{mapping:?}: {time}");
        }
        let mut one = Stripe::new(0);
        let first = one.block(0, FLOOR);
        assert_ne!(first, one.block(1, FLOOR));
    }

    #[test]
    fn perfect_stripes_are_neighbors_and_all_have_one() {
        let dag = Diamond { row: 4, ..SMALL };
        let owners = dag.owners(16);
        assert_eq!(owners[..9], [0, 1, 2, 3, 7, 6, 5, 4, 8]);
        for pair in owners.windows(2) {
            let place = |host: usize| (host % 4, host / 4);
            let ((x, y), (to_x, to_y)) = (place(pair[0]), place(pair[1]));
            assert_eq!(x.abs_diff(to_x) + y.abs_diff(to_y), 1);
        }
        let mut random = Diamond {
            mapping: Mapping::Random,
            ..dag
        }
        .owners(16);
        assert_ne!(random, dag.owners(16));
        random.sort_unstable();
        assert_eq!(random, (0..16).collect::<Vec<_>>());
    }
}
