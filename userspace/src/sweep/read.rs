//! Reads an experiment: every problem of the text is reported, each with line, column and what to do.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use perturb_models::{
    quantity::{self, TIME},
    queueing::NfsInput,
};
use perturb_profile::{
    Diagnostics, LoadError, Overhead, Problem, Rate, Server, Size, Tcp,
    document::{Findings, KeyPath, Kind, parse},
};

use super::{
    experiment::{Base, Declared, Design, Experiment, Knob, Statistic, Stop, Workload},
    fields::{self, At, Fields},
    metric, network,
};
use crate::{controller::setup::PacerChoice, lab::MAX_HOSTS};
use perturb_dataplane::programs::Pacer;

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
    "base",
    "profile",
    "knobs",
    "workloads",
];
const KNOBS: &[&str] = &["overhead", "gap", "latency", "bandwidth", "gap_per_byte"];
const WORKLOAD: &[&str] = &[
    "name",
    "command",
    "hosts",
    "mpi",
    "metric",
    "time_limit",
    "expected",
    "pin",
    "knobs",
    "communication",
    "queueing",
];
const COMMUNICATION: &[&str] = &["messages", "round_trips", "interval", "bytes"];

/// Why an experiment could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// No such file, or not text.
    #[error("{}: cannot be read: {reason}; name an existing file, in UTF-8", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
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
    /// A setting cannot be emulated.
    #[error("with {setting} on {hosts} hosts: {reason}")]
    Setting {
        /// Which.
        setting: String,
        /// How many hosts.
        hosts: u32,
        /// Why.
        reason: Diagnostics,
    },
}

/// Reads the experiment at `path`; files that it names are relative to it.
pub fn load(path: &Path) -> Result<Experiment, ExperimentError> {
    let text = std::fs::read_to_string(path).map_err(|reason| ExperimentError::Unreadable {
        path: path.into(),
        reason,
    })?;
    let directory = path.parent().unwrap_or(Path::new(""));
    read(&text, directory, &path.display().to_string())
}

/// Reads an experiment.
pub fn read(text: &str, directory: &Path, source: &str) -> Result<Experiment, ExperimentError> {
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
    let fields = Fields::open(at, "an experiment", KEYS, findings)?;
    fields.require("version", "version: 1", findings, |at, f| at.integer((1, 1), f));
    let name = fields.require("name", "name: mine", findings, fields::name);
    let count = |key: &str, default: u32, bounds, findings: &mut Findings<'_>| {
        fields
            .read(key, findings, |at, f| at.integer(bounds, f))
            .and_then(|value| u32::try_from(value).ok())
            .unwrap_or(default)
    };
    let repetitions = count("repetitions", 3, (1, 1000), findings);
    let baseline_every = count("baseline_every", 6, (1, 1000), findings);
    let retries = count("retries", 2, (0, 100), findings);
    let time_limit = fields
        .read("time_limit", findings, time)
        .unwrap_or(Duration::from_secs(60));
    let base = base(&fields, directory, profile, findings);
    // Without a base nothing can be said of factors; the others are still read.
    let known = base.clone().unwrap_or_else(|| Base {
        server: Server::default(),
        overhead: Overhead::default(),
        tcp: Tcp::default(),
    });
    let knobs = fields.read("knobs", findings, |at, f| knobs(at, &known, f));
    let pin = fields.read("pin", findings, processors).unwrap_or_default();
    let common = Common {
        base: &known,
        directory,
        time_limit,
        pin: &pin,
        knobs: knobs.as_deref(),
        has_knobs: fields.has("knobs"),
    };
    let workloads = fields.require(
        "workloads",
        "workloads: [{ name: ping, command: ping -c 3 h2 }]",
        findings,
        |at, f| at.list((1, 100), f, |at, f| workload(at, &common, f)),
    );
    let workloads = distinct(workloads.unwrap_or_default(), &fields, findings);
    let design = [Design::Simple, Design::Full, Design::Fractional].map(|design| (design.key(), design));
    let design = fields
        .read("design", findings, |at, f| at.choice(&design, f))
        .unwrap_or(Design::Simple);
    check_design(design, &workloads, &fields, findings);
    Some(Experiment {
        name: name?,
        description: fields.read("description", findings, |at, f| {
            at.text("a text", f).map(Into::into)
        }),
        seed: fields
            .read("seed", findings, |at, f| at.integer((0, u64::MAX), f))
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
                let pacers = [
                    ("auto", PacerChoice::Auto),
                    ("fq", PacerChoice::Only(Pacer::Fq)),
                    ("user", PacerChoice::Only(Pacer::User)),
                ];
                at.choice(&pacers, f)
            })
            .unwrap_or(PacerChoice::Auto),
        statistic: fields
            .read("statistic", findings, |at, f| {
                at.choice(&[("mean", Statistic::Mean), ("median", Statistic::Median)], f)
            })
            .unwrap_or(Statistic::Mean),
        base: base?,
        workloads,
        text: text.to_owned(),
    })
}

