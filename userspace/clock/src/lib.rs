//! CLOCK_MONOTONIC, the clock of all departures, which all namespaces of a machine share; wall time; processor time; whose
//! the processors are.

#![warn(missing_docs)]

mod priority;
mod watch;

pub use priority::{Priority, set_priority};
pub use watch::{BUSY, Watch};

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

/// Whether somebody, such as chrony, keeps [`wall`] right (`adjtimex`).
#[must_use]
pub fn is_kept() -> bool {
    // SAFETY: all zeros are a value of it: nothing is changed.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: it writes to `state`, which lives until then.
    let answer = unsafe { libc::adjtimex(&raw mut state) };
    answer >= 0 && state.status & libc::STA_UNSYNC == 0
}

/// [`now`] and [`wall`] of the same moment: of a few pairs the one that nothing came between.
#[must_use]
pub fn both() -> (u64, u64) {
    /// What two readings take on a slow machine.
    const CLOSE: u64 = 2_000;
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..5 {
        let (before, wall, after) = (now(), wall(), now());
        best = best.min((after - before, before.midpoint(after), wall));
        if best.0 < CLOSE {
            break;
        }
    }
    (best.1, best.2)
}

/// Processor time of the calling thread in nanoseconds, kernel time included.
#[must_use]
pub fn thread_time() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: ClockId) -> u64 {
    // Both clocks exist on every Linux.
    clock_gettime(clock).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

/// Sleeps until an instant of CLOCK_MONOTONIC; returns at once if it has passed.
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

/// Waits for an instant of CLOCK_MONOTONIC with the processor running, which is exact to less than a microsecond
/// while nothing else wants the processor.
pub fn spin_until(instant: u64) {
    while now() < instant {
        std::hint::spin_loop();
    }
}

/// The share of processor time that others took from threads that wanted all of it: the largest of all
/// processors, over `probe`. A pause of less than 200 us counts as an interrupt's.
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
