//! A curve's results: a table, CSV with units in its header, JSON, and an SVG chart.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use perturb_models::queueing::NfsServer;
use perturb_stats::{
    Line,
    chart::{Axis, Chart, Point, Series, Stroke},
};
use perturb_workloads::nfs::{
    curve::{self, CurveLine, Signature},
    record::Record,
};
use serde::Serialize;

use super::{
    measure::Added,
    overlay::{Overlay, overlay, response_ms},
    table::{Table, number},
};

/// Points of a modeled curve in a chart.
const MODEL_POINTS: u32 = 100;

/// One measured curve.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    name: String,
    network: Added,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<Signature>,
    levels: Vec<Record>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Overlay>,
}

/// All curves, and what they say together.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    curves: &'a [Measured],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fits: Vec<Fit>,
}

/// A line over the values of the varied knob.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Fit {
    /// What is over what, with units.
    what: &'static str,
    slope: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    slope_error: Option<f64>,
    intercept: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    r_squared: Option<f64>,
    points: usize,
}

impl Measured {
    pub(super) fn new(
        name: String,
        network: Added,
        mut levels: Vec<Record>,
        model: Option<&NfsServer>,
    ) -> Self {
        levels.sort_by(|left, right| left.requested_op_s.total_cmp(&right.requested_op_s));
        Self {
            signature: curve::signature(&levels),
            model: model.map(|server| overlay(server, network, &levels)),
            name,
            network,
            levels,
        }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(curves: &'a [Measured]) -> Self {
        let over = |value: &dyn Fn(Added) -> Option<f64>, y: &dyn Fn(&Signature) -> f64| -> Vec<(f64, f64)> {
            curves
                .iter()
                .filter_map(|curve| Some((value(curve.network)?, y(&curve.signature?))))
                .collect()
        };
        let latency = |added| {
            if let Added::LatencyUs(us) = added {
                Some(us)
            } else {
                None
            }
        };
        let overhead = |added| {
            if let Added::OverheadUs(us) = added {
                Some(us)
            } else {
                None
            }
        };
        let gap = |added| {
            if let Added::GapUs(us) = added {
                Some(us)
            } else {
                None
            }
        };
        let fits = [
            // Two one-way latencies for each operation are predicted, three were observed (section 5.2).
            (
                "base response time in us over one-way latency in us",
                over(&latency, &|s| 1e3 * s.base_ms),
            ),
            // 1/(Serv + 2.4 o): the slope counts overheads per operation, the intercept is Serv.
            (
                "1/peak in us per operation over overhead in us",
                over(&overhead, &|s| 1e6 / s.peak_op_s),
            ),
            (
                "base response time in us over overhead in us",
                over(&overhead, &|s| 1e3 * s.base_ms),
            ),
            (
                "1/peak in us per operation over gap in us",
                over(&gap, &|s| 1e6 / s.peak_op_s),
            ),
        ];
        let fits = fits.into_iter().filter_map(|(what, points)| {
            let line = Line::fit(&points).ok()?;
            Some(Fit {
                what,
                slope: line.slope,
                slope_error: line.slope_error,
                intercept: line.intercept,
                r_squared: line.r_squared,
                points: line.points,
            })
        });
        Self {
            curves,
            fits: fits.collect(),
        }
    }

    /// Writes curve.csv, curve.json and curve.svg.
    pub(super) fn write(&self, out: &Path, model: Option<&NfsServer>) -> anyhow::Result<()> {
        if self.curves.is_empty() {
            return Ok(());
        }
        let write = |name: &str, text: String| {
            let path = out.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
        };
        write("curve.csv", self.csv())?;
        write("curve.json", serde_json::to_string_pretty(self)?)?;
        write(
            "curve.svg",
            self.chart(model).to_svg().context("drawing the chart")?,
        )
    }

    fn csv(&self) -> String {
        let mut text = String::from(
            "curve,requested_op_s,delivered_op_s,mean_ms,mean_low_ms,mean_high_ms,p50_ms,p99_ms,errors,\
             retransmissions,model_ms,model_error_percent\n",
        );
        let cell = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        for curve in self.curves {
            for (index, level) in curve.levels.iter().enumerate() {
                let [low, high] = level.mean_interval_ms.map_or([None; 2], |ends| ends.map(Some));
                let model = curve.model.as_ref();
                let cells = [
                    curve.name.clone(),
                    level.requested_op_s.to_string(),
                    level.delivered_op_s.to_string(),
                    cell(level.mean_ms),
                    cell(low),
                    cell(high),
                    cell(level.p50_ms),
                    cell(level.p99_ms),
                    level.errors.to_string(),
                    level.retransmissions.to_string(),
                    cell(model.and_then(|model| model.response_ms[index])),
                    cell(model.and_then(|model| model.error_percent[index])),
                ];
                text.push_str(&cells.join(","));
                text.push('\n');
            }
        }
        text
    }

    fn chart(&self, model: Option<&NfsServer>) -> Chart {
        let level = self.curves.iter().find_map(|curve| curve.levels.first());
        let caption = level.map(|level| {
            format!(
                "{}, {:?} arrivals, {:?}, {} s a level; band: 95 % interval of the mean",
                level.mix, level.arrivals, level.transport, level.duration_s
            )
        });
        let mut chart = Chart::new(
            "NFS response time over throughput",
            Axis::new("delivered throughput", "op/s"),
            Axis::new("mean response time", "ms"),
        );
        if let Some(caption) = caption {
            chart = chart.caption(caption);
        }
        for (color, curve) in self.curves.iter().enumerate() {
            let points = curve.levels.iter().filter_map(|level| {
                let interval = level.mean_interval_ms.map(|[low, high]| (low, high));
                Some(Point {
                    x: level.delivered_op_s,
                    y: level.mean_ms?,
                    interval,
                })
            });
            chart = chart.series(Series::new(curve.name.clone(), points).color(color));
        }
        let Some(server) = model else { return chart };
        for (color, curve) in self.curves.iter().enumerate() {
            // No higher than what was measured, or the rise towards saturation would hide all else.
            let highest = curve
                .levels
                .iter()
                .filter_map(|level| level.mean_ms)
                .fold(0.0, f64::max);
            let peak = curve
                .levels
                .iter()
                .map(|level| level.delivered_op_s)
                .fold(0.0, f64::max);
            let points: Vec<(f64, f64)> = (1..=MODEL_POINTS)
                .map(|step| 1.05 * peak * f64::from(step) / f64::from(MODEL_POINTS))
                .filter_map(|rate| Some((rate, response_ms(server, curve.network, rate)?)))
                .filter(|(_, response)| *response <= 1.2 * highest)
                .collect();
            chart = chart.series(
                Series::new(format!("{}, model", curve.name), points)
                    .stroke(Stroke::Dashed)
                    .without_markers()
                    .color(color),
            );
        }
        chart
    }
}

impl std::fmt::Display for Report<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for curve in self.curves {
            writeln!(formatter, "{}", curve.name)?;
            let mut header = vec![
                "asked op/s",
                "delivered",
                "mean ms",
                "low",
                "high",
                "median",
                "99 %",
                "errors",
                "sent again",
            ];
            if curve.model.is_some() {
                header.extend(["model ms", "error %"]);
            }
            let mut table = Table::new(&header);
            for (index, level) in curve.levels.iter().enumerate() {
                let [low, high] = level.mean_interval_ms.map_or([None; 2], |ends| ends.map(Some));
                let mut row = vec![
                    number(level.requested_op_s),
                    number(level.delivered_op_s),
                    number(level.mean_ms),
                    number(low),
                    number(high),
                    number(level.p50_ms),
                    number(level.p99_ms),
                    level.errors.to_string(),
                    level.retransmissions.to_string(),
                ];
                if let Some(model) = &curve.model {
                    row.push(number(model.response_ms[index]));
                    row.push(model.error_percent[index].map_or("-".into(), |error| format!("{error:+.1}")));
                }
                table.row(row);
            }
            writeln!(formatter, "{table}")?;
        }
        writeln!(formatter, "{}", self.signatures())?;
        for fit in &self.fits {
            writeln!(
                formatter,
                "{}: slope {}{}, intercept {}, r² {} ({} points)",
                fit.what,
                number(fit.slope),
                fit.slope_error
                    .map_or(String::new(), |error| format!(" ± {}", number(error))),
                number(fit.intercept),
                number(fit.r_squared),
                fit.points
            )?;
        }
        Ok(())
    }
}

