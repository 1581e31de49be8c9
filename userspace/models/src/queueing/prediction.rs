//! The response-time curve and what is read off it.

use perturb_quantity::Micros;
use perturb_stats::Line;
use serde::Serialize;

use super::input::{HitKeys, Network, NfsError, NfsInput, NfsServer, VaryNetwork};
use super::station::{mm1_response, mmm_response};

/// µs in a second.
const SECOND: f64 = 1e6;

/// µs in a millisecond.
const MILLISECOND: f64 = 1e3;

/// A response-time curve; the keys of `perturb predict nfs --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NfsPrediction {
    /// Response time at the base rate.
    pub base_ms: f64,
    /// Slope of the line through the curve; absent with fewer than two different rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slope_us_per_op_s: Option<f64>,
    /// Its value at rate 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intercept_ms: Option<f64>,
    /// Its coefficient of determination; absent if all responses are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r_squared: Option<f64>,
    /// The rates.
    pub rates_op_s: Vec<f64>,
    /// Mean response time at each.
    pub response_ms: Vec<f64>,
    /// Rate at which the first station has no time left; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saturation_op_s: Option<f64>,
    /// That of the processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_saturation_op_s: Option<f64>,
    /// That of the disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_saturation_op_s: Option<f64>,
    /// The rate of `base_ms`.
    pub base_rate_op_s: f64,
    /// Where the time goes at each rate.
    pub responses: Vec<Response>,
    /// Model over measured response, less 1, of each measured point.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub relative_error: Vec<f64>,
    /// The largest of their magnitudes, as section 5.3.2 prints it; absent without measured points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_relative_error: Option<f64>,
    /// The curve under each added overhead or latency, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variations: Vec<Variation>,
}

/// Where an operation's time goes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Response {
    /// Delay center, added latency included.
    pub delay_ms: f64,
    /// At the processor, waiting and service.
    pub cpu_ms: f64,
    /// At the disks, averaged over all operations.
    pub disk_ms: f64,
    /// Sum.
    pub response_ms: f64,
    /// Share of the operations served from memory.
    pub hit_ratio: f64,
    /// Busy share of the processor.
    pub cpu_utilization: f64,
    /// Busy share of each disk.
    pub disk_utilization: f64,
}

/// The curve under one added overhead or latency. Rates beyond saturation have no response.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Variation {
    /// The added overhead, if that is varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_overhead_us: Option<f64>,
    /// The added latency, if that is varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_latency_us: Option<f64>,
    /// Response time at the base rate, if that is below saturation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_ms: Option<f64>,
    /// The rates below saturation.
    pub rates_op_s: Vec<f64>,
    /// Mean response time at each of them.
    pub response_ms: Vec<f64>,
    /// Rate at which the first station has no time left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saturation_op_s: Option<f64>,
}

impl NfsServer {
    /// Where the time of an operation goes at `rate_op_s`; `None` at or beyond saturation.
    #[must_use]
    pub fn response(&self, network: &Network, rate_op_s: f64) -> Option<Response> {
        let rate = rate_op_s / SECOND;
        let cpu_service = self.cpu_service_on(network);
        let cpu = mm1_response(rate, cpu_service)?;
        let hit = self.hit_ratio(rate_op_s);
        let misses = rate * (1.0 - hit);
        let disk = if hit < 1.0 {
            (1.0 - hit) * mmm_response(misses, self.disk_service.0, self.disks)?
        } else {
            0.0
        };
        let delay = self.fixed_delay.0 + network.latencies_per_operation * network.added_latency.0;
        Some(Response {
            delay_ms: delay / MILLISECOND,
            cpu_ms: cpu / MILLISECOND,
            disk_ms: disk / MILLISECOND,
            response_ms: (delay + cpu + disk) / MILLISECOND,
            hit_ratio: hit,
            cpu_utilization: rate * cpu_service,
            disk_utilization: if misses > 0.0 {
                misses * self.disk_service.0 / f64::from(self.disks)
            } else {
                0.0
            },
        })
    }

    /// Share of the operations served from memory at a load.
    #[must_use]
    pub fn hit_ratio(&self, rate_op_s: f64) -> f64 {
        match (self.hit, self.cache, self.touched_per_rate) {
            (Some(hit), _, _) => hit.0,
            (None, Some(cache), Some(touched)) => {
                let data = touched.0 * rate_op_s;
                if data > cache.0 { cache.0 / data } else { 1.0 }
            }
            (None, _, _) => 0.0,
        }
    }

    /// Rate at which the processor has no time left, op/s; infinite without a service time.
    #[must_use]
    pub fn cpu_saturation(&self, network: &Network) -> f64 {
        SECOND / self.cpu_service_on(network)
    }

    /// Rate at which the disks have no time left, op/s; infinite if nothing misses.
    #[must_use]
    pub fn disk_saturation(&self) -> f64 {
        let misses = f64::from(self.disks) * SECOND / self.disk_service.0;
        match (self.hit, self.cache, self.touched_per_rate) {
            (Some(hit), _, _) if hit.0 >= 1.0 => f64::INFINITY,
            (Some(hit), _, _) => misses / (1.0 - hit.0),
            // Beyond its cache a load misses `λ - cache / touched` times a second.
            (None, Some(cache), Some(touched)) if touched.0 > 0.0 => misses + cache.0 / touched.0,
            (None, _, _) => f64::INFINITY,
        }
    }

    fn cpu_service_on(&self, network: &Network) -> f64 {
        self.cpu_service.0 + network.overheads_per_operation * network.added_overhead.0
    }
}

