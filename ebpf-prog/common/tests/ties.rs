//! Fates that depend on those before, as processes: rates, runs, correlations and quantiles, beside what the models' own papers and
//! textbooks say of them. Nothing here calls what the tested code is made of but the draws.

#![allow(clippy::unwrap_used, reason = "tests")]

use perturb_common::{
    fate::{Chance, GilbertElliott, JITTER_ENTRIES, Purpose, draw},
    ties::{
        CORRUPT, Chances, DUPLICATE, LOSS, Memory, REORDER, TIE_BURST, TIE_DRIFT, TIE_STATES, Tied, Ties,
        decay, quantile, rest,
    },
};

const PACKETS: u64 = 1_000_000;

fn chance(share: f64) -> Chance {
    Chance::from_parts_per_billion((share * 1e9).round() as u64)
}

const NONE: Chances = Chances {
    loss: Chance::NEVER,
    duplicate: Chance::NEVER,
    corrupt: Chance::NEVER,
    burst: GilbertElliott {
        to_bad: Chance::NEVER,
        to_good: Chance::NEVER,
        bad_loss: Chance::NEVER,
        good_loss: Chance::NEVER,
    },
};

/// What becomes of the packets.
fn fates(ties: &Ties, chances: &Chances) -> Vec<u64> {
    let mut memory = Memory::default();
    let decided = (0..PACKETS).map(|index| {
        let (tied, after) = ties.decide(memory, chances, |purpose| draw(11, 0, index, purpose));
        memory = after;
        tied.0
    });
    decided.collect()
}

fn share(of: &[bool]) -> f64 {
    of.iter().filter(|&&event| event).count() as f64 / of.len() as f64
}

/// Autocorrelation at a distance.
fn correlation(values: &[f64], distance: usize) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let product = |(a, b): (&f64, &f64)| (a - mean) * (b - mean);
    let variance: f64 = values.iter().map(|a| (a - mean).powi(2)).sum();
    values.iter().zip(&values[distance..]).map(product).sum::<f64>() / variance
}

fn numbers(events: &[bool]) -> Vec<f64> {
    events.iter().map(|&event| f64::from(u8::from(event))).collect()
}

/// Runs of `true` by length: index 0 for 1; the last has all that are longer.
fn runs(events: &[bool], most: usize) -> Vec<f64> {
    let mut counts = vec![0.0; most];
    let lengths = events
        .chunk_by(|a, b| a == b)
        .filter(|run| run[0])
        .map(<[bool]>::len);
    lengths.for_each(|length| counts[length.min(most) - 1] += 1.0);
    counts
}

/// χ² of counts beside shares.
fn chi_squared(counts: &[f64], shares: &[f64]) -> f64 {
    let total: f64 = counts.iter().sum();
    counts
        .iter()
        .zip(shares)
        .map(|(count, share)| (count - total * share).powi(2) / (total * share))
        .sum()
}

