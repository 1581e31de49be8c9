//! How fast requests are answered over a latency: what a program sees, all the way from one process to the other.
//!
//! Run where [`ASKED`] is set. Bound: n clients get n answers in two latencies and what an answer takes without emulation, to 3 %.

use std::time::Duration;

use anyhow::{Context as _, Result};
use perturb_tests::answers;

use crate::harness::{Setting, Test, each, figure, skip};

pub(crate) const TESTS: &[Test] = &[each("answers::come_after_two_latencies", |setting| {
    if !setting.kernel.jit {
        return Err(skip(
            "the sandbox has one processor for client, server and pacer, and interprets programs",
        ));
    }
    setting.fairly(|| rates(setting))
})];

/// Set in the environment to have these tests run.
pub(crate) const ASKED: &str = "PERTURB_ANSWERS";

const WINDOW: Duration = Duration::from_secs(2);
const TOLERANCE: f64 = 0.03;

fn rates(setting: &Setting) -> Result<Option<String>> {
    let mut faults = Vec::new();
    for milliseconds in [1, 5] {
        for clients in [1, 10, 50] {
            let (bed, before) = setting.bed()?;
            let service = answers::rate(&bed.left, &bed.right, 1, WINDOW)?.median_us;
            let applied =
                setting
                    .product
                    .apply(&bed.left, &format!("latency: {milliseconds}ms"), setting.pacer)?;
            let found = answers::rate(&bed.left, &bed.right, clients, WINDOW)?;
            let status = applied.counters()?;
            applied.nothing_unintended()?;
            applied.stop()?;
            before.must_be_that_of(&bed.left)?;
            let trip_us = 2e3 * f64::from(milliseconds);
            let expected = clients as f64 * 1e6 / (trip_us + service);
            let off = found.per_second / expected - 1.0;
            let lateness = |key: &str| {
                status["lateness"][key]
                    .as_f64()
                    .with_context(|| format!("status has no lateness.{key}"))
            };
            figure!(
                "{milliseconds} ms, {clients} clients, {}: {:.0} answers/s, {:+.1} % of {expected:.0}; a trip takes {:.0} us \
                 more than two latencies, {service:.0} without emulation; status: late by {:.0} us (50 %), lead {:.0} us",
                setting.pacer.name(),
                found.per_second,
                100.0 * off,
                found.median_us - trip_us,
                lateness("p50_us")?,
                lateness("lead_us")?,
            );
            if off.abs() > TOLERANCE {
                faults.push(format!(
                    "{milliseconds} ms, {clients} clients: {:+.1} %",
                    100.0 * off
                ));
            }
        }
    }
    Ok((!faults.is_empty()).then(|| faults.join("; ")))
}
