//! The network of an experiment, and the levels of its knobs.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use perturb_profile::{
    BeyondKnob, Name, Overhead, Problem, Server,
    document::{At, Fields, Findings},
};
use perturb_quantity::{Micros, MicrosPerByte};

use super::ExperimentError;
use crate::sweep::{
    experiment::{Base, Knob, Scenario},
    setting::SCENARIO,
};

/// The bandwidth as a time per byte.
const PER_BYTE: &str = Knob::Bandwidth.parameter();

/// The knobs, the bandwidth in both ways.
fn keys() -> Vec<&'static str> {
    let knobs = Knob::ALL.into_iter().map(Knob::key);
    knobs.chain([PER_BYTE]).collect()
}

pub(super) fn base(
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
                Some(Base::default())
            }
        };
    }
    fields.require("base", "base: { latency: 20us }", findings, |at, f| {
        let fields = Fields::open(at, "the base", keys(), f)?;
        let mut server = Server::default();
        let mut overhead = Overhead::default();
        for knob in Knob::ALL {
            let Some(value) = fields.read(knob.key(), f, |at, f| at.knob(knob, f)) else {
                continue;
            };
            knob.turn(value, &mut server, &mut overhead);
        }
        if let Some(value) = fields.read(PER_BYTE, f, gap_per_byte) {
            Knob::Bandwidth.turn(value, &mut server, &mut overhead);
        }
        Some(Base {
            server,
            overhead,
            seed: 1,
            ..Base::default()
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
    let apart = !profile.timeline.is_of_all(profile.servers.len());
    if !alike || apart || profile.topology.is_some() || profile.overhead.send != profile.overhead.receive {
        return Err(ExperimentError::SeveralServers { path: path.into() });
    }
    let mut server = server.clone();
    let unreadable = |reason| ExperimentError::Unreadable {
        path: path.into(),
        reason,
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    server.anchor(directory).map_err(unreadable)?;
    Ok(Base {
        server,
        overhead: profile.overhead,
        tcp: profile.tcp,
        mtu: profile.mtu,
        seed: profile.seed,
        timeline: profile.timeline,
    })
}

/// G as a time per byte, in µs. A plain time is one per byte here.
fn gap_per_byte(at: At<'_>, findings: &mut Findings<'_>) -> Option<f64> {
    let text = at.text("a time per byte", findings)?;
    let plain = || text.parse().map(|Micros(micros)| MicrosPerByte(micros));
    match text.parse().or_else(|_| plain()) {
        Ok(MicrosPerByte(micros)) if (8e-6..=8e3).contains(&micros) => Some(micros),
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

/// What is turned.
#[derive(Clone, Default)]
pub(super) struct Turned {
    /// Knobs with their values, ascending.
    pub(super) knobs: Vec<(Knob, Vec<f64>)>,
    pub(super) scenarios: Vec<Scenario>,
}

pub(super) fn knobs(
    at: At<'_>,
    base: &Base,
    directory: &Path,
    findings: &mut Findings<'_>,
) -> Option<Turned> {
    let all = keys().into_iter().chain([SCENARIO]).collect();
    let fields = Fields::open(at, "knobs", all, findings)?;
    let mut knobs = Vec::new();
    for key in keys() {
        let knob = key.parse().unwrap_or(Knob::Bandwidth);
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
    let named = fields.read(SCENARIO, findings, |at, f| {
        at.list((1, 100), f, |at, f| scenario(at, directory, f))
    });
    let scenarios = named.unwrap_or_default();
    for (index, one) in scenarios.iter().enumerate() {
        if scenarios[..index].iter().any(|other| other.name == one.name) {
            let why = "two scenarios have the same name, that of their files without the extension";
            let remedy = "name one file once, or rename one";
            fields.report(SCENARIO, Problem::Unfit { why, remedy }, findings);
        }
    }
    Some(Turned { knobs, scenarios })
}

/// A profile beside the experiment.
fn scenario(at: At<'_>, directory: &Path, findings: &mut Findings<'_>) -> Option<Scenario> {
    let path = directory.join(at.text("a profile", findings)?);
    let name = path.file_stem().and_then(OsStr::to_str).and_then(Name::new);
    if name.is_none() {
        let why = "the file's name, without its extension, names the scenario, and is no name";
        at.unfit(why, "use letters, digits, `_`, `-` and `.`, at most 63", findings);
    }
    Some(Scenario { name: name?, path })
}

/// A value, or `x2` for a factor of the baseline.
fn level(at: At<'_>, key: &str, knob: Knob, base: &Base, findings: &mut Findings<'_>) -> Option<f64> {
    let text = at.text("a value or a factor", findings)?.trim();
    let Some(factor) = text.strip_prefix('x').or_else(|| text.strip_suffix('x')) else {
        return if key == PER_BYTE {
            gap_per_byte(at, findings)
        } else {
            at.knob(knob, findings)
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
    let value = if key == Knob::Bandwidth.key() {
        baseline / factor
    } else {
        baseline * factor
    };
    if let Err(BeyondKnob { min, max, .. }) = knob.check(value) {
        at.report(Problem::OutOfRange { min, max }, findings);
        return None;
    }
    Some(value)
}
