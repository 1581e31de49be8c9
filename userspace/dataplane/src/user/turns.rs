//! When the thread has real-time priority, and when it was kept from running.
//!
//! Model: the kernel lets SCHED_FIFO threads have a processor for 950 ms of each second (`kernel.sched_rt_runtime_us`;
//! `sched_rt_runtime_exceeded`, since 6.12 `dl_server`) and gives it to others for the 50 ms that are left, all at once. A
//! thread that wants more finds itself stopped for that long. Real-time priority is there to wake up in time; a thread
//! that does not sleep needs it only where others want its processor. So [`Turns`] measures the share of time in which
//! the thread was not asleep by its own wish, window by window. Above [`BUSY`] the thread gives the priority up. If it is
//! then stopped by others, as under a load that its niceness does not keep off (cgroups, autogroups), it takes the
//! priority back for [`CONTENDED`] and leaves the processor to others by itself, a little at a time ([`NAP`]). Below
//! [`CALM`] for [`CALM_WINDOWS`] windows in a row it is as in the beginning. However its load changes, it has a processor
//! with real-time priority for less than nine tenths of any second. The limit is a processor's: threads of the pacer that
//! have one and the same count together.
//!
//! [`Stalls`] counts how often it was stopped all the same: by others, by a hypervisor, by a signal.

use std::sync::atomic::{AtomicU64, Ordering};

/// Length of a window at least, ns: a twentieth of the kernel's.
const WINDOW: u64 = 50_000_000;
/// Above this share of a window, percent, the thread gives real-time priority up.
const BUSY: u64 = 80;
/// Below this one, percent, it takes it back,
const CALM: u64 = 60;
/// after so many windows in a row.
const CALM_WINDOWS: u32 = 4;
/// How long a thread keeps to naps after others have stopped it, ns.
const CONTENDED: u64 = 10_000_000_000;
/// How long it runs between naps, ns,
const AWAKE: u64 = 8_000_000;
/// and how long a nap is, ns: packets are late by as much at most.
const NAP: u64 = 1_000_000;
/// A packet that was due for so long while the thread did not run, ns, met a stall: more than an interrupt, a softirq's
/// budget or the turn of a thread of ordinary priority takes.
pub(super) const STALL: u64 = 5_000_000;

/// What the thread does about real-time priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Has it.
    RealTime,
    /// Does without, being busy.
    Ordinary,
    /// Has it and naps, being busy while others want the processor.
    Napping,
}

/// Decides whether the thread has real-time priority.
#[derive(Debug)]
pub(super) struct Turns {
    manner: Manner,
    begun: u64,
    asleep: u64,
    calm: u32,
    /// When it had last slept for as long as a nap, all in all.
    rested: u64,
    /// How long it has slept since.
    asleep_since: u64,
    contended_until: u64,
}

impl Turns {
    /// For a thread that has real-time priority.
    pub(super) fn new(now: u64) -> Self {
        Self {
            manner: Manner::RealTime,
            begun: now,
            asleep: 0,
            calm: 0,
            rested: now,
            asleep_since: 0,
            contended_until: 0,
        }
    }

    /// It slept by its own wish for so long, until now.
    pub(super) fn slept(&mut self, nanos: u64, now: u64) {
        self.asleep += nanos;
        self.asleep_since += nanos;
        if self.asleep_since >= NAP {
            self.rested = now;
            self.asleep_since = 0;
        }
    }

    /// It was stopped while a packet was due. Whether it is to take real-time priority back.
    pub(super) fn stopped(&mut self, now: u64) -> bool {
        if self.manner != Manner::Ordinary {
            return false;
        }
        self.contended_until = now + CONTENDED;
        self.manner = Manner::Napping;
        true
    }

    /// How long it is to sleep now, ns, for others' sake.
    pub(super) fn nap(&self, now: u64) -> Option<u64> {
        let awake = now.saturating_sub(self.rested + self.asleep_since);
        (self.manner == Manner::Napping && awake >= AWAKE).then_some(NAP)
    }

    /// What a window says that ends now; `None` if none does. `others` is the share, percent, of the thread's processor that
    /// other threads had with real-time priority.
    pub(super) fn window(&mut self, now: u64, others: impl FnOnce() -> u64) -> Option<Window> {
        let window = now.saturating_sub(self.begun);
        if window < WINDOW {
            return None;
        }
        let own = window.saturating_sub(self.asleep) * 100 / window;
        let used = own + others();
        let (busy, calm) = (used > BUSY, used < CALM);
        self.begun = now;
        self.asleep = 0;
        self.calm = if calm { self.calm + 1 } else { 0 };
        let before = self.manner;
        let without = if now < self.contended_until {
            Manner::Napping
        } else {
            Manner::Ordinary
        };
        self.manner = match before {
            Manner::RealTime if busy => without,
            Manner::Ordinary | Manner::Napping if self.calm >= CALM_WINDOWS => Manner::RealTime,
            Manner::Napping => without,
            other => other,
        };
        let real_time = self.manner != Manner::Ordinary;
        Some(Window {
            busy,
            used: if real_time { own } else { 0 },
            given_up: before == Manner::RealTime && self.manner != before,
            real_time: (real_time != (before != Manner::Ordinary)).then_some(real_time),
        })
    }
}

/// What a window says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The thread's processor has hardly been free.
    pub(super) busy: bool,
    /// The share of it, percent, that the thread takes with real-time priority.
    pub(super) used: u64,
    /// It is no longer as in the beginning.
    pub(super) given_up: bool,
    /// Whether it is to have real-time priority from now on; `None` if nothing changes.
    pub(super) real_time: Option<bool>,
}

