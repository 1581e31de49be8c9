//! The profile of a setting: hosts that each send through one server of their own.
//!
//! Model: from host i to each other host j there is a class `hi-hj`, whose packets cross the server `hi-out` once:
//! LogGP's node, whose gap is shared by all that it sends. Every class burns the overhead at both ends. Its counters are
//! the row and column of the balance matrix. Super-packets are always split, so that only the knob differs between
//! settings.

use std::{collections::BTreeMap, fmt, path::Path};

use perturb_emulator::lab;
use perturb_profile::{
    Class, Match, Name, Prefix, Profile, Scope, Segmentation, Server, ServerId, Treatment, TurnError,
};

use serde::{Deserialize, Serialize};

use super::{
    experiment::{Base, Knob, Scenario},
    read::ExperimentError,
};

/// A level of a knob.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Level {
    /// In µs (µs per byte for the bandwidth).
    Value(f64),
    /// A scenario's.
    Name(String),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// What differs from the baseline.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// These knobs; without one it is the baseline itself.
    Knobs(Vec<(Knob, f64)>),
    /// The whole network.
    Scenario(Scenario),
}

impl Setting {
    /// Nothing differs.
    pub(super) const BASELINE: Self = Self::Knobs(Vec::new());

    /// Levels by knob, as records have them.
    #[must_use]
    pub fn levels(&self) -> BTreeMap<String, Level> {
        match self {
            Self::Knobs(knobs) => {
                let levels = knobs.iter();
                levels
                    .map(|(knob, value)| (knob.key().to_owned(), Level::Value(*value)))
                    .collect()
            }
            Self::Scenario(scenario) => {
                let name = Level::Name(scenario.name.to_string());
                BTreeMap::from([(SCENARIO.to_owned(), name)])
            }
        }
    }

    /// As people write it.
    #[must_use]
    pub(super) fn written(&self) -> String {
        match self {
            Self::Knobs(knobs) => written(knobs),
            Self::Scenario(scenario) => format!("{SCENARIO} {}", scenario.name),
        }
    }

    /// As part of a file's name.
    #[must_use]
    pub(super) fn file_part(&self) -> String {
        self.written()
            .replace(", ", "+")
            .replace(' ', "-")
            .replace('/', "_")
    }
}

/// The knob whose levels are networks.
pub(super) const SCENARIO: &str = "scenario";

/// The network of `hosts` private hosts in a setting. Its files have names that hold anywhere.
///
/// # Errors
/// When a knob cannot be turned so, or the scenario's profile has errors.
pub(super) fn network(base: &Base, setting: &Setting, hosts: u32) -> Result<Profile, ExperimentError> {
    let Scenario { path, .. } = match setting {
        Setting::Knobs(knobs) => return Ok(profile(base, knobs, hosts)?),
        Setting::Scenario(scenario) => scenario,
    };
    let mut profile = perturb_profile::load_for(path, perturb_profile::Whose::Everyone)?.profile;
    let directory = path.parent().unwrap_or(Path::new(""));
    for (_, server) in &mut profile.servers {
        server
            .anchor(directory)
            .map_err(|reason| ExperimentError::Unreadable {
                path: path.clone(),
                reason,
            })?;
    }
    Ok(Profile {
        segmentation: Segmentation::Exact,
        ..profile
    })
}

fn profile(base: &Base, setting: &[(Knob, f64)], hosts: u32) -> Result<Profile, TurnError> {
    let server = Server {
        scope: Scope::Shared,
        ..base.server.clone()
    };
    let servers = (1..=hosts)
        .filter_map(|host| Some((Name::new(&format!("{}-out", lab::name(host)))?, server.clone())))
        .collect();
    let mut classes = Vec::new();
    for from in 1..=hosts {
        for to in (1..=hosts).filter(|to| *to != from) {
            classes.extend(class(from, to));
        }
    }
    let baseline = Profile {
        description: Some(format!(
            "One server for each of {hosts} hosts; {}.",
            written(setting)
        )),
        seed: base.seed,
        overhead: base.overhead,
        segmentation: Segmentation::Exact,
        servers,
        classes,
        tcp: base.tcp.clone(),
        mtu: base.mtu,
        timeline: base.timeline.clone().of_all(hosts as usize),
        ..Profile::default()
    };
    setting
        .iter()
        .try_fold(baseline, |profile, (knob, value)| profile.with(*knob, *value))
}

fn class(from: u32, to: u32) -> Option<Class> {
    let addresses = |host| -> Option<Vec<Prefix>> {
        let (v4, v6) = lab::addresses(host);
        Some(vec![
            Prefix::containing(v4.into(), 32)?,
            Prefix::containing(v6.into(), 128)?,
        ])
    };
    let path = vec![ServerId::new(from as usize - 1)?];
    Some(Class {
        name: Name::new(&class_name(from, to))?,
        matching: Match {
            source: addresses(from)?,
            destination: addresses(to)?,
            ..Match::default()
        },
        // The pair's host of lower number folds the path; the overhead is burnt at both.
        treatment: Treatment::Emulate {
            egress: Some(path.clone()),
            ingress: Some(path),
        },
    })
}

/// Name of the class of packets from a host to another.
#[must_use]
pub(super) fn class_name(from: u32, to: u32) -> String {
    format!("{}-{}", lab::name(from), lab::name(to))
}

/// Knobs that are turned, as people write it.
#[must_use]
pub(super) fn written(setting: &[(Knob, f64)]) -> String {
    if setting.is_empty() {
        return "baseline".into();
    }
    let parts: Vec<String> = setting
        .iter()
        .map(|(knob, value)| format!("{knob} {}", knob.written(*value)))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use perturb_profile::{Duration, Overhead};

    use super::*;

    #[test]
    fn a_setting_is_a_valid_profile() {
        let base = Base {
            server: Server::default(),
            overhead: Overhead::default(),
            mtu: Some("9000B".parse().unwrap()),
            ..Base::default()
        };
        let setting = [(Knob::Overhead, 102.9), (Knob::Bandwidth, 1.0 / 38.0)];
        let text = profile(&base, &setting, 3).unwrap().to_string();
        let parsed = perturb_profile::parse(&text).unwrap();
        assert_eq!((parsed.servers.len(), parsed.classes.len()), (3, 6));
        assert_eq!(parsed.mtu(), 9000);
        assert_eq!(parsed.overhead.receive, Duration::from_nanos(102_900));
        let rate = parsed.servers[2].1.bandwidth.unwrap();
        assert_eq!(rate.bits_per_second(), 304_000_000);
        assert_eq!(
            Setting::Knobs(setting.to_vec()).file_part(),
            "overhead-102.9us+bandwidth-38MB_s"
        );
    }
}
