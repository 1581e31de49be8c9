//! What PlogPT and PlogP say of a round, from the profile and the measured latency of a small message.

use std::time::Duration;

use perturb_models::{
    plogpt::{
        Beside, CollectiveKind, Competitors, FromProfile, Network, PlogptError, PlogptInput, Program,
        ProgramInput, Traffic, from_profile, plogp, predict as plogpt_predict,
    },
    route::RouteError,
};
use perturb_profile::{Layout, Profile};
use perturb_quantity::{ByteSize, Micros};
use perturb_workloads::collective::Algorithm;
use serde::Serialize;

/// A program and the network that it runs on.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// As it is written.
    pub profile: &'a Profile,
    /// One rank on each.
    pub hosts: u32,
    /// What PlogPT takes and the profile does not say.
    pub beside: &'a Beside,
    /// What the hosts do.
    pub program: &'a ProgramInput,
}

/// What the models say of a round, ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// PlogPT, all transfers that qualify by eq. 14 delayed: its worst case; absent where the network is no tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plogpt: Option<f64>,
    /// PlogP: neither contention nor time-outs; of collectives only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plogp: Option<f64>,
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

/// A collective as a program.
pub fn collective(algorithm: Algorithm, message: u64) -> ProgramInput {
    let kind = match algorithm {
        Algorithm::AlltoallA => CollectiveKind::AlltoallA,
        Algorithm::AlltoallB => CollectiveKind::AlltoallB,
        Algorithm::Incast => CollectiveKind::Gather,
    };
    ProgramInput::collective(kind, ByteSize(message as f64))
}

impl Case<'_> {
    fn traffic(&self) -> Traffic {
        Traffic {
            nodes: Some(self.hosts),
            ..Traffic::of(self.program)
        }
    }

    /// Its longest message, bytes.
    pub(super) fn longest(&self) -> u64 {
        self.traffic().sizes.into_iter().max().unwrap_or(0)
    }

    fn network(&self, latency: Option<Duration>) -> Result<(FromProfile, Network), PlogptError> {
        let beside = Beside {
            measured_latency: latency.map(|time| Micros(time.as_secs_f64() * 1e6)),
            ..self.beside.clone()
        };
        let traffic = self.traffic();
        let found = from_profile(self.profile, &traffic, &beside)?;
        let network = Network::new(&found.parameters, traffic.one_way)?;
        Ok((found, network))
    }

    /// Its operations, matched.
    pub(super) fn operations(&self) -> Result<Program, PlogptError> {
        Ok(Program::new(self.program, &self.network(None)?.1)?)
    }

    /// Whether the program comes to an end, and can be predicted.
    ///
    /// # Errors
    /// When not.
    pub fn check(&self) -> Result<(), PlogptError> {
        self.predict(Duration::ZERO).map(|_| ())
    }

    /// A round's times, given the measured latency one way of a small message between the farthest hosts.
    pub(super) fn predict(&self, latency: Duration) -> Result<Prediction, PlogptError> {
        let (found, network) = self.network(Some(latency))?;
        predict(self.program, found, &network)
    }
}

fn predict(program: &ProgramInput, found: FromProfile, network: &Network) -> Result<Prediction, PlogptError> {
    let parameters = found.parameters;
    let rto = parameters.rto.0 / 1e3;
    let collective = program.collective.zip(program.message);
    let plogp = collective.map(|(kind, message)| plogp(network, kind, message.0));
    let plogp = plogp
        .transpose()
        .map_err(PlogptError::Parameters)?
        .map(|us| us / 1e3);
    if let Some(kind) = found.no_tree {
        if plogp.is_none() {
            let wanted = "a tree of switches or a star";
            return Err(RouteError::Topology { kind, wanted }.into());
        }
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
        program: program.clone(),
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

    fn predict(profile: &str, algorithm: Algorithm, message: u64) -> Prediction {
        let case = Case {
            profile: &perturb_profile::parse(profile).unwrap(),
            hosts: 8,
            beside: &Beside {
                jitter: Some(Micros(100.0)),
                ..Beside::default()
            },
            program: &collective(algorithm, message),
        };
        case.predict(Duration::from_micros(500)).unwrap()
    }

    #[test]
    fn time_outs_begin_where_a_message_exceeds_a_node_s_share_of_the_buffer() {
        let predict = |algorithm, message| predict(TREE, algorithm, message);
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
        let found = predict(TREE, Algorithm::AlltoallB, 14_480).predicted;
        // Ten frames and five acknowledgments.
        let gap = (14_480.0 + 66.0 * 15.0) * 8e6 / 1e8;
        // Of the six servers behind the NIC four are twice as fast.
        let latency = 500.0 + 1444.0 * 0.08 * (2.0 + 4.0 / 2.0);
        assert!(
            (found.plogpt.unwrap() * 1e3 - (11.0 * gap + latency)).abs() < 1e-6,
            "{found:?}"
        );
        assert!(
            (found.plogp.unwrap() * 1e3 - (7.0 * gap + latency)).abs() < 1e-6,
            "{found:?}"
        );
    }

    #[test]
    fn a_network_that_is_no_tree_has_plogp_only() {
        let text = "version: 1\nservers: { bus: { bandwidth: 10Mbit/s } }\nclasses: [{ name: all, match: {}, egress: [bus] }]\n";
        let found = predict(text, Algorithm::Incast, 1_448);
        assert_eq!(found.predicted.plogpt, None);
        // Seven messages of 1514 bytes at 10 Mbit/s, and the latency.
        assert!(
            (found.predicted.plogp.unwrap() - (7.0 * 1.2112 + 0.5)).abs() < 1e-6,
            "{found:?}"
        );
        assert!((found.rto - 200.0).abs() < 1e-9);
    }
}