#[test]
fn correlated_events_keep_their_rate_and_their_correlation() {
    for (p, rho) in [(0.003, 0.25), (0.2, 0.5), (0.05, 0.9), (0.7, 0.3)] {
        let mut ties = Ties::NONE;
        for which in [LOSS, DUPLICATE, CORRUPT, REORDER] {
            ties.correlation[which] = chance(rho);
        }
        ties.reorder = chance(p);
        let chances = Chances {
            loss: chance(p),
            duplicate: chance(p),
            corrupt: chance(p),
            ..NONE
        };
        let fates = fates(&ties, &chances);
        let kept: Vec<u64> = fates
            .iter()
            .copied()
            .filter(|fate| fate & Tied::LOST == 0)
            .collect();
        for (bit, fates) in [
            (Tied::LOST, &fates),
            (Tied::DUPLICATED, &fates),
            (Tied::CORRUPTED, &fates),
            (Tied::AHEAD, &kept),
        ] {
            let events: Vec<bool> = fates.iter().map(|fate| fate & bit != 0).collect();
            // The standard deviation of the mean of a chain: √(p(1-p)/n (1+ρ)/(1-ρ)).
            let deviation = (p * (1.0 - p) / events.len() as f64 * (1.0 + rho) / (1.0 - rho)).sqrt();
            let found = share(&events);
            assert!(
                (found - p).abs() < 4.0 * deviation,
                "{bit}: {found} for {p}, {rho}"
            );
            for distance in [1, 2, 3] {
                let found = correlation(&numbers(&events), distance);
                assert!(
                    (found - rho.powi(distance as i32)).abs() < 0.02,
                    "{bit}, {distance}: {found} for {p}, {rho}"
                );
            }
        }
        // A run goes on with p + ρ(1-p): its length is geometric.
        let events: Vec<bool> = fates.iter().map(|fate| fate & Tied::LOST != 0).collect();
        let more = p + rho * (1.0 - p);
        let shares = [
            1.0 - more,
            more * (1.0 - more),
            more * more * (1.0 - more),
            more.powi(3),
        ];
        let chi = chi_squared(&runs(&events, 4), &shares);
        assert!(
            chi < 16.27,
            "χ² {chi} of 3 degrees of freedom, 99.9 %: {p}, {rho}"
        );
    }
}

#[test]
fn without_correlation_fates_are_those_of_plain_servers() {
    let chances = Chances {
        loss: chance(0.1),
        duplicate: chance(0.2),
        corrupt: chance(0.3),
        burst: GilbertElliott {
            to_bad: chance(0.1),
            to_good: chance(0.3),
            bad_loss: chance(0.9),
            good_loss: chance(0.01),
        },
    };
    let ties = Ties {
        kinds: TIE_BURST,
        ..Ties::NONE
    };
    let mut bad = false;
    for (index, fate) in (0..).zip(fates(&ties, &chances)).take(100_000) {
        let (loss, damage) = (
            draw(11, 0, index, Purpose::Loss),
            draw(11, 0, index, Purpose::Damage),
        );
        bad = chances.burst.step(bad, draw(11, 0, index, Purpose::Burst));
        let burst = chances.burst.lost(bad, loss as u32);
        let expected = if burst {
            Tied::LOST_IN_BURST
        } else {
            u64::from(chances.loss.hit((loss >> 32) as u32))
        };
        let twice = u64::from(chances.duplicate.hit((damage >> 32) as u32)) * Tied::DUPLICATED;
        let damaged = u64::from(chances.corrupt.hit(damage as u32)) * Tied::CORRUPTED;
        assert_eq!(fate, expected | twice | damaged, "packet {index}");
    }
}

