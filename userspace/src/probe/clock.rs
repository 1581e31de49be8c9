//! The clocks ([`perturb_clock`]), what reading them costs, and computations of known length.

pub use perturb_clock::{now, sleep_until, spin_until, stolen_share, wall};

/// What reading the clock costs: the median of many pairs of readings, nanoseconds. Every interval that is measured
/// contains one reading.
#[must_use]
pub fn cost() -> u64 {
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

/// Whom the scheduler prefers to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Nobody but perturb's own pacer: other programs then do not delay a measurement. A thread without the right to it
    /// is as any other, and measures the same with more noise.
    RealTime,
    /// Everybody.
    Idle,
}

/// Sets the calling thread's priority.
pub fn set_priority(priority: Priority) {
    let set = |policy, sched_priority| {
        let parameter = libc::sched_param { sched_priority };
        // SAFETY: `parameter` outlives the call; 0 is the calling thread.
        unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const parameter) == 0 }
    };
    match priority {
        Priority::RealTime if set(libc::SCHED_FIFO, 1) => {}
        Priority::RealTime => {
            set(libc::SCHED_OTHER, 0);
        }
        Priority::Idle => {
            set(libc::SCHED_IDLE, 0);
        }
    }
}
