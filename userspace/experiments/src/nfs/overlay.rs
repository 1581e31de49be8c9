//! The queueing model beside the measurement.
//!
//! Model: `perturb_models::queueing` (Martin 1999, section 5.3), evaluated at the throughput that was
//! delivered, with the varied latency or overhead added. A varied gap or bandwidth has no place in it.

use perturb_models::queueing::{Network, NfsServer};
use perturb_profile::Knob;
use perturb_quantity::{ByteSize, Micros, Share};
use perturb_workloads::nfs::{
    curve::{self, CurveLine},
    record::Record,
    server::{Cache, Config},
};
use serde::Serialize;

use super::measure::Added;

/// The model's curve at a measurement's levels.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Overlay {
    /// Modeled response time of each level; absent at and beyond saturation.
    pub(super) response_ms: Vec<Option<f64>>,
    /// Measured over modeled, less one, in percent.
    pub(super) error_percent: Vec<Option<f64>>,
    /// The line through the model at the levels that the measurement's line goes through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<CurveLine>,
    /// Response time at the lowest level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) base_ms: Option<f64>,
    /// Rate at which a station has no time left.
    pub(super) saturation_op_s: f64,
}

/// The model of the embedded server; `None` without a processor time, which the model needs.
pub(super) fn of_embedded(config: &Config, scale: f64) -> Option<NfsServer> {
    let micros = |duration: std::time::Duration| Micros(duration.as_secs_f64() * 1e6);
    let cpu = config.service.cpu?;
    // SFS: 10 MB for each op/s, one tenth of it accessed.
    let touched = 1e6 * scale;
    let (cache, touched, hit) = match config.service.disks.map(|disks| disks.cache) {
        Some(Cache::Bytes(bytes)) => (Some(bytes as f64), touched, None),
        Some(Cache::Share { cache, working_set }) => (Some(cache as f64), working_set as f64, None),
        Some(Cache::HitRatio(ratio)) => (None, touched, Some(Share(ratio))),
        None => (None, touched, Some(Share(1.0))),
    };
    Some(NfsServer {
        cpu_service: micros(cpu.mean),
        touched_per_rate: cache.is_some().then_some(ByteSize(touched)),
        cache: cache.map(ByteSize),
        hit,
        disks: config.service.disks.map_or(1, |disks| disks.count as u32),
        disk_service: config
            .service
            .disks
            .map_or(Micros(0.0), |disks| micros(disks.service.mean)),
        fixed_delay: micros(config.service.fixed_delay),
    })
}

/// The model's network for what was added.
fn network(added: Added) -> Network {
    match added {
        Some((Knob::Latency, value)) => Network {
            added_latency: Micros(value),
            ..Network::default()
        },
        Some((Knob::Overhead, value)) => Network {
            added_overhead: Micros(value),
            ..Network::default()
        },
        _ => Network::default(),
    }
}

/// The model's response time at a throughput; `None` at and beyond saturation.
pub(super) fn response_ms(server: &NfsServer, added: Added, rate: f64) -> Option<f64> {
    server
        .response(&network(added), rate)
        .map(|response| response.response_ms)
}

/// The model at each level.
pub(super) fn overlay(server: &NfsServer, added: Added, levels: &[Record]) -> Overlay {
    let network = network(added);
    let modeled = |level: &Record| response_ms(server, added, level.delivered_op_s);
    let points: Vec<(f64, f64)> = levels
        .iter()
        .filter(|level| !curve::is_saturated(level))
        .filter_map(|level| Some((level.delivered_op_s, modeled(level)?)))
        .collect();
    let lowest = levels
        .iter()
        .min_by(|left, right| left.requested_op_s.total_cmp(&right.requested_op_s));
    Overlay {
        response_ms: levels.iter().map(modeled).collect(),
        error_percent: levels
            .iter()
            .map(|level| Some(100.0 * (level.mean_ms? / modeled(level)? - 1.0)))
            .collect(),
        line: curve::line(&points).ok(),
        base_ms: lowest.and_then(modeled),
        saturation_op_s: server.cpu_saturation(&network).min(server.disk_saturation()),
    }
}