fn time(at: At<'_>, findings: &mut Findings<'_>) -> Option<Duration> {
    let time: perturb_profile::Duration = at.quantity(("1us", "86400s"), findings)?;
    Some(Duration::from_nanos(time.nanos()))
}

/// `2%`, as a fraction.
fn stop(at: At<'_>, repetitions: u32, findings: &mut Findings<'_>) -> Option<Stop> {
    let fields = Fields::open(at, "a stop rule", &["interval", "at_most"], findings)?;
    let interval = fields.require("interval", "interval: 2%", findings, |at, f| {
        let share: perturb_profile::Probability = at.quantity(("0.01%", "100%"), f)?;
        Some(share.billionths() as f64 / 1e9)
    });
    let at_most = fields.require("at_most", "at_most: 10", findings, |at, f| {
        at.integer((repetitions.into(), 1000), f)
    });
    Some(Stop {
        interval: interval?,
        at_most: u32::try_from(at_most?).ok()?,
    })
}

fn base(
    fields: &Fields<'_>,
    directory: &Path,
    profile: &mut Option<Result<(), ExperimentError>>,
    findings: &mut Findings<'_>,
) -> Option<Base> {
    if fields.has("base") && fields.has("profile") {
        let why = "both say what the network is";
        let problem = Problem::Excludes {
            other: "profile",
            why,
        };
        fields.report("base", problem, findings);
        return None;
    }
    if fields.has("profile") {
        let file = fields.read("profile", findings, |at, f| {
            at.text("a file", f).map(PathBuf::from)
        })?;
        return match from_profile(&directory.join(file)) {
            Ok(base) => Some(base),
            Err(error) => {
                *profile = Some(Err(error));
                // The error is reported instead of the experiment.
                Some(Base {
                    server: Server::default(),
                    overhead: Overhead::default(),
                    tcp: Tcp::default(),
                })
            }
        };
    }
    fields.require("base", "base: { latency: 20us }", findings, |at, f| {
        let fields = Fields::open(at, "the base", KNOBS, f)?;
        let mut server = Server::default();
        let mut overhead = Overhead::default();
        for knob in Knob::ALL {
            let Some(value) = fields.read(knob.key(), f, |at, f| value(at, knob, f)) else {
                continue;
            };
            network::turn(&mut server, &mut overhead, knob, value);
        }
        if let Some(value) = fields.read("gap_per_byte", f, gap_per_byte) {
            network::turn(&mut server, &mut overhead, Knob::Bandwidth, value);
        }
        Some(Base {
            server,
            overhead,
            tcp: Tcp::default(),
        })
    })
}

/// The one server of a profile.
fn from_profile(path: &Path) -> Result<Base, ExperimentError> {
    let profile = perturb_profile::load(path)?.profile;
    let [(_, server), rest @ ..] = profile.servers.as_slice() else {
        return Err(ExperimentError::SeveralServers { path: path.into() });
    };
    let alike = rest.iter().all(|(_, other)| other == server);
    if !alike || profile.topology.is_some() || profile.overhead.send != profile.overhead.receive {
        return Err(ExperimentError::SeveralServers { path: path.into() });
    }
    Ok(Base {
        server: server.clone(),
        overhead: profile.overhead,
        tcp: profile.tcp,
    })
}

