//! The profile of a setting: hosts that each send through one server of their own.
//!
//! Model: from host i to each other host j there is a class `hi-hj`, whose packets cross the server `hi-out` once:
//! LogGP's node, whose gap is shared by all that it sends. Every class burns the overhead at both ends. Its counters are
//! the row and column of the balance matrix. Super-packets are always split, so that only the knob differs between
//! settings.

use perturb_emulator::lab;
use perturb_profile::{
    Class, Match, Name, Prefix, Profile, Scope, Segmentation, Server, ServerId, Treatment, TurnError,
};

use super::experiment::{Base, Knob};

/// Knobs with values that differ from the baseline.
pub(super) type Setting = [(Knob, f64)];

/// The network of `hosts` private hosts in a setting.
///
/// # Errors
/// When a knob is turned beyond what a profile may say.
pub(super) fn profile(base: &Base, setting: &Setting, hosts: u32) -> Result<Profile, TurnError> {
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
        seed: 1,
        overhead: base.overhead,
        segmentation: Segmentation::Exact,
        servers,
        classes,
        tcp: base.tcp.clone(),
        mtu: base.mtu,
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

/// A setting as people write it.
#[must_use]
pub(super) fn written(setting: &Setting) -> String {
    if setting.is_empty() {
        return "baseline".into();
    }
    let parts: Vec<String> = setting
        .iter()
        .map(|(knob, value)| format!("{knob} {}", knob.written(*value)))
        .collect();
    parts.join(", ")
}

/// A setting as part of a file's name.
#[must_use]
pub(super) fn file_part(setting: &Setting) -> String {
    written(setting)
        .replace(", ", "+")
        .replace(' ', "-")
        .replace('/', "_")
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
            tcp: perturb_profile::Tcp::default(),
            mtu: Some("9000B".parse().unwrap()),
        };
        let setting = [(Knob::Overhead, 102.9), (Knob::Bandwidth, 1.0 / 38.0)];
        let text = profile(&base, &setting, 3).unwrap().to_string();
        let parsed = perturb_profile::parse(&text).unwrap();
        assert_eq!((parsed.servers.len(), parsed.classes.len()), (3, 6));
        assert_eq!(parsed.mtu(), 9000);
        assert_eq!(parsed.overhead.receive, Duration::from_nanos(102_900));
        let rate = parsed.servers[2].1.bandwidth.unwrap();
        assert_eq!(rate.bits_per_second(), 304_000_000);
        assert_eq!(file_part(&setting), "overhead-102.9us+bandwidth-38MB_s");
    }
}
