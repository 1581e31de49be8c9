//! Losses and jitter as processes, beside what their models say: run lengths by χ², rates, quantiles by Kolmogorov and Smirnov's
//! distance, correlation. netem on the same kernel is measured with the same figures, which are printed; only perturb's must be right.
//!
//! Significance is 1e-4 for each figure; perturb's losses are functions of the seed, so that theirs are the same in every run.

mod courses;

use std::time::Duration;

use anyhow::{Result, ensure};
use perturb_tests::{
    bed::Bed,
    datagrams::{self, Plan, Trace},
    emulation::{Emulation, Emulator, Link},
};

use crate::harness::{Setting, Test, each, figure, slow, thrice};

pub(crate) const TESTS: &[Test] = &[
    each("statistics::losses_beside_netem", losses),
    each("statistics::jitter_beside_netem", |setting| {
        thrice(|| jitter(setting))
    }),
    each("statistics::slots_beside_netem", |setting| {
        thrice(|| slots(setting))
    }),
    each(
        "statistics::marks_in_place_of_losses_beside_netem",
        courses::marks,
    ),
    each("statistics::reordering_beside_netem", courses::order),
    each("statistics::jitter_is_a_process_in_time", |setting| {
        thrice(|| courses::drift(setting))
    }),
    each("statistics::adaptive_red_finds_its_probability", |setting| {
        thrice(|| courses::adaptive(setting))
    }),
];

/// Two-sided and one-sided 1e-4 of a normal distribution.
const Z: (f64, f64) = (3.891, 3.719);

/// A chain whose states lose packets or not: it steps, then the packet is lost or not.
struct Chain<const N: usize> {
    steps: [[f64; N]; N],
    loses: [bool; N],
}

impl<const N: usize> Chain<N> {
    fn step(&self, from: [f64; N]) -> [f64; N] {
        let mut to = [0.0; N];
        for (share, row) in from.iter().zip(&self.steps) {
            to.iter_mut().zip(row).for_each(|(to, step)| *to += share * step);
        }
        to
    }

    /// The part of a distribution in states that lose, or in the others.
    fn part(&self, of: [f64; N], loses: bool) -> [f64; N] {
        std::array::from_fn(|state| {
            if self.loses[state] == loses {
                of[state]
            } else {
                0.0
            }
        })
    }

    fn stationary(&self) -> [f64; N] {
        (0..10_000).fold([1.0 / N as f64; N], |state, _| self.step(state))
    }

    /// The share that is lost, its deviation over so many packets, and the correlation of neighbors.
    fn rate(&self, packets: f64) -> (f64, f64, f64) {
        let stationary = self.stationary();
        let share: f64 = self.part(stationary, true).iter().sum();
        let mut lost = self.part(stationary, true);
        let covariances: Vec<f64> = (0..500)
            .map(|_| {
                lost = self.step(lost);
                self.part(lost, true).iter().sum::<f64>() - share * share
            })
            .collect();
        let variance = share * (1.0 - share);
        let deviation = ((variance + 2.0 * covariances.iter().sum::<f64>()) / packets).sqrt();
        (share, deviation, covariances[0] / variance)
    }

    /// Shares of runs of length 1, 2, …, of lost packets or of the others.
    fn runs(&self, loses: bool, most: usize) -> Vec<f64> {
        let mut state = self.part(self.step(self.part(self.stationary(), !loses)), loses);
        let total: f64 = state.iter().sum();
        let lengths = (0..most).map(|_| {
            let next = self.step(state);
            let ended: f64 = self.part(next, !loses).iter().sum();
            state = self.part(next, loses);
            ended / total
        });
        lengths.collect()
    }
}

