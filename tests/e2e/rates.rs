//! Bandwidth and gap: goodput and spacing against arithmetic.

use std::time::Duration;

use anyhow::{Result, ensure};
use perturb_tests::{
    bed::Bed,
    measure::{self, Quantiles},
    streams::{self, Transfer},
};

use crate::harness::{Setting, Test, each, figure, skip};

pub(crate) const TESTS: &[Test] = &[
    each("rates::bandwidth_10_mbit", |setting| {
        bandwidth(setting, 10, TOLERANCE)
    })
    .long(),
    each("rates::bandwidth_100_mbit", |setting| {
        bandwidth(setting, 100, TOLERANCE)
    }),
    each("rates::bandwidth_1000_mbit", |setting| {
        bandwidth(setting, 1_000, TIGHT)
    })
    .long(),
    each("rates::gap_spaces_bursts", gap),
    each("rates::catches_a_broken_emulator", |setting| {
        setting.catches(|| broken(setting))
    }),
];

/// How far goodput and spacing may be from the arithmetic value.
const TOLERANCE: f64 = 0.02;
/// The same where a pacer that does not get its processor all the time would show: 5 of 943 Mbit/s. One that the kernel
/// throttles (`sched_rt_runtime_us`) is at 95.7 to 96.8 %.
const TIGHT: f64 = 0.0055;
/// A rate that asks much of a machine says something about pacing if the machine carries so many times the rate.
const HEADROOM: f64 = 1.5;
const GAP: Duration = Duration::from_micros(500);
const BURST: usize = 20;

fn share(setting: &Setting, bed: &Bed, profile: &str, asked: f64) -> Result<f64> {
    let applied = setting.product.apply(&bed.left, profile, setting.pacer)?;
    let transfer = Transfer {
        window: Duration::from_secs(5),
        ..Transfer::default()
    };
    let goodput = streams::goodput(&bed.left, &bed.right, &transfer)?;
    applied.nothing_unintended()?;
    applied.stop()?;
    Ok(goodput / streams::goodput_of(asked))
}

fn bandwidth(setting: &Setting, megabits: u32, tolerance: f64) -> Result<()> {
    setting.fairly(|| is_wrong(setting, megabits, tolerance))
}

/// The control of a rate that asks much of a machine: ten times the rate, in packets of the same size, in the same run. Skips
/// if that carries little more than the rate: then the processor is what is measured. That the pacer itself has become slower
/// is not found here, but by `cargo xtask bench`.
fn must_have_headroom(setting: &Setting, bed: &Bed, megabits: u32) -> Result<()> {
    let profile = format!(
        "bandwidth: {}Mbit/s\nbuffer: 20ms\nsegmentation: exact",
        10 * megabits
    );
    let applied = setting.product.apply(&bed.left, &profile, setting.pacer)?;
    let goodput = streams::goodput(&bed.left, &bed.right, &Transfer::default())?;
    applied.stop()?;
    let carried = goodput / streams::goodput_of(f64::from(megabits) * 1e6);
    figure!("control, ten times the rate: {carried:.2} times the rate carried");
    if carried < HEADROOM {
        return Err(skip(format!(
            "of ten times the rate this machine carries {carried:.2} times the rate: its processor would be measured"
        )));
    }
    Ok(())
}

fn is_wrong(setting: &Setting, megabits: u32, tolerance: f64) -> Result<Option<String>> {
    let (bed, before) = setting.bed()?;
    let profile = format!("bandwidth: {megabits}Mbit/s\nbuffer: 20ms");
    let share = share(setting, &bed, &profile, f64::from(megabits) * 1e6)?;
    figure!(
        "{megabits} Mbit/s by {}: TCP goodput {:.2} % of arithmetic, {:.1} Mbit/s",
        setting.pacer.name(),
        share * 100.0,
        share * streams::goodput_of(f64::from(megabits))
    );
    if share < 1.0 - tolerance && megabits > 100 {
        must_have_headroom(setting, &bed, megabits)?;
    }
    before.must_be_that_of(&bed.left)?;
    Ok(((share - 1.0).abs() > tolerance)
        .then(|| format!("goodput is {:.2} % of what it should be", share * 100.0)))
}

fn spacing(setting: &Setting, profile: &str) -> Result<Quantiles> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, profile, setting.pacer)?;
    let trace = measure::bursts(&bed, 25, BURST, GAP)?;
    applied.nothing_unintended()?;
    applied.stop()?;
    ensure!(
        trace.lost().is_empty(),
        "{} datagrams were lost",
        trace.lost().len()
    );
    before.must_be_that_of(&bed.left)?;
    Quantiles::of(&trace.spacings_us(BURST)?)
}

fn is_off(spacing: &Quantiles) -> bool {
    (spacing.p50.point / (GAP.as_secs_f64() * 1e6) - 1.0).abs() > TOLERANCE
}

fn gap(setting: &Setting) -> Result<()> {
    setting.fairly(|| gap_is_wrong(setting))
}

fn gap_is_wrong(setting: &Setting) -> Result<Option<String>> {
    let spacing = spacing(setting, "gap: 500us")?;
    figure!(
        "gap 500 us by {}, 25 bursts of {BURST}: spacing {spacing} us (p50 / p99)",
        setting.pacer.name()
    );
    Ok(is_off(&spacing).then(|| format!("the median spacing is {:.1} us", spacing.p50.point)))
}

/// A gap and a bandwidth that are 5 % off must be noticed.
fn broken(setting: &Setting) -> Result<()> {
    let spacing = spacing(setting, "gap: 525us")?;
    ensure!(is_off(&spacing), "525 us passed for 500 us: {spacing}");
    let bed = Bed::new()?;
    let share = share(setting, &bed, "bandwidth: 9.5Mbit/s\nbuffer: 20ms", 10e6)?;
    ensure!(
        (share - 1.0).abs() > TOLERANCE,
        "9.5 Mbit/s passed for 10 Mbit/s: {share}"
    );
    Ok(())
}