impl Report<'_> {
    /// The signatures as Table 5.1 has them, measurement and model below each other.
    fn signatures(&self) -> Table {
        let mut table = Table::new(&[
            "signature",
            "base ms",
            "slope us/(op/s)",
            "±",
            "intercept ms",
            "r²",
            "knee op/s",
            "peak op/s",
            "ORT ms",
        ]);
        let line = |line: Option<CurveLine>| {
            [
                number(line.map(|line| line.slope_us_per_op_s)),
                number(line.and_then(|line| line.slope_error)),
                number(line.map(|line| line.intercept_ms)),
                number(line.and_then(|line| line.r_squared)),
            ]
        };
        for curve in self.curves {
            if let Some(signature) = &curve.signature {
                let mut peak = number(signature.peak_op_s);
                if !signature.saturated {
                    // No level was saturated, so the peak may be higher.
                    let _ = write!(peak, " or more");
                }
                let mut row = vec![curve.name.clone(), number(signature.base_ms)];
                row.extend(line(signature.line));
                row.extend([number(signature.knee_op_s), peak, number(signature.overall_ms)]);
                table.row(row);
            }
            if let Some(model) = &curve.model {
                let mut row = vec![format!("{}, model", curve.name), number(model.base_ms)];
                row.extend(line(model.line));
                row.extend([
                    number(None),
                    number(Some(model.saturation_op_s).filter(|rate| rate.is_finite())),
                ]);
                table.row(row);
            }
        }
        table
    }
}
