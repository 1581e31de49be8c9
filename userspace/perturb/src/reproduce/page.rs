//! A figure's result as a page, a picture and JSON: the same for every figure.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::Context as _;
use perturb_experiments::machine;
use perturb_present::{
    Page, Table,
    chart::{Axis, Chart, Kind, Point, Series, Stroke},
    computed, measured, span,
};
use serde::Serialize;

use super::{
    figure::{Differs, Figure},
    outcome::{Outcome, Panel, Row, Scale},
    verdict::{Errors, RULE, Verdict},
};

/// What was found, with all circumstances.
#[derive(Debug, Serialize)]
pub(super) struct Result<'a> {
    pub figure: &'static str,
    pub paper: &'static str,
    pub shows: &'static str,
    pub state: super::figure::Means,
    pub quick: bool,
    pub verdict: Verdict,
    pub errors: Errors,
    panels: &'a [Panel],
    rows: Vec<Judged<'a>>,
    differs: Vec<Differs>,
    doubts: &'a [String],
    commands: &'a [String],
    machine: Machine,
    seconds: f64,
    #[serde(skip)]
    tables: &'a [(String, Table)],
    #[serde(skip)]
    pictures: &'a [(String, String)],
}

#[derive(Debug, Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    row: &'a Row,
    difference: f64,
    agrees: bool,
}

/// Where it was found.
#[derive(Debug, Serialize)]
struct Machine {
    perturb: &'static str,
    kernel: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    processor: Option<String>,
    processors: usize,
}

impl Machine {
    fn here() -> Self {
        Self {
            perturb: env!("CARGO_PKG_VERSION"),
            kernel: machine::kernel(),
            processor: machine::processor(),
            processors: machine::processors(),
        }
    }
}

impl<'a> Result<'a> {
    pub(super) fn new(figure: &'static Figure, outcome: &'a Outcome, quick: bool, seconds: f64) -> Self {
        let errors = Errors::of(outcome);
        Self {
            figure: figure.name,
            paper: figure.paper.citation(),
            shows: figure.shows,
            state: figure.means,
            quick,
            verdict: errors.verdict(),
            errors,
            panels: &outcome.panels,
            rows: outcome
                .rows
                .iter()
                .map(|row| Judged {
                    row,
                    difference: row.ours - row.paper,
                    agrees: row.agrees(),
                })
                .collect(),
            differs: figure.differs.iter().chain(&outcome.differs).copied().collect(),
            doubts: &outcome.doubts,
            commands: &outcome.commands,
            machine: Machine::here(),
            seconds,
            tables: &outcome.tables,
            pictures: &outcome.pictures,
        }
    }

    /// Writes NAME.html, NAME.svg and NAME.json.
    pub(super) fn write(&self, out: &Path) -> anyhow::Result<()> {
        let write = |suffix: &str, text: String| {
            let path = out.join(format!("{}.{suffix}", self.figure));
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
        };
        let charts = self.charts();
        write("svg", Chart::stacked(&charts).context("drawing the figure")?)?;
        write("json", serde_json::to_string_pretty(self)? + "\n")?;
        write("html", self.page(&charts)?.to_html())
    }

    fn command(&self) -> String {
        format!("perturb reproduce {}", self.name())
    }

    /// The figure, and whether this is its short form.
    pub(super) fn name(&self) -> String {
        format!("{}{}", self.figure, if self.quick { " --quick" } else { "" })
    }

    pub(super) fn page(&self, charts: &[Chart]) -> anyhow::Result<Page> {
        let errors = self.errors.line();
        let mut page = Page::new(&format!("{}: {}", self.name(), self.shows))
            .facts([
                ("paper", self.paper.to_owned()),
                ("ours from", self.state.name().to_owned()),
                ("verdict", self.verdict.name().to_owned()),
                ("errors", errors),
            ])
            .figures(&charts.iter().collect::<Vec<_>>())
            .context("drawing the figure")?;
        for doubt in self.doubts {
            page = page.paragraph(&format!("! {doubt}"));
        }
        for (caption, picture) in self.pictures {
            page = page.paragraph(caption).picture(picture);
        }
        for (caption, table) in self.tables {
            page = page.table(caption, table);
        }
        if !self.rows.is_empty() {
            page = page
                .heading("The paper's numbers beside ours")
                .table("", &self.numbers());
        }
        if !self.differs.is_empty() {
            let mut table = Table::new(2, &["what differs", "why"]);
            for differs in &self.differs {
                table.row(vec![differs.what.into(), differs.why.into()]);
            }
            page = page
                .heading("What differs in the set-up, and why")
                .table("", &table);
        }
        page = page.heading("How it was made").facts([
            ("command", self.command()),
            ("perturb", self.machine.perturb.to_owned()),
            ("kernel", self.machine.kernel.clone()),
            (
                "processor",
                format!(
                    "{} × {}",
                    self.machine.processors,
                    self.machine.processor.as_deref().unwrap_or("unknown")
                ),
            ),
            ("it took", span(self.seconds)),
        ]);
        if !self.commands.is_empty() {
            page = page
                .paragraph("It ran these, here with paths from the directory of this page:")
                .verbatim(&self.commands.join("\n"));
        }
        Ok(page.heading("The rule of the verdict").paragraph(RULE))
    }

