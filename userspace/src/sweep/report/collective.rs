//! PlogPT and PlogP for a workload that is a collective of known pattern.
//!
//! Model: the sweep's network is one switch, into which each host sends through its own server. A message of m bytes is s
//! frames and a acknowledgments, as in `perturb rto`, and w wire bytes. With the knobs' values o, g, L and G,
//!
//! ```text
//! g(m)   the longer of the server's s g + w G and the processor's n o, n the frames and acknowledgments that a host
//!        sends and receives for each message
//! L      L + 2 o
//! ```
//!
//! and no buffer ever fills, so that there are no time-outs. What the model adds to its own time at the baseline, as often
//! as the collective is made in a run, is added to the measured run time, as the other models do. What it lacks: the
//! processors that hosts share, and a base with buffers.

use std::collections::BTreeMap;

use perturb_models::plogpt::{
    Competitors, GapPoint, Link, Network, Parameters, PlogptInput, ProgramInput, Sharing, plogp, predict,
};
use perturb_quantity::{ByteSize, BytesPerSecond, Micros};

use crate::{
    rto::frames::{ENDLESS, Frames, UNLIMITED},
    sweep::experiment::{Collective, Knob},
};

/// No buffer fills, so that neither matters.
const RTO_US: f64 = 2e5;
const JITTER_US: f64 = 0.0;
const SWITCH_TOLERANCE: f64 = 0.001;

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
    let parameters = parameters(collective, hosts, value);
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

fn parameters(collective: Collective, hosts: u32, value: &dyn Fn(Knob) -> f64) -> Parameters {
    let one_way = collective.algorithm.one_way();
    let overhead = value(Knob::Overhead);
    // The gap of a size is linear between two; messages of recursive doubling are larger than the first.
    let heights = hosts.next_power_of_two().trailing_zeros().max(1);
    let gap = (0..heights).map(|height| {
        let message = collective.message << height;
        let frames = Frames::of(message, one_way);
        let server = frames.data as f64 * value(Knob::Gap)
            + frames.wire_bytes(message) as f64 * value(Knob::Bandwidth);
        let processor = overhead * frames.handled(one_way) as f64;
        GapPoint {
            size: ByteSize(message as f64),
            gap: Micros(server.max(processor)),
        }
    });
    let rate = match value(Knob::Bandwidth) {
        per_byte if per_byte > 0.0 => 1e6 / per_byte,
        _ => UNLIMITED / 8.0,
    };
    // Only the hosts' own edges limit.
    let links = (0..heights).map(|height| Link {
        bandwidth: BytesPerSecond(rate * f64::from(1 << height)),
        buffer_delay: Micros(ENDLESS),
    });
    Parameters {
        nodes: hosts,
        latency: Micros(value(Knob::Latency) + 2.0 * overhead),
        rto: Micros(RTO_US),
        jitter: Micros(JITTER_US),
        switch_tolerance: SWITCH_TOLERANCE,
        links: links.collect(),
        one_way_links: None,
        gap: gap.collect(),
        sharing: Sharing::FullDuplex,
        competitors: Competitors::Starting,
    }
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
