//! Network contention in a k-ary n-cube (3)–(7) and mean distances (11).
//!
//! A message of B bytes crosses n k_d channels, each of which carries a byte per cycle, and waits before
//! each of them for w_b (Agarwal, "Limits on Interconnection Network Performance", 1991: M/G/1 with the
//! arrivals of a dimension-ordered router):
//!
//! ```text
//! rho = m B k_d / 2                                      (4) channel utilization, both directions wired
//! w_b = rho B / (1 - rho) * (k_d - 1) / k_d^2 * (1 + 1/n)    (3); in terms of m (5)
//! C_n = n k_d w_b = K rho / (1 - rho)                    (6), K = B (n + 1)(k_d - 1) / k_d
//! ```
//!
//! G has no part in it. With channels in one direction only, rho = m B k_d. (3) is negative for k_d < 1;
//! C_n is 0 there: a message to a neighbor meets no other.
//!
//! A closed load sends s messages per cycle of P + q C_n (7), so with a = B k_d / 2 and x = q C_n
//!
//! ```text
//! x^2 + (P - a s) x - q K a s = 0
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
    /// (11) Mean distance in one dimension of radix k to a random coordinate, the own one included:
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
    /// a: utilization of a channel per message of `bytes` and cycle.
    #[must_use]
    pub fn load(&self, bytes: f64) -> f64 {
        bytes * self.distance / self.wiring.directions()
    }

    /// K: contention per rho / (1 - rho).
    #[must_use]
    pub fn weight(&self, bytes: f64) -> f64 {
        let k = self.distance;
        if k <= 1.0 {
            0.0
        } else {
            bytes * f64::from(self.dimensions + 1) * (k - 1.0) / k
        }
    }

    /// (4) rho at a rate of m messages of `bytes` per node and cycle.
    #[must_use]
    pub fn utilization(&self, rate: f64, bytes: f64) -> f64 {
        rate * self.load(bytes)
    }

    /// (6) C_n of an open load of m messages per node and cycle; `None` where the channels saturate.
    #[must_use]
    pub fn open(&self, rate: f64, bytes: f64) -> Option<f64> {
        let rho = self.utilization(rate, bytes);
        (rho < 1.0).then(|| self.weight(bytes) * rho / (1.0 - rho))
    }

    /// (6), (7) C_n of a closed load.
    #[must_use]
    pub fn closed(&self, cycle: Cycle, bytes: f64) -> f64 {
        let load = self.load(bytes) * cycle.messages;
        let product = self.weight(bytes) * load * cycle.waits;
        let waited = if product == 0.0 {
            // Without a wait of its own a message is still held back by a channel that others fill.
            (load - cycle.period).max(0.0)
        } else {
            let half = (cycle.period - load) / 2.0;
            let root = half.hypot(product.sqrt());
            if half > 0.0 {
                product / (half + root)
            } else {
                root - half
            }
        };
        waited / cycle.waits
    }

    /// (14) T_c / T of long messages of any size sent as fast as possible, F / (2 G). `None` for G = 0, where
    /// T is 0.
    #[must_use]
    pub fn greatest_inflation(&self, gap_per_byte: f64) -> Option<f64> {
        let period = 2.0 * gap_per_byte;
        (period > 0.0).then(|| (period + self.closed(Cycle::of(period), 1.0)) / period)
    }
}

/// One cycle of a program whose messages delay it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cycle {
    /// s, messages that a node sends in it.
    pub messages: f64,
    /// q, how often C_n is waited for in it; above 0.
    pub waits: f64,
    /// P, its length without contention, in cycles of the processor.
    pub period: f64,
}

impl Cycle {
    /// One message, one wait: (7) as printed.
    #[must_use]
    pub fn of(period: f64) -> Self {
        Self {
            messages: 1.0,
            waits: 1.0,
            period,
        }
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

    const NETWORK: Network = Network {
        dimensions: 2,
        distance: 2.0,
        wiring: Wiring::Mesh,
    };

    #[test]
    fn the_closed_load_is_the_root_that_bisection_finds() {
        // (7) with (5) put in as printed, for several machines; and 5.2.1's two waits in a cycle.
        for (dimensions, k, gap) in [
            (2, 2.0, 0.5),
            (2, 1.9375, 0.5),
            (3, 2.0, 0.5),
            (1, 4.0, 2.0),
            (2, 2.0, 0.2),
        ] {
            let network = Network {
                dimensions,
                distance: k,
                wiring: Wiring::Mesh,
            };
            for (bytes, waits) in [(44.0_f64, 1.0), (1000.0, 1.0), (32_000.0, 2.0)] {
                let period = 2.0 * gap * bytes;
                let n = f64::from(dimensions);
                let contention = |m: f64| {
                    let w_b = m * bytes * bytes / 2.0 / (1.0 - m * bytes * k / 2.0) * (k - 1.0) / k
                        * (1.0 + 1.0 / n);
                    n * k * w_b
                };
                let (mut low, mut high) = (0.0, 2.0 / (bytes * k));
                for _ in 0..200 {
                    let m = f64::midpoint(low, high);
                    if 1.0 / (period + waits * contention(m)) > m {
                        low = m;
                    } else {
                        high = m;
                    }
                }
                let cycle = Cycle {
                    waits,
                    ..Cycle::of(period)
                };
                let found = network.closed(cycle, bytes);
                assert!(
                    (found / contention(low) - 1.0).abs() < 1e-6,
                    "{network:?} {bytes} B"
                );
            }
        }
    }

    #[test]
    fn the_bound_of_alewife_depends_on_the_gap() {
        let bound = NETWORK.greatest_inflation(0.5).unwrap();
        assert!((bound - (1.0 + 1.5_f64.sqrt())).abs() < 1e-12);
        // A slower network interface leaves the network idle; without G there is no T.
        assert!(NETWORK.greatest_inflation(2.0).unwrap() < 1.3);
        assert_eq!(NETWORK.greatest_inflation(0.0), None);
    }

    #[test]
    fn open_saturates_and_closed_does_not() {
        assert_eq!(NETWORK.open(1.0 / 44.0, 44.0), None);
        let wait = NETWORK.open(0.999 / 44.0, 44.0);
        assert!(wait.is_some_and(|wait| wait > 60_000.0));
        let two = |period| Cycle {
            messages: 2.0,
            ..Cycle::of(period)
        };
        assert!(NETWORK.closed(two(0.0), 44.0).is_finite());
        // k_d <= 1: neighbors only.
        let near = Network {
            distance: 1.0,
            ..NETWORK
        };
        assert_eq!(
            (near.open(0.01, 44.0), near.closed(two(316.0), 44.0)),
            (Some(0.0), 0.0)
        );
    }
}
