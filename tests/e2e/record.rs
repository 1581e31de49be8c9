//! A path that changes while `perturb measure --trace` records it: each step stands in the file at its time.

use std::{fs, process::Stdio, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use perturb_quantity::{Duration as Time, Rate};
use perturb_tests::{
    bed::Bed,
    datagrams::{self, Plan, Trace},
};
use perturb_verdict::bound;

use crate::{
    harness::{Setting, Test, once},
    update::{done, update},
};

pub(crate) const TESTS: &[Test] = &[once("record::a_step_is_found_within_an_interval", steps)];

/// From a row to the next, milliseconds.
const EVERY: f64 = 100.0;
const BEFORE: &str = "bandwidth: 10Mbit/s\nlatency: 20ms";
const AFTER: &str = "bandwidth: 4Mbit/s\nlatency: 50ms";

fn steps(setting: &Setting) -> Result<()> {
    setting.fairly(|| recorded(setting))
}

/// A row: ms, ms, Mbit/s.
type Row = (f64, f64, f64);

fn rows(text: &str) -> Result<Vec<Row>> {
    let row = |line: &str| -> Result<Row> {
        let cells: Vec<&str> = line.split(',').collect();
        let [time, latency, bandwidth, _] = cells[..] else {
            anyhow::bail!("{line}");
        };
        let ms = |cell: &str| cell.parse().map(|time: Time| time.nanos() as f64 / 1e6);
        let rate: Rate = bandwidth.parse()?;
        Ok((ms(time)?, ms(latency)?, rate.bits_per_second() as f64 / 1e6))
    };
    text.lines().skip(1).map(row).collect()
}

fn recorded(setting: &Setting) -> Result<Option<String>> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, BEFORE, setting.pacer)?;
    let mut server = setting
        .product
        .on(&bed.right)
        .args(["measure", "serve"])
        .stderr(Stdio::null())
        .spawn()
        .context("starting the server")?;
    let file = setting.product.profile("")?.with_extension("csv");
    let written = record(setting, &bed, &file);
    server.kill()?;
    server.wait()?;
    applied.stop()?;
    let trace = written?;
    let found = rows(&fs::read_to_string(&file)?)?;
    before.must_be_that_of(&bed.left)?;

    // By a clock of the test: when datagrams began to be slow, and when they were fast again.
    let delays = trace.delays();
    let slow = |delay: &Option<u64>| delay.is_some_and(|ns| ns > 35_000_000);
    let (Some(first), Some(last)) = (delays.iter().position(slow), delays.iter().rposition(slow)) else {
        anyhow::bail!("no change was seen");
    };
    let after = trace
        .sent
        .get(last + 1)
        .context("the second change came too late")?;
    let lasted = (after - trace.sent[first]) as f64 / 1e6;

    let slow: Vec<&Row> = found.iter().filter(|row| row.1 > 35.0).collect();
    let narrow: Vec<&Row> = found.iter().filter(|row| row.2 < 7.0).collect();
    let (Some(slow_from), Some(slow_to), Some(narrow_from), Some(narrow_to)) =
        (slow.first(), slow.last(), narrow.first(), narrow.last())
    else {
        return Ok(Some(format!("the file has no step: {found:?}")));
    };
    let recorded = slow_to.0 + EVERY - slow_from.0;
    bound!(
        (recorded - lasted).abs() <= EVERY,
        "it was slow for {lasted} ms, for {recorded} ms in the file"
    );
    bound!(
        (narrow_from.0 - slow_from.0).abs() <= EVERY && (narrow_to.0 - slow_to.0).abs() <= EVERY,
        "slow from {slow_from:?} to {slow_to:?}, narrow from {narrow_from:?} to {narrow_to:?}"
    );
    let well = |row: &Row| {
        let (latency, rate) = if row.1 > 35.0 { (50.0, 4.0) } else { (20.0, 10.0) };
        (row.1 - latency).abs() < 1.0 && (row.2 / rate - 1.0).abs() < 0.1
    };
    let good = found.iter().filter(|row| well(row)).count() as f64 / found.len() as f64;
    bound!(
        good > 0.9,
        "{good} of the rows are one of the two networks: {found:?}"
    );
    Ok(None)
}

/// Records while the network becomes another, and is again what it was; with it, what lone datagrams see.
fn record(setting: &Setting, bed: &Bed, file: &std::path::Path) -> Result<Trace> {
    let file = file.to_string_lossy();
    let arguments = [
        "measure",
        "--peer",
        "10.78.0.2",
        "--for",
        "8s",
        "--every",
        "100ms",
        "--trace",
        &*file,
    ];
    let plan = Plan {
        count: 1_200,
        interval: Duration::from_millis(5),
        ..Plan::default()
    };
    thread::scope(|scope| {
        let recording = scope.spawn(|| {
            // The server may not listen yet.
            for _ in 0..50 {
                let called = setting.product.call(&bed.left, &arguments)?;
                if !called.stderr.contains("Connection refused") {
                    return done(&called);
                }
                thread::sleep(Duration::from_millis(100));
            }
            anyhow::bail!("the server does not listen")
        });
        thread::sleep(Duration::from_millis(2_500));
        let sending = scope.spawn(|| datagrams::send(&bed.left, &bed.right, &plan));
        let change = || -> Result<()> {
            thread::sleep(Duration::from_millis(500));
            done(&update(setting, bed, AFTER, &[])?)?;
            thread::sleep(Duration::from_millis(1_500));
            done(&update(setting, bed, BEFORE, &[])?)
        };
        let changed = change();
        let trace = sending
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        recording
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        changed?;
        ensure!(
            trace.delays().last().is_some_and(Option::is_some),
            "the last datagram was lost"
        );
        Ok(trace)
    })
}
