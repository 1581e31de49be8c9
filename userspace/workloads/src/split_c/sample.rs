//! Sample: 32-bit keys sorted by splitters, which a sample gives.
//!
//! Each process draws some of its keys; the first one sorts the samples and tells all the splitters between processes.
//! Then each key goes to the process to which it belongs, in a message of its own, and each sorts what came. Processes
//! may get different numbers of keys.

use std::time::Duration;

use super::{Blocks, Parallel, Part, SplitCError, draw, radix::key};
use crate::mesh::Process;

/// The sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How many keys.
    pub keys: usize,
    /// Keys that each process draws.
    pub samples: usize,
    /// Where keys and samples come from.
    pub seed: u64,
}

impl Parallel for Sample {
    type Input = Vec<u64>;

    fn name(&self) -> &'static str {
        "sample"
    }

    fn words(&self, size: usize) -> usize {
        size + size * self.samples
    }

    fn values(&self) -> u64 {
        self.keys as u64
    }

    fn prepare(&self, process: &mut Process) -> Result<Vec<u64>, SplitCError> {
        let (total, size) = (self.keys, process.size());
        let blocks = Blocks { total, size }.enough(1, "keys")?;
        let own = blocks.range(process.rank());
        Ok(own.map(|index| key(self.seed, index)).collect())
    }

    fn compute(&self, process: &mut Process, keys: &mut Vec<u64>) -> Result<Part, SplitCError> {
        let (rank, size) = (process.rank(), process.size());
        let mut random = draw(!self.seed, rank);
        for sample in 0..self.samples {
            let key = keys[random.below(keys.len() as u64) as usize];
            process.write(0, size + rank * self.samples + sample, key)?;
        }
        process.settle()?;
        if rank == 0 {
            let mut samples = process.loads(size, size * self.samples);
            samples.sort_unstable();
            for splitter in 1..size {
                let value = samples[splitter * self.samples];
                for peer in 0..size {
                    process.write(peer, splitter, value)?;
                }
            }
        }
        process.settle()?;
        let splitters = process.loads(1, size - 1);
        let mut own = Vec::new();
        for key in keys.iter().copied() {
            let owner = splitters.partition_point(|splitter| *splitter <= key);
            if owner == rank {
                own.push(key);
            } else {
                process.post(owner, &key.to_le_bytes())?;
            }
        }
        process.settle()?;
        while let Some((_, payload)) = process.posted(Duration::ZERO)? {
            own.extend(payload.as_chunks().0.iter().map(|key| u64::from_le_bytes(*key)));
        }
        own.sort_unstable();
        let counts = process.gather(own.len() as u64)?;
        Ok(Part {
            first: counts[..rank].iter().sum::<u64>() as usize,
            values: own,
        })
    }

    fn check(&self, _: usize, part: &Part) -> Result<(), String> {
        let mut keys: Vec<u64> = (0..self.keys).map(|index| key(self.seed, index)).collect();
        keys.sort_unstable();
        part.equals(&keys, |key| key)
    }
}
