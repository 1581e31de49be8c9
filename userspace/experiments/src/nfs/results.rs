//! A curve's results: a table, CSV with units in its header, JSON, SVG charts, and a page with all of it.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use perturb_emulator::status::Fault;
use perturb_models::queueing::{NfsServer, OVERHEADS_PER_OPERATION};
use perturb_present::{
    Page, Table, cell,
    chart::{Axis, Chart, Point, Series, Stroke},
    measured,
};
use perturb_workloads::nfs::{
    client::Transport,
    curve::{self, CurveLine, Signature},
    record::Record,
};
use serde::Serialize;

use super::{
    effect::{self, Fit},
    measure::{Added, added},
    overlay::{Overlay, overlay, response_ms},
    reference::Reference,
};
use crate::machine;

/// Points of a modeled curve in a chart.
const MODEL_POINTS: u32 = 100;

/// One measured curve.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    name: String,
    #[serde(serialize_with = "added")]
    network: Added,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<Signature>,
    levels: Vec<Record>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Overlay>,
    /// Empty: nothing speaks against it. Absent: nobody could tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    faults: Option<Vec<Fault>>,
}

/// All curves, and what they say together.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    curves: &'a [Measured],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fits: Vec<Fit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<Published<'a>>,
    #[serde(skip)]
    groups: Vec<(Transport, Vec<effect::Point>)>,
    #[serde(skip)]
    published_points: Vec<effect::Point>,
    #[serde(skip)]
    reference: Option<&'a Reference>,
}

/// The same lines of a published table.
#[derive(Debug, Serialize)]
struct Published<'a> {
    citation: &'a str,
    fits: Vec<Fit>,
}

impl Measured {
    pub(super) fn new(
        name: String,
        network: Added,
        mut levels: Vec<Record>,
        model: Option<&NfsServer>,
        faults: Option<Vec<Fault>>,
    ) -> Self {
        levels.sort_by(|left, right| left.requested_op_s.total_cmp(&right.requested_op_s));
        Self {
            signature: curve::signature(&levels),
            model: model.map(|server| overlay(server, network, &levels)),
            name,
            network,
            levels,
            faults,
        }
    }

    /// Whether an emulation did something meanwhile that no profile asks for.
    pub(super) fn is_faulty(&self) -> bool {
        self.faults.as_ref().is_some_and(|faults| !faults.is_empty())
    }

    /// What carried the calls.
    fn transport(&self) -> Option<Transport> {
        self.levels.first().map(|level| level.transport)
    }

    fn point(&self) -> Option<effect::Point> {
        let signature = self.signature?;
        Some(effect::Point {
            added: self.network,
            base_ms: signature.base_ms,
            peak_op_s: signature.peak_op_s,
        })
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(curves: &'a [Measured], reference: Option<&'a Reference>) -> Self {
        let mut report = Self {
            curves,
            fits: Vec::new(),
            published: reference.map(|reference| Published {
                citation: reference.citation(),
                fits: effect::fits(&reference.points(), None),
            }),
            groups: Vec::new(),
            published_points: reference.map(Reference::points).unwrap_or_default(),
            reference,
        };
        let transports = report.transports();
        for &transport in &transports {
            let own = curves.iter().filter(|curve| curve.transport() == Some(transport));
            let points: Vec<effect::Point> = own.filter_map(Measured::point).collect();
            let group = Some(transport).filter(|_| transports.len() > 1);
            report.fits.extend(effect::fits(&points, group));
            report.groups.push((transport, points));
        }
        report
    }

    /// Writes curve.csv, curve.json, curve.svg, curve.html and, with a varied knob, effect.svg.
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
        let charts = self.charts(model);
        let here = self.groups.iter().map(|(transport, points)| {
            let name = if self.groups.len() > 1 {
                format!("here, {transport}")
            } else {
                "here".to_owned()
            };
            (name, points.as_slice())
        });
        let published = self
            .reference
            .map(|reference| (reference.citation(), self.published_points.as_slice()));
        let effect = effect::chart(&here.collect::<Vec<_>>(), published);
        let drawn = match charts.as_slice() {
            [chart] => chart.to_svg(),
            several => Chart::stacked(several),
        };
        write("curve.svg", drawn.context("drawing the chart")?)?;
        if let Some(effect) = &effect {
            write("effect.svg", effect.to_svg().context("drawing the effect")?)?;
        }
        write("curve.html", self.page(&charts, effect.as_ref())?.to_html())
    }

