//! Reads an experiment: every problem of the text is reported, each with line, column and what to do.

mod knobs;
mod workload;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use perturb_emulator::conduct::PacerChoice;
use perturb_profile::{
    Diagnostics, LoadError, Probability, Problem, TurnError,
    document::{At, Bounds, Fields, Findings, KeyPath, Kind, flag, name, parse},
};

use self::workload::Common;
use super::experiment::{Design, Experiment, Need, Statistic, Stop, Workload};

const KEYS: &[&str] = &[
    "version",
    "name",
    "description",
    "seed",
    "repetitions",
    "stop",
    "design",
    "baseline_every",
    "time_limit",
    "retries",
    "lateness",
    "pacer",
    "statistic",
    "pin",
    "trace",
    "needs",
    "base",
    "profile",
    "knobs",
    "workloads",
];
const DESIGNS: (&[&str], [Design; 3]) = (
    &["simple", "full", "fractional"],
    [Design::Simple, Design::Full, Design::Fractional],
);
const TIMES: Bounds<perturb_profile::Duration> = Bounds {
    min: perturb_profile::Duration::from_nanos(1_000),
    max: perturb_profile::Duration::from_nanos(86_400_000_000_000),
};
const INTERVALS: Bounds<Probability> = Bounds {
    min: Probability::from_billionths(100_000),
    max: Probability::ONE,
};
/// Longest description, in characters.
const MAX_TEXT: usize = 4096;

/// Why an experiment could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// No such file, or not text.
    #[error("{}: cannot be read: {reason}; name an existing file, in UTF-8", .path.display())]
    Unreadable { path: PathBuf, reason: std::io::Error },
    /// It has errors.
    #[error(transparent)]
    Invalid(#[from] Diagnostics),
    /// The profile that it names has errors.
    #[error(transparent)]
    Profile(#[from] LoadError),
    /// The profile that it names has no single server.
    #[error(
        "{}: its servers differ, so that no knob is the network's; name a profile with one server (a server's keys \
         at the top), the same overhead for sending and receiving, and no topology", .path.display()
    )]
    SeveralServers {
        /// The profile.
        path: PathBuf,
    },
    /// The profile that it names changes with time.
    #[error("{}: it changes with time (`timeline` or `trace`), and a sweep's knobs do not; take these keys out", .path.display())]
    Changing {
        /// The profile.
        path: PathBuf,
    },
    /// A knob cannot be turned so far.
    #[error(transparent)]
    Knob(#[from] TurnError),
    /// A setting cannot be emulated.
    #[error("with {setting} on {hosts} hosts: {reason}")]
    Setting {
        setting: String,
        /// How many hosts.
        hosts: u32,
        reason: Diagnostics,
    },
}

/// Reads the experiment at `path`; files that it names are relative to it.
pub fn load(path: &Path) -> Result<Experiment, ExperimentError> {
    let text = std::fs::read_to_string(path).map_err(|reason| ExperimentError::Unreadable {
        path: path.into(),
        reason,
    })?;
    let named = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = named.unwrap_or(Path::new("."));
    read(&text, directory, &path.display().to_string())
}

/// Reads an experiment.
pub(super) fn read(text: &str, directory: &Path, source: &str) -> Result<Experiment, ExperimentError> {
    // The profile may not be readable; then what depends on it cannot be checked.
    let mut profile = None;
    let mut findings = Findings::new(text);
    let tree = parse(text, &mut findings);
    let experiment = tree.and_then(|tree| {
        let path = &KeyPath::ROOT;
        let at = At { node: &tree, path };
        document(at, directory, text, &mut profile, &mut findings)
    });
    let experiment = findings
        .conclude(experiment)
        .map_err(|errors| errors.of_source(source))?;
    if let Some(Err(error)) = profile {
        return Err(error);
    }
    check_settings(&experiment)?;
    Ok(experiment)
}