/// An absolute value of a knob.
fn value(at: At<'_>, knob: Knob, findings: &mut Findings<'_>) -> Option<f64> {
    let micros = |duration: perturb_profile::Duration| duration.nanos() as f64 / 1e3;
    match knob {
        Knob::Overhead => at.quantity(("0s", "1ms"), findings).map(micros),
        Knob::Gap | Knob::Latency => at.quantity(("0s", "10s"), findings).map(micros),
        Knob::Bandwidth => {
            let rate: Rate = at.quantity(("1kbit/s", "1Tbit/s"), findings)?;
            Some(8e6 / rate.bits_per_second() as f64)
        }
    }
}

/// G as a time per byte, in µs.
fn gap_per_byte(at: At<'_>, findings: &mut Findings<'_>) -> Option<f64> {
    match quantity::parse(at.text("a time per byte", findings)?, &TIME) {
        Ok(micros) if (8e-6..=8e3).contains(&micros) => Some(micros),
        _ => {
            at.unfit(
                "a gap per byte is a time of 8 ps to 8 ms",
                "write for example 26.3ns",
                findings,
            );
            None
        }
    }
}

/// Knobs with their values, ascending.
fn knobs(at: At<'_>, base: &Base, findings: &mut Findings<'_>) -> Option<Vec<(Knob, Vec<f64>)>> {
    let fields = Fields::open(at, "knobs", KNOBS, findings)?;
    let mut knobs = Vec::new();
    for key in KNOBS {
        let knob = Knob::of_key(key).unwrap_or(Knob::Bandwidth);
        let read = |at: At<'_>, findings: &mut Findings<'_>| {
            at.list((1, 100), findings, |at, f| level(at, key, knob, base, f))
        };
        let Some(mut values) = fields.read(key, findings, read) else {
            continue;
        };
        values.sort_by(f64::total_cmp);
        if values.windows(2).any(|pair| pair[0] == pair[1]) {
            fields.report(key, Problem::Repeated, findings);
        }
        if knobs.iter().any(|(other, _)| *other == knob) {
            let why = "both are G";
            let other = "bandwidth";
            fields.report(key, Problem::Excludes { other, why }, findings);
        }
        knobs.push((knob, values));
    }
    Some(knobs)
}

/// A value, or `x2` for a factor of the baseline.
fn level(at: At<'_>, key: &str, knob: Knob, base: &Base, findings: &mut Findings<'_>) -> Option<f64> {
    let text = at.text("a value or a factor", findings)?.trim();
    let Some(factor) = text.strip_prefix('x').or_else(|| text.strip_suffix('x')) else {
        return if key == "gap_per_byte" {
            gap_per_byte(at, findings)
        } else {
            value(at, knob, findings)
        };
    };
    let Some(factor) = factor
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|f| f.is_finite() && *f > 0.0)
    else {
        at.unfit("a factor is a number above 0", "write for example x2", findings);
        return None;
    };
    let baseline = base.value(knob);
    if baseline == 0.0 {
        at.unfit(
            "the base does not have this parameter, so a factor of it is nothing",
            "give the base a value, or write the level with its unit",
            findings,
        );
        return None;
    }
    let value = if key == "bandwidth" {
        baseline / factor
    } else {
        baseline * factor
    };
    if knob == Knob::Overhead && value > 1e3 {
        let (min, max) = ("0s".to_owned(), "1ms".to_owned());
        at.report(Problem::OutOfRange { min, max }, findings);
        return None;
    }
    Some(value)
}

/// `0-1,3`, or a list of numbers.
fn processors(at: At<'_>, findings: &mut Findings<'_>) -> Option<Vec<usize>> {
    let text = at.text("processors, such as 0-1,3", findings)?;
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        (low <= high && high < 4096).then_some(low..=high)
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    if ranges.is_none() {
        at.unfit("these are no processors", "write for example 0-1,3", findings);
    }
    Some(ranges?.into_iter().flatten().collect())
}

