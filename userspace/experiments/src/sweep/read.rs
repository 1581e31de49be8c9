//! Reads an experiment: every problem of the text is reported, each with line, column and what to do.

mod knobs;
mod workload;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use perturb_emulator::{
    conduct::PacerChoice,
    lab,
    prepared::{Prepared, ProfileError},
};
use perturb_profile::{
    Diagnostics, LoadError, Probability, Problem, TurnError,
    document::{At, Bounds, Fields, Findings, KeyPath, Kind, flag, name, parse},
};

use self::workload::Common;
use super::{
    experiment::{Design, Experiment, Need, Scenario, Statistic, Stop, Workload},
    setting::{self, Setting},
};

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
         at the top), the same overhead for sending and receiving, steps of that server or of the overhead, and no topology", .path.display()
    )]
    SeveralServers {
        /// The profile.
        path: PathBuf,
    },
    /// A knob cannot be turned so far.
    #[error(transparent)]
    Knob(#[from] TurnError),
    /// A scenario cannot be emulated.
    #[error("{}, on {hosts} hosts: {reason}", .path.display())]
    Scenario {
        /// The profile.
        path: PathBuf,
        /// How many hosts.
        hosts: u32,
        reason: ProfileError,
    },
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
    let knobs = fields.read("knobs", findings, |at, f| knobs::knobs(at, &known, directory, f));
    let pin = fields
        .read("pin", findings, workload::processors)
        .unwrap_or_default();
    let common = Common {
        base: &known,
        directory,
        time_limit,
        pin: &pin,
        trace: fields.read("trace", findings, flag).unwrap_or(false),
        knobs: knobs.as_ref(),
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
            Design::Full | Design::Fractional if !workload.scenarios.is_empty() => Problem::Unfit {
                why: "a scenario is a network of its own, with which no knob is combined",
                remedy: "use `simple`, or give the scenarios an experiment of their own",
            },
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
                let setting = Setting::Knobs(vec![(*knob, *value)]);
                let text = setting::network(&experiment.base, &setting, workload.hosts)?.to_string();
                perturb_profile::parse(&text).map_err(|reason| ExperimentError::Setting {
                    setting: setting.written(),
                    hosts: workload.hosts,
                    reason,
                })?;
            }
        }
        let hosts = workload.hosts;
        for Scenario { path, .. } in &workload.scenarios {
            let prepared = Prepared::load_for(path, &lab::all_addresses(hosts));
            prepared.map_err(|reason| ExperimentError::Scenario {
                path: path.clone(),
                hosts,
                reason,
            })?;
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
    fn a_base_changes_and_scenarios_are_networks() {
        let directory = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        put(
            "base.yaml",
            "version: 1\nseed: 9\nlatency: 1ms\ntimeline: { steps: [{ at: 1s, latency: 5ms }] }\n",
        );
        put(
            "part.yaml",
            "version: 1\nservers: { a: {}, b: {} }\nclasses: [{ name: all, egress: [a, b] }]\n\
                          timeline: { steps: [{ at: 1s, server: a, latency: 5ms }] }\n",
        );
        put(
            "slow.yaml",
            "version: 1\nlatency: 1ms\njitter: { distribution: table, scale: 1ms, table: t.dist }\n",
        );
        put("t.dist", "0 8192\n");
        let read = |base: &str, keys: &str| {
            let text = format!(
                "version: 1\nname: t\nprofile: {base}\n{keys}\nworkloads: [{{ name: a, command: a, hosts: 3 }}]\n"
            );
            read(&text, directory.path(), "e.yaml")
        };
        let said = |base: &str, keys: &str| read(base, keys).unwrap_err().to_string();
        let experiment = read("base.yaml", "knobs: { bandwidth: [1MB/s] }").unwrap();
        let turned = Setting::Knobs(vec![(Knob::Bandwidth, 1.0)]);
        let network = setting::network(&experiment.base, &turned, 3).unwrap();
        assert_eq!(network.seed, 9);
        assert!(network.timeline.is_of_all(3) && network.is_changing());
        assert!(said("base.yaml", "knobs: { latency: [9ms] }").contains("latency: a step of the profile"));
        assert!(said("part.yaml", "knobs: { gap: [1us] }").contains("steps of that server"));

        let experiment = read("base.yaml", "knobs: { scenario: [slow.yaml] }").unwrap();
        let [cell] = crate::sweep::plan::cells(&experiment).try_into().unwrap();
        assert_eq!(cell.setting.file_part(), "scenario-slow");
        let network = setting::network(&experiment.base, &cell.setting, 3).unwrap();
        // Its table is found from elsewhere.
        perturb_profile::files(&network, Path::new("/nowhere")).unwrap();
        for (keys, expected) in [
            ("knobs: { scenario: [none.yaml] }", "none.yaml: cannot be read"),
            ("knobs: { scenario: [slow.yaml, ./slow.yaml] }", "the same name"),
            (
                "design: full\nknobs: { scenario: [slow.yaml], gap: [1us] }",
                "no knob is combined",
            ),
        ] {
            let said = said("base.yaml", keys);
            assert!(said.contains(expected), "{said}");
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
