//! What PlogPT and PlogP say of a round, from the profile and the measured latency of a small message.

use std::time::Duration;

use perturb_models::plogpt::{
    Beside, CollectiveKind, Competitors, Network, PlogptError, PlogptInput, ProgramInput, Traffic,
    from_profile, plogp, predict as plogpt_predict,
};
use perturb_profile::{Layout, Profile};
use perturb_quantity::{ByteSize, Micros};
use perturb_workloads::collective::Algorithm;
use serde::Serialize;

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
pub struct Predicted {
    /// PlogPT, all transfers that qualify by eq. 14 delayed: its worst case; absent where the network is no tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plogpt: Option<f64>,
    /// PlogP: neither contention nor time-outs.
    pub plogp: f64,
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
    let micros = |time: Duration| Some(Micros(time.as_secs_f64() * 1e6));
    let traffic = Traffic {
        nodes: Some(observed.hosts),
        one_way: kind.one_way(),
        sizes: vec![observed.message],
    };
    let beside = Beside {
        jitter: micros(observed.jitter),
        measured_latency: micros(observed.latency),
        ..Beside::default()
    };
    let found = from_profile(profile, &traffic, &beside)?;
    let parameters = found.parameters;
    let rto = parameters.rto.0 / 1e3;
    let network = Network::new(&parameters, kind.one_way())?;
    let bytes = observed.message as f64;
    let plogp = plogp(&network, kind, bytes).map_err(PlogptError::Parameters)? / 1e3;
    if found.no_tree.is_some() {
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

/// Whether PlogPT can predict it.
pub fn is_tree(profile: &Profile) -> bool {
    let layout = profile.topology.as_ref().map(|topology| &topology.layout);
    matches!(layout, Some(Layout::Tree { .. } | Layout::Star { .. }))
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
