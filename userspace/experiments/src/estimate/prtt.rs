//! Parametrized round trips (Hoefler, Lichei and Rehm 2007; the method of Netgauge).
//!
//! PRTT(n, d, s): n messages of s bytes, a computation of d after each but the last, and one answer of s bytes to the
//! last. In LogGP, with the messages' spacing s' = max(o_s + d, g + G s),
//!
//! ```text
//! PRTT(1, 0, s) = 2 (o_s + L + g' + o_r)       g' = the service of a lone message, if servers deliver at its end
//! PRTT(n, d, s) = PRTT(1, 0, s) + (n - 1) s'
//! o_s  = (PRTT(n, d, s) - PRTT(1, 0, s)) / (n - 1) - d           for d larger than the spacing without d
//! g, G = intercept and slope over s of (PRTT(n, 0, s) - PRTT(1, 0, s)) / (n - 1)
//! L    = PRTT(1, 0, s_min) / 2 - o_s - o_r
//! ```
//!
//! Only the clock of the asking host is used, so this works between machines. LogGP's own PRTT has (s - 1) G for a lone
//! message; s is counted in wire bytes here, and the whole of it is served.
//! What is lacking: o_r, which must be measured otherwise, and any asymmetry of the two ways.

use perturb_stats::{Line, median};

/// Round trips of one size, microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trips {
    /// Size of the messages on the wire, bytes.
    pub size: f64,
    /// PRTT(1, 0, s).
    pub lone: Vec<f64>,
    /// PRTT(n, 0, s).
    pub train: Vec<f64>,
    /// PRTT(n, d, s).
    pub delayed: Vec<f64>,
}

impl Trips {
    /// (PRTT(n, 0, s) - PRTT(1, 0, s)) / (n - 1), microseconds: g + G s, or o_s if that is larger.
    #[must_use]
    pub fn spacing_us(&self, n: u32) -> Option<f64> {
        Some((median(&self.train)? - median(&self.lone)?) / f64::from(n - 1))
    }

    /// o_s, microseconds, from trips with a delay of `d_us`.
    #[must_use]
    pub fn overhead_us(&self, n: u32, d_us: f64) -> Option<f64> {
        Some((median(&self.delayed)? - median(&self.lone)?) / f64::from(n - 1) - d_us)
    }
}

/// g (us) and G (ns per byte) by least squares over the sizes; `None` for fewer than two of them.
#[must_use]
pub(crate) fn gaps(n: u32, sizes: &[Trips]) -> Option<(f64, f64)> {
    let points: Vec<(f64, f64)> = sizes
        .iter()
        .filter_map(|trips| Some((trips.size, trips.spacing_us(n)?)))
        .collect();
    let line = Line::fit(&points).ok()?;
    Some((line.intercept, line.slope * 1e3))
}

/// L, microseconds, from PRTT(1, 0, s_min) and the two overheads; it contains a lone message's service.
#[must_use]
pub(crate) fn latency_us(trips: &Trips, send_us: f64, receive_us: f64) -> Option<f64> {
    Some(median(&trips.lone)? / 2.0 - send_us - receive_us)
}

#[cfg(test)]
mod tests {
    use perturb_stats::SplitMix64;
    use proptest::prelude::*;

    use super::*;

    const N: u32 = 16;

    /// A LogGP network, microseconds and ns per byte.
    #[derive(Clone, Copy, Debug)]
    struct Network {
        o_s: f64,
        o_r: f64,
        g: f64,
        latency: f64,
        per_byte: f64,
    }

    impl Network {
        /// PRTT(n, d, s) by simulation, message by message, not by the formula above.
        fn prtt(&self, n: u32, d: f64, s: f64, noise: f64) -> f64 {
            let service = self.g + self.per_byte * s / 1e3;
            let (mut now, mut free) = (0.0_f64, 0.0_f64);
            for message in 0..n {
                now += self.o_s;
                free = free.max(now) + service;
                if message + 1 < n {
                    now += d;
                }
            }
            // The answer crosses an idle server of the other direction.
            free + self.latency + self.o_r + self.o_s + service + self.latency + self.o_r + noise
        }

        fn trips(&self, s: f64, d: f64, noise: &mut impl FnMut() -> f64) -> Trips {
            Trips {
                size: s,
                lone: (0..41).map(|_| self.prtt(1, 0.0, s, noise())).collect(),
                train: (0..41).map(|_| self.prtt(N, 0.0, s, noise())).collect(),
                delayed: (0..41).map(|_| self.prtt(N, d, s, noise())).collect(),
            }
        }
    }

    proptest! {
        #[test]
        fn finds_the_network_that_made_the_samples(
            o_s in 1.0..50.0_f64, o_r in 1.0..50.0_f64, more in 10.0..500.0_f64, latency in 10.0..1e5_f64,
            per_byte in 1.0..1_000.0_f64, seed: u64,
        ) {
            // LogGP's g is seen where it is larger than o.
            let network = Network { o_s, o_r, g: o_s + more, latency, per_byte };
            let mut random = SplitMix64::new(seed);
            // A scheduler's noise: only ever late, sometimes very.
            let mut noise = || if random.fraction() < 0.1 { 2_000.0 * random.fraction() } else { random.fraction() };
            let sizes: Vec<f64> = vec![74.0, 554.0, 1066.0, 1514.0];
            let d = network.g + per_byte * 1.514 + 50.0;
            let trips: Vec<Trips> = sizes.iter().map(|&s| network.trips(s, d, &mut noise)).collect();
            let (g, gg) = gaps(N, &trips).unwrap();
            let send = trips[0].overhead_us(N, d).unwrap();
            prop_assert!((send - o_s).abs() < 0.5, "o_s {send} for {o_s}");
            prop_assert!((g - network.g).abs() < 0.5, "g {g} for {}", network.g);
            prop_assert!((gg - per_byte).abs() < 0.5, "G {gg} for {per_byte}");
            let seen = latency_us(&trips[0], o_s, o_r).unwrap();
            let expected = latency + network.g + per_byte * 0.074;
            prop_assert!((seen - expected).abs() < 1.5, "L {seen} for {expected}");
        }
    }

    #[test]
    fn overhead_above_the_gap_hides_it() {
        let network = Network {
            o_s: 100.0,
            o_r: 100.0,
            g: 20.0,
            latency: 50.0,
            per_byte: 0.0,
        };
        let trips = network.trips(74.0, 200.0, &mut || 0.0);
        assert_eq!(trips.spacing_us(N), Some(100.0));
        assert_eq!(trips.overhead_us(N, 200.0), Some(100.0));
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        let empty = Trips::default();
        assert_eq!((empty.spacing_us(N), empty.overhead_us(N, 1.0)), (None, None));
        assert_eq!(
            (
                gaps(N, std::slice::from_ref(&empty)),
                latency_us(&empty, 0.0, 0.0)
            ),
            (None, None)
        );
    }
}
