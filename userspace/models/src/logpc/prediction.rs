//! What the three kinds of traffic cost: (9), (10), (13).

use serde::Serialize;

use super::input::{Kind, Parameters};

/// The answer, in cycles. A value that does not apply is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Without contention: the request-reply cycle, the interval of one-way messages, or a long message
    /// end to end.
    pub logp_cycles: f64,
    /// With contention for processors, C_r.
    pub lopc_cycles: f64,
    /// With that and the network's, C_n, where it enters the cost.
    pub logpc_cycles: f64,
    /// C_n per message; absent where an open load saturates the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_contention_cycles: Option<f64>,
    /// C_r per cycle of the program, if given or estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_contention_cycles: Option<f64>,
    /// Bulk: T_c, the interval of messages sent as fast as possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intermessage_cycles: Option<f64>,
    /// Bulk: T_c / T.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inflation: Option<f64>,
    /// Bulk: the greatest T_c / T of this network, (14).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub greatest_inflation: Option<f64>,
    /// m, messages per node and cycle.
    pub rate: f64,
    /// rho; 1 and more: the open load saturates the network.
    pub utilization: f64,
    /// k_d.
    pub mean_distance_per_dimension: f64,
    /// All messages of a node: cycles of the program for short ones, a train (2) for bulk.
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
    let channel = message.channel;
    let mut prediction = Prediction {
        logp_cycles: 0.0,
        lopc_cycles: 0.0,
        logpc_cycles: 0.0,
        network_contention_cycles: None,
        resource_contention_cycles: pattern.resource_contention,
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
            let contention = network.closed(2.0, free, channel);
            prediction.rate = 2.0 / (free + contention);
            prediction.network_contention_cycles = Some(contention);
            prediction.logp_cycles = free;
            prediction.logpc_cycles = free + resource + 2.0 * contention;
            prediction.total_cycles = count * prediction.logpc_cycles;
        }
        Kind::OneWay => {
            let free = message.send + message.receive + pattern.work;
            prediction.rate = 1.0 / free;
            prediction.network_contention_cycles = network.open(prediction.rate, channel);
            prediction.logp_cycles = free;
            prediction.logpc_cycles = free + resource;
            prediction.total_cycles = count * prediction.logpc_cycles;
        }
        Kind::Bulk => {
            let interval = message.interval() + pattern.work;
            let contended = network.interval(interval, channel);
            let contention = contended - interval;
            prediction.rate = 1.0 / contended;
            prediction.network_contention_cycles = Some(contention);
            prediction.intermessage_cycles = Some(contended);
            prediction.inflation = Some(contended / interval);
            prediction.greatest_inflation = Some(network.greatest_inflation());
            prediction.logp_cycles = message.long() + pattern.work;
            prediction.logpc_cycles = prediction.logp_cycles + resource + contention;
            // The first message bears what the others' interval hides.
            let first = prediction.logpc_cycles - message.long();
            prediction.total_cycles = message.train(count, contended) + first;
        }
    }
    prediction.lopc_cycles = prediction.logp_cycles + resource;
    prediction.utilization = network.utilization(prediction.rate, channel);
    prediction
}
