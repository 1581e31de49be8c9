//! Fates that depend on those before, as processes: rates, runs, correlations and quantiles, beside what the models' own papers and
//! textbooks say of them. Nothing here calls what the tested code is made of but the draws.

#![allow(clippy::unwrap_used, reason = "tests")]

use perturb_common::{
    fate::{Chance, GilbertElliott, Purpose, draw},
    ties::{CORRUPT, Chances, DUPLICATE, LOSS, Memory, REORDER, TIE_BURST, TIE_STATES, Tied, Ties},
};

mod drift;

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

/// Flows, hosts and starts: their first packets, too, are hit as often as all of them.
#[test]
fn short_flows_are_hit_as_often_as_long_ones() {
    for (p, rho, packets) in [(0.1, 0.9, 10), (0.1, 0.99, 100), (0.1, 0.9, 1), (1.0, 0.5, 3)] {
        let ties = Ties {
            correlation: [chance(rho); 4],
            reorder: chance(p),
            ..Ties::NONE
        };
        let chances = Chances {
            duplicate: chance(p),
            corrupt: chance(p),
            ..NONE
        };
        let flows = 40_000;
        let mut counts = [0u64; 4];
        let mut count = |chances: &Chances, bits: &[u64]| {
            for flow in 0..flows {
                let mut memory = Memory::default();
                for index in 0..packets {
                    let (tied, after) = ties.decide(memory, chances, |purpose| draw(3, flow, index, purpose));
                    memory = after;
                    for (count, bit) in counts.iter_mut().zip(bits) {
                        *count += u64::from(tied.0 & bit != 0);
                    }
                }
            }
        };
        count(&chances, &[0, Tied::DUPLICATED, Tied::CORRUPTED, Tied::AHEAD]);
        let loss = Chances {
            loss: chance(p),
            ..NONE
        };
        count(&loss, &[Tied::LOST]);
        for count in counts {
            let found = count as f64 / (flows * packets) as f64;
            let worth = (flows * packets) as f64 * (1.0 - rho) / (1.0 + rho);
            let deviation = (p * (1.0 - p) / worth).sqrt();
            assert!(
                (found - p).abs() <= 4.0 * deviation,
                "{found} for {p}, {rho}, {packets}"
            );
        }
    }
}

#[test]
fn what_is_certain_happens_whatever_came_before() {
    let ties = Ties {
        correlation: [chance(0.99); 4],
        ..Ties::NONE
    };
    let draws = |purpose| draw(1, 0, 1, purpose);
    let (_, passed) = ties.decide(Memory::default(), &NONE, draws);
    let down = Chances {
        loss: Chance::ALWAYS,
        ..NONE
    };
    let mut memory = passed;
    for index in 0..1000 {
        let (tied, after) = ties.decide(memory, &down, |purpose| draw(1, 0, index, purpose));
        assert_eq!(tied.0, Tied::LOST, "packet {index}");
        memory = after;
    }
    // A change of the model: good within a burst (state 2 of four) is not bad.
    let states = Ties {
        states: [
            Chance::ALWAYS,
            Chance::NEVER,
            Chance::ALWAYS,
            Chance::NEVER,
            Chance::NEVER,
        ],
        kinds: TIE_STATES,
        ..Ties::NONE
    };
    let (_, burst) = states.decide(Memory::default(), &NONE, draws);
    let (tied, within) = states.decide(burst, &NONE, draws);
    assert_eq!(tied.0, 0);
    let plain = Ties {
        kinds: TIE_BURST,
        ..Ties::NONE
    };
    let chances = Chances {
        burst: GilbertElliott {
            bad_loss: Chance::ALWAYS,
            ..NONE.burst
        },
        ..NONE
    };
    assert_eq!(plain.decide(within, &chances, draws).0.0, 0);
    assert_eq!(plain.decide(burst, &chances, draws).0.0, Tied::LOST_IN_BURST);
}
