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
    each("rates::bandwidth_10_mbit", |setting| bandwidth(setting, 10)),
    each("rates::bandwidth_100_mbit", |setting| bandwidth(setting, 100)),
    each("rates::bandwidth_1000_mbit", |setting| bandwidth(setting, 1_000)),
    each("rates::gap_spaces_bursts", gap),
    each("rates::catches_a_broken_emulator", |setting| {
        setting.fairly(|| broken(setting))
    }),
];

/// How far goodput and spacing may be from the arithmetic value. A pacer that the kernel throttles (`sched_rt_runtime_us`) is at
/// 95.7 to 96.8 % of 1 Gbit/s; one that is not, and has processor time to spare ([`HEADROOM`]), at 98.1 to 99.9 % of it.
const TOLERANCE: f64 = 0.02;
/// A figure says something about pacing if this machine carries so many times the rate in packets of the same size.
const HEADROOM: f64 = 1.25;
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

fn bandwidth(setting: &Setting, megabits: u32) -> Result<()> {
    setting.fairly(|| bandwidth_is_right(setting, megabits))
}

/// The control of a rate that asks much of a machine is ten times the rate in the same run: what limits it then is the
/// processor. A machine that does not carry much more than the rate under judgment is skipped, not excused at any figure.
fn must_have_headroom(setting: &Setting, bed: &Bed, megabits: u32) -> Result<()> {
    let ten_times = f64::from(megabits) * 10.0;
    let profile = format!("bandwidth: {ten_times}Mbit/s\nbuffer: 20ms\nsegmentation: exact");
    let carried = 10.0 * share(setting, bed, &profile, ten_times * 1e6)?;
    figure!(
        "control, 10 times the rate by {}: {:.0} % of the rate carried",
        setting.pacer.name(),
        carried * 100.0
    );
    if carried < HEADROOM {
        return Err(skip(format!(
            "at ten times the rate this machine carries {:.0} % of it, so its processor is what is measured",
            carried * 100.0
        )));
    }
    Ok(())
}

fn bandwidth_is_right(setting: &Setting, megabits: u32) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let profile = format!("bandwidth: {megabits}Mbit/s\nbuffer: 20ms");
    let share = share(setting, &bed, &profile, f64::from(megabits) * 1e6)?;
    figure!(
        "{megabits} Mbit/s by {}: TCP goodput {:.2} % of arithmetic, {:.1} Mbit/s",
        setting.pacer.name(),
        share * 100.0,
        share * streams::goodput_of(f64::from(megabits))
    );
    if share < 1.0 - TOLERANCE && megabits > 100 {
        must_have_headroom(setting, &bed, megabits)?;
    }
    ensure!(
        (share - 1.0).abs() <= TOLERANCE,
        "goodput is {:.2} % of what it should be",
        share * 100.0
    );
    before.must_be_that_of(&bed.left)
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
    setting.fairly(|| gap_is_right(setting))
}

fn gap_is_right(setting: &Setting) -> Result<()> {
    let spacing = spacing(setting, "gap: 500us")?;
    figure!(
        "gap 500 us by {}, 25 bursts of {BURST}: spacing {spacing} us (p50 / p99)",
        setting.pacer.name()
    );
    ensure!(
        !is_off(&spacing),
        "the median spacing is {:.1} us",
        spacing.p50.point
    );
    Ok(())
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
