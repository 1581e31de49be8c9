//! What the three kinds of traffic cost: (8)–(10), (13), (14), 5.1.

use serde::Serialize;

use super::input::{Kind, Parameters};
use super::network::Cycle;

/// The answer, in cycles. A value that does not apply is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Without contention: the request-reply cycle, the interval of one-way messages, or a long message
    /// end to end, (1) or (2).
    pub logp_cycles: f64,
    /// With contention for processors, C_r.
    pub lopc_cycles: f64,
    /// With that and the network's, C_n, where it enters the cost: (9), (10).
    pub logpc_cycles: f64,
    /// C_n per message; absent where an open load saturates the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_contention_cycles: Option<f64>,
    /// C_r per cycle of the program, if given or estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_contention_cycles: Option<f64>,
    /// Bulk: one iteration of the remap of long messages, o_s + (B - 1) G + (B - 1 - a) G (5.1.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration_cycles: Option<f64>,
    /// Bulk: the size from which on (2) is (1); absent without G_m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crossover_bytes: Option<f64>,
    /// Bulk: T_c = T + C_n, T = 2 G B + work, the interval of messages sent as fast as possible (13).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intermessage_cycles: Option<f64>,
    /// Bulk: T_c / T; absent where T is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inflation: Option<f64>,
    /// Bulk: F / (2 G), T_c / T without work, (14); absent for G = 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub greatest_inflation: Option<f64>,
    /// m, messages per node and cycle.
    pub rate: f64,
    /// rho; 1 and more: the open load saturates the network.
    pub utilization: f64,
    /// k_d.
    pub mean_distance_per_dimension: f64,
    /// All messages of a node: cycles of the program for short ones; for bulk the first message end to
    /// end, then one per T_c.
    pub total_cycles: f64,
}

/// The prediction for one kind of traffic.
#[must_use]
pub fn predict(parameters: &Parameters) -> Prediction {
    let Parameters {
        network,
        message,
        pattern,
        ..
    } = parameters;
    let count = pattern.messages as f64;
    let resource = pattern.resource_contention.unwrap_or(0.0);
    let bytes = message.bytes;
    let mut prediction = Prediction {
        logp_cycles: 0.0,
        lopc_cycles: 0.0,
        logpc_cycles: 0.0,
        network_contention_cycles: None,
        resource_contention_cycles: pattern.resource_contention,
        iteration_cycles: None,
        crossover_bytes: None,
        intermessage_cycles: None,
        inflation: None,
        greatest_inflation: None,
        rate: 0.0,
        utilization: 0.0,
        mean_distance_per_dimension: network.distance,
        total_cycles: 0.0,
    };
    match pattern.kind {
        Kind::RequestReply => {
            let free = message.round_trip() + pattern.work;
            let cycle = Cycle {
                messages: 2.0,
                ..Cycle::of(free)
            };
            let contention = network.closed(cycle, bytes);
            prediction.rate = 2.0 / (free + contention);
            prediction.network_contention_cycles = Some(contention);
            prediction.logp_cycles = free;
            prediction.logpc_cycles = free + resource + 2.0 * contention;
            prediction.total_cycles = count * prediction.logpc_cycles;
        }
        Kind::OneWay => {
            let free = message.send + message.receive + pattern.work;
            prediction.rate = 1.0 / free;
            prediction.network_contention_cycles = network.open(prediction.rate, bytes);
            prediction.logp_cycles = free;
            prediction.logpc_cycles = free + resource;
            prediction.total_cycles = count * prediction.logpc_cycles;
        }
        Kind::Bulk => {
            let interval = message.interval() + pattern.work;
            let contention = network.closed(Cycle::of(interval), bytes);
            let contended = interval + contention;
            prediction.rate = 1.0 / contended;
            prediction.network_contention_cycles = Some(contention);
            prediction.intermessage_cycles = Some(contended);
            prediction.iteration_cycles = Some(message.sending() + message.receiving());
            prediction.crossover_bytes = message.crossover();
            prediction.inflation = (interval > 0.0).then(|| contended / interval);
            prediction.greatest_inflation = network.greatest_inflation(message.gap_per_byte);
            prediction.logp_cycles = message.long();
            prediction.logpc_cycles = prediction.logp_cycles + resource + contention;
            prediction.total_cycles = prediction.logpc_cycles + (count - 1.0) * contended;
        }
    }
    prediction.lopc_cycles = prediction.logp_cycles + resource;
    prediction.utilization = network.utilization(prediction.rate, bytes);
    prediction
}
