//! What a packet meets because of those before it, or of the time: which go ahead of others, how fast delays change, which packets
//! are marked in place of being lost, and how adaptive RED finds its probability.

use std::time::Duration;

use anyhow::{Result, ensure};
use perturb_tests::{
    datagrams::{Plan, Trace},
    emulation::Emulator,
};

use super::{Z, chi_squared, emulators, lengths, sent};
use crate::harness::{Setting, figure, slow};

const ECT_0: u8 = 2;
const CE: u8 = 3;

/// `loss … ecn`: with the same seed, the packets that are marked are those that would be lost.
pub(super) fn marks(setting: &Setting) -> Result<()> {
    let chance = 0.2;
    let (netem, server) = ("loss 20% ecn", "loss: { random: 20%, ecn: true }");
    let plan = |tos| Plan {
        count: 4_000,
        burst: 20,
        interval: Duration::from_millis(if slow() { 10 } else { 1 }),
        patience: Duration::from_secs(1),
        tos,
        ..Plan::default()
    };
    for emulator in emulators(setting) {
        let capable = sent(setting, emulator, netem, server, &plan(ECT_0))?;
        let others = sent(setting, emulator, netem, server, &plan(0))?;
        let mut marked: Vec<usize> = capable
            .received
            .iter()
            .filter(|receipt| receipt.tos & CE == CE)
            .map(|receipt| receipt.number)
            .collect();
        marked.sort_unstable();
        let lost = others.lost();
        let z = |count: usize| {
            let packets = capable.sent.len() as f64;
            (count as f64 / packets - chance) / (chance * (1.0 - chance) / packets).sqrt()
        };
        figure!(
            "{netem}: {}: ECN-capable: {} marked (z {:.1}), {} lost; others: {} lost (z {:.1})",
            emulator.name(),
            marked.len(),
            z(marked.len()),
            capable.lost().len(),
            lost.len(),
            z(lost.len())
        );
        if emulator == Emulator::Netem {
            continue;
        }
        ensure!(capable.lost().is_empty(), "ECN-capable packets were lost");
        ensure!(z(lost.len()).abs() < Z.0, "{} were lost", lost.len());
        ensure!(marked == lost, "others are marked than would be lost");
        ensure!(
            others.received.iter().all(|receipt| receipt.tos == 0),
            "a packet that is not ECN-capable was marked"
        );
    }
    Ok(())
}

/// `reorder … gap`: so many packets at least wait before one goes ahead.
pub(super) fn order(setting: &Setting) -> Result<()> {
    const LATENCY: u64 = 40_000_000;
    let (chance, gap) = (0.25, 5);
    let (netem, server) = (
        "delay 40ms reorder 25% gap 5",
        "latency: 40ms, reorder: { probability: 25%, gap: 5 }",
    );
    let plan = Plan {
        count: 8_000,
        interval: Duration::from_millis(if slow() { 4 } else { 1 }),
        patience: Duration::from_secs(1),
        ..Plan::default()
    };
    // Of the packets that wait in a row: at least `gap` - 1, then each goes ahead by chance (`netem_enqueue`).
    let shares = |gap: usize| -> Vec<f64> {
        (1..200)
            .map(|length: usize| match length.checked_sub(gap - 1) {
                Some(more) => chance * (1.0_f64 - chance).powi(more as i32),
                None => 0.0,
            })
            .collect()
    };
    for emulator in emulators(setting) {
        let trace = sent(setting, emulator, netem, server, &plan)?;
        ensure!(trace.lost().is_empty(), "{} were lost", trace.lost().len());
        let ahead: Vec<bool> = trace
            .delays()
            .into_iter()
            .flatten()
            .map(|delay| delay < LATENCY / 2)
            .collect();
        let mut waited = lengths(&ahead, false);
        // The last run has no end.
        waited.pop();
        let least = waited.iter().min().copied().unwrap_or_default();
        let (chi, bound) = chi_squared(&waited, &shares(gap));
        figure!(
            "{netem}: {}: {} go ahead, at least {least} wait before; runs of those that wait: χ² {chi:.1} of {bound:.1}",
            emulator.name(),
            waited.len()
        );
        if emulator == Emulator::Netem {
            continue;
        }
        ensure!(least == gap - 1, "{least} wait before a packet that goes ahead");
        ensure!(
            chi <= bound,
            "runs of those that wait: χ² {chi:.1}, at most {bound:.1}"
        );
        let (other, bound) = chi_squared(&waited, &shares(gap - 1));
        ensure!(other > bound, "another gap passes, too");
    }
    Ok(())
}

