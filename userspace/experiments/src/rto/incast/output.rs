//! Goodput as a table, and as the two papers draw it.

use std::fmt;

use perturb_present::{
    Digits, Table,
    chart::{Axis, Chart, ChartError, Series, Stroke},
    computed,
};

use super::{Curve, Failed, Point, Results};

/// A table, what could not be measured, and what this kernel lacks.
pub struct Sheet<'a>(pub &'a Results);

impl fmt::Display for Sheet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let results = self.0;
        writeln!(
            f,
            "incast, {} hosts, {} blocks each; this kernel's timers have ticks of {} ms\n",
            results.hosts,
            results.blocks,
            computed(results.tick_ms)
        )?;
        let mut table = Table::new(
            1,
            &[
                "TCP",
                "senders",
                "block, B",
                "goodput, Mbit/s",
                "PlogPT",
                "without RTO",
                "time-outs",
                "probes",
                "retransmitted",
                "drops",
                "marks",
            ],
        );
        let mbit = |value: Option<f64>| Digits::of(4).decimals(2).write(value);
        for curve in &results.curves {
            for point in &curve.points {
                table.row(vec![
                    curve.name(true),
                    point.senders.to_string(),
                    point.block_bytes.to_string(),
                    mbit(Some(point.goodput_mbit_s)),
                    mbit(point.predicted_goodput_mbit_s),
                    mbit(point.predicted_without_timeouts_mbit_s),
                    point.tcp.timeouts.to_string(),
                    point.tcp.tail_loss_probes.to_string(),
                    point.tcp.retransmits.to_string(),
                    point.drops.to_string(),
                    point.marks.to_string(),
                ]);
            }
        }
        write!(f, "{table}")?;
        for curve in &results.curves {
            for Failed { senders, reason } in &curve.failed {
                let name = curve.name(true);
                match senders {
                    Some(senders) => writeln!(f, "\n{name}, {senders} senders: not measured: {reason}")?,
                    None => writeln!(f, "\n{name}: not measured: {reason}")?,
                }
            }
        }
        for control in &results.lacking {
            writeln!(
                f,
                "\nthis kernel has no congestion control `{control}`: no curve of it"
            )?;
        }
        Ok(())
    }
}

impl Curve {
    /// What tells it from the others.
    fn name(&self, with_control: bool) -> String {
        let control = with_control.then(|| self.congestion_control.clone());
        let rto = self.rto_min_ms.map(|ms| format!("RTO {} ms", computed(ms)));
        let rack = self
            .rack_tlp
            .map(|on| if on { "RACK-TLP" } else { "no RACK-TLP" });
        let ecn = (self.ecn == Some(true)).then(|| "ECN".to_owned());
        let parts = [control, rto, rack.map(str::to_owned), ecn];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Goodput over the number of senders: a chart for each congestion control, a line for each smallest time-out.
///
/// # Errors
/// If there is nothing to draw.
pub fn svg(results: &Results, title: &str) -> Result<String, ChartError> {
    let mut controls: Vec<&str> = Vec::new();
    for curve in results.curves.iter().filter(|curve| !curve.points.is_empty()) {
        if !controls.contains(&curve.congestion_control.as_str()) {
            controls.push(&curve.congestion_control);
        }
    }
    let charts: Vec<Chart> = controls
        .into_iter()
        .enumerate()
        .map(|(place, control)| {
            let curves = results
                .curves
                .iter()
                .filter(|curve| curve.congestion_control == control && !curve.points.is_empty());
            let title = if place == 0 {
                format!("{title}: {control}")
            } else {
                control.to_owned()
            };
            let mut chart = Chart::new(title, Axis::new("senders", ""), Axis::new("goodput", "Mbit/s"));
            if place == 0 {
                chart = chart.caption(caption(results));
            }
            for (color, curve) in curves.enumerate() {
                let line = |y: fn(&Point) -> Option<f64>| -> Vec<(f64, f64)> {
                    let points = curve.points.iter();
                    points
                        .filter_map(|point| Some((point.senders.into(), y(point)?)))
                        .collect()
                };
                let name = match curve.name(false) {
                    name if name.is_empty() => "measured".to_owned(),
                    name => name,
                };
                let measured = line(|point| Some(point.goodput_mbit_s));
                chart = chart.series(Series::new(&name, measured).color(color));
                let predicted = line(|point| point.predicted_goodput_mbit_s);
                if !predicted.is_empty() {
                    let model = Series::new(format!("PlogPT, {name}"), predicted);
                    chart = chart.series(model.color(color).stroke(Stroke::Dashed).without_markers());
                }
            }
            chart
        })
        .collect();
    Chart::stacked(&charts)
}

fn caption(results: &Results) -> String {
    let lacking = match results.lacking.as_slice() {
        [] => String::new(),
        some => format!(" Not in this kernel: {}.", some.join(", ")),
    };
    let tick = computed(results.tick_ms);
    format!(
        "Published: {} Time-outs here are whole ticks of {tick} ms, rounded up.{lacking}",
        results.published
    )
}
