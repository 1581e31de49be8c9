//! Collective operations as messages.
//!
//! **Model.** The algorithms that MPI libraries choose for few processes (Thakur, Rabenseifner and Gropp 2005;
//! Open MPI's `tuned` component): dissemination, binomial trees, recursive doubling, rings, pairwise exchange.
//! A step that sends and receives sends first. Sizes of 0 are messages, too.
//!
//! **What it lacks:** pipelining of large broadcasts and reductions, and every library's own choices beyond
//! those sizes.

use crate::record::Collective;

/// From this many bytes on, all-to-all exchanges go one partner at a time (seen with Open MPI 4.1, four processes:
/// at 8 KiB the messages still overlap).
const PAIRWISE: u64 = 65_536;
/// From this many bytes on, a vector is reduced in pieces.
const PIECES: u64 = 10_000;
/// From this many bytes on in all, blocks are gathered by a ring.
const RING: u64 = 50_000;

/// What one process does in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Sends so many bytes to a rank of the communicator.
    Send(u32, u64),
    /// Waits for the next message from a rank.
    Receive(u32),
}

/// One collective as one of its processes sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) which: Collective,
    /// This process's rank in the communicator.
    pub(super) me: u32,
    /// Processes in it.
    pub(super) size: u32,
    /// The root, where there is one.
    pub(super) root: u32,
    /// As the record gives them.
    pub(super) bytes: u64,
    /// Bytes for each, where they differ.
    pub(super) sizes: &'a [u32],
}

