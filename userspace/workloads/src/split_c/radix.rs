//! Radix: 32-bit keys sorted by one digit after another, the least significant first.
//!
//! Three phases for each digit: each process counts its own keys; the counts pass from process to process, each adding
//! its own, and the sums come round; each key is written to its place. In bulk (Radb), a process sends all keys for
//! another one together, with their places.
//! The thesis has digits of 16 bits, for a million keys in each process; they would outweigh the few keys here.

use std::time::Duration;

use super::{Blocks, Parallel, Part, SplitCError, draw};
use crate::mesh::{LONGEST, MeshError, Process};

/// The sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Radix {
    /// How many keys.
    pub keys: usize,
    /// Bits of a digit: 1 to 16.
    pub digit: u32,
    /// Keys are sent in bulk.
    pub bulk: bool,
    /// Where the keys come from.
    pub seed: u64,
}

/// Key number `index`.
pub(super) fn key(seed: u64, index: usize) -> u64 {
    draw(seed, index).bits() >> 32
}

impl Radix {
    fn blocks(&self, size: usize) -> Blocks {
        let total = self.keys;
        Blocks { total, size }
    }
}

impl Parallel for Radix {
    type Input = Blocks;

    fn name(&self) -> &'static str {
        if self.bulk { "radb" } else { "radix" }
    }

    fn words(&self, size: usize) -> usize {
        2 * self.blocks(size).most()
    }

    fn values(&self) -> u64 {
        self.keys as u64
    }

    fn prepare(&self, process: &mut Process) -> Result<Blocks, SplitCError> {
        let blocks = self.blocks(process.size()).enough(1, "keys")?;
        for (at, index) in blocks.range(process.rank()).enumerate() {
            process.store(at, key(self.seed, index));
        }
        Ok(blocks)
    }

    fn compute(&self, process: &mut Process, &mut blocks: &mut Blocks) -> Result<Part, SplitCError> {
        let own = blocks.range(process.rank());
        let (mut from, mut to) = (0, blocks.most());
        for shift in (0..32).step_by(self.digit as usize) {
            let digit = |key: u64| (key >> shift) as usize & ((1 << self.digit) - 1);
            let keys = process.loads(from, own.len());
            let mut counts = vec![0; 1 << self.digit];
            for key in &keys {
                counts[digit(*key)] += 1;
            }
            let mut places = places(process, &counts)?;
            if self.bulk {
                // Counts and keys are both posted: nobody shall take the ones for the others.
                process.barrier()?;
            }
            let mut parcels = vec![Vec::new(); process.size()];
            for key in keys {
                let place = &mut places[digit(key)];
                let (owner, at) = blocks.place(*place as usize);
                *place += 1;
                if self.bulk && owner != process.rank() {
                    parcels[owner].extend(((at as u64) << 32 | key).to_le_bytes());
                } else {
                    process.write(owner, to + at, key)?;
                }
            }
            for (owner, parcel) in parcels.iter().enumerate() {
                for message in parcel.chunks(LONGEST) {
                    process.post(owner, message)?;
                }
            }
            process.settle()?;
            if self.bulk {
                while let Some((_, parcel)) = process.posted(Duration::ZERO)? {
                    for word in parcel.as_chunks().0 {
                        let word = u64::from_le_bytes(*word);
                        process.store(to + (word >> 32) as usize, word & u64::from(u32::MAX));
                    }
                }
                process.barrier()?;
            }
            (from, to) = (to, from);
        }
        Ok(Part {
            first: own.start,
            values: process.loads(from, own.len()),
        })
    }

    fn check(&self, _: usize, part: &Part) -> Result<(), String> {
        let mut keys: Vec<u64> = (0..self.keys).map(|index| key(self.seed, index)).collect();
        keys.sort_unstable();
        part.equals(&keys, |key| key)
    }
}

/// Where this process' first key with each digit belongs.
fn places(process: &mut Process, counts: &[u64]) -> Result<Vec<u64>, MeshError> {
    let (rank, last) = (process.rank(), process.size() - 1);
    let next = if rank == last { 0 } else { rank + 1 };
    // All that comes is of the process before, in order.
    let word = |process: &mut Process| {
        let (_, payload) = process.awaited()?;
        let word = payload.first_chunk().copied().unwrap_or_default();
        Ok::<_, MeshError>(u64::from_le_bytes(word))
    };
    let (mut before, mut sums) = (Vec::new(), Vec::new());
    for count in counts {
        before.push(if rank > 0 { word(process)? } else { 0 });
        let sum = before.last().copied().unwrap_or_default() + count;
        sums.push(sum);
        if rank < last {
            process.post(next, &sum.to_le_bytes())?;
        }
    }
    if last > 0 {
        for sum in &mut sums {
            if rank < last {
                *sum = word(process)?;
            }
            if next != last {
                process.post(next, &sum.to_le_bytes())?;
            }
        }
    }
    let mut start = 0;
    let places = before.into_iter().zip(sums).map(|(before, sum)| {
        let place = start + before;
        start += sum;
        place
    });
    Ok(places.collect())
}
