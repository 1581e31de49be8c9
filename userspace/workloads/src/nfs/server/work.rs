//! Work that takes a known time of a processor.
//!
//! Model: a loop without memory accesses, whose rounds are counted and not timed: while something else has the
//! processor, an interrupt or another thread, the work does not proceed. (A wait for a clock would go on meanwhile,
//! and hide what the other one takes.) How many rounds a processor does in a nanosecond is measured once: the fastest of
//! several short runs, which nothing has disturbed. What is lacking: a processor that changes its clock rate.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// Rounds of a run that is timed: about 100 µs.
const ROUNDS: u64 = 50_000;
const RUNS: u32 = 50;

/// A measure of work.
pub(super) struct Work {
    rounds_per_nano: f64,
}

impl Work {
    /// Measures this processor; takes some milliseconds.
    pub(super) fn calibrate() -> Self {
        let fastest = (0..RUNS)
            .map(|_| {
                let begun = Instant::now();
                work(ROUNDS);
                begun.elapsed()
            })
            .min()
            .unwrap_or(Duration::MAX);
        Self {
            rounds_per_nano: ROUNDS as f64 / (fastest.as_nanos() as f64).max(1.0),
        }
    }

    /// Occupies this processor for so long.
    pub(super) fn take(&self, time: Duration) {
        work((time.as_nanos() as f64 * self.rounds_per_nano) as u64);
    }
}

fn work(rounds: u64) {
    let mut value = 1_u64;
    for _ in 0..rounds {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
