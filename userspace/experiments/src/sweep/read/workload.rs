//! A workload of an experiment.

use std::{path::Path, time::Duration};

use perturb_emulator::lab::MAX_HOSTS;
use perturb_models::{plogpt::CollectiveKind, queueing::NfsInput};
use perturb_profile::{
    Size,
    document::{At, Bounds, Fields, Findings, Kind, flag, name},
};

use super::{
    between,
    knobs::{Turned, knobs},
    time,
};
use crate::sweep::{
    experiment::{Base, Collective, Declared, Workload},
    metric,
};

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
    "collective",
    "published",
    "trace",
];
const COMMUNICATION: &[&str] = &["messages", "round_trips", "interval", "bytes"];
const COLLECTIVE: &[&str] = &["algorithm", "message", "times"];
/// Programs of Martin 1999, appendix B.
const PUBLISHED: &[&str] = &[
    "radix",
    "em3d-read",
    "em3d-write",
    "sample",
    "barnes",
    "p-ray",
    "murphi",
    "connect",
    "now-sort",
    "radb",
    "ft",
    "is",
    "mg",
];
/// As `perturb predict plogpt` names them.
const ALGORITHMS: &[&str] = &{
    let mut names = [""; CollectiveKind::ALL.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = CollectiveKind::ALL[index].name();
        index += 1;
    }
    names
};
const MESSAGES: Bounds<Size> = Bounds {
    min: Size::from_bytes(1),
    max: Size::from_bytes(1 << 30),
};
const SIZES: Bounds<Size> = Bounds {
    min: Size::from_bytes(0),
    max: Size::from_bytes(1000 << 30),
};

/// What workloads inherit.
pub(super) struct Common<'a> {
    pub(super) base: &'a Base,
    pub(super) directory: &'a Path,
    pub(super) time_limit: Duration,
    pub(super) pin: &'a [usize],
    pub(super) trace: bool,
    pub(super) knobs: Option<&'a Turned>,
    pub(super) has_knobs: bool,
}

pub(super) fn workload(at: At<'_>, common: &Common<'_>, findings: &mut Findings<'_>) -> Option<Workload> {
    let fields = Fields::open(at, "a workload", WORKLOAD.to_vec(), findings)?;
    let title = fields.require("name", "name: ping", findings, name);
    let command = fields.require("command", "command: ping -c 3 h2", findings, command);
    let hosts = fields
        .read("hosts", findings, |at, f| {
            at.integer(between(2, MAX_HOSTS.into()), f)
        })
        .and_then(|hosts| u32::try_from(hosts).ok())
        .unwrap_or(2);
    let metric = if fields.has("metric") {
        fields.read("metric", findings, metric::read)
    } else {
        Some(metric::Metric::wall_time())
    };
    let own = fields.read("knobs", findings, |at, f| {
        knobs(at, common.base, common.directory, f)
    });
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
    let Turned { knobs, scenarios } = own.or_else(|| common.knobs.cloned()).unwrap_or_default();
    Some(Workload {
        name: title?,
        command: command?,
        hosts,
        mpi: fields.read("mpi", findings, flag).unwrap_or(false),
        metric: metric?,
        time_limit: fields
            .read("time_limit", findings, time)
            .unwrap_or(common.time_limit),
        expected: fields.read("expected", findings, time),
        pin: fields
            .read("pin", findings, processors)
            .unwrap_or_else(|| common.pin.to_vec()),
        knobs,
        scenarios,
        communication,
        queueing,
        collective: fields.read("collective", findings, collective),
        published: fields.read("published", findings, |at, f| {
            at.choice(PUBLISHED, PUBLISHED, f).map(Into::into)
        }),
        trace: fields.read("trace", findings, flag).unwrap_or(common.trace),
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
    let fields = Fields::open(at, "communication", COMMUNICATION.to_vec(), findings)?;
    let mut count =
        |key: &'static str| fields.read(key, findings, |at, f| at.integer(between(0, u64::MAX), f));
    Some(Declared {
        messages: count("messages"),
        round_trips: count("round_trips"),
        interval_us: fields
            .read("interval", findings, time)
            .map(|interval| interval.as_secs_f64() * 1e6),
        bytes: fields.read("bytes", findings, |at, f| {
            let size: Size = at.quantity(SIZES, f)?;
            Some(size.bytes())
        }),
    })
}

fn collective(at: At<'_>, findings: &mut Findings<'_>) -> Option<Collective> {
    let fields = Fields::open(at, "a collective", COLLECTIVE.to_vec(), findings)?;
    let algorithm = fields.require("algorithm", "algorithm: alltoall-b", findings, |at, f| {
        at.choice(ALGORITHMS, &CollectiveKind::ALL, f)
    });
    let message = fields.require("message", "message: 16KiB", findings, |at, f| {
        let size: Size = at.quantity(MESSAGES, f)?;
        Some(size.bytes())
    });
    Some(Collective {
        algorithm: algorithm?,
        message: message?,
        times: fields
            .read("times", findings, |at, f| {
                at.integer(between(1, 1_000_000_000), f)
            })
            .unwrap_or(1),
    })
}

/// `0-1,3`, or a list of numbers.
pub(super) fn processors(at: At<'_>, findings: &mut Findings<'_>) -> Option<Vec<usize>> {
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
