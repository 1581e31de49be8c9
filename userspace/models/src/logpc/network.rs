//! Network contention in a k-ary n-cube (3)–(7), mean distances (11), (12), and the upper bound (13),
//! (14).
//!
//! A message crosses n k_d channels and waits before each of them for w (Agarwal, "Limits on
//! Interconnection Network Performance", 1991, M/G/1 with the arrivals of a dimension-ordered router):
//!
//! ```text
//! rho = m b k_d / 2                                   channel utilization, both directions wired
//! w   = b rho / (1 - rho) * (k_d - 1) / k_d^2 * (1 + 1/n)
//! C_n = n k_d w = K rho / (1 - rho),   K = b (n + 1)(k_d - 1) / k_d
//! ```
//!
//! With channels in one direction only, rho = m b k_d. For k_d <= 1 a message meets no other: C_n = 0.
//! A closed load sends s messages per cycle of P + C_n, so rho = a s / (P + C_n) with a = b k_d / 2, and
//!
//! ```text
//! C^2 + (P - a s) C - K a s = 0
//! ```
//!
//! whose positive root is taken in the form that subtracts nothing: near saturation P - a s is close to
//! zero or negative, and for small loads the other form would cancel.

use serde::Deserialize;

/// How a k-ary n-cube is wired in each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wiring {
    /// No wrap-around.
    Mesh,
    /// Wrap-around, both directions.
    Torus,
    /// Wrap-around, one direction.
    UnidirectionalTorus,
}

impl Wiring {
    /// (11), (12) Mean distance in one dimension of radix k to a random coordinate, the own one included:
    /// (k - 1/k)/3 without wrap-around; k/4 with it for even k and (k - 1/k)/4 for odd k; (k - 1)/2 in one
    /// direction.
    #[must_use]
    pub fn mean_distance(self, radix: u32) -> f64 {
        let k = f64::from(radix);
        match self {
            Self::Mesh => (k - 1.0 / k) / 3.0,
            Self::Torus if radix.is_multiple_of(2) => k / 4.0,
            Self::Torus => (k - 1.0 / k) / 4.0,
            Self::UnidirectionalTorus => (k - 1.0) / 2.0,
        }
    }

    /// Mean over the dimensions of a shape.
    #[must_use]
    pub fn mean_distance_per_dimension(self, shape: &[u32]) -> f64 {
        let sum: f64 = shape.iter().map(|radix| self.mean_distance(*radix)).sum();
        if shape.is_empty() {
            0.0
        } else {
            sum / shape.len() as f64
        }
    }

    /// Channels per node and dimension that share the load.
    fn directions(self) -> f64 {
        match self {
            Self::Mesh | Self::Torus => 2.0,
            Self::UnidirectionalTorus => 1.0,
        }
    }
}

/// A k-ary n-cube as its contention sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// n.
    pub dimensions: u32,
    /// k_d.
    pub distance: f64,
    /// Wrap-around and directions.
    pub wiring: Wiring,
}

impl Network {
    /// a: utilization of a channel per message and cycle.
    #[must_use]
    pub fn load(&self, channel: f64) -> f64 {
        channel * self.distance / self.wiring.directions()
    }

    /// K: contention per rho / (1 - rho).
    #[must_use]
    pub fn weight(&self, channel: f64) -> f64 {
        let k = self.distance;
        if k <= 1.0 {
            0.0
        } else {
            channel * f64::from(self.dimensions + 1) * (k - 1.0) / k
        }
    }

    /// (3) rho at a rate of m messages per node and cycle, each occupying a channel for `channel`.
    #[must_use]
    pub fn utilization(&self, rate: f64, channel: f64) -> f64 {
        rate * self.load(channel)
    }

    /// (4)–(6) C_n of an open load; `None` where the channels saturate.
    #[must_use]
    pub fn open(&self, rate: f64, channel: f64) -> Option<f64> {
        let rho = self.utilization(rate, channel);
        (rho < 1.0).then(|| self.weight(channel) * rho / (1.0 - rho))
    }

    /// (7) C_n of a closed load: `messages` in every `period` + C_n.
    #[must_use]
    pub fn closed(&self, messages: f64, period: f64, channel: f64) -> f64 {
        let load = self.load(channel) * messages;
        let product = self.weight(channel) * load;
        if product == 0.0 {
            // Without a wait of its own a message is still held back by a channel that others fill.
            return (load - period).max(0.0);
        }
        let half = (period - load) / 2.0;
        let root = half.hypot(product.sqrt());
        if half > 0.0 {
            product / (half + root)
        } else {
            root - half
        }
    }

    /// (13) T_c of long messages sent as fast as possible, one per `interval` without contention.
    #[must_use]
    pub fn interval(&self, interval: f64, channel: f64) -> f64 {
        interval + self.closed(1.0, interval, channel)
    }

    /// (14) The greatest T_c / T: that of T = b, channel-bound messages, whatever their size.
    #[must_use]
    pub fn greatest_inflation(&self) -> f64 {
        self.interval(1.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_distances_are_those_of_enumeration() {
        for radix in 1..12_u32 {
            for (wiring, distance) in [
                (
                    Wiring::Mesh,
                    (|a: u32, b: u32, _| a.abs_diff(b)) as fn(u32, u32, u32) -> u32,
                ),
                (Wiring::Torus, |a, b, k| a.abs_diff(b).min(k - a.abs_diff(b))),
                (Wiring::UnidirectionalTorus, |a, b, k| (b + k - a) % k),
            ] {
                let pairs = (0..radix).flat_map(|a| (0..radix).map(move |b| (a, b)));
                let sum: u32 = pairs.map(|(a, b)| distance(a, b, radix)).sum();
                let mean = f64::from(sum) / f64::from(radix * radix);
                assert!(
                    (wiring.mean_distance(radix) - mean).abs() < 1e-12,
                    "{wiring:?} {radix}"
                );
            }
        }
        // The paper's machine: a 4 x 8 mesh.
        assert_eq!(Wiring::Mesh.mean_distance_per_dimension(&[4, 8]), 1.9375);
    }

    #[test]
    fn the_upper_bound_of_two_dimensions() {
        let network = Network {
            dimensions: 2,
            distance: 2.0,
            wiring: Wiring::Mesh,
        };
        assert!((network.greatest_inflation() - (1.0 + 1.5_f64.sqrt())).abs() < 1e-12);
    }

    #[test]
    fn open_saturates_and_closed_does_not() {
        let network = Network {
            dimensions: 2,
            distance: 2.0,
            wiring: Wiring::Mesh,
        };
        assert_eq!(network.open(1.0 / 44.0, 44.0), None);
        assert!(
            network
                .open(0.999 / 44.0, 44.0)
                .is_some_and(|wait| wait > 60_000.0)
        );
        assert!(network.closed(2.0, 0.0, 44.0).is_finite());
        // k_d <= 1: neighbors only.
        let near = Network {
            distance: 1.0,
            ..network
        };
        assert_eq!(
            (near.open(0.01, 44.0), near.closed(2.0, 316.0, 44.0)),
            (Some(0.0), 0.0)
        );
    }
}
