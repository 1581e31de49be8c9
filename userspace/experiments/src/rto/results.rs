//! What was measured for one message size, and what follows from it.

use std::{collections::BTreeMap, time::Duration};

use perturb_stats::{Sample, median};
use serde::Serialize;

use super::{
    counters::TcpCounters,
    prediction::{Predicted, Prediction},
};

/// How far below and above a whole multiple of the smallest time-out a delay may lie, as shares of it. A time-out is
/// the smallest one and a smoothed round trip, and slow start follows it; while one transfer waits, others go on.
const NEAR: (f64, f64) = (0.25, 0.5);

/// One round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// Until each rank's end.
    pub(super) ranks_ms: Vec<f64>,
    /// Of all hosts.
    pub(super) tcp: TcpCounters,
}

impl Round {
    /// Until the last rank's end.
    pub(super) fn ms(&self) -> f64 {
        self.ranks_ms.iter().copied().fold(0.0, f64::max)
    }
}

/// The rounds of one message size or program; the keys of `perturb rto --json`.
#[derive(Debug, Serialize)]
pub struct Series {
    /// Its name, or `program`.
    pub algorithm: &'static str,
    pub(super) hosts: u32,
    /// Of each message; of a program's longest.
    pub message_bytes: u64,
    /// Each round's time, until the last rank's end.
    pub rounds_ms: Vec<f64>,
    /// The median time until each rank's end.
    pub ranks_ms: Vec<f64>,
    /// What a round takes without time-outs: PlogPT's prediction, PlogP's where there is none.
    pub ideal_ms: f64,
    /// Rounds with time-outs that took nearly a whole multiple of the time-out longer than without.
    pub(super) near_rto_multiple: usize,
    pub(super) tcp: TcpCounters,
    /// Packets dropped by the emulated network.
    pub(super) drops: u64,
    /// What the models say of a round.
    pub predicted_ms: Predicted,
    /// Where they were dropped.
    pub(super) drops_by_server: BTreeMap<String, u64>,
    /// Time-outs in each round.
    pub timeouts_by_round: Vec<u64>,
    /// Time-outs in a row that PlogPT predicts.
    pub predicted_timeouts: u32,
    /// The smallest time-out.
    pub rto_ms: f64,
    /// One way, of a small message between the farthest hosts, measured.
    pub(super) latency_us: f64,
    #[serde(skip)]
    pub(super) rounds: Vec<Round>,
}

impl Series {
    pub(super) fn new(
        (algorithm, hosts, message_bytes): (&'static str, u32, u64),
        latency: Duration,
        rounds: Vec<Round>,
        drops_by_server: BTreeMap<String, u64>,
        prediction: Prediction,
    ) -> Self {
        let Prediction {
            predicted,
            timeouts,
            rto,
        } = prediction;
        Self {
            algorithm,
            hosts,
            message_bytes,
            rounds_ms: rounds.iter().map(Round::ms).collect(),
            ranks_ms: (0..hosts as usize).map(|rank| of_rank(&rounds, rank)).collect(),
            ideal_ms: predicted
                .plogpt_without_timeouts
                .or(predicted.plogp)
                .unwrap_or(f64::NAN),
            near_rto_multiple: near_multiples(&rounds, predicted.plogpt_without_timeouts, rto),
            tcp: rounds.iter().map(|round| round.tcp).sum(),
            drops: drops_by_server.values().sum(),
            predicted_ms: predicted,
            drops_by_server,
            timeouts_by_round: rounds.iter().map(|round| round.tcp.timeouts).collect(),
            predicted_timeouts: timeouts,
            rto_ms: rto,
            latency_us: micros(latency),
            rounds,
        }
    }

    /// The rounds' times; one round stands for itself.
    pub(super) fn sample(&self) -> Option<Sample> {
        Sample::new(self.rounds_ms.clone()).ok()
    }

    /// Median of the rounds, ms.
    pub fn median(&self) -> f64 {
        median(&self.rounds_ms).unwrap_or(f64::NAN)
    }
}

/// Median time until a rank's end, ms.
fn of_rank(rounds: &[Round], rank: usize) -> f64 {
    let ends: Vec<f64> = rounds
        .iter()
        .filter_map(|round| round.ranks_ms.get(rank).copied())
        .collect();
    median(&ends).unwrap_or(f64::NAN)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Counts the rounds that were delayed by the time-out: some TCP counted one, and the round took nearly a multiple of it
/// longer than the ideal one, or than the fastest if that is faster or there is no ideal.
fn near_multiples(rounds: &[Round], ideal: Option<f64>, rto: f64) -> usize {
    let fastest = rounds.iter().map(Round::ms).fold(f64::INFINITY, f64::min);
    let base = ideal.map_or(fastest, |ideal| ideal.min(fastest));
    let (below, above) = NEAR;
    rounds
        .iter()
        .filter(|round| {
            let multiple = (round.ms() - base) / rto;
            let whole = (multiple + below).floor();
            round.tcp.timeouts > 0 && whole >= 1.0 && multiple - whole <= above
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(ms: f64, timeouts: u64) -> Round {
        Round {
            ranks_ms: vec![ms / 2.0, ms],
            tcp: TcpCounters {
                timeouts,
                ..TcpCounters::default()
            },
        }
    }

    #[test]
    fn a_delayed_round_has_a_time_out_and_its_length() {
        let rounds = [
            round(40.0, 0),
            round(45.0, 0),
            // Delayed once, twice, and with a few ms of slow start.
            round(242.0, 1),
            round(441.0, 3),
            round(270.0, 1),
            // Slow, but by nothing of TCP's; and a time-out that nobody waited for.
            round(240.0, 0),
            round(48.0, 1),
            // Between two multiples.
            round(160.0, 1),
            round(370.0, 1),
        ];
        assert_eq!(near_multiples(&rounds, None, 200.0), 3);
        assert_eq!(near_multiples(&rounds, Some(38.0), 200.0), 3);
    }

    #[test]
    fn all_may_be_delayed() {
        let rounds = [round(230.0, 1), round(235.0, 1), round(431.0, 2)];
        assert_eq!(near_multiples(&rounds, Some(25.0), 200.0), 3);
    }
}