pub(super) fn predict(input: &NfsInput) -> Result<NfsPrediction, NfsError> {
    check(input)?;
    let rates: Vec<f64> = input.rates.iter().map(|rate| rate.0).collect();
    let lowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let base_rate = input.base_rate.map_or(lowest, |rate| rate.0);
    let server = &input.server;
    let responses = rates
        .iter()
        .map(|&rate| response(server, &input.network, "rates", rate))
        .collect::<Result<Vec<_>, _>>()?;
    let base = response(server, &input.network, "base_rate", base_rate)?;
    let response_ms: Vec<f64> = responses.iter().map(|response| response.response_ms).collect();
    let points: Vec<(f64, f64)> = rates.iter().copied().zip(response_ms.iter().copied()).collect();
    let line = Line::fit(&points).ok();
    let relative_error = relative_errors(input)?;
    let finite = |rate: f64| rate.is_finite().then_some(rate);
    let (cpu, disk) = (server.cpu_saturation(&input.network), server.disk_saturation());
    Ok(NfsPrediction {
        base_ms: base.response_ms,
        slope_us_per_op_s: line.map(|line| line.slope * MILLISECOND),
        intercept_ms: line.map(|line| line.intercept),
        r_squared: line.and_then(|line| line.r_squared),
        response_ms,
        saturation_op_s: finite(cpu.min(disk)),
        cpu_saturation_op_s: finite(cpu),
        disk_saturation_op_s: finite(disk),
        base_rate_op_s: base_rate,
        responses,
        worst_relative_error: relative_error
            .iter()
            .map(|error| error.abs())
            .max_by(f64::total_cmp),
        relative_error,
        variations: variations(input, &rates, base_rate),
        rates_op_s: rates,
    })
}

/// Of the measured points.
fn relative_errors(input: &NfsInput) -> Result<Vec<f64>, NfsError> {
    input
        .measured
        .iter()
        .map(|point| {
            let rate_op_s = point.rate.0;
            if point.response.0 == 0.0 {
                return Err(NfsError::NoResponse { rate_op_s });
            }
            let model = response(&input.server, &input.network, "measured", rate_op_s)?;
            Ok(model.response_ms * MILLISECOND / point.response.0 - 1.0)
        })
        .collect()
}

fn response(
    server: &NfsServer,
    network: &Network,
    key: &'static str,
    rate_op_s: f64,
) -> Result<Response, NfsError> {
    let hit = server.hit_ratio(rate_op_s);
    if server.disks == 0 && hit < 1.0 {
        return Err(NfsError::NoDisks {
            rate_op_s,
            miss_percent: (1.0 - hit) * 100.0,
        });
    }
    let response = server
        .response(network, rate_op_s)
        .ok_or_else(|| NfsError::Saturated {
            key,
            rate_op_s,
            saturation_op_s: server.cpu_saturation(network).min(server.disk_saturation()),
        })?;
    if response.response_ms.is_finite() {
        Ok(response)
    } else {
        Err(NfsError::NotFinite { rate_op_s })
    }
}

fn variations(input: &NfsInput, rates: &[f64], base_rate: f64) -> Vec<Variation> {
    let (values, overhead): (&[Micros], bool) = match &input.vary {
        None => return Vec::new(),
        Some(VaryNetwork::AddedOverhead(values)) => (values, true),
        Some(VaryNetwork::AddedLatency(values)) => (values, false),
    };
    values
        .iter()
        .map(|&value| {
            let mut network = input.network;
            if overhead {
                network.added_overhead = value;
            } else {
                network.added_latency = value;
            }
            let at = |rate| {
                input
                    .server
                    .response(&network, rate)
                    .map(|response| response.response_ms)
            };
            let (rates_op_s, response_ms) = rates
                .iter()
                .filter_map(|&rate| at(rate).map(|ms| (rate, ms)))
                .unzip();
            let saturation = input
                .server
                .cpu_saturation(&network)
                .min(input.server.disk_saturation());
            Variation {
                added_overhead_us: overhead.then_some(value.0),
                added_latency_us: (!overhead).then_some(value.0),
                base_ms: at(base_rate),
                rates_op_s,
                response_ms,
                saturation_op_s: saturation.is_finite().then_some(saturation),
            }
        })
        .collect()
}

/// What no load can live with.
fn check(input: &NfsInput) -> Result<(), NfsError> {
    if input.rates.is_empty() {
        return Err(NfsError::NoRates);
    }
    let server = &input.server;
    if server.disks > super::MAX_DISKS {
        return Err(NfsError::TooManyDisks { disks: server.disks });
    }
    let found = match (server.hit, server.cache, server.touched_per_rate) {
        (Some(hit), None, None) if hit.0 > 1.0 => {
            return Err(NfsError::HitAboveOne {
                percent: hit.0 * 100.0,
            });
        }
        (Some(_), None, None) | (None, Some(_), Some(_)) => None,
        (None, None, None) => Some(HitKeys::None),
        (Some(_), _, _) => Some(HitKeys::Both),
        (None, _, _) => Some(HitKeys::Half),
    };
    if let Some(found) = found {
        return Err(NfsError::Hits { found });
    }
    for (key, value) in [
        ("overheads_per_operation", input.network.overheads_per_operation),
        ("latencies_per_operation", input.network.latencies_per_operation),
    ] {
        if !value.is_finite() || value < 0.0 {
            return Err(NfsError::PerOperation { key, value });
        }
    }
    Ok(())
}