fn document(
    at: At<'_>,
    directory: &Path,
    text: &str,
    profile: &mut Option<Result<(), ExperimentError>>,
    findings: &mut Findings<'_>,
) -> Option<Experiment> {
    if matches!(at.node.kind, Kind::Nothing) {
        return None;
    }
    let fields = Fields::open(at, "an experiment", KEYS.to_vec(), findings)?;
    fields.require("version", "version: 1", findings, |at, f| {
        at.integer(between(1, 1), f)
    });
    let title = fields.require("name", "name: mine", findings, name);
    let count = |key: &'static str, default: u32, (min, max), findings: &mut Findings<'_>| {
        fields
            .read(key, findings, |at, f| at.integer(between(min, max), f))
            .and_then(|value| u32::try_from(value).ok())
            .unwrap_or(default)
    };
    let repetitions = count("repetitions", 3, (1, 1000), findings);
    let baseline_every = count("baseline_every", 6, (1, 1000), findings);
    let retries = count("retries", 2, (0, 100), findings);
    let time_limit = fields
        .read("time_limit", findings, time)
        .unwrap_or(Duration::from_secs(60));
    let base = knobs::base(&fields, directory, profile, findings);
    // Without a base nothing can be said of factors; the others are still read.
    let known = base.clone().unwrap_or_default();
    let knobs = fields.read("knobs", findings, |at, f| knobs::knobs(at, &known, f));
    let pin = fields
        .read("pin", findings, workload::processors)
        .unwrap_or_default();
    let common = Common {
        base: &known,
        directory,
        time_limit,
        pin: &pin,
        trace: fields.read("trace", findings, flag).unwrap_or(false),
        knobs: knobs.as_deref(),
        has_knobs: fields.has("knobs"),
    };
    let workloads = fields.require(
        "workloads",
        "workloads: [{ name: ping, command: ping -c 3 h2 }]",
        findings,
        |at, f| at.list((1, 100), f, |at, f| workload::workload(at, &common, f)),
    );
    let workloads = distinct(workloads.unwrap_or_default(), &fields, findings);
    let design = fields
        .read("design", findings, |at, f| at.choice(DESIGNS.0, &DESIGNS.1, f))
        .unwrap_or(Design::Simple);
    check_design(design, &workloads, &fields, findings);
    Some(Experiment {
        name: title?,
        description: fields.read("description", findings, |at, f| at.prose(MAX_TEXT, f)),
        seed: fields
            .read("seed", findings, |at, f| at.integer(between(0, u64::MAX), f))
            .unwrap_or(1),
        repetitions,
        stop: fields.read("stop", findings, |at, f| stop(at, repetitions, f)),
        design,
        baseline_every: baseline_every as usize,
        retries,
        lateness: fields
            .read("lateness", findings, time)
            .unwrap_or(Duration::from_millis(5)),
        pacer: fields
            .read("pacer", findings, |at, f| {
                at.choice(&PacerChoice::NAMES, &PacerChoice::ALL, f)
            })
            .unwrap_or(PacerChoice::Auto),
        statistic: fields
            .read("statistic", findings, |at, f| {
                at.choice(&["mean", "median"], &[Statistic::Mean, Statistic::Median], f)
            })
            .unwrap_or(Statistic::Mean),
        base: base?,
        needs: fields
            .read("needs", findings, |at, f| at.list((0, 100), f, needed))
            .unwrap_or_default(),
        workloads,
        directory: directory.to_owned(),
        text: text.to_owned(),
    })
}

fn between(min: u64, max: u64) -> Bounds<u64> {
    Bounds { min, max }
}

pub(super) fn time(at: At<'_>, findings: &mut Findings<'_>) -> Option<Duration> {
    let time: perturb_profile::Duration = at.quantity(TIMES, findings)?;
    Some(Duration::from_nanos(time.nanos()))
}

/// `2%`, as a fraction.
fn stop(at: At<'_>, repetitions: u32, findings: &mut Findings<'_>) -> Option<Stop> {
    let fields = Fields::open(at, "a stop rule", vec!["interval", "at_most"], findings)?;
    let interval = fields.require("interval", "interval: 2%", findings, |at, f| {
        let share: Probability = at.quantity(INTERVALS, f)?;
        Some(share.billionths() as f64 / 1e9)
    });
    let at_most = fields.require("at_most", "at_most: 10", findings, |at, f| {
        at.integer(between(repetitions.into(), 1000), f)
    });
    Some(Stop {
        interval: interval?,
        at_most: u32::try_from(at_most?).ok()?,
    })
}

/// A program that must be there, and where it comes from.
fn needed(at: At<'_>, findings: &mut Findings<'_>) -> Option<Need> {
    let fields = Fields::open(at, "a need", vec!["program", "from"], findings)?;
    let mut text = |key, example| {
        fields.require(key, example, findings, |at, f| {
            at.text("a text", f).map(str::to_owned)
        })
    };
    Some(Need {
        program: text("program", "program: wrk")?,
        from: text("from", "from: apt-get install wrk")?,
    })
}

