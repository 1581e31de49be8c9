//! What a sweep says on standard error: a bar with the time left on a terminal, else a line for each run.

use std::{collections::HashMap, time::Instant};

use perturb_present::{LiveLine, progress, span};

use super::{
    experiment::Experiment,
    plan::Run,
    store::{Record, Status},
};

/// Time that a run takes beside its command: hosts, programs, and their end.
pub(super) const SET_UP_S: f64 = 0.5;

/// Progress of a sweep.
pub(super) struct Progress<'a> {
    experiment: &'a Experiment,
    line: LiveLine,
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
    pub(super) fn new(experiment: &'a Experiment, line: LiveLine) -> Self {
        Self {
            experiment,
            line,
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
        if !self.line.is_live() && before > 0 {
            self.line
                .say(format_args!("block {block}: {before} runs were made before"));
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
        let total = self.done + self.left.values().sum::<usize>() + self.later;
        let what = format!("{} {}", record.workload, run.written());
        let outcome = match (record.status, record.value) {
            (Status::Ok, None) => format!("{:.3} s", record.wall_s),
            (Status::Ok, Some(value)) => format!("{value:.6} {}", record.unit),
            (status, _) => format!("{} ({})", status.key().to_uppercase(), record.reasons.join("; ")),
        };
        let left = self.seconds_left();
        if self.line.is_live() {
            let progress = progress(self.done, total, Some(left));
            self.line.show(format_args!("{progress} · {what}: {outcome}"));
        } else {
            let left = span(left);
            self.line.say(format_args!(
                "[{}/{total}, {left} left] {what}: {outcome}",
                self.done
            ));
        }
    }

    pub(super) fn finish(&self) {
        self.line.keep();
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