/// The correlation of delays so many packets apart.
fn correlation(delays: &[f64], lag: usize) -> f64 {
    let count = delays.len() as f64;
    let mean = delays.iter().sum::<f64>() / count;
    let variance: f64 = delays.iter().map(|delay| (delay - mean).powi(2)).sum();
    let products = delays.iter().zip(&delays[lag..]);
    products
        .map(|(one, other)| (one - mean) * (other - mean))
        .sum::<f64>()
        / variance
}

/// A jitter's `time_constant`: what is wrong with how delays hang together, if anything. They do by the time between packets: twice
/// as far apart they do less, by the same constant.
pub(super) fn drift(setting: &Setting) -> Result<Option<String>> {
    const CONSTANT: f64 = 20.0;
    let server =
        "latency: 100ms, jitter: { distribution: normal, stddev: 20ms, time_constant: 20ms, reorder: true }";
    let mut wrong = None;
    for apart in [4, 8] {
        let plan = Plan {
            count: 2_000,
            interval: Duration::from_millis(apart),
            patience: Duration::from_secs(1),
            ..Plan::default()
        };
        let trace = sent(setting, Emulator::Perturb(setting.pacer), "", server, &plan)?;
        let delays: Vec<f64> = trace
            .delays()
            .into_iter()
            .flatten()
            .map(|ns| ns as f64 / 1e6)
            .collect();
        let count = delays.len() as f64;
        let step = |constant: f64| (-(apart as f64) / constant).exp();
        for lag in [1, 5] {
            let phi = step(CONSTANT);
            let (far, square) = (phi.powi(2 * lag), phi * phi);
            // Bartlett's deviation of a first-order process's correlation.
            let variance =
                ((1.0 - far) * (1.0 + square) / (1.0 - square) - 2.0 * f64::from(lag) * far) / count;
            let around = Z.0 * variance.sqrt();
            let (found, asked) = (correlation(&delays, lag as usize), phi.powi(lag));
            figure!(
                "packets {} ms apart: correlation {found:.3} of {asked:.3} ± {around:.3}",
                apart as i32 * lag
            );
            if (found - asked).abs() > around {
                wrong.get_or_insert(format!(
                    "{} ms apart: correlation {found:.3}, not {asked:.3}",
                    apart as i32 * lag
                ));
            }
            if lag == 1 {
                ensure!(
                    (found - step(2.0 * CONSTANT)).abs() > around,
                    "twice the constant passes, too"
                );
            }
        }
    }
    // Where processors are emulated, packets leave too late for this to say anything of perturb.
    perturb_verdict::fit()?;
    Ok(wrong)
}

/// Adaptive RED under a fifth more than the link carries: what is wrong with its queue, if anything. It ends between 40 and 60 % of
/// the way from min to max (Floyd, Gummadi and Shenker 2001); with the same max_p for ever the queue grows up to max.
pub(super) fn adaptive(setting: &Setting) -> Result<Option<String>> {
    let times = if slow() { 4 } else { 1 };
    let megabits = 10.0 / f64::from(times);
    let plan = Plan {
        count: 24_000 / times as usize,
        // 1042 B on the wire take 834 us at 10 Mbit/s.
        size: 1_000,
        interval: Duration::from_micros(695) * times,
        patience: Duration::from_secs(1),
        ..Plan::default()
    };
    let queue = |rest: &str| -> Result<Trace> {
        let server = format!(
            "bandwidth: {megabits}Mbit/s, buffer: 500ms, \
             queue: {{ kind: red, min: 20ms, max: 60ms, probability: 2%, avpkt: 1042B{rest} }}"
        );
        sent(setting, Emulator::Perturb(setting.pacer), "", &server, &plan)
    };
    // Of the last quarter: by then max_p has had 12 s.
    let settled = |trace: &Trace| {
        let delays = trace.delays();
        let last: Vec<u64> = delays[delays.len() * 3 / 4..].iter().flatten().copied().collect();
        last.iter().sum::<u64>() as f64 / last.len() as f64 / 1e6
    };
    let (moves, stays) = (settled(&queue(", adaptive: true")?), settled(&queue("")?));
    figure!(
        "red, min 20 ms, max 60 ms, overloaded by 20 %: {moves:.1} ms adaptive, {stays:.1} ms with a max_p of 2 %"
    );
    // The packet's own transmission lies in its delay.
    let own = 0.834 * f64::from(times);
    let between = 36.0..44.0;
    Ok((!between.contains(&(moves - own)) || stays < 55.0)
        .then(|| format!("{moves:.1} ms adaptive, {stays:.1} ms with the same max_p for ever")))
}