    fn numbers(&self) -> Table {
        let header = [
            "case",
            "remark",
            "unit",
            "paper",
            "ours",
            "difference",
            "tolerance",
            "agrees",
        ];
        let mut table = Table::new(2, &header);
        for judged in &self.rows {
            let row = judged.row;
            let agrees = match (row.fitted, judged.agrees) {
                (true, _) => "fitted",
                (_, true) => "yes",
                (_, false) => "no",
            };
            let cells = vec![
                row.case.clone(),
                row.remark.unwrap_or_default().to_owned(),
                row.unit.to_owned(),
                computed(row.paper),
                computed(row.ours),
                computed(judged.difference),
                row.bar.map_or_else(
                    || computed(row.tolerance),
                    |bar| format!("{} of {}", computed(row.tolerance), computed(bar)),
                ),
                agrees.to_owned(),
            ];
            table.push(cells, !judged.agrees);
        }
        table
    }

    /// The figure's charts; without any, its numbers: ours over the paper's.
    pub(super) fn charts(&self) -> Vec<Chart> {
        let mut caption = format!(
            "Markers: {}; lines: ours, by perturb {}",
            self.paper, self.machine.perturb
        );
        let curves = || self.panels.iter().flat_map(|panel| &panel.curves);
        if curves().any(|curve| curve.ours.iter().any(|point| point.interval.is_some())) {
            caption += "; bands: 95 % intervals";
        }
        let mut charts: Vec<Chart> = self.panels.iter().map(chart).collect();
        if charts.is_empty() {
            charts.push(self.scatter());
        }
        charts
            .into_iter()
            .map(|chart| chart.caption(caption.clone()))
            .collect()
    }

    fn scatter(&self) -> Chart {
        let rows: Vec<&Row> = self.rows.iter().map(|judged| judged.row).collect();
        let positive = rows.iter().all(|row| row.paper > 0.0 && row.ours > 0.0);
        let kind = if positive { Kind::Logarithmic } else { Kind::Linear };
        let chart = Chart::new(
            self.shows,
            Axis::new("the paper's number", "").kind(kind),
            Axis::new("ours", "").kind(kind),
        );
        let finite = |row: &&&Row| row.paper.is_finite() && row.ours.is_finite();
        let units: BTreeSet<&str> = rows.iter().map(|row| row.unit).collect();
        let chart = units.into_iter().fold(chart, |chart, unit| {
            let own = rows.iter().filter(finite).filter(|row| row.unit == unit);
            let name = if unit.is_empty() { "without unit" } else { unit };
            chart.series(Series::new(name, own.map(|row| (row.paper, row.ours))).stroke(Stroke::None))
        });
        let ends = rows.iter().filter(finite).map(|row| row.paper);
        let (low, high) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let same = [(low, low), (high, high)]
            .into_iter()
            .filter(|(x, _)| x.is_finite());
        chart.series(
            Series::new("equal", same)
                .stroke(Stroke::Dashed)
                .without_markers(),
        )
    }
}

fn axis(scale: &Scale) -> Axis {
    let kind = if scale.logarithmic {
        Kind::Logarithmic
    } else {
        Kind::Linear
    };
    Axis::new(scale.label, scale.unit).kind(kind)
}

/// The paper's points are markers, ours a line of the same color.
fn chart(panel: &Panel) -> Chart {
    let mut chart = Chart::new(panel.title.as_str(), axis(&panel.x), axis(&panel.y));
    for (color, curve) in panel.curves.iter().enumerate() {
        let points = |points: &[super::outcome::Point]| -> Vec<Point> {
            let finite = points
                .iter()
                .filter(|point| point.x.is_finite() && point.y.is_finite());
            let point = |point: &super::outcome::Point| Point {
                x: point.x,
                y: point.y,
                interval: point.interval.map(|[low, high]| (low, high)),
            };
            finite.map(point).collect()
        };
        let (paper, ours) = (points(&curve.paper), points(&curve.ours));
        let both = !paper.is_empty() && !ours.is_empty();
        if !paper.is_empty() {
            // Beside ours, the color says whose points they are.
            let name = if both {
                String::new()
            } else {
                format!("{} (paper)", curve.name)
            };
            chart = chart.series(Series::new(name, paper).stroke(Stroke::None).color(color));
        }
        if !ours.is_empty() {
            let series = Series::new(curve.name.clone(), ours)
                .color(color)
                .without_markers();
            chart = chart.series(if both {
                series
            } else {
                series.stroke(Stroke::Dashed)
            });
        }
    }
    chart
}

impl Errors {
    /// In words.
    pub(super) fn line(&self) -> String {
        let mut line = format!("{} of {} numbers agree", self.agreeing, self.numbers);
        if self.numbers == 0 {
            line = "no number counts".to_owned();
        }
        if self.missing > 0 {
            line += &format!(", {} are missing", self.missing);
        }
        if self.fitted > 0 {
            line += &format!(", beside {} by fitted inputs", self.fitted);
        }
        if let (Some(mean), Some(worst), Some(place)) =
            (self.mean_error_percent, self.worst_error_percent, &self.worst)
        {
            line += &format!(
                "; mean error {} %, worst {} % ({place})",
                measured(mean),
                measured(worst)
            );
        }
        if self.curves > 1 {
            line += &format!("; {} of {} curves are in shape", self.in_shape, self.curves);
        }
        line
    }
}
