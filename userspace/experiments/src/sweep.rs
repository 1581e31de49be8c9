//! One knob of the network after another is turned under unmodified programs.
//!
//! ```text
//! experiment.yaml ─read─► Experiment ─plan─► runs in a seeded order ─execute─► private hosts (lab)
//!                                                                     └──────► store (one directory)
//! ```
//!
//! The sweep only measures; what it means is [`report`]'s affair, which reads the directory.

mod execute;
mod experiment;
mod metric;
mod needs;
mod plan;
mod progress;
mod read;
pub mod report;
mod scratch;
mod setting;
mod store;
mod traced;

use std::{
    fs,
    path::{Path, PathBuf},
};

use perturb_emulator::runtime;
use perturb_present::LiveLine;

use crate::machine;
use execute::Execution;
use store::{Provenance, Store};

pub use self::{
    execute::Ended,
    experiment::{Design, Experiment, Workload},
    needs::{MissingError, check, check_programs},
    plan::{Run, Task},
    read::{ExperimentError, load},
    setting::{Level, Setting},
    store::{StoreError, make_directory},
};

/// What is measured, and where its runs are kept.
pub struct Sweep {
    /// What is measured.
    pub experiment: Experiment,
    /// Which part of it.
    pub task: Option<Task>,
    /// The part's own directory.
    pub directory: PathBuf,
}

impl Sweep {
    /// Its directory below `out`, which parts share.
    #[must_use]
    pub fn new(experiment: Experiment, task: Option<Task>, out: &Path) -> Self {
        let directory = match task {
            Some(task) => out.join(format!("task-{}", task.index)),
            None => out.into(),
        };
        Self {
            experiment,
            task,
            directory,
        }
    }

    /// The runs of all repetitions; the stop rule may add to them.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        let cells = self.cells();
        (0..self.experiment.repetitions)
            .flat_map(|block| plan::block(&self.experiment, &cells, block))
            .collect()
    }

    /// Those of them that the sweep in the directory lacks.
    pub fn missing(&self) -> Result<Vec<Run>, StoreError> {
        let made = store::resumed(&self.directory, &stored_text(&self.experiment), self.task)?;
        let mut runs = self.runs();
        runs.retain(|run| !store::is_done(&made, &run.id, self.experiment.retries));
        Ok(runs)
    }

    /// How many runs its directory has, and how many are still to be made, as far as is known: the stop rule may add to them.
    ///
    /// # Errors
    /// When the directory holds another sweep, or cannot be read.
    pub fn progress(&self) -> Result<(usize, usize), StoreError> {
        let made = match store::has_runs(&self.directory) {
            true => store::resumed(&self.directory, &stored_text(&self.experiment), self.task)?,
            false => Vec::new(),
        };
        let (cells, retries) = (self.cells(), self.experiment.retries);
        let (mut done, mut left) = (0, 0);
        for block in 0.. {
            let wanted = execute::wanted(&self.experiment, &made, &cells, block);
            let runs = plan::block(&self.experiment, &wanted, block);
            if runs.is_empty() {
                break;
            }
            let of_block = runs
                .iter()
                .filter(|run| store::is_done(&made, &run.id, retries))
                .count();
            done += of_block;
            left += runs.len() - of_block;
        }
        Ok((done, left))
    }

    /// What the runs take, in seconds: as is expected, and at most.
    #[must_use]
    pub fn seconds(&self, runs: &[Run]) -> (f64, f64) {
        let each = runs.iter().map(|run| {
            let expected = progress::expected(&self.experiment, run.cell.workload);
            let limit = self.workload(run).time_limit.as_secs_f64();
            (expected, limit + progress::SET_UP_S)
        });
        each.fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1))
    }

    /// The program of a run.
    #[must_use]
    pub fn workload(&self, run: &Run) -> &Workload {
        &self.experiment.workloads[run.cell.workload]
    }

    /// Effects that a fractional design cannot tell apart, in words.
    #[must_use]
    pub fn confounding(&self) -> Vec<String> {
        let knobs = |workload: &Workload| {
            let knobs: Vec<_> = workload.knobs.iter().map(|(knob, _)| *knob).collect();
            plan::confounding(&knobs)
        };
        match self.experiment.design {
            Design::Fractional => self.experiment.workloads.first().map(knobs).unwrap_or_default(),
            Design::Simple | Design::Full => Vec::new(),
        }
    }

    /// Makes the runs, those that are missing if the sweep is gone on with. How it ended, and how many runs are there.
    pub fn measure(&self, resume: bool, line: LiveLine) -> anyhow::Result<(Ended, usize)> {
        if !resume {
            make_directory(&self.directory)?;
        }
        let text = stored_text(&self.experiment);
        let provenance = provenance(&self.experiment, self.task);
        let store = Store::open(&self.directory, &text, &provenance, resume)?;
        let mut execution = Execution { sweep: self, store };
        let ended = runtime()?.block_on(execution.run(line))?;
        Ok((ended, execution.store.records.len()))
    }

    fn cells(&self) -> Vec<plan::Cell> {
        let cells = plan::cells(&self.experiment);
        match self.task {
            Some(task) => task.of(cells),
            None => cells,
        }
    }
}

/// The experiment's text, with the seed that was asked for instead of its own.
fn stored_text(experiment: &Experiment) -> String {
    let own = |line: &str| line.starts_with("seed:");
    let seed = format!("seed: {}", experiment.seed);
    let mut found = false;
    let lines: Vec<&str> = experiment
        .text
        .lines()
        .map(|line| {
            if own(line) {
                found = true;
                seed.as_str()
            } else {
                line
            }
        })
        .collect();
    let text = lines.join("\n") + "\n";
    if found { text } else { format!("{text}{seed}\n") }
}

fn provenance(experiment: &Experiment, task: Option<Task>) -> Provenance {
    let jit = fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").ok();
    Provenance {
        version: 1,
        perturb: env!("CARGO_PKG_VERSION").into(),
        kernel: machine::release(),
        node: machine::node(),
        processor: machine::processor().unwrap_or_default(),
        processors: machine::processors(),
        jit: jit.map(|value| value.trim() != "0"),
        memory_mib: machine::line_of("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .map(|kib| kib / 1024),
        started: machine::now_s(),
        resumed: 0,
        task,
        experiment: experiment.summary(),
    }
}
