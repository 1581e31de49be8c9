//! What is to be measured: workloads, knobs and their levels, and how often.
//!
//! Model: a network of n hosts in which host i sends through one server, with LogGP's gap g, gap per byte G and
//! latency L, and burns the overhead o for each wire packet that it sends or receives. A knob is one of the four; its
//! value is a time in µs (for G in µs per byte, so that 1/value is MB/s). The baseline is the base's own values.
//! The base may change with time. A scenario is a level without a scale: a profile in the place of the whole network.
//! What it lacks: different values for different hosts, and knobs of loss or buffers (put those into the base).

use std::{path::PathBuf, time::Duration};

use perturb_emulator::conduct::PacerChoice;
use perturb_models::plogpt::CollectiveKind;
pub(super) use perturb_profile::Knob;
use perturb_profile::{Name, Overhead, Server, Size, Tcp, Timeline};
use serde::{Deserialize, Serialize};

use super::metric::{Better, Metric};

/// Which combinations of levels are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Design {
    /// One knob at a time, the others at the baseline.
    Simple,
    /// Every combination.
    Full,
    /// Half of the combinations of baseline and last level: 2^(k-1) runs.
    Fractional,
}

impl Design {
    /// As experiments write it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Full => "full",
            Self::Fractional => "fractional",
        }
    }
}

/// What stands for a level that was measured several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The mean, with Student's interval.
    Mean,
    /// The median, with Student's interval about it: robust against a disturbed run.
    Median,
}

/// When a setting has been measured often enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    /// Half of the 95 % interval over the mean is at most this,
    pub interval: f64,
    /// or the setting was measured so many times.
    pub at_most: u32,
}

/// The network on which nothing is turned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Base {
    /// A host's server; its gap, bandwidth and latency are the baseline.
    pub server: Server,
    /// The baseline's overhead.
    pub overhead: Overhead,
    /// TCP settings of the hosts.
    pub tcp: Tcp,
    /// Their largest IP packet, if given.
    pub mtu: Option<Size>,
    /// Of losses, jitter and random steps.
    pub seed: u64,
    /// How it changes; its steps are of the server or of the overhead.
    pub timeline: Timeline,
}

/// A network that takes the place of the base's.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its file's, without the extension.
    pub name: Name,
    /// The profile.
    pub path: PathBuf,
}

impl Base {
    /// Baseline of a knob, in µs (or µs per byte).
    #[must_use]
    pub fn value(&self, knob: Knob) -> f64 {
        knob.of(&self.server, &self.overhead)
    }

    /// Whether it changes with time.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        !self.timeline.steps.is_empty() || self.server.trace.is_some()
    }
}

/// What is known of a program's communication, where counters cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Declared {
    /// Messages that the busiest host sends.
    pub messages: Option<u64>,
    /// Blocking round trips of the busiest host.
    pub round_trips: Option<u64>,
    /// Time between two messages of a host, in µs.
    pub interval_us: Option<f64>,
    /// Bytes that the busiest host sends.
    pub bytes: Option<u64>,
}

/// A collective operation of known pattern, of all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collective {
    /// Who sends to whom.
    pub algorithm: CollectiveKind,
    /// Bytes of each message.
    pub message: u64,
    /// How many are made in what the metric measures.
    pub times: u64,
}

/// A program under test.
#[derive(Clone, Debug)]
pub struct Workload {
    pub name: Name,
    /// Program and arguments; runs on h1.
    pub command: Vec<String>,
    /// Private hosts.
    pub hosts: u32,
    /// Whether the command is an MPI program, of which each host has a rank.
    pub mpi: bool,
    /// What is read off a run.
    pub metric: Metric,
    /// A run that takes longer is ended; that is a result.
    pub time_limit: Duration,
    /// How long a run takes at the baseline, for the plan.
    pub expected: Option<Duration>,
    /// Processors on which its processes run; empty: all.
    pub pin: Vec<usize>,
    /// Knobs with their values in µs (µs per byte), ascending.
    pub knobs: Vec<(Knob, Vec<f64>)>,
    /// Networks that are tried besides.
    pub scenarios: Vec<Scenario>,
    /// What it says of its communication.
    pub communication: Declared,
    /// Input of the queueing model, for a file server, as text.
    pub queueing: Option<String>,
    /// What collective it is.
    pub collective: Option<Collective>,
    /// The program of Martin 1999 whose run times stand beside its own.
    pub published: Option<String>,
    /// Whether one more run, at the baseline, is traced.
    pub trace: bool,
}

