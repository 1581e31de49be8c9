//! CLOCK_MONOTONIC, which all namespaces of a machine share, and waiting by it.

use std::time::Duration;

use nix::{
    errno::Errno,
    time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep},
};

/// CLOCK_MONOTONIC in nanoseconds.
#[must_use]
pub fn now() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME in nanoseconds, by which the kernel stamps what it receives.
#[must_use]
pub fn wall() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

fn read(clock: ClockId) -> u64 {
    // Both clocks exist on every Linux.
    clock_gettime(clock).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

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

/// Sleeps until an instant; returns at once if it has passed.
pub fn sleep_until(instant: u64) {
    let until = Duration::from_nanos(instant).into();
    // Interrupted sleeps go on; no other error is possible for this clock and a valid time.
    while clock_nanosleep(
        ClockId::CLOCK_MONOTONIC,
        ClockNanosleepFlags::TIMER_ABSTIME,
        &until,
    ) == Err(Errno::EINTR)
    {}
}

/// Waits for an instant with the processor running: a computation.
pub fn spin_until(instant: u64) {
    while now() < instant {
        std::hint::spin_loop();
    }
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

/// Asks for real-time priority for the calling thread, below none of perturb's own: other programs then do not delay a
/// measurement. A thread without that right measures the same with more noise.
pub fn ask_for_priority() {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameter` outlives the call; 0 is the calling thread.
    unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const parameter,
        );
    }
}

/// The share of processor time that others took from threads that wanted all of it: the largest of all processors,
/// over `probe`. A pause of less than 200 us counts as an interrupt's.
#[must_use]
pub fn stolen_share(probe: Duration) -> f64 {
    const PAUSE: u64 = 200_000;
    let spin = || {
        let start = now();
        let (mut last, mut stolen) = (start, 0);
        while last - start < probe.as_nanos() as u64 {
            let time = now();
            if time - last > PAUSE {
                stolen += time - last;
            }
            last = time;
        }
        stolen as f64 / (last - start) as f64
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(spin)).collect();
        // A thread that panicked has measured nothing.
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .fold(0.0, f64::max)
    })
}