/// χ² of run lengths beside shares, and what it exceeds with a probability of 1e-4 (Wilson and Hilferty). Lengths that are expected
/// less than ten times count together.
fn chi_squared(lengths: &[usize], shares: &[f64]) -> (f64, f64) {
    let total = lengths.len() as f64;
    let (mut chi, mut bins, mut rest, mut seen) = (0.0, 0, 1.0, 0);
    let (mut expected, mut found) = (0.0, 0);
    for (length, share) in (1..).zip(shares) {
        expected += share * total;
        found += lengths.iter().filter(|&&other| other == length).count();
        if expected < 10.0 || (rest - expected / total) * total < 10.0 {
            continue;
        }
        chi += (found as f64 - expected).powi(2) / expected;
        (rest, seen, bins) = (rest - expected / total, seen + found, bins + 1);
        (expected, found) = (0.0, 0);
    }
    let tail = rest * total;
    chi += ((lengths.len() - seen) as f64 - tail).powi(2) / tail;
    let part = 2.0 / (9.0 * f64::from(bins));
    (chi, f64::from(bins) * (1.0 - part + Z.1 * part.sqrt()).powi(3))
}

fn lengths(lost: &[bool], loses: bool) -> Vec<usize> {
    let runs = lost.chunk_by(|one, other| one == other);
    runs.filter(|run| run[0] == loses).map(<[bool]>::len).collect()
}

/// What losses are like beside a chain, and what of it is wrong.
fn beside<const N: usize>(lost: &[bool], chain: &Chain<N>) -> (String, Option<String>) {
    let count = lost.len() as f64;
    let (share, deviation, correlation) = chain.rate(count);
    let both = lost.windows(2).filter(|two| two[0] && two[1]).count() as f64;
    let found = lost.iter().filter(|&&lost| lost).count() as f64 / count;
    let neighbors = (both / count - found * found) / (found * (1.0 - found));
    let z = (found - share) / deviation;
    let mut text = format!(
        "lost {:.2} % of {:.2} %, z {z:.1}; correlation {neighbors:.3} of {correlation:.3}",
        found * 100.0,
        share * 100.0
    );
    let mut wrong = (z.abs() > Z.0).then(|| format!("the rate: z {z:.1}"));
    for (loses, what) in [(true, "losses"), (false, "gaps")] {
        let (chi, bound) = chi_squared(&lengths(lost, loses), &chain.runs(loses, 1000));
        text += &format!("; runs of {what}: χ² {chi:.1} of {bound:.1}");
        if chi > bound {
            wrong.get_or_insert_with(|| format!("run lengths of {what}: χ² {chi:.1}, at most {bound:.1}"));
        }
    }
    (text, wrong)
}

/// Events of probability p and correlation ρ.
fn correlated(p: f64, rho: f64) -> Chain<2> {
    let enter = p * (1.0 - rho);
    Chain {
        steps: [[1.0 - enter, enter], [1.0 - enter - rho, enter + rho]],
        loses: [false, true],
    }
}

/// Good and bad, each with a packet that passes or is lost.
fn gilbert_elliott(p: f64, r: f64, bad: f64, good: f64) -> Chain<4> {
    let row = |to_bad: f64| {
        [
            (1.0 - to_bad) * (1.0 - good),
            (1.0 - to_bad) * good,
            to_bad * (1.0 - bad),
            to_bad * bad,
        ]
    };
    Chain {
        steps: [row(p), row(p), row(1.0 - r), row(1.0 - r)],
        loses: [false, true, false, true],
    }
}

/// netem's four, in the order of its numbers.
fn four_states([p13, p31, p32, p23, p14]: [f64; 5]) -> Chain<4> {
    Chain {
        steps: [
            [1.0 - p13 - p14, 0.0, p13, p14],
            [0.0, 1.0 - p23, p23, 0.0],
            [p31, p32, 1.0 - p31 - p32, 0.0],
            [1.0, 0.0, 0.0, 0.0],
        ],
        loses: [false, false, true, true],
    }
}

fn sent(setting: &Setting, emulator: Emulator, netem: &str, server: &str, plan: &Plan) -> Result<Trace> {
    let bed = Bed::new()?;
    // Only the test's own datagrams: what the kernel says by itself would take its turns, too.
    let perturb = format!(
        "seed: 11\nservers: {{ wire: {{ {server} }} }}\n\
         classes: [{{ name: own, match: {{ protocol: udp }}, egress: [wire] }}]"
    );
    let link = Link {
        netem,
        perturb: &perturb,
        delay: None,
    };
    let emulation = Emulation::start(&setting.product, &bed, emulator, link)?;
    let trace = datagrams::send(&bed.left, &bed.right, plan)?;
    emulation.stop()?;
    Ok(trace)
}

