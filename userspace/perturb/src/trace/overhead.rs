//! What tracing costs: the same command with and without it, alternating, so that a machine that changes
//! meanwhile disturbs both alike.

use std::io::Write;

use anyhow::bail;
use perturb_sandbox::exit_code;
use perturb_stats::median;
use perturb_trace::{Options, traced, untraced};
use serde::Serialize;

use crate::cli::exit::DONE;

/// Run times with and without tracing.
#[derive(Debug, Serialize)]
struct Overhead {
    runs: u32,
    untraced_s: f64,
    traced_s: f64,
    /// (traced - untraced) / untraced, of the medians.
    overhead_percent: f64,
    /// What the recording itself took of the last traced run, as the traced processes measured it.
    recording_percent: f64,
    events: u64,
}

pub(super) fn measure(options: &Options, runs: u32, json: bool, out: &mut dyn Write) -> anyhow::Result<u8> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let (mut recording, mut events) = (0.0, 0);
    for number in 1..=runs {
        let (status, time) = untraced(options)?;
        if !status.success() {
            return Ok(exit_code(status));
        }
        without.push(time.as_secs_f64());
        let (status, report) = traced(options)?;
        if !status.success() {
            return Ok(exit_code(status));
        }
        with.push(report.elapsed.as_secs_f64());
        (recording, events) = (report.recording_percent, report.events);
        eprintln!(
            "run {number} of {runs}: {:.3} s untraced, {:.3} s traced",
            time.as_secs_f64(),
            report.elapsed.as_secs_f64()
        );
    }
    let (Some(untraced_s), Some(traced_s)) = (median(&without), median(&with)) else {
        bail!("nothing was run")
    };
    let overhead = Overhead {
        runs,
        untraced_s,
        traced_s,
        overhead_percent: 100.0 * (traced_s - untraced_s) / untraced_s,
        recording_percent: recording,
        events,
    };
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&overhead)?)?;
    } else {
        writeln!(
            out,
            "median of {runs}: {untraced_s:.3} s untraced, {traced_s:.3} s traced: {:+.2} % ({events} events; recording \
             them took {recording:.2} %)",
            overhead.overhead_percent
        )?;
    }
    Ok(DONE)
}
