//! PlogPT's and PlogP's parameters from a profile.
//!
//! Model. A message of m bytes is s frames, and acknowledgments (see [`Frames`]). With w wire bytes,
//!
//! ```text
//! g(m)        s gap + w / b(1), of the slowest of a host's own servers and links
//! b(h), d(h)  the tree's levels; a buffer in bytes or packets as the time it takes to drain
//! L           half the measured round trip of a small message, and the time that the last frame, which is longer,
//!             needs more at each server behind the first
//! RTO         the profile's rto_min, 200 ms unless it says otherwise (TCP_RTO_MIN)
//! ```
//!
//! A star is the tree of one switch: edges above the hosts' never limit. Other networks are no trees: for them there
//! is PlogP, which knows no contention, with the narrowest server.

use std::time::Duration;

use perturb_models::plogpt::{
    CollectiveKind, Competitors, GapPoint, Link, Network, Parameters, PlogptError, PlogptInput, ProgramInput,
    Sharing, plogp, predict as plogpt_predict,
};
use perturb_profile::{Layout, Profile, Server, ServerId, Volume};
use perturb_quantity::{ByteSize, BytesPerSecond, Micros};
use perturb_workloads::collective::Algorithm;
use serde::Serialize;

use super::frames::{ENDLESS, Frames, HEADERS, SEGMENT, UNLIMITED};

/// The small message that measured the latency.
const SMALL: u64 = HEADERS + 4;
/// Linux' TCP_RTO_MIN.
const RTO: Duration = Duration::from_millis(200);
/// Difference up to which two heights count as the same switch (see `P_S`).
const SWITCH_TOLERANCE: f64 = 0.001;

/// What was measured, and of what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) hosts: u32,
    /// Bytes.
    pub(super) message: u64,
    /// One way, of a small message between the farthest hosts.
    pub(super) latency: Duration,
    /// J.
    pub(super) jitter: Duration,
}

/// What the models say of a round, ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Predicted {
    /// PlogPT, all transfers that qualify by eq. 14 delayed: its worst case; absent where the network is no tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plogpt: Option<f64>,
    /// PlogP: neither contention nor time-outs.
    pub(super) plogp: f64,
    /// PlogPT without time-outs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plogpt_without_timeouts: Option<f64>,
    /// PlogPT's mean if one of the transfers that qualify is delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plogpt_expected: Option<f64>,
    /// PlogPT's worst case if transfers that are merely on their way count, too: our rule, not the paper's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plogpt_overlapping: Option<f64>,
}

/// A prediction and what it rests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    pub(super) predicted: Predicted,
    /// Time-outs that follow one another on the longest path.
    pub(super) timeouts: u32,
    /// The network's RTO, ms.
    pub(super) rto: f64,
}

/// Predicts a round.
pub(super) fn predict(
    profile: &Profile,
    algorithm: Algorithm,
    observed: Observed,
) -> Result<Prediction, PlogptError> {
    let kind = match algorithm {
        Algorithm::AlltoallA => CollectiveKind::AlltoallA,
        Algorithm::AlltoallB => CollectiveKind::AlltoallB,
        Algorithm::Incast => CollectiveKind::Gather,
    };
    let (is_tree, parameters) = parameters(profile, kind, observed);
    let rto = parameters.rto.0 / 1e3;
    let network = Network::new(&parameters, kind.one_way())?;
    let bytes = observed.message as f64;
    let plogp = plogp(&network, kind, bytes).map_err(PlogptError::Parameters)? / 1e3;
    if !is_tree {
        let predicted = Predicted {
            plogpt: None,
            plogp,
            plogpt_without_timeouts: None,
            plogpt_expected: None,
            plogpt_overlapping: None,
        };
        return Ok(Prediction {
            predicted,
            timeouts: 0,
            rto,
        });
    }
    let mut input = PlogptInput {
        parameters,
        program: ProgramInput::collective(kind, ByteSize(bytes)),
    };
    let plogpt = plogpt_predict(&input)?;
    let total = plogpt.total_us / 1e3;
    input.parameters.competitors = Competitors::Overlapping;
    let overlapping = plogpt_predict(&input)?.total_us / 1e3;
    Ok(Prediction {
        predicted: Predicted {
            plogpt: Some(total),
            plogp,
            plogpt_without_timeouts: Some(plogpt.total_without_timeouts_us.map_or(total, |us| us / 1e3)),
            plogpt_expected: Some(plogpt.expectation.map_or(total, |mean| mean.total_us / 1e3)),
            plogpt_overlapping: Some(overlapping),
        },
        timeouts: plogpt.retransmission_timeouts,
        rto,
    })
}