fn emulators(setting: &Setting) -> impl Iterator<Item = Emulator> {
    let perturb = Emulator::Perturb(setting.pacer);
    [perturb]
        .into_iter()
        .chain(setting.kernel.netem.then_some(Emulator::Netem))
}

fn losses(setting: &Setting) -> Result<()> {
    let burst = gilbert_elliott(0.02, 0.2, 0.9, 0.01);
    let random = correlated(0.1, 0.25);
    let states = four_states([0.02, 0.3, 0.2, 0.4, 0.01]);
    type Judge<'a> = &'a dyn Fn(&[bool]) -> (String, Option<String>);
    let cases: [(&str, &str, Judge<'_>, Judge<'_>); 3] = [
        (
            "loss 10% 25%",
            "loss: { random: 10%, correlation: 25% }",
            &|lost| beside(lost, &random),
            &|lost| beside(lost, &correlated(0.1, 0.0)),
        ),
        (
            "loss gemodel 2% 20% 90% 1%",
            "loss: { gilbert_elliott: { p: 2%, r: 20%, bad_loss: 90%, good_loss: 1% } }",
            &|lost| beside(lost, &burst),
            &|lost| beside(lost, &gilbert_elliott(0.025, 0.25, 0.9, 0.01)),
        ),
        (
            "loss state 2% 30% 20% 40% 1%",
            "loss: { state: { p13: 2%, p31: 30%, p32: 20%, p23: 40%, p14: 1% } }",
            &|lost| beside(lost, &states),
            &|lost| beside(lost, &four_states([0.02, 0.36, 0.24, 0.4, 0.01])),
        ),
    ];
    let plan = Plan {
        count: 40_000,
        burst: 20,
        interval: Duration::from_millis(if slow() { 10 } else { 1 }),
        patience: Duration::from_secs(1),
        ..Plan::default()
    };
    for (netem, server, model, other) in cases {
        for emulator in emulators(setting) {
            let trace = sent(setting, emulator, netem, server, &plan)?;
            let lost: Vec<bool> = trace.delays().iter().map(Option::is_none).collect();
            let (text, wrong) = model(&lost);
            figure!("{netem}: {}: {text}", emulator.name());
            if emulator == Emulator::Netem {
                continue;
            }
            ensure!(wrong.is_none(), "{netem}: {}", wrong.unwrap_or_default());
            ensure!(other(&lost).1.is_some(), "{netem}: another model passes, too");
        }
    }
    Ok(())
}

/// The normal distribution function, to 1e-7 (Abramowitz and Stegun 26.2.17).
fn phi(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let terms = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let sum = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    let tail = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if z < 0.0 { tail } else { 1.0 - tail }
}

/// Kolmogorov and Smirnov's distance from a distribution.
fn distance(values: &[f64], shares: impl Fn(f64) -> f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let steps = (0..).zip(&sorted).map(|(rank, value)| {
        let share = shares(*value);
        let below = f64::from(rank) / count;
        (share - below).abs().max((share - below - 1.0 / count).abs())
    });
    steps.fold(0.0, f64::max)
}