/// A program without which the workloads do not work.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// Its name, or its path.
    pub program: String,
    /// How to get it.
    pub from: String,
}

/// An experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    pub name: Name,
    /// What it is, for people.
    pub description: Option<String>,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Each setting is measured at least so many times.
    pub repetitions: u32,
    /// When to go on beyond that.
    pub stop: Option<Stop>,
    /// Which combinations.
    pub design: Design,
    /// A baseline run after so many runs of a workload.
    pub baseline_every: usize,
    /// How many times an invalid run is repeated.
    pub retries: u32,
    /// A run in which 1 % of the packets left later than this is invalid.
    pub lateness: Duration,
    /// What keeps the time.
    pub pacer: PacerChoice,
    /// What stands for a level.
    pub statistic: Statistic,
    /// The network.
    pub base: Base,
    /// What must be installed or built.
    pub needs: Vec<Need>,
    /// The programs.
    pub workloads: Vec<Workload>,
    /// Where its file is.
    pub directory: PathBuf,
    /// Its text.
    pub text: String,
}

/// What a report needs to know of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub name: String,
    /// What it is, for people.
    pub description: Option<String>,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Which combinations were measured.
    pub design: Design,
    /// What stands for a level.
    pub statistic: Statistic,
    /// Baseline of each knob, in µs (µs per byte).
    pub baseline: Vec<(Knob, f64)>,
    /// Whether the base changes with time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changing: bool,
    /// The programs.
    pub workloads: Vec<WorkloadSummary>,
}

/// What a report needs to know of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadSummary {
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Private hosts.
    pub hosts: u32,
    /// Unit of its values.
    pub unit: String,
    /// Which values are good.
    pub better: Better,
    /// Whether a time is one operation's, and not the run's.
    #[serde(default)]
    pub per_operation: bool,
    /// Knobs with their values in µs (µs per byte), ascending.
    pub knobs: Vec<(Knob, Vec<f64>)>,
    /// Names of the networks that are tried besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<String>,
    /// What it says of its communication.
    pub communication: Declared,
    /// Input of the queueing model, as text.
    pub queueing: Option<String>,
    /// What collective it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<Collective>,
    /// The program of Martin 1999 whose run times stand beside its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
}

impl Summary {
    /// Baseline of a knob, in µs (µs per byte).
    #[must_use]
    pub fn baseline(&self, knob: Knob) -> f64 {
        self.baseline
            .iter()
            .find(|(other, _)| *other == knob)
            .map_or(0.0, |(_, value)| *value)
    }
}

impl Experiment {
    /// What a report needs.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let workloads = self.workloads.iter().map(|workload| WorkloadSummary {
            name: workload.name.to_string(),
            command: workload.command.clone(),
            hosts: workload.hosts,
            unit: workload.metric.unit.clone(),
            better: workload.metric.better,
            per_operation: workload.metric.per_operation,
            knobs: workload.knobs.clone(),
            scenarios: workload
                .scenarios
                .iter()
                .map(|scenario| scenario.name.to_string())
                .collect(),
            communication: workload.communication,
            queueing: workload.queueing.clone(),
            collective: workload.collective,
            published: workload.published.clone(),
        });
        Summary {
            name: self.name.to_string(),
            description: self.description.clone(),
            seed: self.seed,
            design: self.design,
            statistic: self.statistic,
            baseline: Knob::ALL.map(|knob| (knob, self.base.value(knob))).to_vec(),
            changing: self.base.is_changing(),
            workloads: workloads.collect(),
        }
    }
}
