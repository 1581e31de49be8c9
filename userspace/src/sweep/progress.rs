//! What a sweep says on standard error: a bar with the time left on a terminal, else a line for each run.

use std::{
    collections::HashMap,
    io::{IsTerminal as _, Write as _},
    time::Instant,
};

use perturb_present::span;

use super::{
    experiment::Experiment,
    plan::Run,
    store::{Record, Status},
};

/// Time that a run takes beside its command: hosts, programs, and their end.
pub(super) const SET_UP_S: f64 = 0.5;
/// Width of the bar.
const WIDTH: usize = 24;

/// Progress of a sweep.
pub(super) struct Progress<'a> {
    experiment: &'a Experiment,
    quiet: bool,
    terminal: bool,
    done: usize,
    /// Runs of this block that are to come, by workload.
    left: HashMap<usize, usize>,
    /// Runs of blocks to come.
    later: usize,
    /// Seconds and count of the runs that have ended, by workload.
    taken: HashMap<usize, (f64, usize)>,
    last: Instant,
}

impl<'a> Progress<'a> {
    pub(super) fn new(experiment: &'a Experiment, quiet: bool) -> Self {
        Self {
            experiment,
            quiet,
            terminal: std::io::stderr().is_terminal(),
            done: 0,
            left: HashMap::new(),
            later: 0,
            taken: HashMap::new(),
            last: Instant::now(),
        }
    }

    /// A block begins, of which some runs were made before.
    pub(super) fn block(&mut self, block: u32, before: usize, todo: &[Run], later: usize) {
        self.done += before;
        self.left.clear();
        for run in todo {
            *self.left.entry(run.cell.workload).or_default() += 1;
        }
        self.later = later;
        self.last = Instant::now();
        if !self.quiet && !self.terminal && before > 0 {
            eprintln!("block {block}: {before} runs were made before");
        }
    }

    /// A run has ended.
    pub(super) fn ended(&mut self, record: &Record, run: &Run) {
        let taken = self.taken.entry(run.cell.workload).or_default();
        taken.0 += self.last.elapsed().as_secs_f64();
        taken.1 += 1;
        self.last = Instant::now();
        if record.status != Status::Invalid {
            self.done += 1;
            if let Some(left) = self.left.get_mut(&run.cell.workload) {
                *left = left.saturating_sub(1);
            }
        }
        if self.quiet {
            return;
        }
        let total = self.done + self.left.values().sum::<usize>() + self.later;
        let what = format!("{} {}", record.workload, run.written());
        let outcome = match (record.status, record.value) {
            (Status::Ok, None) => format!("{:.3} s", record.wall_s),
            (Status::Ok, Some(value)) => format!("{value:.6} {}", record.unit),
            (status, _) => format!("{} ({})", status.key().to_uppercase(), record.reasons.join("; ")),
        };
        let eta = self.seconds_left();
        if self.terminal {
            let filled = self.done * WIDTH / total.max(1);
            let bar = format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH - filled));
            eprint!(
                "\r\x1b[K{bar} {}/{total}, {} left · {what}: {outcome}",
                self.done,
                span(eta)
            );
            // A line that cannot be shown is no reason to stop measuring.
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("[{}/{total}, {} left] {what}: {outcome}", self.done, span(eta));
        }
    }

    pub(super) fn finish(&self) {
        if self.terminal && !self.quiet {
            eprintln!();
        }
    }

    fn seconds_left(&self) -> f64 {
        let mean = |workload: usize| match self.taken.get(&workload) {
            Some((seconds, count)) if *count > 0 => seconds / *count as f64,
            _ => expected(self.experiment, workload),
        };
        let here: f64 = self
            .left
            .iter()
            .map(|(workload, count)| *count as f64 * mean(*workload))
            .sum();
        let (seconds, count) = self
            .taken
            .values()
            .fold((0.0, 0), |sum, (seconds, count)| (sum.0 + seconds, sum.1 + count));
        here + self.later as f64 * seconds / f64::from(count.max(1) as u32)
    }
}

/// Seconds that a run of a workload is expected to take, at most its limit.
pub(super) fn expected(experiment: &Experiment, workload: usize) -> f64 {
    let workload = &experiment.workloads[workload];
    workload
        .expected
        .map_or(1.0, |expected| expected.as_secs_f64())
        .min(workload.time_limit.as_secs_f64())
        + SET_UP_S
}