/// What is wrong with the delays of perturb, if anything.
fn jitter(setting: &Setting) -> Result<Option<String>> {
    let (mean, scale) = (100.0, 20.0);
    let mut wrong = None;
    for rho in [0.0, 0.25, 0.75] {
        let percent = rho * 100.0;
        let plan = Plan {
            count: 4_000,
            interval: Duration::from_millis(if slow() { 4 } else { 1 }),
            patience: Duration::from_secs(1),
            ..Plan::default()
        };
        let netem = format!("delay 100ms 20ms {percent}% distribution normal");
        let server = format!(
            "latency: 100ms, jitter: {{ distribution: normal, stddev: 20ms, correlation: {percent}%, reorder: true }}"
        );
        for emulator in emulators(setting) {
            let trace = sent(setting, emulator, &netem, &server, &plan)?;
            let delays: Vec<f64> = trace
                .delays()
                .into_iter()
                .flatten()
                .map(|ns| ns as f64 / 1e6)
                .collect();
            let count = delays.len() as f64;
            let found = delays.iter().sum::<f64>() / count;
            let variance = delays.iter().map(|delay| (delay - found).powi(2)).sum::<f64>() / count;
            let products = delays.windows(2).map(|two| (two[0] - found) * (two[1] - found));
            let correlation = products.sum::<f64>() / count / variance;
            let normal = |delay| phi((delay - mean) / scale);
            let d = distance(&delays, normal);
            // 2.23/√n is D's at 1e-4, of n(1-ρ)/(1+ρ) independent values; Bartlett's deviation of a correlation.
            let bound = 2.23 / (count * (1.0 - rho) / (1.0 + rho)).sqrt();
            let around = Z.0 * ((1.0 - rho * rho) / count).sqrt();
            figure!(
                "{netem}: {}: mean {found:.2} ms, deviation {:.2} ms, D {d:.4} of {bound:.4}, correlation {correlation:.3} ± {around:.3}",
                emulator.name(),
                variance.sqrt()
            );
            if emulator == Emulator::Netem {
                continue;
            }
            // It finds a jitter that is too small.
            let narrow: Vec<f64> = delays.iter().map(|delay| (delay + mean) / 2.0).collect();
            ensure!(
                distance(&narrow, normal) > bound,
                "half of the jitter passes, too"
            );
            if d > bound || (correlation - rho).abs() > around {
                wrong.get_or_insert(format!("{netem}: D {d:.4}, correlation {correlation:.3}"));
            }
        }
    }
    // Where processors are emulated, packets leave too late for this to say anything of perturb.
    perturb_verdict::fit()?;
    Ok(wrong)
}

/// More datagrams than slots carry: what is wrong with the bursts in which they leave, if anything.
fn slots(setting: &Setting) -> Result<Option<String>> {
    const EACH: usize = 6;
    let (least, most) = (8.0, 16.0);
    let plan = Plan {
        count: 800,
        interval: Duration::from_millis(1),
        patience: Duration::from_secs(3),
        ..Plan::default()
    };
    let (netem, server) = (
        "slot 8ms 16ms packets 6",
        "slot: { min: 8ms, max: 16ms, packets: 6 }",
    );
    let mut wrong = None;
    for emulator in emulators(setting) {
        let trace = sent(setting, emulator, netem, server, &plan)?;
        let at: Vec<f64> = trace
            .received
            .iter()
            .map(|receipt| receipt.at as f64 / 1e6)
            .collect();
        // Until the last datagram is sent there are more than a slot lets go of; the first slot has those that came meanwhile.
        let bursts: Vec<&[f64]> = at
            .chunk_by(|one, next| next - one < least / 2.0)
            .skip(1)
            .collect();
        let sizes = bursts.split_last().map_or(&bursts[..], |(_, others)| others);
        let full = sizes.iter().filter(|burst| burst.len() == EACH).count();
        let gaps: Vec<f64> = bursts.windows(2).map(|two| two[1][0] - two[0][0]).collect();
        let uniform = |most: f64| move |gap: f64| ((gap - least) / (most - least)).clamp(0.0, 1.0);
        let d = distance(&gaps, uniform(most));
        let bound = 2.23 / (gaps.len() as f64).sqrt();
        figure!(
            "{netem}: {}: {full} of {} bursts have {EACH} datagrams; time between them: D {d:.3} of {bound:.3}",
            emulator.name(),
            sizes.len()
        );
        if emulator == Emulator::Netem {
            continue;
        }
        ensure!(trace.lost().is_empty(), "{} were lost", trace.lost().len());
        ensure!(
            distance(&gaps, uniform(1.5 * most)) > bound,
            "longer slots pass, too"
        );
        if full != sizes.len() || d > bound {
            wrong.get_or_insert(format!("{full} of {} bursts, D {d:.3}", sizes.len()));
        }
    }
    // Where processors are emulated, packets leave too late for this to say anything of perturb.
    perturb_verdict::fit()?;
    Ok(wrong)
}