impl View<'_> {
    /// The steps in order.
    pub(super) fn steps(&self) -> Vec<Move> {
        let mut steps = Vec::new();
        if self.size < 2 || self.me >= self.size || self.root >= self.size {
            return steps;
        }
        match self.which {
            Collective::Barrier => self.disseminate(&mut steps),
            Collective::Broadcast => self.down(&mut steps),
            Collective::Reduce => self.up(&mut steps),
            Collective::AllReduce if self.bytes < PIECES => self.double(&mut steps),
            Collective::AllReduce => self.ring(&mut steps, self.bytes / u64::from(self.size), 2),
            Collective::Gather => self.gather(&mut steps),
            Collective::Scatter => self.scatter(&mut steps),
            Collective::AllGather if self.bytes.saturating_mul(self.size.into()) < RING => {
                self.concatenate(&mut steps);
            }
            Collective::AllGather => self.ring(&mut steps, self.bytes, 1),
            Collective::AllToAll => self.exchange(&mut steps),
            Collective::ReduceScatter => self.ring(&mut steps, self.bytes / u64::from(self.size), 1),
            Collective::Scan => self.chain(&mut steps),
        }
        steps
    }

    /// The rank that is `distance` further, around the end.
    fn after(&self, distance: u32) -> u32 {
        (self.me + distance) % self.size
    }

    fn before(&self, distance: u32) -> u32 {
        (self.me + self.size - distance) % self.size
    }

    /// Powers of two below the size.
    fn distances(&self) -> impl Iterator<Item = u32> + use<> {
        let size = self.size;
        (0..32)
            .map(|bit| 1 << bit)
            .take_while(move |distance| *distance < size)
    }

    fn disseminate(&self, steps: &mut Vec<Move>) {
        for distance in self.distances() {
            steps.push(Move::Send(self.after(distance), 0));
            steps.push(Move::Receive(self.before(distance)));
        }
    }

    /// Bruck's: blocks double.
    fn concatenate(&self, steps: &mut Vec<Move>) {
        for distance in self.distances() {
            let blocks = distance.min(self.size - distance);
            steps.push(Move::Send(self.before(distance), self.bytes * u64::from(blocks)));
            steps.push(Move::Receive(self.after(distance)));
        }
    }

    /// A binomial tree from the root.
    fn down(&self, steps: &mut Vec<Move>) {
        let place = self.before(self.root);
        let parent = place & place.wrapping_sub(1);
        let reach = if place == 0 {
            self.size.next_power_of_two()
        } else {
            place & place.wrapping_neg()
        };
        let rank = |place: u32| (place + self.root) % self.size;
        if place != 0 {
            steps.push(Move::Receive(rank(parent)));
        }
        let mut distance = reach >> 1;
        while distance > 0 {
            if place + distance < self.size {
                steps.push(Move::Send(rank(place + distance), self.bytes));
            }
            distance >>= 1;
        }
    }

    /// The same tree to the root.
    fn up(&self, steps: &mut Vec<Move>) {
        let mut down = Vec::new();
        self.down(&mut down);
        steps.extend(down.into_iter().rev().map(|step| match step {
            Move::Send(to, _) => Move::Receive(to),
            Move::Receive(from) => Move::Send(from, self.bytes),
        }));
    }

    /// Recursive doubling; what exceeds a power of two first gives its part to a neighbor.
    fn double(&self, steps: &mut Vec<Move>) {
        let power = 1 << self.size.ilog2();
        let extra = self.size - power;
        // Of the first 2 extra ranks the even ones stand aside.
        let aside = self.me < 2 * extra && self.me.is_multiple_of(2);
        if aside {
            steps.push(Move::Send(self.me + 1, self.bytes));
            steps.push(Move::Receive(self.me + 1));
            return;
        }
        if self.me < 2 * extra {
            steps.push(Move::Receive(self.me - 1));
        }
        let place = if self.me < 2 * extra {
            self.me / 2
        } else {
            self.me - extra
        };
        let rank = |place: u32| {
            if place < extra {
                2 * place + 1
            } else {
                place + extra
            }
        };
        let mut distance = 1;
        while distance < power {
            let partner = rank(place ^ distance);
            steps.push(Move::Send(partner, self.bytes));
            steps.push(Move::Receive(partner));
            distance <<= 1;
        }
        if self.me < 2 * extra {
            steps.push(Move::Send(self.me - 1, self.bytes));
        }
    }

    fn ring(&self, steps: &mut Vec<Move>, piece: u64, rounds: u32) {
        for _ in 0..rounds * (self.size - 1) {
            steps.push(Move::Send(self.after(1), piece));
            steps.push(Move::Receive(self.before(1)));
        }
    }

    fn gather(&self, steps: &mut Vec<Move>) {
        if self.me == self.root {
            steps.extend((1..self.size).map(|distance| Move::Receive(self.after(distance))));
        } else {
            steps.push(Move::Send(self.root, self.bytes));
        }
    }

    fn scatter(&self, steps: &mut Vec<Move>) {
        if self.me == self.root {
            for distance in 1..self.size {
                let to = self.after(distance);
                steps.push(Move::Send(to, self.size_for(to)));
            }
        } else {
            steps.push(Move::Receive(self.root));
        }
    }

    fn size_for(&self, rank: u32) -> u64 {
        self.sizes
            .get(rank as usize)
            .map_or(self.bytes, |size| u64::from(*size))
    }

    fn exchange(&self, steps: &mut Vec<Move>) {
        // With sizes the processes do not know each other's, so that all must choose alike.
        let pairwise = self.sizes.is_empty() && self.bytes >= PAIRWISE;
        for distance in 1..self.size {
            let to = self.after(distance);
            steps.push(Move::Send(to, self.size_for(to)));
            if pairwise {
                steps.push(Move::Receive(self.before(distance)));
            }
        }
        if !pairwise {
            steps.extend((1..self.size).map(|distance| Move::Receive(self.before(distance))));
        }
    }

    fn chain(&self, steps: &mut Vec<Move>) {
        if self.me > 0 {
            steps.push(Move::Receive(self.me - 1));
        }
        if self.me + 1 < self.size {
            steps.push(Move::Send(self.me + 1, self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Runs all processes until none can go on; whether all have ended and no message is left.
    fn completes(which: Collective, size: u32, root: u32, bytes: u64) -> bool {
        let mut programs: Vec<std::vec::IntoIter<Move>> = (0..size)
            .map(|me| {
                let view = View {
                    which,
                    me,
                    size,
                    root,
                    bytes,
                    sizes: &[],
                };
                view.steps().into_iter()
            })
            .collect();
        let mut mail: HashMap<(u32, u32), u32> = HashMap::new();
        loop {
            let mut moved = false;
            for me in 0..size {
                while let Some(&step) = programs[me as usize].as_slice().first() {
                    match step {
                        Move::Send(to, _) => *mail.entry((me, to)).or_default() += 1,
                        Move::Receive(from) => match mail.get_mut(&(from, me)) {
                            Some(count) if *count > 0 => *count -= 1,
                            _ => break,
                        },
                    }
                    programs[me as usize].next();
                    moved = true;
                }
            }
            if !moved {
                return programs.iter().all(|rest| rest.as_slice().is_empty())
                    && mail.values().all(|count| *count == 0);
            }
        }
    }

    #[test]
    fn every_message_that_is_sent_is_received() {
        for which in Collective::ALL {
            for size in 1..=17 {
                for root in 0..size {
                    for bytes in [0, 100, 4000, 20_000, 1 << 20] {
                        assert!(
                            completes(which, size, root, bytes),
                            "{which:?} {size} {root} {bytes}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_broadcast_reaches_everyone_once() {
        for size in 2..=9 {
            let mut received = 0;
            for me in 0..size {
                let view = View {
                    which: Collective::Broadcast,
                    me,
                    size,
                    root: 1,
                    bytes: 8,
                    sizes: &[],
                };
                received += view
                    .steps()
                    .iter()
                    .filter(|step| matches!(step, Move::Receive(_)))
                    .count() as u32;
            }
            assert_eq!(received, size - 1);
        }
    }

    #[test]
    fn sizes_by_destination() {
        let view = View {
            which: Collective::AllToAll,
            me: 0,
            size: 3,
            root: 0,
            bytes: 30,
            sizes: &[0, 10, 20],
        };
        assert_eq!(
            view.steps(),
            [
                Move::Send(1, 10),
                Move::Send(2, 20),
                Move::Receive(2),
                Move::Receive(1)
            ]
        );
    }
}