    fn page(&self, charts: &[Chart], effect: Option<&Chart>) -> anyhow::Result<Page> {
        let mut page = Page::new("NFS response time over throughput")
            .facts([
                ("perturb", env!("CARGO_PKG_VERSION").to_owned()),
                ("kernel", machine::kernel()),
                ("command", format!("perturb {}", machine::arguments())),
            ])
            .figures(&charts.iter().chain(effect).collect::<Vec<_>>())
            .context("drawing the charts")?;
        if let Some(reference) = self.reference {
            page = page
                .heading(reference.citation())
                .chart(&reference.chart())
                .context("drawing the reference")?;
        }
        page = page
            .heading("Signatures")
            .table("Measured, and as the model has it", &self.signatures());
        for sentence in self.fitted() {
            page = page.paragraph(&sentence);
        }
        page = page.heading("Levels");
        for curve in self.curves {
            page = page.table(&curve.name, &curve.table());
            for sentence in curve.doubts() {
                page = page.paragraph(&sentence);
            }
        }
        Ok(page)
    }

    /// What is fitted over several curves, here and in what was published.
    fn fitted(&self) -> Vec<String> {
        let published = self.published.iter().flat_map(|published| {
            let fits = published.fits.iter();
            fits.map(|fit| format!("{}: {fit}", published.citation))
        });
        let packets = self.transports().into_iter().filter_map(|transport| {
            let [least, most] = self.packets(transport)?;
            Some(format!(
                "packets per operation over {transport}, both ways: {} to {}; {OVERHEADS_PER_OPERATION} messages in Martin \
                 1999, section 5.3.3, with 3584-byte packets over UDP",
                measured(least),
                measured(most)
            ))
        });
        let fits = self.fits.iter().map(ToString::to_string);
        fits.chain(published).chain(packets).collect()
    }

    /// What carried the curves' calls, each once.
    fn transports(&self) -> Vec<Transport> {
        let mut all: Vec<Transport> = Vec::new();
        for transport in self.curves.iter().filter_map(Measured::transport) {
            if !all.contains(&transport) {
                all.push(transport);
            }
        }
        all
    }

    /// The least and the most packets that an operation took.
    fn packets(&self, transport: Transport) -> Option<[f64; 2]> {
        let curves = self
            .curves
            .iter()
            .filter(|curve| curve.transport() == Some(transport));
        let counted = curves.flat_map(|curve| curve.levels.iter().filter_map(|level| level.packets_per_op));
        counted.fold(None, |ends, packets| {
            let [least, most] = ends.unwrap_or([packets; 2]);
            Some([least.min(packets), most.max(packets)])
        })
    }

    fn csv(&self) -> String {
        let mut text = String::from(
            "curve,requested_op_s,delivered_op_s,mean_ms,mean_low_ms,mean_high_ms,p50_ms,p99_ms,errors,\
             retransmissions,packets_per_op,model_ms,model_error_percent\n",
        );
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
                    cell(level.packets_per_op),
                    cell(model.and_then(|model| model.response_ms[index])),
                    cell(model.and_then(|model| model.error_percent[index])),
                ];
                text.push_str(&cells.join(","));
                text.push('\n');
            }
        }
        text
    }

    /// One for each transport, in which the same color is the same network.
    fn charts(&self, model: Option<&NfsServer>) -> Vec<Chart> {
        let transports = self.transports();
        let chart = |&transport: &Transport| {
            let own = |curve: &&Measured| curve.transport() == Some(transport);
            let curves: Vec<&Measured> = self.curves.iter().filter(own).collect();
            chart(&curves, model)
        };
        transports.iter().map(chart).collect()
    }
}