fn distinct(workloads: Vec<Workload>, fields: &Fields<'_>, findings: &mut Findings<'_>) -> Vec<Workload> {
    for (index, workload) in workloads.iter().enumerate() {
        if workloads[..index].iter().any(|other| other.name == workload.name) {
            let why = "two workloads have the same name";
            let remedy = "rename one of them";
            fields.report("workloads", Problem::Unfit { why, remedy }, findings);
        }
    }
    workloads
}

/// Most settings of a workload.
const MAX_CELLS: usize = 4096;

fn check_design(design: Design, workloads: &[Workload], fields: &Fields<'_>, findings: &mut Findings<'_>) {
    for workload in workloads {
        let problem = match design {
            Design::Fractional if workload.knobs.len() < 3 => Problem::Unfit {
                why: "half of the combinations need at least three knobs",
                remedy: "add knobs, or use `full`",
            },
            Design::Full
                if workload
                    .knobs
                    .iter()
                    .map(|(_, values)| values.len() + 1)
                    .product::<usize>()
                    > MAX_CELLS =>
            {
                Problem::Unfit {
                    why: "there are more than 4096 combinations of levels",
                    remedy: "use fewer levels, or `simple`",
                }
            }
            _ => continue,
        };
        fields.report("design", problem, findings);
        return;
    }
}

/// Every setting must be a profile.
fn check_settings(experiment: &Experiment) -> Result<(), ExperimentError> {
    for workload in &experiment.workloads {
        for (knob, values) in &workload.knobs {
            for value in values {
                let setting = [(*knob, *value)];
                let text = super::setting::profile(&experiment.base, &setting, workload.hosts)?.to_string();
                perturb_profile::parse(&text).map_err(|reason| ExperimentError::Setting {
                    setting: super::setting::written(&setting),
                    hosts: workload.hosts,
                    reason,
                })?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::experiment::Knob;

    const GOOD: &str = "
version: 1
name: both
seed: 7
repetitions: 2
stop: { interval: 2%, at_most: 5 }
base: { overhead: 2us, gap: 5us, latency: 20us, bandwidth: 100MB/s }
knobs:
  overhead: [x2, 100us]
  bandwidth: [x0.5, 10MB/s]
workloads:
  - { name: a, command: [prog, \"1.10\"], metric: { json: run_time, unit: ms, of: operation } }
  - name: b
    command: prog | tail
    hosts: 4
    knobs: { gap_per_byte: [26.3ns] }
    communication: { messages: 10, interval: 50us }
";

    fn parsed(text: &str) -> Result<Experiment, ExperimentError> {
        read(text, Path::new(""), "e.yaml")
    }

    #[test]
    fn factors_are_of_the_base() {
        let experiment = parsed(GOOD).unwrap();
        let [a, b] = experiment.workloads.as_slice() else {
            panic!()
        };
        assert_eq!(a.command, ["prog", "1.10"]);
        assert!(a.metric.per_operation && !b.metric.per_operation);
        assert_eq!(a.knobs[0], (Knob::Overhead, vec![4.0, 100.0]));
        assert_eq!(a.knobs[1], (Knob::Bandwidth, vec![0.02, 0.1]));
        assert_eq!(b.command, ["sh", "-c", "prog | tail"]);
        assert_eq!(b.knobs, vec![(Knob::Bandwidth, vec![0.0263])]);
        assert_eq!(b.communication.interval_us, Some(50.0));
        assert_eq!(Knob::Bandwidth.written(0.02), "50MB/s");
    }

    #[test]
    fn all_mistakes_at_once_with_their_places() {
        let text = "version: 1\nnane: x\nrepetitions: 0\nbase: { gap: 5 }\ndesign: fractional\n\
                    knobs: { latency: [x2, 5ms], overheat: [1us] }\n\
                    workloads:\n  - { name: a, command: x, metric: { regex: '(' } }\n  - { name: a }\n";
        let message = parsed(text).unwrap_err().to_string();
        for expected in [
            "e.yaml:2:1: nane",
            "did you mean `name`",
            "e.yaml:3:14: repetitions",
            "e.yaml:4:14: base.gap",
            "e.yaml:6:20: knobs.latency[0]",
            "knobs.overheat",
            "workloads[0].metric.regex",
            "lacks the key `command`",
        ] {
            assert!(message.contains(expected), "{expected} is not in\n{message}");
        }
    }

    #[test]
    fn settings_that_cannot_be_emulated_are_refused_beforehand() {
        let text = GOOD.replace("[x2, 100us]", "[2ms]");
        assert!(
            parsed(&text)
                .unwrap_err()
                .to_string()
                .contains("knobs.overhead[0]")
        );
        assert!(parsed("").is_err());
    }
}
