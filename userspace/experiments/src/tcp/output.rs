//! The flows as a table, and as a picture: throughput and queueing delay over time.

use std::{fmt, mem};

use perturb_present::{
    Digits, Table,
    chart::{Axis, Chart, ChartError, Point, Series, Stroke},
};

use super::{Flow, Results, Seen};

/// Most points of a line; each is the mean of the samples that it stands for.
const POINTS: usize = 150;

/// The flows as a table.
pub struct Sheet<'a>(pub &'a Results);

impl fmt::Display for Sheet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(
            1,
            &[
                "congestion control",
                "delivered, MB",
                "Mbit/s",
                "of what could pass, %",
                "queueing, ms: median",
                "95 %",
                "max",
                "least RTT, ms",
                "retransmitted",
            ],
        );
        let number = |value: f64, decimals| Digits::of(12).decimals(decimals).write(value);
        for flow in &self.0.flows {
            let delivered = flow.delivered_bytes as f64;
            // The last sample may be earlier than the end.
            let sampled_s = flow.samples.last().map_or(self.0.length_s, |last| last.at_s);
            let share = flow.capacity_bytes.map(|capacity| 100.0 * delivered / capacity);
            table.row(vec![
                flow.congestion_control.clone(),
                number(delivered / 1e6, 2),
                number(delivered * 8e-6 / sampled_s, 3),
                share.map_or_else(|| "-".into(), |share| number(share, 1)),
                number(flow.queueing_ms.median, 1),
                number(flow.queueing_ms.p95, 1),
                number(flow.queueing_ms.max, 1),
                number(flow.min_rtt_ms, 2),
                flow.retransmitted.to_string(),
            ]);
        }
        write!(f, "{table}")
    }
}

/// Throughput over the bandwidth of the slowest server on the way, and below it the queueing delay, over time.
///
/// # Errors
/// If there is nothing to draw.
pub fn svg(results: &Results, title: &str) -> Result<String, ChartError> {
    let seconds = || Axis::new("time", "s");
    let mut throughput = Chart::new(title, seconds(), Axis::new("throughput", "Mbit/s"));
    let mut queueing = Chart::new(
        "Queueing delay",
        seconds(),
        Axis::new("RTT less the shortest", "ms"),
    );
    let (length, colors) = (results.length_s, results.flows.len());
    if let Some(flow) = results.flows.first() {
        throughput = throughput.series(
            bandwidth(flow, length)
                .without_markers()
                .stroke(Stroke::Dashed)
                .color(colors),
        );
    }
    for (color, flow) in results.flows.iter().enumerate() {
        let line = |points: Vec<Point>| {
            Series::new(&flow.congestion_control, points)
                .without_markers()
                .color(color)
        };
        throughput = throughput.series(line(delivered(flow, length)));
        queueing = queueing.series(line(waited(flow, length)));
    }
    let (sender, receiver) = if results.upload {
        ("h1", "h2")
    } else {
        ("h2", "h1")
    };
    let order = if results.at_once {
        "all at once"
    } else {
        "one after the other"
    };
    throughput = throughput.caption(format!("{sender} sends to {receiver}, {order}"));
    Chart::stacked(&[throughput, queueing])
}

/// The samples of each point, with its beginning and its end, and what had been delivered before. A late sample counts as one at
/// the end.
fn points(flow: &Flow, length: f64) -> impl Iterator<Item = (f64, f64, u64, &[Seen])> {
    let mut before = (0.0, 0);
    let each = flow.samples.len().div_ceil(POINTS).max(1);
    flow.samples.chunks(each).filter_map(move |samples| {
        let last = samples.last()?;
        let (begin, delivered) = mem::replace(&mut before, (last.at_s.min(length), last.delivered_bytes));
        (begin < before.0).then_some((begin, before.0, delivered, samples))
    })
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// In steps, and filled down to 0; nothing if there is no limit.
fn bandwidth(flow: &Flow, length: f64) -> Series {
    let steps = points(flow, length).filter_map(|(begin, end, _, samples)| {
        let each = samples.iter().map(|sample| sample.bandwidth_bit_s);
        let each: Vec<f64> = each.collect::<Option<_>>()?;
        let mbits = mean(each.into_iter()) / 1e6;
        Some([begin, end].map(|x| Point {
            x,
            y: mbits,
            interval: Some((0.0, mbits)),
        }))
    });
    Series::new("bandwidth", steps.flatten())
}

fn delivered(flow: &Flow, length: f64) -> Vec<Point> {
    let points = points(flow, length).map(|(begin, end, before, samples)| {
        let after = samples.last().map_or(before, |last| last.delivered_bytes);
        let mbits = after.saturating_sub(before) as f64 * 8e-6 / (end - begin);
        ((begin + end) / 2.0, mbits).into()
    });
    points.collect()
}

fn waited(flow: &Flow, length: f64) -> Vec<Point> {
    let points = points(flow, length).map(|(begin, end, _, samples)| {
        let waits = samples.iter().map(|sample| sample.queueing_ms);
        ((begin + end) / 2.0, mean(waits)).into()
    });
    points.collect()
}