/// Salsano et al., "Definition of a general and intuitive loss model", 2012, section 2.3: with state 2 two steps of a chain, and
/// state 4 lasting one packet. The chain is played here by its matrix.
#[test]
fn four_states_have_their_stationary_losses() {
    for [p13, p31, p32, p23, p14] in [
        [0.01, 0.10, 0.02, 0.50, 0.005],
        [0.05, 0.50, 0.30, 0.60, 0.0],
        [0.01, 0.99, 0.0, 1.0, 0.0],
        [0.10, 0.20, 0.10, 0.05, 0.20],
    ] {
        let states = [p13, p31, p32, p23, p14].map(chance);
        let ties = Ties {
            states,
            kinds: TIE_STATES,
            ..Ties::NONE
        };
        let lost: Vec<bool> = fates(&ties, &NONE)
            .iter()
            .map(|fate| fate & Tied::LOST_IN_BURST != 0)
            .collect();
        // Rows from 1, 2, 3, 4.
        let matrix = [
            [1.0 - p13 - p14, 0.0, p13, p14],
            [0.0, 1.0 - p23, p23, 0.0],
            [p31, p32, 1.0 - p31 - p32, 0.0],
            [1.0, 0.0, 0.0, 0.0],
        ];
        let step = |from: [f64; 4]| {
            let mut to = [0.0; 4];
            for (share, row) in from.iter().zip(matrix) {
                to.iter_mut().zip(row).for_each(|(to, p)| *to += share * p);
            }
            to
        };
        let stationary = (0..10_000).fold([1.0, 0.0, 0.0, 0.0], |state, _| step(state));
        let expected = stationary[2] + stationary[3];
        assert!(
            (share(&lost) / expected - 1.0).abs() < 0.03,
            "{} for {expected}",
            share(&lost)
        );
        // Pairs: a loss behind a loss, from the states that lose.
        let both = step([0.0, 0.0, stationary[2], stationary[3]]);
        let (pair, found) = (
            both[2] + both[3],
            lost.windows(2).filter(|two| two[0] && two[1]).count() as f64,
        );
        assert!(
            (found / lost.len() as f64 - pair).abs() < 0.002 + 0.03 * pair,
            "{found} for {pair}"
        );
        // A burst's runs of losses are geometric, but for what state 4 adds.
        if p14 == 0.0 {
            let more = 1.0 - p31 - p32;
            let shares = [
                1.0 - more,
                more * (1.0 - more),
                more * more * (1.0 - more),
                more.powi(3),
            ];
            let filled = if more > 0.05 { 4 } else { 1 };
            if filled == 4 {
                let chi = chi_squared(&runs(&lost, 4), &shares);
                assert!(chi < 16.27, "χ² {chi} of 3 degrees of freedom, 99.9 %");
            }
        }
    }
}

#[test]
fn each_gapth_packet_goes_ahead() {
    let ties = Ties {
        reorder: Chance::ALWAYS,
        gap: 5,
        ..Ties::NONE
    };
    let ahead: Vec<u64> = (1..)
        .zip(fates(&ties, &NONE))
        .filter(|(_, fate)| fate & Tied::AHEAD != 0)
        .map(|(index, _)| index)
        .collect();
    assert_eq!(ahead[..4], [5, 10, 15, 20], "tc-netem(8): every 5th, 10th, 15th");
    // With half a chance, the fifth and each later one until it happens: a mean of 4 + 2.
    let ties = Ties {
        reorder: chance(0.5),
        gap: 5,
        ..Ties::NONE
    };
    let count = fates(&ties, &NONE)
        .iter()
        .filter(|&&fate| fate & Tied::AHEAD != 0)
        .count();
    assert!((PACKETS as f64 / count as f64 - 6.0).abs() < 0.02, "{count}");
}

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
    // 100 us, 2 ms and 10 ms apart at a constant of 20 ms; 64 ticks are a nanosecond.
    let constant = 20_000_000 * 64;
    let ties = Ties {
        constant,
        kinds: TIE_DRIFT,
        ..Ties::NONE
    };
    for (apart, tolerance) in [(100_000.0, 0.01), (2e6, 0.01), (1e7, 0.01)] {
        let values = entries(&ties, |index| (index as f64 * apart * 64.0) as u64);
        let scores = scores(&values);
        for distance in [1, 3] {
            let expected = (-(distance as f64) * apart / 2e7).exp();
            let found = correlation(&scores, distance);
            assert!(
                (found - expected).abs() < tolerance,
                "{apart} ns, {distance} apart: {found} for {expected}"
            );
        }
        let rho = (-apart / 2e7).exp();
        let worth = PACKETS as f64 * (1.0 - rho) / (1.0 + rho);
        let found = distance(&values);
        assert!(
            found < 1.95 / worth.sqrt() + 0.5 / 1024.0,
            "{apart} ns: D {found}"
        );
    }
    // Packets at once have the same jitter.
    let values = entries(&ties, |index| index / 2 * 64_000_000);
    assert!(values.chunks_exact(2).all(|two| two[0] == two[1]));
}

#[test]
fn exponentials_and_roots_are_exact_enough() {
    for (elapsed, constant) in [
        (1u64 << 10, 64_000_000),
        (1 << 20, 1 << 30),
        (1 << 33, 1 << 33),
        (1 << 33, 1 << 31),
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