/// What workloads inherit.
struct Common<'a> {
    base: &'a Base,
    directory: &'a Path,
    time_limit: Duration,
    pin: &'a [usize],
    knobs: Option<&'a [(Knob, Vec<f64>)]>,
    has_knobs: bool,
}

fn workload(at: At<'_>, common: &Common<'_>, findings: &mut Findings<'_>) -> Option<Workload> {
    let fields = Fields::open(at, "a workload", WORKLOAD, findings)?;
    let name = fields.require("name", "name: ping", findings, fields::name);
    let command = fields.require("command", "command: ping -c 3 h2", findings, command);
    let hosts = fields
        .read("hosts", findings, |at, f| at.integer((2, MAX_HOSTS.into()), f))
        .and_then(|hosts| u32::try_from(hosts).ok())
        .unwrap_or(2);
    let metric = if fields.has("metric") {
        fields.read("metric", findings, metric::read)
    } else {
        Some(metric::Metric::wall_time())
    };
    let own = fields.read("knobs", findings, |at, f| knobs(at, common.base, f));
    if own.is_none() && !common.has_knobs && !fields.has("knobs") {
        fields.require("knobs", "knobs: { latency: [100us, 1ms] }", findings, |_, _| {
            Some(())
        });
    }
    let communication = fields
        .read("communication", findings, declared)
        .unwrap_or_default();
    let queueing = fields.read("queueing", findings, |at, f| {
        let path = common.directory.join(at.text("a file", f)?);
        let text = std::fs::read_to_string(path).ok();
        let is_input = |text: &String| serde_saphyr::from_str::<NfsInput>(text).is_ok();
        if let Some(text) = text.filter(is_input) {
            return Some(text);
        }
        at.unfit(
            "there is no such file beside the experiment, or it is no input of the queueing model",
            "name an input of `perturb predict nfs`",
            f,
        );
        None
    });
    Some(Workload {
        name: name?,
        command: command?,
        hosts,
        mpi: fields
            .read("mpi", findings, |at, f| {
                at.choice(&[("true", true), ("false", false)], f)
            })
            .unwrap_or(false),
        metric: metric?,
        time_limit: fields
            .read("time_limit", findings, time)
            .unwrap_or(common.time_limit),
        expected: fields.read("expected", findings, time),
        pin: fields
            .read("pin", findings, processors)
            .unwrap_or_else(|| common.pin.to_vec()),
        knobs: own
            .or_else(|| common.knobs.map(<[_]>::to_vec))
            .unwrap_or_default(),
        communication,
        queueing,
    })
}

/// A list of words, or a text for the shell.
fn command(at: At<'_>, findings: &mut Findings<'_>) -> Option<Vec<String>> {
    match &at.node.kind {
        Kind::List(_) => at.list((1, 1000), findings, |at, f| {
            at.text("a word of the command", f).map(Into::into)
        }),
        _ => {
            let text = at.text("a command", findings)?;
            Some(["sh", "-c", text].map(Into::into).to_vec())
        }
    }
}

fn declared(at: At<'_>, findings: &mut Findings<'_>) -> Option<Declared> {
    let fields = Fields::open(at, "communication", COMMUNICATION, findings)?;
    let mut count = |key| fields.read(key, findings, |at, f| at.integer((0, u64::MAX), f));
    Some(Declared {
        messages: count("messages"),
        round_trips: count("round_trips"),
        interval_us: fields
            .read("interval", findings, time)
            .map(|interval| interval.as_secs_f64() * 1e6),
        bytes: fields.read("bytes", findings, |at, f| {
            let size: Size = at.quantity(("0B", "1000GiB"), f)?;
            Some(size.bytes())
        }),
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
                let text = network::profile(&experiment.base, &setting, workload.hosts).to_string();
                perturb_profile::parse(&text).map_err(|reason| ExperimentError::Setting {
                    setting: network::written(&setting),
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
  - { name: a, command: [prog, \"1.10\"], metric: { json: run_time, unit: ms } }
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