/// The parameters, and whether they are a tree's; if not, its edges never limit.
fn parameters(profile: &Profile, kind: CollectiveKind, observed: Observed) -> (bool, Parameters) {
    let Observed {
        hosts,
        message,
        latency,
        jitter,
    } = observed;
    let topology = profile.topology.as_ref();
    let own = |ids: &[ServerId]| -> Vec<Server> {
        ids.iter()
            .filter_map(|&id| profile.server(id))
            .map(|(_, server)| server.clone())
            .collect()
    };
    let (first, last) = topology.map_or((Vec::new(), Vec::new()), |topology| {
        (own(&topology.egress), own(&topology.ingress))
    });
    let heights = (u32::BITS - (hosts - 1).leading_zeros()) as usize;
    let layout = topology.map(|topology| &topology.layout);
    // The links that a packet between the farthest hosts crosses, and the levels of the tree.
    let (is_tree, levels, between): (bool, Vec<Server>, Vec<Server>) = match layout {
        Some(Layout::Tree { levels, .. }) => {
            let levels = levels.iter().take(heights).cloned().collect::<Vec<_>>();
            let up_and_down = levels.iter().chain(levels.iter().rev()).cloned().collect();
            (true, levels, up_and_down)
        }
        Some(Layout::Star { link }) => (true, vec![link.clone()], vec![link.clone(); 2]),
        Some(other) => (false, vec![narrowest(other.links())], other.links().to_vec()),
        None => {
            let servers: Vec<Server> = profile.servers.iter().map(|(_, server)| server.clone()).collect();
            (false, vec![narrowest(&servers)], Vec::new())
        }
    };
    let frames = Frames::of(message, kind.one_way());
    let wire = frames.wire_bytes(message);
    let occupancy = |server: &Server| {
        server.gap.nanos() as f64 / 1e3 * frames.data as f64 + wire as f64 * 8e6 / rate(server)
    };
    let hosts_own: Vec<&Server> = first.iter().chain(&last).chain(levels.first()).collect();
    let gap = hosts_own
        .iter()
        .map(|server| occupancy(server))
        .fold(0.0, f64::max);
    let slowest = hosts_own
        .iter()
        .map(|server| rate(server))
        .fold(UNLIMITED, f64::min);
    let mut links: Vec<Link> = Vec::new();
    for height in 0..heights.max(1) {
        let below = links
            .last()
            .map_or(slowest, |link: &Link| link.bandwidth.0 * 8.0 * 2.0);
        let level = levels.get(height).or(levels.last());
        let bandwidth = match (height, levels.get(height)) {
            (0, _) => slowest,
            (_, Some(level)) => rate(level).min(below),
            (_, None) => below,
        };
        links.push(Link {
            bandwidth: BytesPerSecond(bandwidth / 8.0),
            buffer_delay: Micros(level.map_or(ENDLESS, |level| buffer_delay(level, bandwidth))),
        });
    }
    let frame = (message.min(SEGMENT) + HEADERS) as f64;
    let path = first.iter().chain(&between).chain(&last).skip(1);
    let longer: f64 = path
        .map(|server| (frame - SMALL as f64) * 8e6 / rate(server))
        .sum();
    let rto = profile
        .tcp
        .rto_min
        .map_or(RTO, |minimum| Duration::from_nanos(minimum.nanos()));
    let micros = |time: Duration| Micros(time.as_secs_f64() * 1e6);
    let parameters = Parameters {
        nodes: hosts,
        latency: Micros(micros(latency).0 + longer.max(0.0)),
        rto: micros(rto),
        jitter: micros(jitter),
        switch_tolerance: SWITCH_TOLERANCE,
        links,
        one_way_links: None,
        gap: vec![GapPoint {
            size: ByteSize(message as f64),
            gap: Micros(gap),
        }],
        sharing: match layout {
            Some(Layout::Tree {
                sharing: perturb_profile::Sharing::Bidirectional,
                ..
            }) => Sharing::HalfDuplex,
            _ => Sharing::FullDuplex,
        },
        competitors: Competitors::Starting,
    };
    (is_tree, parameters)
}

