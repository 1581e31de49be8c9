//! The LogP signature of private hosts whose o, g and L are known (Martin 1999, fig. 2.3).

use std::time::Duration;

use perturb_stats::median;
use serde::Serialize;

use super::measurement::Effort;
use crate::{
    estimate::{
        Parameters,
        signature::{Point, Reading, read},
    },
    hosts::Hosts,
    probe::{clock, message::WIRE_V4},
};

/// The network: all of its parameters can be told apart, and 8 requests under way keep it busy.
pub(super) const NETWORK: Parameters = Parameters {
    overhead_us: 20.0,
    gap_us: 200.0,
    latency_us: 300.0,
    gap_per_byte_ns: 0.0,
};
/// Requests that may be unanswered; Martin's communication layer had as many.
pub(super) const WINDOW: u32 = 8;
/// Burst sizes m.
const BURSTS: [u32; 8] = [1, 2, 4, 8, 16, 24, 32, 64];
/// Computations Δ, microseconds; the last is well above the gap.
const COMPUTATIONS: [f64; 4] = [0.0, 100.0, 200.0, 500.0];
/// UDP payload, bytes.
const PAYLOAD: usize = 64;
const PATIENCE: Duration = Duration::from_secs(1);

/// What was measured and read.
#[derive(Clone, Debug, Serialize)]
pub struct Signature {
    /// What the profile adds.
    pub network: Parameters,
    /// Requests that may be unanswered.
    pub window: u32,
    /// Wire bytes of a request.
    pub size: usize,
    /// The lines.
    pub points: Vec<Point>,
    /// A lone request's round trip, microseconds.
    pub round_trip_us: f64,
    /// What they say; its L contains a lone message's service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
}

/// Measures it; the hosts' profile is [`NETWORK`]'s. `None` if answers were lost.
pub(super) fn measure(hosts: &Hosts, effort: &Effort) -> anyhow::Result<Option<Signature>> {
    let work = clock::Work::learn();
    let repeats = effort.bursts.max(3);
    let mut points = Vec::new();
    for computation_us in COMPUTATIONS {
        for burst in BURSTS {
            let mut intervals = Vec::new();
            for _ in 0..repeats {
                let asked = (burst, (computation_us * 1e3) as u64, PAYLOAD);
                if let Some((start, end)) = hosts.here.issue(hosts.to, asked, WINDOW, work, PATIENCE)? {
                    intervals.push((end - start) as f64 / 1e3 / f64::from(burst));
                }
            }
            let Some(interval_us) = median(&intervals) else {
                return Ok(None);
            };
            points.push(Point {
                computation_us,
                burst,
                interval_us,
            });
        }
    }
    let mut trips = Vec::new();
    for _ in 0..4 * repeats {
        if let Some(trip) = hosts.here.round_trip(hosts.to, (1, 0, PAYLOAD), PATIENCE)? {
            trips.push((trip.answer.read - trip.first.at) as f64 / 1e3);
        }
    }
    Ok(median(&trips).map(|round_trip_us| Signature {
        network: NETWORK,
        window: WINDOW,
        size: PAYLOAD + WIRE_V4,
        reading: read(&points, round_trip_us),
        points,
        round_trip_us,
    }))
}