/// How often the thread did not run while a packet was due, and for how long; written by the threads, read by any.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    count: AtomicU64,
    total: AtomicU64,
    longest: AtomicU64,
}

impl Stalls {
    /// The thread runs at `now`, ran last at `last`, and its next packet is due at `due`. Whether that was a stall.
    pub(super) fn look(&self, last: u64, now: u64, due: u64) -> bool {
        let stall = now.saturating_sub(last.max(due));
        if stall > STALL {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.total.fetch_add(stall, Ordering::Relaxed);
            self.longest.fetch_max(stall, Ordering::Relaxed);
        }
        stall > STALL
    }

    /// How many, how long in all, and the longest, ns.
    pub(super) fn sums(&self) -> (u64, u64, u64) {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        (load(&self.count), load(&self.total), load(&self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MILLISECOND;

    /// Runs a thread that is busy for `busy(ms)` percent of each millisecond, and that others stop `stopped(ms)` if it
    /// has no real-time priority; for how many nanoseconds of each it was busy with real-time priority.
    fn run(milliseconds: u64, busy: impl Fn(u64) -> u64, stopped: impl Fn(u64) -> bool) -> Vec<u64> {
        run_beside(milliseconds, 0, busy, stopped)
    }

    /// The same beside threads that have `others` percent of the processor.
    fn run_beside(
        milliseconds: u64,
        others: u64,
        busy: impl Fn(u64) -> u64,
        stopped: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let mut turns = Turns::new(0);
        let mut real_time = true;
        (1..=milliseconds)
            .map(|at| {
                let now = at * MILLISECOND;
                let share = match turns.nap(now - MILLISECOND) {
                    Some(nap) => {
                        assert_eq!(nap, MILLISECOND);
                        0
                    }
                    None => busy(at - 1).min(100),
                };
                if share < 100 {
                    turns.slept(MILLISECOND * (100 - share) / 100, now);
                }
                let used = if real_time { MILLISECOND * share / 100 } else { 0 };
                if stopped(at) && turns.stopped(now) {
                    real_time = true;
                }
                if let Some(window) = turns.window(now, || others) {
                    real_time = window.real_time.unwrap_or(real_time);
                }
                used
            })
            .collect()
    }

    #[test]
    fn never_uses_up_what_the_kernel_allows() {
        let loads: [(&str, &dyn Fn(u64) -> u64); 6] = [
            ("always busy", &|_| 100),
            ("just not busy", &|_| 80),
            ("busy and calm by turns", &|at| {
                if at / 200 % 2 == 0 { 100 } else { 0 }
            }),
            ("busy for a window in five", &|at| {
                if at / 50 % 5 == 0 { 100 } else { 59 }
            }),
            ("busy at a window's edge", &|at| {
                if (at + 25) / 50 % 5 == 0 { 100 } else { 80 }
            }),
            ("rising", &|at| at / 40),
        ];
        for (name, load) in loads {
            for stops in [u64::MAX, 1, 70, 3_000] {
                let used = run(30_000, load, |at| at % stops == 0);
                let mut second = 0;
                for (at, now) in used.iter().enumerate() {
                    second = second + now - at.checked_sub(1_000).map_or(0, |before| used[before]);
                    assert!(
                        second < SECOND * 9 / 10,
                        "{name}, stopped every {stops} ms: {} ms of a second",
                        second / MILLISECOND
                    );
                }
            }
        }
    }

    #[test]
    fn keeps_and_takes_back_its_priority_when_it_is_calm() {
        assert!(run(5_000, |_| 70, |_| true).iter().all(|&used| used > 0));
        let used = run(2_000, |at| if at < 500 { 100 } else { 30 }, |_| false);
        assert!(used[60..500].iter().all(|&used| used == 0));
        assert!(used[750..].iter().all(|&used| used > 0));
    }

    #[test]
    fn counts_the_others_on_its_processor() {
        let alone = run_beside(1_000, 0, |_| 50, |_| false);
        assert!(alone.iter().all(|&used| used > 0));
        let beside = run_beside(1_000, 50, |_| 50, |_| false);
        assert!(beside[60..].iter().all(|&used| used == 0));
    }

    #[test]
    fn keeps_others_off_and_naps_if_they_stop_it() {
        let used = run(12_000, |_| 100, |at| at == 100);
        assert!(used[50..100].iter().all(|&used| used == 0), "it gave nothing up");
        let napping = &used[101..10_000];
        let naps = napping.iter().filter(|&&used| used == 0).count();
        assert!(naps.abs_diff(napping.len() / 9) <= 1, "{naps} naps");
        assert!(
            used[10_200..].iter().all(|&used| used == 0),
            "others want nothing any more"
        );
    }

    #[test]
    fn counts_what_kept_a_due_packet_waiting() {
        let stalls = Stalls::default();
        // It ran; nothing was due; it was due only for a moment.
        assert!(!stalls.look(100 * STALL, 100 * STALL + 10, 0));
        assert!(!stalls.look(0, 100 * STALL, 100 * STALL + 1));
        assert!(!stalls.look(0, 100 * STALL, 99 * STALL));
        assert_eq!(stalls.sums(), (0, 0, 0));
        assert!(stalls.look(0, 100 * STALL, 90 * STALL));
        assert!(stalls.look(97 * STALL, 100 * STALL, 90 * STALL));
        assert_eq!(stalls.sums(), (2, 13 * STALL, 10 * STALL));
    }
}
