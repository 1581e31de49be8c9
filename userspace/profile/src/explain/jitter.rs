//! What a jitter is once packets keep their order.
//!
//! Symbols: X_n the delay drawn for packet n, independent, with distribution function F; T the time between two packets. A
//! packet never leaves before the one ahead, so that its delay is
//!
//! ```text
//! D_n = max(X_n, D_(n-1) - T) = max over k >= 0 of X_(n-k) - kT,
//! ```
//!
//! hence P(D <= y) = Π over k >= 0 of F(y + kT). Its mean and deviation follow by integration, without a simulation. What waits
//! at the server besides is not counted: queues space packets out.

use std::fmt;

use perturb_common::abi::JitterTable;
use perturb_common::fate::JITTER_UNIT;
use perturb_quantity::Duration;
use serde::Serialize;

use crate::compile::{Files, shape};
use crate::model::{Name, Server};

/// Steps of the integration; the figures do not move by a thousandth of a scale with more.
const STEPS: u32 = 2_000;
/// Spacings that are told, in scales.
const SPACINGS: [f64; 2] = [1.0, 0.1];

/// What a server's latency and jitter are together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JitterMeaning {
    /// The server.
    pub server: Name,
    /// The jitter's scale.
    pub scale: Duration,
    /// The delay that is drawn for a packet.
    pub drawn: Spread,
    /// The delay that packets have that come so far apart and keep their order; none if they may overtake.
    pub in_order: Vec<Spaced>,
}

/// Mean and deviation of a delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// Its mean.
    pub mean: Duration,
    /// Its standard deviation.
    pub deviation: Duration,
}

/// A delay, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Spaced {
    /// Time between two packets.
    pub spacing: Duration,
    /// Their delay.
    #[serde(flatten)]
    pub delay: Spread,
}

/// What the jitter of a server means, if it has one; that of a file is not known here.
pub(super) fn meaning(name: &Name, server: &Server) -> Option<JitterMeaning> {
    let jitter = server.jitter.as_ref()?;
    let table = shape(&jitter.distribution, &Files::default()).ok()?;
    let scale = jitter.scale.nanos() as f64;
    let delays = delays(&table, server.latency.nanos() as f64, scale);
    let spaced = |scales: f64| Spaced {
        spacing: figure(scales * scale),
        delay: spread(&delays, scales * scale),
    };
    Some(JitterMeaning {
        server: name.clone(),
        scale: jitter.scale,
        drawn: spread(&delays, f64::INFINITY),
        // What drifts is not independent.
        in_order: if jitter.reorder || jitter.drift.is_some() {
            Vec::new()
        } else {
            SPACINGS.map(spaced).to_vec()
        },
    })
}

/// The delays that are drawn with equal probability, ascending, nanoseconds. None is negative.
fn delays(table: &JitterTable, latency: f64, scale: f64) -> Vec<f64> {
    let delay = |&entry: &i16| (latency + f64::from(entry) / JITTER_UNIT as f64 * scale).max(0.0);
    let mut delays: Vec<f64> = table.entries.iter().map(delay).collect();
    delays.sort_by(f64::total_cmp);
    delays
}

/// Mean and deviation of the delay of packets so many nanoseconds apart. With the largest delay M, E(M - D) = ∫ P(D <= y) dy
/// and E((M - D)²) = 2 ∫ (M - y) P(D <= y) dy.
fn spread(delays: &[f64], spacing: f64) -> Spread {
    let (Some(&least), Some(&most)) = (delays.first(), delays.last()) else {
        return Spread {
            mean: Duration::ZERO,
            deviation: Duration::ZERO,
        };
    };
    let share = |delay: f64| delays.partition_point(|&drawn| drawn <= delay) as f64 / delays.len() as f64;
    let step = (most - least) / f64::from(STEPS);
    let (mut first, mut second) = (0.0, 0.0);
    for number in 0..STEPS {
        let delay = least + (f64::from(number) + 0.5) * step;
        let (mut probability, mut place) = (share(delay), delay + spacing);
        while place < most && probability > 0.0 {
            probability *= share(place);
            place += spacing;
        }
        first += probability * step;
        second += 2.0 * (most - delay) * probability * step;
    }
    Spread {
        mean: figure(most - first),
        deviation: figure((second - first * first).max(0.0).sqrt()),
    }
}

