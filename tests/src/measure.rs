//! The measurements that tests, demo and comparison share.

use std::time::Duration;

use anyhow::{Result, ensure};
use perturb_stats::{Estimate, Sample};

use crate::{
    bed::Bed,
    datagrams::{self, Plan, Trace},
};

/// Confidence of all intervals.
pub const CONFIDENCE: f64 = 0.99;

/// One-way delays of lone small datagrams from left to right, microseconds.
pub fn delays(bed: &Bed, count: usize, expected: Duration) -> Result<Sample> {
    let trace = datagrams::send(&bed.left, &bed.right, &lone(count, expected))?;
    ensure!(
        trace.lost().is_empty(),
        "{} of {count} datagrams were lost",
        trace.lost().len()
    );
    trace.delays_us()
}

/// Datagrams far enough apart not to meet each other, and not in step with delays of whole milliseconds: a processor
/// that sends one while another is to leave would be late with that.
#[must_use]
pub fn lone(count: usize, expected: Duration) -> Plan {
    Plan {
        count,
        interval: Duration::from_micros(2_570),
        patience: expected + Duration::from_millis(300),
        ..Plan::default()
    }
}

/// Bursts of datagrams from left to right.
pub fn bursts(bed: &Bed, bursts: usize, length: usize, gap: Duration) -> Result<Trace> {
    let interval = gap * length as u32 + Duration::from_millis(5);
    let plan = Plan {
        count: bursts * length,
        burst: length,
        interval,
        ..Plan::default()
    };
    datagrams::send(&bed.left, &bed.right, &plan)
}

/// Two quantiles with their intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// The median.
    pub p50: Estimate,
    /// 99 %.
    pub p99: Estimate,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Quantiles {
    /// Of a sample.
    pub fn of(sample: &Sample) -> Result<Self> {
        Ok(Self {
            p50: sample.quantile_interval(0.5, CONFIDENCE)?,
            p99: sample.quantile_interval(0.99, CONFIDENCE)?,
            min: sample.min(),
            max: sample.max(),
        })
    }

    /// Of a sample, less a constant.
    pub fn less(sample: &Sample, constant: f64) -> Result<Self> {
        Self::of(&Sample::new(
            sample.sorted().iter().map(|value| value - constant).collect(),
        )?)
    }
}

impl std::fmt::Display for Quantiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} / {:.1}", self.p50.point, self.p99.point)
    }
}

/// Most packets per second that arrive without loss at a delay, sent at an even pace for `window`: doubled from
/// 1000 until they do not, then halved to a sixteenth; 0 if 1000 are too many. They are of so many flows.
pub fn sustained_rate(bed: &Bed, flows: usize, delay: Duration, window: Duration) -> Result<f64> {
    const LEAST: f64 = 1_000.0;
    const MOST: f64 = 5e6;
    const HALVINGS: u32 = 4;
    let mut sustained = 0.0;
    let (mut good, mut bad) = (0.0, LEAST);
    while bad < MOST {
        match sustains(bed, flows, delay, window, bad)? {
            Some(sent) => (sustained, good, bad) = (sent, bad, 2.0 * bad),
            None => break,
        }
    }
    if good > 0.0 {
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(good, bad);
            match sustains(bed, flows, delay, window, middle)? {
                Some(sent) => (sustained, good) = (sent, middle),
                None => bad = middle,
            }
        }
    }
    Ok(sustained)
}

/// The rate at which datagrams were really sent, if that is the asked one and none was lost.
fn sustains(bed: &Bed, flows: usize, delay: Duration, window: Duration, rate: f64) -> Result<Option<f64>> {
    let plan = Plan {
        count: (rate * window.as_secs_f64()) as usize,
        // A burst a millisecond: pacing every packet would measure the sender's clock.
        burst: (rate / 1e3) as usize,
        flows,
        interval: Duration::from_millis(1),
        patience: delay + Duration::from_millis(300),
        ..Plan::default()
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    let (first, last) = (trace.sent[0], trace.sent[trace.sent.len() - 1]);
    let sent = (trace.sent.len() - 1) as f64 * 1e9 / (last - first) as f64;
    // The sender itself may be what cannot do more.
    Ok((trace.lost().is_empty() && sent >= rate * 0.95).then_some(sent))
}
