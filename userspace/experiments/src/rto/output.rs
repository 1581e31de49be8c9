//! The results as a table with histograms, as CSV, and as the paper's fig. 17.

use std::fmt::{self, Write as _};

use anyhow::Context as _;
use perturb_present::{
    Digits, Table, cell,
    chart::{Axis, Chart, Kind, Point, Series as Line, Stroke},
    computed,
};

use super::results::Series;

/// Bars of a histogram.
const BARS: usize = 12;
/// Length of its longest bar.
const LONGEST: usize = 40;

/// The series as a table, where packets were dropped, and a histogram for each size.
pub struct Sheet<'a>(pub &'a [Series]);

impl fmt::Display for Sheet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, f)
    }
}

fn print(all: &[Series], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut table = Table::new(
        0,
        &[
            "message, B",
            "rounds",
            "median, ms",
            "min",
            "max",
            "near k RTO",
            "time-outs",
            "probes",
            "retransmitted",
            "drops",
            "PlogPT, ms",
            "expected",
            "overlapping",
            "without RTO",
            "PlogP, ms",
        ],
    );
    for series in all {
        let rounds = series.rounds_ms.len();
        let extreme =
            |pick: fn(f64, f64) -> f64| series.rounds_ms.iter().copied().reduce(pick).unwrap_or(f64::NAN);
        table.row(vec![
            series.message_bytes.to_string(),
            rounds.to_string(),
            millis(series.median()),
            millis(extreme(f64::min)),
            millis(extreme(f64::max)),
            format!("{:.0} %", 100.0 * series.near_rto_multiple as f64 / rounds as f64),
            series.tcp.timeouts.to_string(),
            series.tcp.tail_loss_probes.to_string(),
            series.tcp.retransmits.to_string(),
            series.drops.to_string(),
            millis(series.predicted_ms.plogpt),
            millis(series.predicted_ms.plogpt_expected),
            millis(series.predicted_ms.plogpt_overlapping),
            millis(series.predicted_ms.plogpt_without_timeouts),
            millis(series.predicted_ms.plogp),
        ]);
    }
    if let Some(first) = all.first() {
        writeln!(
            out,
            "{}, {} hosts; latency of a small message {} us, RTO {} ms\n",
            first.algorithm,
            first.hosts,
            computed(first.latency_us),
            computed(first.rto_ms)
        )?;
    }
    write!(out, "{table}")?;
    for series in all {
        histogram(series, out)?;
    }
    errors(all, out)
}

fn millis(value: impl Into<Option<f64>>) -> String {
    Digits::of(12).decimals(2).write(value)
}

