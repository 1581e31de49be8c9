//! The delay of lone packets, against no emulation and netem on the same kernel.
//!
//! A packet must never arrive earlier than its pacer may let it go, and the error of the median and of the 99th
//! percentile must be no worse than netem's, or within fixed bounds of the control's where there is no netem. Samples:
//! 500 packets each; intervals cover with 99 %.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use perturb_tests::{
    bed::Bed,
    datagrams,
    emulation::{Emulation, Emulator, Link},
    measure::{self, Quantiles},
};

use crate::harness::{Setting, Test, each, figure, thrice};

pub(crate) const TESTS: &[Test] = &[
    each("delay::error_at_1_ms", |setting| error(setting, 1)),
    each("delay::error_at_10_ms", |setting| error(setting, 10)).long(),
    each("delay::error_at_20_ms", |setting| error(setting, 20)),
    each("delay::error_at_100_ms", |setting| error(setting, 100)).long(),
    each("delay::catches_a_broken_emulator", broken),
    each("delay::both_ways_make_a_round_trip", round_trip),
];

const PACKETS: usize = 500;
/// By how much perturb may exceed netem: what two runs of the same emulator differ by on a quiet machine.
const MARGIN_US: (f64, f64) = (25.0, 100.0);
/// The same in the sandbox, where an interpreter runs the programs, and sender, receiver and controller take turns on
/// one processor: the tail is theirs.
const SANDBOX_MARGIN_US: (f64, f64) = (75.0, 5_000.0);
/// By how much it may exceed the control where there is no netem.
const BOUND_US: (f64, f64) = (100.0, 300.0);

/// Errors of an emulator's delays, in microseconds.
fn errors(setting: &Setting, emulator: Emulator, milliseconds: u64, profile: &str) -> Result<Quantiles> {
    let bed = Bed::new()?;
    let latency = Duration::from_millis(milliseconds);
    let netem = format!("delay {milliseconds}ms");
    let emulation = Emulation::start(
        &setting.product,
        &bed,
        emulator,
        Link {
            netem: &netem,
            perturb: profile,
            delay: None,
        },
    )?;
    let delays = measure::delays(&bed, PACKETS, latency).with_context(|| format!("{emulator:?}"))?;
    emulation.stop()?;
    let asked = if emulator == Emulator::Off {
        0.0
    } else {
        latency.as_secs_f64() * 1e6
    };
    Quantiles::less(&delays, asked)
}

/// What is wrong with the errors of an emulator, if anything.
fn fault(
    setting: &Setting,
    found: &Quantiles,
    control: &Quantiles,
    netem: Option<&Quantiles>,
) -> Option<String> {
    if found.min < -setting.early_us() {
        return Some(format!("a packet arrived {:.1} us early", -found.min));
    }
    // What the machine adds to 1 % of all packets without any emulation, it adds to ours as well.
    let noise = control.p99.upper - control.p50.point;
    let (reference, margin) = match netem {
        Some(netem) => (
            netem,
            if setting.kernel.jit {
                MARGIN_US
            } else {
                SANDBOX_MARGIN_US
            },
        ),
        None => (control, (BOUND_US.0, BOUND_US.1 + noise)),
    };
    if found.p50.lower > reference.p50.upper + margin.0 {
        return Some(format!(
            "median {} against {}",
            found.p50.point, reference.p50.point
        ));
    }
    if found.p99.lower > reference.p99.upper + margin.1 {
        return Some(format!(
            "99th percentile {} against {}",
            found.p99.point, reference.p99.point
        ));
    }
    None
}

fn error(setting: &Setting, milliseconds: u64) -> Result<()> {
    setting.needs_fair_timing()?;
    thrice(|| excess(setting, milliseconds))
}

/// What is wrong with the size of the errors, if anything. No packet is early.
fn excess(setting: &Setting, milliseconds: u64) -> Result<Option<String>> {
    let profile = format!("latency: {milliseconds}ms");
    let control = errors(setting, Emulator::Off, milliseconds, &profile)?;
    let netem = setting
        .kernel
        .netem
        .then(|| errors(setting, Emulator::Netem, milliseconds, &profile))
        .transpose()?;
    let found = errors(setting, Emulator::Perturb(setting.pacer), milliseconds, &profile)?;
    let beside = netem
        .as_ref()
        .map_or_else(|| "no netem".into(), ToString::to_string);
    figure!(
        "{milliseconds} ms by {}: error {found} us (p50 / p99, {PACKETS} packets); netem {beside}; off {control}",
        setting.pacer.name()
    );
    ensure!(
        found.min >= -setting.early_us(),
        "a packet arrived {:.1} us early",
        -found.min
    );
    Ok(fault(setting, &found, &control, netem.as_ref()))
}

/// Nine tenths of the latency, and an eighth more, must not pass for it.
fn broken(setting: &Setting) -> Result<()> {
    let control = errors(setting, Emulator::Off, 10, "")?;
    let emulator = Emulator::Perturb(setting.pacer);
    let short = errors(setting, emulator, 10, "latency: 9ms")?;
    ensure!(
        fault(setting, &short, &control, None).is_some(),
        "nine tenths of the latency passed: {short}"
    );
    let long = errors(setting, emulator, 10, "latency: 11.25ms")?;
    ensure!(
        fault(setting, &long, &control, None).is_some(),
        "nine eighths of the latency passed: {long}"
    );
    Ok(())
}

fn round_trip(setting: &Setting) -> Result<()> {
    const LATE_US: f64 = 22_000.0;
    thrice(|| {
        let median = echoes(setting)?;
        Ok((median >= LATE_US).then(|| format!("median {median} us")))
    })
}

/// The median of some round trips, microseconds, none of which is early.
fn echoes(setting: &Setting) -> Result<f64> {
    let (bed, before) = setting.bed()?;
    let control = datagrams::ping_pong(&bed.left, &bed.right, 50, 64, datagrams::Waiting::Asleep)?;
    let applied = setting.product.apply(&bed.left, "latency: 10ms", setting.pacer)?;
    let times = datagrams::ping_pong(&bed.left, &bed.right, 50, 64, datagrams::Waiting::Asleep)?;
    applied.nothing_unintended()?;
    applied.stop()?;
    figure!(
        "round trip of 2 x 10 ms: median {:.1} us, off {:.1} us, {} packets",
        times.median(),
        control.median(),
        times.len()
    );
    ensure!(
        times.min() >= 20_000.0 - 2.0 * setting.early_us(),
        "an echo came back after {} us",
        times.min()
    );
    before.must_be_that_of(&bed.left)?;
    Ok(times.median())
}
