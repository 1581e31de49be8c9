//! Whether the processors were there while something was measured.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

use crate::{Priority, now, set_priority, sleep_until};

/// How often each processor is asked for, ns: a thousandth of its time at most.
const PERIOD: u64 = 4_000_000;
/// A processor that comes later than this was somebody else's, ns: interrupts and the kernel's own work on packets end
/// before.
const LATE: u64 = 1_000_000;

/// Watches the processors while something is measured. On each of them a thread that the scheduler prefers to all others
/// wakes up every 4 ms: what this machine's programs do does not delay it, whoever takes the processor from the machine does.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Option<f64>>>,
}

impl Watch {
    /// Watches from now on.
    #[must_use]
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let all = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        let threads = (0..CpuSet::count())
            .filter(|&processor| all.is_set(processor).unwrap_or(false))
            .map(|processor| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || watch(processor, &stop))
            })
            .collect();
        Self { stop, threads }
    }

    /// The share of time that one of the processors was not there, the largest of all; 0 without the right to
    /// real-time priority.
    #[must_use]
    pub fn stolen_share(mut self) -> f64 {
        self.end().into_iter().fold(0.0, f64::max)
    }

    /// Ends the threads; what each has seen.
    fn end(&mut self) -> Vec<f64> {
        self.stop.store(true, Ordering::Relaxed);
        // A thread that panicked has seen nothing.
        let threads = self.threads.drain(..);
        threads
            .filter_map(|thread| thread.join().ok().flatten())
            .collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

/// Of the instants at which a processor was asked for, the share at which it was not there.
fn watch(processor: usize, stop: &AtomicBool) -> Option<f64> {
    let mut here = CpuSet::new();
    here.set(processor).ok()?;
    sched_setaffinity(Pid::from_raw(0), &here).ok()?;
    if !set_priority(Priority::First) {
        return None;
    }
    let (mut instants, mut missed) = (0_u64, 0_u64);
    let mut due = now() + PERIOD;
    while !stop.load(Ordering::Relaxed) {
        sleep_until(due);
        let late = now().saturating_sub(due);
        // A long absence covers many instants.
        let covered = late / PERIOD;
        instants += 1 + covered;
        missed += covered + u64::from(late % PERIOD > LATE || covered > 0);
        due += (1 + covered) * PERIOD;
    }
    (instants > 0).then(|| missed as f64 / instants as f64)
}
