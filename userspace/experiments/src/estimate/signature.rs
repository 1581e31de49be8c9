//! The LogP signature: the average initiation interval over the burst's size m, for several computations Δ.
//!
//! Model (Culler, Liu, Martin and Yoshikawa 1996; Martin 1999, fig. 2.3): a host issues m requests, computes for Δ after
//! each, and handles the answers as they come; the interval is the time until the last request has been issued, over m.
//!
//! ```text
//! m = 1, Δ = 0        o_s                    nothing has come back, nothing has to be waited for
//! m large, Δ = 0      max(g, RTT/W, o_s + o_r)   the slowest stage; W requests may be unanswered
//! m large, Δ large    o_s + o_r + Δ          the processor is the slowest stage
//! RTT                 2 (o_s + L + g + o_r)
//! ```
//!
//! So o_s is read at m = 1, g from the level of Δ = 0, o_r from the level of the largest Δ, L from the round trip.
//! What is lacking: with more than one processor the answers are handled beside the computation, and the o_r that is
//! read off is what of it the issuing processor does: between 0 and o_r. Where W is small g shows RTT/W.

use serde::Serialize;

/// A point of the signature.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Δ, microseconds.
    pub computation_us: f64,
    /// m.
    pub burst: u32,
    /// The average initiation interval, microseconds.
    pub interval_us: f64,
}

/// What the signature says, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reading {
    /// o_s.
    pub send_us: f64,
    /// What of o_r the issuing processor does.
    pub receive_us: f64,
    /// g, or RTT/W if that is larger.
    pub gap_us: f64,
    /// L; it contains the service of a lone message.
    pub latency_us: f64,
}

/// Reads a signature; `None` without a point for m = 1 and larger bursts at Δ = 0, or without a Δ that is larger than
/// the gap.
#[must_use]
pub(crate) fn read(points: &[Point], round_trip_us: f64) -> Option<Reading> {
    let of = |computation: f64| {
        let mut line: Vec<&Point> = points
            .iter()
            .filter(|point| point.computation_us == computation)
            .collect();
        line.sort_by_key(|point| point.burst);
        line
    };
    let idle = of(0.0);
    let send_us = idle.first().filter(|point| point.burst == 1)?.interval_us;
    let gap_us = level(&idle)?;
    let longest = points
        .iter()
        .map(|point| point.computation_us)
        .fold(0.0, f64::max);
    if longest <= gap_us {
        return None;
    }
    let receive_us = (level(&of(longest))? - longest - send_us).max(0.0);
    Some(Reading {
        send_us,
        receive_us,
        gap_us,
        latency_us: round_trip_us / 2.0 - send_us - receive_us,
    })
}

/// The height that a line approaches, from its two largest bursts: the interval of the requests between them, which
/// does not contain the beginning.
fn level(line: &[&Point]) -> Option<f64> {
    let [.., before, last] = line else { return None };
    let total = |point: &Point| point.interval_us * f64::from(point.burst);
    Some((total(last) - total(before)) / f64::from(last.burst - before.burst))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BURSTS: [u32; 6] = [1, 2, 4, 16, 64, 256];

    /// Issues m requests on a LogP machine with one processor and a window; the average interval.
    fn issue(m: u32, delta: f64, (o_s, o_r, g, latency): (f64, f64, f64, f64), window: usize) -> f64 {
        let (mut now, mut free) = (0.0_f64, 0.0_f64);
        let mut back: std::collections::VecDeque<f64> = std::collections::VecDeque::new();
        for _ in 0..m {
            while back.len() >= window {
                now = now.max(back.pop_front().unwrap()) + o_r;
            }
            now += o_s;
            free = free.max(now) + g;
            back.push_back(free + 2.0 * latency + o_r + o_s);
            now += delta;
            while back.front().is_some_and(|&arrival| arrival <= now) {
                back.pop_front();
                now += o_r;
            }
        }
        now / f64::from(m)
    }

    proptest! {
        #[test]
        fn reads_the_machine_that_made_it(
            o_s in 1.0..20.0_f64, o_r in 1.0..20.0_f64, more in 20.0..200.0_f64, latency in 1.0..100.0_f64,
        ) {
            let machine = (o_s, o_r, o_s + o_r + more, latency);
            let delta = 2_000.0;
            // No larger than needed to keep the network busy, so that the largest bursts are steady.
            let window = (2.0 * (o_s + o_r + latency) / machine.2).ceil() as usize + 2;
            let points: Vec<Point> = [0.0, delta]
                .into_iter()
                .flat_map(|computation_us| BURSTS.map(|burst| Point {
                    computation_us,
                    burst,
                    interval_us: issue(burst, computation_us, machine, window),
                }))
                .collect();
            let seen = read(&points, 2.0 * (o_s + latency + o_r)).unwrap();
            prop_assert!((seen.send_us - o_s).abs() < 1e-6, "{seen:?}");
            prop_assert!((seen.receive_us - o_r).abs() < 0.5, "{seen:?} for {machine:?}");
            prop_assert!((seen.gap_us - machine.2).abs() < 0.02 * machine.2 + 0.5, "{seen:?} for {machine:?}");
            prop_assert!((seen.latency_us - latency).abs() < 0.5, "{seen:?} for {machine:?}");
        }
    }

    #[test]
    fn a_signature_without_its_ends_says_nothing() {
        let point = |computation_us, burst| Point {
            computation_us,
            burst,
            interval_us: 5.0,
        };
        assert_eq!(
            read(
                &[point(0.0, 2), point(0.0, 4), point(100.0, 2), point(100.0, 4)],
                1.0
            ),
            None
        );
        assert_eq!(read(&[point(0.0, 1)], 1.0), None);
        assert_eq!(read(&[point(0.0, 1), point(0.0, 4)], 1.0), None);
        assert_eq!(read(&[], 1.0), None);
    }
}
