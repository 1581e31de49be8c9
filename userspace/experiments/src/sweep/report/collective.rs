//! PlogPT and PlogP for a workload that is a collective of known pattern.
//!
//! Model: the sweep's network is one switch, into which each host sends through its own server: a star, whose knobs are
//! o, g, L and G, as [`perturb_models::plogpt::from_profile`] reads it. No buffer ever fills, so that there are no
//! time-outs. What the model adds to its own time at the baseline, as often as the collective is made in a run, is added
//! to the measured run time, as the other models do. What it lacks: the processors that hosts share, and a base with
//! buffers.

use std::collections::BTreeMap;

use perturb_models::plogpt::{
    Beside, Network, PlogptInput, ProgramInput, Traffic, from_profile, plogp, predict,
};
use perturb_profile::{Layout, Name, Overhead, Profile, Server, ServerId, Topology};
use perturb_quantity::{ByteSize, Micros};

use crate::sweep::experiment::{Collective, Knob};

/// Slowdowns at the levels of a knob by `plogpt` and `plogp`, of a run that takes `run_time_us` at the baseline.
pub(super) fn slowdowns(
    collective: Collective,
    hosts: u32,
    run_time_us: f64,
    baseline: &dyn Fn(Knob) -> f64,
    knob: Knob,
    levels: &[f64],
) -> BTreeMap<&'static str, Vec<Option<f64>>> {
    let at = |level: Option<f64>| {
        let value = |other: Knob| match level {
            Some(level) if other == knob => level,
            _ => baseline(other),
        };
        times_us(collective, hosts, &value)
    };
    let base = at(None);
    let slowdown = |pick: fn(Times) -> f64| -> Vec<Option<f64>> {
        let of = |level: &f64| {
            let added = pick(at(Some(*level))?) - pick(base?);
            Some(1.0 + collective.times as f64 * added / run_time_us)
        };
        levels.iter().map(of).collect()
    };
    BTreeMap::from([
        ("plogpt", slowdown(|times| times.plogpt)),
        ("plogp", slowdown(|times| times.plogp)),
    ])
}

/// Of one collective, in µs.
#[derive(Clone, Copy)]
struct Times {
    plogpt: f64,
    plogp: f64,
}

fn times_us(collective: Collective, hosts: u32, value: &dyn Fn(Knob) -> f64) -> Option<Times> {
    let kind = collective.algorithm;
    // Messages of recursive doubling are larger than the first.
    let heights = hosts.next_power_of_two().trailing_zeros().max(1);
    let traffic = Traffic {
        nodes: Some(hosts),
        one_way: kind.one_way(),
        sizes: (0..heights).map(|height| collective.message << height).collect(),
    };
    let beside = Beside {
        jitter: Some(Micros(0.0)),
        ..Beside::default()
    };
    let parameters = from_profile(&star(value)?, &traffic, &beside).ok()?.parameters;
    let network = Network::new(&parameters, kind.one_way()).ok()?;
    let bytes = collective.message as f64;
    let plogp = plogp(&network, kind, bytes).ok()?;
    let input = PlogptInput {
        parameters,
        program: ProgramInput::collective(kind, ByteSize(bytes)),
    };
    let plogpt = predict(&input).ok()?.total_us;
    Some(Times { plogpt, plogp })
}

/// A switch into which each host sends through a server of its own.
fn star(value: &dyn Fn(Knob) -> f64) -> Option<Profile> {
    let (mut own, mut overhead) = (Server::default(), Overhead::default());
    for knob in Knob::ALL {
        knob.turn(value(knob), &mut own, &mut overhead);
    }
    Some(Profile {
        overhead,
        servers: vec![(Name::new("own")?, own)],
        topology: Some(Topology {
            layout: Layout::Star {
                link: Server::default(),
            },
            egress: vec![ServerId::new(0)?],
            ingress: Vec::new(),
        }),
        ..Profile::default()
    })
}

#[cfg(test)]
mod tests {
    use perturb_models::plogpt::CollectiveKind;

    use super::*;

    fn base(knob: Knob) -> f64 {
        match knob {
            Knob::Overhead => 1.0,
            Knob::Gap => 10.0,
            Knob::Latency => 50.0,
            Knob::Bandwidth => 0.01,
            _ => 0.0,
        }
    }

    /// µs that the model adds to ten alltoalls of four hosts with messages of ten frames and five acknowledgments.
    fn added(algorithm: CollectiveKind, knob: Knob, level: f64) -> [f64; 2] {
        let collective = Collective {
            algorithm,
            message: 14_480,
            times: 10,
        };
        let found = slowdowns(collective, 4, 1e5, &base, knob, &[level]);
        ["plogpt", "plogp"].map(|name| (found[name][0].unwrap() - 1.0) * 1e5)
    }

    fn about(found: [f64; 2], expected: f64) {
        for found in found {
            assert!(
                (found - expected).abs() < 1e-3 * expected.abs().max(1.0),
                "{found}, expected {expected}"
            );
        }
    }

    #[test]
    fn alltoall_by_hand() {
        let (a, b) = (CollectiveKind::AlltoallA, CollectiveKind::AlltoallB);
        // Three steps, each a latency longer; B waits for the last only.
        about(added(a, Knob::Latency, 150.0), 10.0 * 3.0 * 100.0);
        about(added(b, Knob::Latency, 150.0), 10.0 * 100.0);
        // Ten frames in each of three steps.
        about(added(a, Knob::Gap, 30.0), 10.0 * 3.0 * 10.0 * 20.0);
        about(added(b, Knob::Gap, 30.0), 10.0 * 3.0 * 10.0 * 20.0);
        // 14480 bytes and fifteen times 66.
        about(added(b, Knob::Bandwidth, 0.11), 10.0 * 3.0 * 15_470.0 * 0.1);
        // The server needs 254.7 us for a message: the processor's 30 packets are hidden up to 8.49 us, but for two in
        // the latency; at 20 us they take 600 us.
        about(added(b, Knob::Overhead, 8.0), 10.0 * 2.0 * 7.0);
        about(
            added(b, Knob::Overhead, 20.0),
            10.0 * (3.0 * (600.0 - 254.7) + 2.0 * 19.0),
        );
    }

    #[test]
    fn nothing_is_added_at_the_baseline() {
        for knob in Knob::ALL {
            about(added(CollectiveKind::Ring, knob, base(knob)), 0.0);
        }
    }
}
