//! Who sends to whom.

use perturb_stats::SplitMix64;

use super::Remap;

/// To whom a process sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// To any other process, drawn for each message.
    Random,
    /// Process p to p + 1, p + 2, … modulo their number.
    Linear,
    /// To its neighbor in number, 0 and 1, 2 and 3, …: no channel of a mesh is shared.
    Perfect,
}

impl Remap {
    /// To whom process `from` of `size` sends its message of this number; none if it has no neighbor.
    pub(super) fn destination(&self, from: usize, number: u32, size: usize) -> Option<usize> {
        let others = size as u64 - 1;
        let beyond = match self.mapping {
            Mapping::Random => {
                let draws = ((from as u64) << 32) | u64::from(number);
                let mut draw = SplitMix64::new(SplitMix64::new(self.seed).bits() ^ draws);
                match self.span.map(u64::from).filter(|span| 2 * span < others) {
                    Some(span) => {
                        let place = draw.below(2 * span);
                        // Those before it are the last ones beyond.
                        if place < span {
                            place
                        } else {
                            others - 1 - (place - span)
                        }
                    }
                    None => draw.below(others),
                }
            }
            Mapping::Linear => u64::from(number) % others,
            Mapping::Perfect => return Some(from ^ 1).filter(|neighbor| *neighbor < size),
        };
        Some((from + 1 + beyond as usize) % size)
    }
}
