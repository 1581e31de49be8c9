//! Whether the processors were there while something was measured.

use std::{
    fs,
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

/// How often each processor is asked for, ns.
const PERIOD: u64 = 20_000_000;
/// A processor that comes later than this was somebody else's, ns: the kernel works on packets for 8 ms in a row at most
/// (`net.core.netdev_budget_usecs`) before a thread of real-time priority gets its turn.
const LATE: u64 = 10_000_000;

/// Where others take more than this share of a processor, times are not the measured program's.
pub const BUSY: f64 = 0.05;

/// Watches the processors while something is measured: by what the hypervisor says it took from them, and by a thread
/// on each of them that the scheduler prefers to all others. That one wakes up every 20 ms; no program delays it for
/// long, whoever takes the processor from the machine does.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Option<f64>>>,
    accounts: Vec<Account>,
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
        Self {
            stop,
            threads,
            accounts: Account::all(),
        }
    }

    /// The share of time that one of the processors was not there, the largest of all. What is shorter than 10 ms
    /// counts if the hypervisor accounts for it; all else needs the right to real-time priority.
    #[must_use]
    pub fn stolen_share(mut self) -> f64 {
        let now = Account::all();
        let accounted = self
            .accounts
            .iter()
            .zip(now)
            .map(|(before, now)| now.stolen_share(before));
        let largest = accounted.fold(0.0, f64::max);
        self.end().into_iter().fold(largest, f64::max)
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
        missed += covered + u64::from(late % PERIOD > LATE);
        due += (1 + covered) * PERIOD;
    }
    (instants > 0).then(|| missed as f64 / instants as f64)
}

/// A processor's time so far, in ticks: a line of `/proc/stat`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Account {
    all: u64,
    stolen: u64,
}

impl Account {
    /// Of all processors; none where there is no such file.
    fn all() -> Vec<Self> {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        text.lines().filter_map(Self::read).collect()
    }

    /// `cpu0 user nice system idle iowait irq softirq steal …`
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let name = words.next()?.strip_prefix("cpu")?;
        name.parse::<usize>().ok()?;
        let ticks: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        Some(Self {
            all: ticks.iter().sum(),
            stolen: *ticks.get(7)?,
        })
    }

    fn stolen_share(self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::Account;

    #[test]
    fn accounts_are_of_single_processors() {
        assert_eq!(Account::read("cpu  1 2 3 4 5 6 7 8 9 10"), None);
        assert_eq!(Account::read("intr 1 2 3 4 5 6 7 8"), None);
        let before = Account::read("cpu0 10 0 10 70 0 0 0 10 0 0");
        assert_eq!(before, Some(Account { all: 100, stolen: 10 }));
        let now = Account::read("cpu0 20 0 20 110 0 0 0 50 0 0");
        assert_eq!(
            now.zip(before).map(|(now, before)| now.stolen_share(&before)),
            Some(0.4)
        );
    }
}