/// Where packets were dropped, and how the rounds' times are spread.
fn histogram(series: &Series, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(out, "\n{} B", series.message_bytes)?;
    for (server, drops) in &series.drops_by_server {
        writeln!(out, "  {drops} dropped at {server}")?;
    }
    let low = series.rounds_ms.iter().copied().fold(f64::INFINITY, f64::min);
    let high = series.rounds_ms.iter().copied().fold(0.0, f64::max);
    // Bars begin at multiples of a fifth of the time-out, if it takes few enough of them.
    let fifth = series.rto_ms / 5.0;
    let width = if high - low < fifth {
        ((high - low) / BARS as f64).max(1e-3)
    } else {
        fifth * ((high - low) / fifth / BARS as f64).ceil()
    };
    let mut counts = vec![0usize; ((high - low) / width) as usize + 1];
    for ms in &series.rounds_ms {
        counts[((ms - low) / width) as usize] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    for (index, count) in counts.iter().enumerate() {
        let from = low + index as f64 * width;
        let bar = "#".repeat((count * LONGEST).div_ceil(most));
        writeln!(
            out,
            "{}",
            format!("  {from:>10.2} ms {count:>5} {bar}").trim_end()
        )?;
    }
    Ok(())
}

/// How far the models are from the medians.
fn errors(all: &[Series], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    if all.len() < 2 {
        return Ok(());
    }
    let mean = |predicted: fn(&Series) -> Option<f64>| -> Option<(f64, f64)> {
        let (mut absolute, mut relative) = (0.0, 0.0);
        for series in all {
            let error = (predicted(series)? - series.median()).abs();
            absolute += error;
            relative += error / series.median();
        }
        let count = all.len() as f64;
        Some((absolute / count, relative / count))
    };
    let mut table = Table::new(1, &["mean absolute error of the median", "ms", "%"]);
    for (name, predicted) in [
        (
            "PlogPT",
            (|series: &Series| series.predicted_ms.plogpt) as fn(&Series) -> Option<f64>,
        ),
        ("PlogPT, expected", |series| series.predicted_ms.plogpt_expected),
        ("PlogPT, overlapping transfers", |series| {
            series.predicted_ms.plogpt_overlapping
        }),
        ("PlogPT without time-outs", |series| {
            series.predicted_ms.plogpt_without_timeouts
        }),
        ("PlogP", |series| series.predicted_ms.plogp),
    ] {
        let found = mean(predicted);
        table.row(vec![
            name.into(),
            computed(found.map(|(absolute, _)| absolute)),
            found.map_or_else(|| "-".into(), |(_, relative)| format!("{:.0}", 100.0 * relative)),
        ]);
    }
    writeln!(out)?;
    write!(out, "{table}")
}

/// A line for each round.
#[must_use]
pub fn csv(all: &[Series]) -> String {
    let mut text =
        "algorithm,hosts,message_bytes,round,time_ms,timeouts,tail_loss_probes,retransmits,plogpt_ms,\
                    plogpt_expected_ms,plogpt_without_timeouts_ms,plogp_ms,plogpt_overlapping_ms\n"
            .to_owned();
    for series in all {
        let predicted = &series.predicted_ms;
        for (number, round) in (1..).zip(&series.rounds) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{},{},{},{number},{},{},{},{},{},{},{},{},{}",
                series.algorithm,
                series.hosts,
                series.message_bytes,
                round.ms(),
                round.tcp.timeouts,
                round.tcp.tail_loss_probes,
                round.tcp.retransmits,
                cell(predicted.plogpt),
                cell(predicted.plogpt_expected),
                cell(predicted.plogpt_without_timeouts),
                cell(predicted.plogp),
                cell(predicted.plogpt_overlapping),
            );
        }
    }
    text
}

/// Time against message size: measured medians with their quartiles, over the models.
pub fn svg(all: &[Series], title: &str) -> anyhow::Result<String> {
    let x = |series: &Series| series.message_bytes as f64;
    let measured = all.iter().map(|series| {
        let quartile = |share| series.sample().and_then(|sample| sample.quantile(share).ok());
        Point {
            x: x(series),
            y: series.median(),
            interval: quartile(0.25).zip(quartile(0.75)),
        }
    });
    let line = |name: &str, predicted: fn(&Series) -> Option<f64>| {
        let points: Vec<(f64, f64)> = all
            .iter()
            .filter_map(|series| Some((x(series), predicted(series)?)))
            .collect();
        (!points.is_empty()).then(|| Line::new(name, points).stroke(Stroke::Dashed).without_markers())
    };
    let mut chart = Chart::new(
        title,
        Axis::new("message size", "B").kind(Kind::Logarithmic),
        Axis::new("time of a round", "ms").kind(Kind::Logarithmic),
    )
    .series(Line::new("measured: median and quartiles", measured).stroke(Stroke::None));
    for model in [
        line("PlogPT", |series| series.predicted_ms.plogpt),
        line("PlogPT without time-outs", |series| {
            series.predicted_ms.plogpt_without_timeouts
        }),
        line("PlogP", |series| series.predicted_ms.plogp),
    ]
    .into_iter()
    .flatten()
    {
        chart = chart.series(model);
    }
    if let Some(first) = all.first() {
        chart = chart.caption(format!(
            "{} hosts, {} rounds for each size",
            first.hosts,
            first.rounds_ms.len()
        ));
    }
    chart.to_svg().context("drawing the chart")
}