/// Bit/s.
fn rate(server: &Server) -> f64 {
    server
        .bandwidth
        .map_or(UNLIMITED, |rate| rate.bits_per_second() as f64)
}

fn narrowest(servers: &[Server]) -> Server {
    servers
        .iter()
        .min_by(|one, other| rate(one).total_cmp(&rate(other)))
        .cloned()
        .unwrap_or_default()
}

/// The time that a full buffer needs to drain, us.
fn buffer_delay(server: &Server, bits_per_second: f64) -> f64 {
    let of_bytes = |bytes: f64| bytes * 8e6 / bits_per_second;
    let by_volume = server.buffer.volume.map(|volume| match volume {
        Volume::Bytes(size) => of_bytes(size.bytes() as f64),
        Volume::Delay(delay) => delay.nanos() as f64 / 1e3,
    });
    let by_packets = server
        .buffer
        .packets
        .map(|packets| of_bytes(f64::from(packets) * (SEGMENT + HEADERS) as f64));
    match (by_volume, by_packets) {
        (Some(one), Some(other)) => one.min(other),
        (one, other) => one.or(other).unwrap_or(ENDLESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "
version: 1
servers: { nic: { bandwidth: 100Mbit/s } }
topology:
  kind: tree
  egress: [nic]
  levels:
    - { bandwidth: 100Mbit/s, buffer_delay: 2560us }
    - { bandwidth: 200Mbit/s, buffer_delay: 2560us }
    - { bandwidth: 200Mbit/s, buffer_delay: 40ms }
tcp: { rto_min: 150ms }
";

    fn observed(message: u64) -> Observed {
        Observed {
            hosts: 8,
            message,
            latency: Duration::from_micros(500),
            jitter: Duration::from_micros(100),
        }
    }

    #[test]
    fn time_outs_begin_where_a_message_exceeds_a_node_s_share_of_the_buffer() {
        let profile = perturb_profile::parse(TREE).unwrap();
        let predict = |algorithm, message| predict(&profile, algorithm, observed(message)).unwrap();
        // 2560 us of 100 Mbit/s are 32000 bytes.
        for message in [1_000, 8_000, 28_000] {
            assert_eq!(predict(Algorithm::AlltoallB, message).timeouts, 0, "{message}");
        }
        for message in [33_000, 100_000] {
            let found = predict(Algorithm::AlltoallB, message);
            assert_eq!(found.timeouts, 1, "{message}");
            let (with, without) = (
                found.predicted.plogpt.unwrap(),
                found.predicted.plogpt_without_timeouts.unwrap(),
            );
            assert!((with - without - 150.0).abs() < 1e-6, "{with} {without}");
            assert_eq!(predict(Algorithm::AlltoallA, message).timeouts, 0, "{message}");
        }
    }

    /// Eq. 23: three steps at the host's rate and four at half of it, its share of the top; PlogP has seven at its rate.
    #[test]
    fn closed_form_of_b() {
        let profile = perturb_profile::parse(TREE).unwrap();
        let found = predict(&profile, Algorithm::AlltoallB, observed(14_480))
            .unwrap()
            .predicted;
        // Ten frames and five acknowledgments.
        let gap = (14_480.0 + 66.0 * 15.0) * 8e6 / 1e8;
        // Of the six servers behind the NIC four are twice as fast.
        let latency = 500.0 + 1444.0 * 0.08 * (2.0 + 4.0 / 2.0);
        assert!(
            (found.plogpt.unwrap() * 1e3 - (11.0 * gap + latency)).abs() < 1e-6,
            "{found:?}"
        );
        assert!(
            (found.plogp * 1e3 - (7.0 * gap + latency)).abs() < 1e-6,
            "{found:?}"
        );
    }

    #[test]
    fn a_network_that_is_no_tree_has_plogp_only() {
        let text = "version: 1\nservers: { bus: { bandwidth: 10Mbit/s } }\nclasses: [{ name: all, match: {}, egress: [bus] }]\n";
        let profile = perturb_profile::parse(text).unwrap();
        let found = predict(&profile, Algorithm::Incast, observed(1_448)).unwrap();
        assert_eq!(found.predicted.plogpt, None);
        // Seven messages of 1514 bytes at 10 Mbit/s, and the latency.
        assert!(
            (found.predicted.plogp - (7.0 * 1.2112 + 0.5)).abs() < 1e-6,
            "{found:?}"
        );
        assert!((found.rto - 200.0).abs() < 1e-9);
    }
}