/// Nanoseconds with four digits, as people read them.
fn figure(nanos: f64) -> Duration {
    let unit = 10f64.powf((nanos.max(1.0).log10().floor() - 3.0).max(0.0));
    Duration::from_nanos(((nanos / unit).round() * unit) as u64)
}

impl fmt::Display for JitterMeaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { mean, deviation } = self.drawn;
        write!(
            f,
            "jitter of `{}`: delays have mean {mean} and deviation {deviation} (the scale is {})",
            self.server, self.scale
        )?;
        for (number, spaced) in self.in_order.iter().enumerate() {
            let Spread { mean, deviation } = spaced.delay;
            let text = if number == 0 {
                "; packets keep their order, so that "
            } else {
                ", "
            };
            write!(
                f,
                "{text}those {} apart have {mean} and {deviation}",
                spaced.spacing
            )?;
        }
        if !self.in_order.is_empty() {
            f.write_str("; `reorder: true` lets them overtake")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use perturb_common::fate::{Purpose, draw};

    use super::*;
    use crate::model::Distribution;

    const MS: f64 = 1e6;

    fn close(found: Duration, expected: f64, tolerance: f64) -> bool {
        (found.nanos() as f64 - expected).abs() <= tolerance
    }

    /// 20 ms, normal 2 ms, as a user measured it: mean 20.38 ms, deviation 1.75 ms, at some 2.25 ms between packets.
    #[test]
    fn order_raises_the_mean_and_lowers_the_deviation() {
        let table = shape(&Distribution::Normal, &Files::default()).unwrap();
        let delays = delays(&table, 20.0 * MS, 2.0 * MS);
        let drawn = spread(&delays, f64::INFINITY);
        assert!(
            close(drawn.mean, 20.0 * MS, 0.01 * MS) && close(drawn.deviation, 2.0 * MS, 0.01 * MS),
            "{drawn:?}"
        );
        let ordered = spread(&delays, 2.25 * MS);
        assert!(
            close(ordered.mean, 20.38 * MS, 0.02 * MS) && close(ordered.deviation, 1.75 * MS, 0.03 * MS),
            "{ordered:?}"
        );
        assert_eq!(spread(&[5e6], MS).mean, Duration::from_nanos(5_000_000));
    }

    /// The formula beside the recursion, with the programs' own draws.
    #[test]
    fn the_recursion_agrees() {
        const PACKETS: u32 = 400_000;
        for distribution in [
            Distribution::Uniform,
            Distribution::Normal,
            Distribution::Pareto,
            Distribution::ParetoNormal,
        ] {
            let table = shape(&distribution, &Files::default()).unwrap();
            // A latency below the scale: some delays are cut at zero.
            for latency in [20.0 * MS, 1.0 * MS] {
                let delays = delays(&table, latency, 2.0 * MS);
                for spacing in [0.2 * MS, 2.0 * MS, 10.0 * MS] {
                    let (mut last, mut sum, mut squares) = (f64::NEG_INFINITY, 0.0, 0.0);
                    for packet in 0..PACKETS {
                        let place = draw(7, 1, packet.into(), Purpose::Jitter) as usize % delays.len();
                        last = delays[place].max(last - spacing);
                        sum += last;
                        squares += last * last;
                    }
                    let mean = sum / f64::from(PACKETS);
                    let deviation = (squares / f64::from(PACKETS) - mean * mean).sqrt();
                    let found = spread(&delays, spacing);
                    assert!(
                        close(found.mean, mean, 0.03 * MS) && close(found.deviation, deviation, 0.03 * MS),
                        "{distribution:?}, {latency}, {spacing}: {found:?}, simulated {mean} and {deviation}"
                    );
                }
            }
        }
    }
}
