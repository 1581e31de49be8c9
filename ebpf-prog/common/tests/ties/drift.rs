//! Jitter that drifts.

use perturb_common::{
    fate::{JITTER_ENTRIES, Purpose, draw},
    ties::{Memory, TIE_DRIFT, Ties, decay, quantile, rest},
};

use super::{PACKETS, correlation};

/// Φ by the complementary error function's series and continued fraction (Abramowitz and Stegun 7.1.5, 7.1.14).
fn phi(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let erf = if x < 3.0 {
        let (mut sum, mut term) = (x, x);
        for n in 1..80 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    } else {
        let tail = (1..60).rev().fold(0.0, |rest, n| f64::from(n) / 2.0 / (x + rest));
        1.0 - (-x * x).exp() / std::f64::consts::PI.sqrt() / (x + tail)
    };
    if z < 0.0 {
        (1.0 - erf) / 2.0
    } else {
        (1.0 + erf) / 2.0
    }
}

/// Tables of the normal quantile and of Φ, as the compiler of profiles has them.
fn tables() -> (Vec<i16>, Vec<i16>) {
    let quantile = |share: f64| {
        let (mut low, mut high) = (-8.0, 8.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if phi(middle) < share {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    };
    let normal = (0..JITTER_ENTRIES)
        .map(|entry| (quantile((entry as f64 + 0.5) / JITTER_ENTRIES as f64) * 8192.0).round() as i16);
    let cumulative = (0..JITTER_ENTRIES)
        .map(|entry| (phi(entry as f64 / 512.0 - 4.0) * 65_535.0 - 32_768.0).round() as i16);
    (normal.collect(), cumulative.collect())
}

/// Ticks of a nanosecond.
const NANO: f64 = 64.0;

/// Jitter that forgets in time, by a constant in ns.
fn forgets(constant: f64) -> Ties {
    Ties {
        constant: (constant * NANO) as u64,
        kinds: TIE_DRIFT,
        ..Ties::NONE
    }
}

/// The entries of packets whose service ends then, ticks.
fn entries(ties: &Ties, served: impl Fn(u64) -> u64) -> Vec<f64> {
    let (normal, cumulative) = tables();
    let mut memory = Memory::default();
    let drawn = (0..PACKETS).map(|index| {
        let draw = draw(5, 0, index, Purpose::Jitter);
        memory = ties.drift(
            memory,
            served(index),
            normal[draw as usize % JITTER_ENTRIES],
            (draw >> 32) as u32,
        );
        (quantile(memory, |entry| cumulative[entry]) as f64 + 0.5) / JITTER_ENTRIES as f64
    });
    drawn.collect()
}

/// Distance of Kolmogorov and Smirnov from what is even between 0 and 1.
fn distance(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    (1..)
        .zip(&sorted)
        .map(|(rank, value)| (f64::from(rank) / count - value).abs())
        .fold(0.0, f64::max)
}

/// The normal scores of quantiles: a process of first order beneath.
fn scores(values: &[f64]) -> Vec<f64> {
    let (normal, _) = tables();
    let entry = |value: &f64| f64::from(normal[(value * JITTER_ENTRIES as f64) as usize]) / 8192.0;
    values.iter().map(entry).collect()
}

#[test]
fn jitter_keeps_its_distribution_whatever_its_correlation() {
    for rho in [0.25, 0.5, 0.9, 0.99] {
        let part = (rho * 4_294_967_296.0) as u32;
        let ties = Ties {
            rho: part,
            spread: rest(part),
            kinds: TIE_DRIFT,
            ..Ties::NONE
        };
        let values = entries(&ties, |_| 0);
        // 1.95/√n at 99.9 % for independent ones, and n(1-ρ)/(1+ρ) are worth as much; a table's step comes on top.
        let worth = PACKETS as f64 * (1.0 - rho) / (1.0 + rho);
        let found = distance(&values);
        assert!(found < 1.95 / worth.sqrt() + 0.5 / 1024.0, "ρ {rho}: D {found}");
        let scores = scores(&values);
        for distance in [1, 2, 5] {
            let found = correlation(&scores, distance);
            let expected = rho.powi(distance as i32);
            assert!(
                (found - expected).abs() < 0.01,
                "ρ {rho}, {distance} apart: {found} for {expected}"
            );
        }
    }
}

#[test]
fn jitter_in_time_forgets_by_its_constant_however_packets_come() {
    for (apart, constant) in [
        (1e5, 2e7),
        (1e7, 2e7),
        (2.7e8, 2e7),
        (3e8, 1e9),
        (1e9, 1e9),
        (1e10, 1e9),
        (6e10, 6e10),
    ] {
        let values = entries(&forgets(constant), |index| (index as f64 * apart * NANO) as u64);
        let scores = scores(&values);
        for distance in [1, 3] {
            let expected = (-(distance as f64) * apart / constant).exp();
            let found = correlation(&scores, distance);
            assert!(
                (found - expected).abs() < 0.01,
                "{apart} ns at {constant}, {distance} apart: {found} for {expected}"
            );
        }
        let rho = (-apart / constant).exp();
        let worth = PACKETS as f64 * (1.0 - rho) / (1.0 + rho);
        let found = distance(&values);
        assert!(
            found < 1.95 / worth.sqrt() + 0.5 / 1024.0,
            "{apart} ns at {constant}: D {found}"
        );
    }
    // Packets at once have the same jitter.
    let values = entries(&forgets(2e7), |index| index / 2 * 64_000_000);
    assert!(values.chunks_exact(2).all(|two| two[0] == two[1]));
}

/// Times that do not ascend, as behind a server that reorders; and a packet each 20 ns at the largest constant, so close that each
/// one by itself forgets less than is counted.
#[test]
fn jitter_in_time_forgets_no_more_for_packets_out_of_order_or_close_together() {
    let off = |index: u64| (draw(7, 0, index, Purpose::Loss) % 3000) as f64 - 1500.0;
    let values = entries(&forgets(5e7), |index| {
        ((1e6 + index as f64 * 1e3 + off(index)) * NANO) as u64
    });
    let found = correlation(&scores(&values), 100);
    assert!(found > 0.99, "100 us apart at 50 ms: {found} for 0.998");
    // 20 ms in all: its scores move by √(2 · 0.02/60) = 0.026 in the mean square.
    let scores = scores(&entries(&forgets(6e10), |index| {
        (index as f64 * 20.0 * NANO) as u64
    }));
    let moved: f64 = (0..10)
        .map(|part| scores[part * 100_000 + 99_999] - scores[part * 100_000])
        .map(|by| by * by)
        .sum::<f64>()
        / 10.0;
    // χ² of 10 degrees of freedom, 99.8 %, and the table's steps.
    let expected = 2.0 * 0.002 / 60.0;
    assert!((0.1..4.0).contains(&(moved / expected)), "{moved} for {expected}");
}

#[test]
fn exponentials_and_roots_are_exact_enough() {
    for (elapsed, constant) in [
        (1u64 << 10, 64_000_000),
        (1 << 20, 1 << 30),
        (1 << 33, 1 << 33),
        (1 << 33, 1 << 31),
        (3 << 40, (1 << 42) - 1),
        (1 << 44, (1 << 42) - 1),
        (1 << 60, 1 << 40),
        (3 << 32, 1 << 28),
    ] {
        let expected = (-(elapsed as f64) / constant as f64).exp();
        let found = f64::from(decay(elapsed, constant)) / 4_294_967_296.0;
        assert!((found - expected).abs() < 3e-6, "{found} for {expected}");
        let root = (1.0 - found * found).sqrt();
        let found = f64::from(rest(decay(elapsed, constant))) / 4_294_967_296.0;
        assert!((found - root).abs() < 1e-6, "{found} for {root}");
    }
}
