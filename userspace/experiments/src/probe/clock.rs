//! The clocks ([`perturb_clock`]), what reading them costs, and computations of known length.

pub(crate) use perturb_clock::{Priority, now, set_priority, sleep_until, spin_until, stolen_share, wall};

/// What reading the clock costs: the median of many pairs of readings, nanoseconds. Every interval that is measured
/// contains one reading.
#[must_use]
pub(crate) fn cost() -> u64 {
    let mut pairs: Vec<u64> = (0..1001)
        .map(|_| {
            let first = now();
            now() - first
        })
        .collect();
    pairs.sort_unstable();
    pairs[pairs.len() / 2]
}

/// A computation of a known length: work, not waiting, so that whatever interrupts it makes it longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    rounds_per_us: f64,
}

impl Work {
    /// Finds out how fast this processor works: the best of several trials, as others can only make one slower.
    #[must_use]
    pub fn learn() -> Self {
        const ROUNDS: u64 = 50_000;
        let best = (0..20)
            .map(|_| {
                let start = now();
                rounds(ROUNDS);
                now() - start
            })
            .min();
        Self {
            rounds_per_us: ROUNDS as f64 * 1e3 / best.unwrap_or(1).max(1) as f64,
        }
    }

    /// Computes for so many nanoseconds of processor time.
    pub fn compute(self, nanos: u64) {
        rounds((nanos as f64 / 1e3 * self.rounds_per_us) as u64);
    }
}

fn rounds(count: u64) {
    for round in 0..count {
        std::hint::black_box(round);
    }
}