fn chart(curves: &[&Measured], model: Option<&NfsServer>) -> Chart {
    let level = curves.iter().find_map(|curve| curve.levels.first());
    let caption = level.map(|level| {
        format!(
            "{}, {} arrivals, {}, {} s a level; band: 95 % interval of the mean",
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
    for (color, curve) in curves.iter().enumerate() {
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
    for (color, curve) in curves.iter().enumerate() {
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

impl Measured {
    /// Its levels.
    fn table(&self) -> Table {
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
        let counted = self.levels.iter().any(|level| level.packets_per_op.is_some());
        if counted {
            header.push("packets/op");
        }
        if self.model.is_some() {
            header.extend(["model ms", "error %"]);
        }
        let mut table = Table::new(1, &header);
        for (index, level) in self.levels.iter().enumerate() {
            let [low, high] = level.mean_interval_ms.map_or([None; 2], |ends| ends.map(Some));
            let mut row = vec![
                measured(level.requested_op_s),
                measured(level.delivered_op_s),
                measured(level.mean_ms),
                measured(low),
                measured(high),
                measured(level.p50_ms),
                measured(level.p99_ms),
                level.errors.to_string(),
                level.retransmissions.to_string(),
            ];
            if counted {
                row.push(measured(level.packets_per_op));
            }
            if let Some(model) = &self.model {
                row.push(measured(model.response_ms[index]));
                row.push(model.error_percent[index].map_or("-".into(), |error| format!("{error:+.1}")));
            }
            table.row(row);
        }
        table
    }

    /// What speaks against them.
    fn doubts(&self) -> impl Iterator<Item = String> {
        let faults = self.faults.iter().flatten();
        faults.map(|fault| format!("do not trust {}: {fault}", self.name))
    }
}

impl std::fmt::Display for Report<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for curve in self.curves {
            writeln!(formatter, "{}", curve.name)?;
            writeln!(formatter, "{}", curve.table())?;
            for sentence in curve.doubts() {
                writeln!(formatter, "{sentence}")?;
            }
        }
        writeln!(formatter, "{}", self.signatures())?;
        for sentence in self.fitted() {
            writeln!(formatter, "{sentence}")?;
        }
        Ok(())
    }
}

impl Report<'_> {
    /// The signatures as Table 5.1 has them, measurement and model below each other.
    fn signatures(&self) -> Table {
        let mut table = Table::new(
            1,
            &[
                "signature",
                "base ms",
                "slope us/(op/s)",
                "±",
                "intercept ms",
                "r²",
                "knee op/s",
                "peak op/s",
                "ORT ms",
            ],
        );
        let line = |line: Option<CurveLine>| {
            [
                measured(line.map(|line| line.slope_us_per_op_s)),
                measured(line.and_then(|line| line.slope_error)),
                measured(line.map(|line| line.intercept_ms)),
                measured(line.and_then(|line| line.r_squared)),
            ]
        };
        for curve in self.curves {
            if let Some(signature) = &curve.signature {
                let mut peak = measured(signature.peak_op_s);
                if !signature.saturated {
                    // No level was saturated, so the peak may be higher.
                    let _ = write!(peak, " or more");
                }
                let mut row = vec![curve.name.clone(), measured(signature.base_ms)];
                row.extend(line(signature.line));
                row.extend([
                    measured(signature.knee_op_s),
                    peak,
                    measured(signature.overall_ms),
                ]);
                table.row(row);
            }
            if let Some(model) = &curve.model {
                let mut row = vec![format!("{}, model", curve.name), measured(model.base_ms)];
                row.extend(line(model.line));
                row.extend([
                    measured(None),
                    measured(Some(model.saturation_op_s).filter(|rate| rate.is_finite())),
                ]);
                table.row(row);
            }
        }
        table
    }
}
