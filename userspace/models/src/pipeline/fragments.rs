//! The delay of a message at a fragment size, and the size with the least delay.

use serde::Serialize;

use super::StageCost;

/// Largest message: whole bytes that a double still tells apart.
pub(super) const MAX_BYTES: u64 = 1 << 50;

/// Sizes up to this are tried one by one, larger ones by the number of fragments they give.
const EXHAUSTIVE: u64 = 1 << 20;

/// A message cut into fragments of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cut {
    /// Size of all fragments but the last.
    pub fragment_bytes: u64,
    /// Number of fragments.
    pub fragment_count: u64,
    /// From the first stage's start to the last stage's end.
    pub delay_us: f64,
    /// Message size over delay.
    #[serde(rename = "bandwidth_MB_s")]
    pub bandwidth_mb_s: f64,
}

/// The best cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// Size of the fragments.
    pub fragment_bytes: u64,
    /// Delay of the message.
    pub delay_us: f64,
}

/// The delay of `message` bytes in fragments of `fragment` bytes, both at least 1.
///
/// The recursion of the module has a closed form for equal fragments: after `k` of them stage `i` is
/// free at `sum(t_0..=t_i) + (k - 1) max(t_0..=t_i)`. So the time is proportional to the number of
/// stages, not of fragments.
#[must_use]
pub fn delay(stages: &[StageCost], message: u64, fragment: u64) -> Cut {
    let count = message.div_ceil(fragment).max(1);
    let last = message - (count - 1) * fragment;
    let (mut sum, mut slowest, mut leaves) = (0.0_f64, 0.0_f64, 0.0_f64);
    for stage in stages {
        let free = if count > 1 {
            let full = stage.holds(fragment);
            sum += full;
            slowest = slowest.max(full);
            sum + (count - 2) as f64 * slowest
        } else {
            0.0
        };
        leaves = leaves.max(free) + stage.holds(last);
    }
    Cut {
        fragment_bytes: fragment,
        fragment_count: count,
        delay_us: leaves,
        bandwidth_mb_s: message as f64 / leaves,
    }
}

/// Time that a stage works on the whole message.
pub(super) fn busy(stage: &StageCost, message: u64, fragment: u64) -> f64 {
    message.div_ceil(fragment) as f64 * stage.occupancy + message as f64 * stage.per_byte
}

/// The fragment size of at least `smallest` bytes with the least delay; the largest of several.
///
/// Every size up to 1 MiB is tried, and beyond that the smallest size for each number of fragments.
/// The delay is not convex in the size: a size that leaves a small last fragment can beat an even
/// cut when the last stages are fast. So only messages above 1 MiB can miss the exact optimum, by
/// less than the time of one last fragment.
#[must_use]
pub fn best_fragment(stages: &[StageCost], message: u64, smallest: u64) -> Best {
    let mut best = Best {
        fragment_bytes: message,
        delay_us: delay(stages, message, message).delay_us,
    };
    let mut consider = |fragment: u64| {
        let delay_us = delay(stages, message, fragment).delay_us;
        if delay_us < best.delay_us {
            best = Best {
                fragment_bytes: fragment,
                delay_us,
            };
        }
    };
    (2..EXHAUSTIVE)
        .map(|count| message.div_ceil(count))
        .take_while(|&fragment| fragment > EXHAUSTIVE && fragment >= smallest)
        .for_each(&mut consider);
    (smallest.max(1)..=message.min(EXHAUSTIVE))
        .rev()
        .for_each(consider);
    best
}
