//! The report as files: a page, its pictures, tables and JSON.

use std::{fs, path::Path};

use anyhow::Context as _;
use perturb_present::{
    Page, Table, cell,
    chart::{Axis, Chart, Point, Series, Stroke},
    matrix, measured, shell,
};

use super::{
    answers::{remarks, saving},
    compare::Comparison,
    curve::{KnobReport, turned},
    findings::Verdict,
    scenarios,
    summary::{Report, WorkloadReport},
    terminal::sensitivity,
};
use crate::sweep::experiment::Knob;

impl Report {
    /// Writes `index.html`, `report.json`, `curves.csv` and a picture for each curve and each matrix.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        write(self, directory)
    }
}

impl Comparison {
    /// Writes `comparison.json`.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        let path = directory.join("comparison.json");
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }
}

fn write(report: &Report, directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let put = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    let mut page = Page::new(&format!("Sensitivity to the network: {}", report.experiment));
    if let Some(description) = &report.description {
        page = page.paragraph(description);
    }
    let mut findings = Table::new(3, &["finding", "", "evidence"]);
    for finding in &report.findings {
        let cells = vec![
            finding.claim.to_owned(),
            finding.verdict.to_string(),
            finding.evidence.clone(),
        ];
        findings.push(cells, finding.verdict == Verdict::Refuted);
    }
    page = page.facts(facts(report));
    let overviews: Vec<(Knob, Chart)> = Knob::ALL
        .into_iter()
        .filter_map(|knob| Some((knob, overview(report, knob)?)))
        .collect();
    if !overviews.is_empty() {
        for (knob, chart) in &overviews {
            put(&format!("overview.{knob}.svg"), &chart.to_svg()?)?;
        }
        page = page
            .heading("All programs")
            .figures(&overviews.iter().map(|(_, chart)| chart).collect::<Vec<_>>())?;
    }
    page = page
        .heading("Sensitivity, the greatest first")
        .table(
            "Slowdown for one µs more per packet (G: by the program's mean packet), with its standard error; what half of \
             the parameter would save, where there is any; the largest value with at most 5 % of slowdown. Marked: runs failed.",
            &ranked(report),
        )
        .heading("Findings")
        .table(
            "The findings of Martin's thesis about programs in general, with these numbers",
            &findings,
        );
    for workload in &report.workloads {
        page = program(page, workload, &put)?;
    }
    put("index.html", &page.to_html())?;
    put("report.json", &(serde_json::to_string_pretty(report)? + "\n"))?;
    if let Some(text) = scenarios::csv(report) {
        put("scenarios.csv", &text)?;
    }
    put("curves.csv", &csv(report))
}

fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let runs = report.runs;
    let mut facts = vec![
        (
            "runs",
            format!(
                "{} with a value, {} failed, {} did not end, {} invalid and repeated",
                runs.ok, runs.failed, runs.timed_out, runs.invalid
            ),
        ),
        (
            "order",
            format!(
                "{} design, seed {}, baselines interleaved",
                report.design.key(),
                report.seed
            ),
        ),
    ];
    for machine in &report.machines {
        let jit = match machine.jit {
            Some(true) => ", JIT",
            Some(false) => ", eBPF interpreted",
            None => "",
        };
        let resumed = match machine.resumed {
            0 => String::new(),
            count => format!("; resumed {count}×"),
        };
        facts.push((
            "machine",
            format!(
                "{} × {}, Linux {}{jit}, pacer {}, perturb {}{resumed}",
                machine.processors,
                machine.processor,
                machine.kernel,
                machine.pacer.as_deref().unwrap_or("unknown"),
                machine.perturb
            ),
        ));
    }
    facts
}

/// A program's part of the page.
fn program(
    page: Page,
    workload: &WorkloadReport,
    put: &dyn Fn(&str, &str) -> anyhow::Result<()>,
) -> anyhow::Result<Page> {
    let mut page = page
        .heading(&workload.name)
        .verbatim(&shell::command(&workload.command))
        .facts(baseline_facts(workload));
    for line in remarks(&workload.knobs)
        .into_iter()
        .chain(Report::failures(workload))
    {
        page = page.paragraph(&line);
    }
    let charts: Vec<(Knob, Chart)> = turned(&workload.knobs)
        .filter(|(_, curve)| curve.slowdown.iter().any(Option::is_some))
        .map(|(knob, curve)| (knob, chart(workload, knob, curve)))
        .collect();
    for (knob, chart) in &charts {
        put(&format!("{}.{knob}.svg", workload.name), &chart.to_svg()?)?;
    }
    if !charts.is_empty() {
        page = page.figures(&charts.iter().map(|(_, chart)| chart).collect::<Vec<_>>())?;
    }
    for (knob, curve) in turned(&workload.knobs) {
        let caption = format!("{}: {}", knob.named(), sensitivity(knob, curve));
        page = page.table(&caption, &table(knob, curve));
    }
    if let Some(chart) = scenarios::chart(workload) {
        put(&format!("{}.scenario.svg", workload.name), &chart.to_svg()?)?;
        let caption = "scenarios: networks in the place of the baseline's";
        page = page
            .figures(&[&chart])?
            .table(caption, &scenarios::table(workload));
    }
    if let Some(effects) = &workload.effects {
        let mut table = Table::new(1, &["effect", "slowdown", "confounded with"]);
        for effect in &effects.effects {
            table.row(vec![
                effect.of.clone(),
                format!("{:+.4}", effect.slowdown),
                effect.confounded_with.clone().unwrap_or_default(),
            ]);
        }
        let caption = format!("Effects on the slowdown, from {} settings", effects.settings);
        page = page.table(&caption, &table);
    }
    if let Some(communication) = &workload.baseline.communication {
        let title = format!("{}: packets from host (row) to host (column)", workload.name);
        let hosts: Vec<String> = (1..=workload.hosts).map(perturb_emulator::lab::name).collect();
        let picture = matrix::svg(&title, &hosts, &communication.sent.matrix);
        put(&format!("{}.balance.svg", workload.name), &picture)?;
        page = page.paragraph(&title).picture(&picture);
        if let Some(program) = &communication.program {
            let title = format!(
                "{}: messages from process (row) to process (column)",
                workload.name
            );
            let picture = matrix::svg(&title, &program.processes, &program.sent.matrix);
            put(&format!("{}.messages.svg", workload.name), &picture)?;
            page = page.paragraph(&title).picture(&picture);
        }
    }
    Ok(page)
}

/// Every program's slowdown over a knob; nothing if fewer than two programs have one.
fn overview(report: &Report, knob: Knob) -> Option<Chart> {
    let series: Vec<Series> = report
        .workloads
        .iter()
        .filter_map(|workload| {
            let curve = workload.knobs.get(knob.key())?;
            let points = points(knob, curve);
            let points = points.into_iter().map(|point| Point {
                interval: None,
                ..point
            });
            let measured = curve.slowdown.iter().any(Option::is_some);
            measured.then(|| Series::new(workload.name.as_str(), points))
        })
        .collect();
    let chart = Chart::new(
        format!("Slowdown over the {}", parameter(knob)),
        axis(knob),
        Axis::new("slowdown", "").cut(),
    );
    (series.len() > 1).then(|| series.into_iter().fold(chart, Chart::series).names_at_ends())
}

/// The column of [`ranked`] that is left out where the network has nothing to halve.
const SAVED: usize = 3;

/// Programs and parameters, the most sensitive first, then those without a response.
fn ranked(report: &Report) -> Table {
    let mut rows: Vec<(f64, bool, Vec<String>)> = Vec::new();
    for workload in &report.workloads {
        let broken = workload.baseline.value.is_none() || !Report::failures(workload).is_empty();
        for (knob, curve) in turned(&workload.knobs) {
            let dash = || "–".to_owned();
            let place = workload.ranking.places.iter().find(|place| place.knob == knob);
            let largest = curve
                .levels_us
                .iter()
                .zip(&curve.slowdown)
                .filter_map(|(level, slowdown)| Some((*level, (*slowdown)?)))
                .max_by(|one, other| one.1.total_cmp(&other.1));
            let cells = vec![
                workload.name.clone(),
                knob.named().to_owned(),
                place.map_or_else(dash, |place| {
                    format!("{:.3} ± {:.3} %", place.percent_per_us, place.stderr)
                }),
                saving(curve).map_or_else(dash, |percent| format!("{percent:.1} %")),
                match (curve.tolerance(5), knob) {
                    (None, _) => dash(),
                    (Some((value, false)), _) => knob.written(value),
                    (Some((value, true)), Knob::Bandwidth) => format!("≤ {}", knob.written(value)),
                    (Some((value, true)), _) => format!("≥ {}", knob.written(value)),
                },
                largest.map_or_else(dash, |(level, slowdown)| {
                    format!("{slowdown:.2} at {}", knob.written(level))
                }),
            ];
            rows.push((
                place.map_or(f64::NEG_INFINITY, |place| place.percent_per_us),
                broken,
                cells,
            ));
        }
    }
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut header = vec!["program", "parameter", "per µs", "5 % at", "largest slowdown"];
    let saves = rows.iter().any(|(.., cells)| cells[SAVED] != "–");
    if saves {
        header.insert(SAVED, "saved");
    }
    let mut table = Table::new(2, &header);
    for (_, broken, mut cells) in rows {
        if !saves {
            cells.remove(SAVED);
        }
        table.push(cells, broken);
    }
    table
}

fn baseline_facts(workload: &WorkloadReport) -> Vec<(&'static str, String)> {
    let base = &workload.baseline;
    let mut facts = Vec::new();
    if let Some(value) = base.value {
        let interval = base
            .interval
            .map(|[lower, upper]| format!(" [{}, {}]", measured(lower), measured(upper)))
            .unwrap_or_default();
        facts.push((
            "baseline",
            format!("{} {}{interval}, {} runs", measured(value), base.unit, base.runs),
        ));
    }
    let bandwidth = base
        .bandwidth_mb_s
        .map_or("unlimited".to_owned(), |rate| format!("{} MB/s", measured(rate)));
    let changing = if base.changing {
        ", by turns what its steps or trace say"
    } else {
        ""
    };
    facts.push((
        "network",
        format!(
            "o {} us, g {} us, L {} us, 1/G {bandwidth}{changing}; {} hosts",
            measured(base.overhead_us),
            measured(base.gap_us),
            measured(base.latency_us),
            workload.hosts
        ),
    ));
    if let Some(communication) = &base.communication {
        facts.push((
            "communication",
            format!(
                "busiest host: {} packets, {} bytes, one each {:.1} us; mean packet {:.0} bytes; imbalance {:.2}; longest \
                 queue {:.1} us ({:.1} intervals)",
                communication.sent.messages,
                communication.sent.bytes,
                communication.sent.interval_us,
                communication.sent.mean_size,
                communication.imbalance(),
                communication.max_backlog_us,
                communication.burstiness
            ),
        ));
        if let Some(program) = &communication.program {
            facts.push(("messages", program.to_string()));
        }
        facts.push(("for the models", communication.feeds()));
    }
    if let Some(failure) = &base.trace_failure {
        facts.push(("the traced run failed", failure.clone()));
    }
    if let Some(drift) = base.drift {
        let significant = if drift.significant {
            ""
        } else {
            ", not significant"
        };
        facts.push((
            "drift",
            format!("{:+.1} % per hour{significant}", drift.percent_per_hour),
        ));
    }
    facts
}

/// Where a value of a knob is on its axis.
fn place(knob: Knob, value: f64) -> f64 {
    value * knob.units()
}

/// What grows along an axis.
fn parameter(knob: Knob) -> &'static str {
    match knob {
        Knob::Bandwidth => "gap per byte G",
        knob => knob.named(),
    }
}

fn axis(knob: Knob) -> Axis {
    Axis::new(parameter(knob), knob.unit())
}

/// The slowdown at each level and at the baseline, with its interval.
fn points(knob: Knob, curve: &KnobReport) -> Vec<Point> {
    let levels = curve.levels_us.iter().enumerate().filter_map(|(index, level)| {
        Some(Point {
            x: place(knob, *level),
            y: curve.slowdown[index]?,
            interval: curve.slowdown_lower[index].zip(curve.slowdown_upper[index]),
        })
    });
    let mut points: Vec<Point> = levels.collect();
    if !curve.levels_us.contains(&curve.baseline_us) {
        points.push((place(knob, curve.baseline_us), 1.0).into());
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    points
}

fn chart(workload: &WorkloadReport, knob: Knob, curve: &KnobReport) -> Chart {
    let mut chart = Chart::new(
        format!("{}: slowdown over the {}", workload.name, parameter(knob)),
        axis(knob),
        Axis::new("slowdown", "").cut(),
    )
    .caption("band: 95 % interval; dashed: models, from the baseline run alone")
    .series(Series::new("measured", points(knob, curve)));
    for (name, model) in &curve.models {
        let points = curve.points(&model.slowdown).into_iter();
        let mut points: Vec<(f64, f64)> = points.map(|(level, y)| (place(knob, level), y)).collect();
        // A model that is far off must not hide what was measured.
        let highest = curve.slowdown.iter().flatten().copied().fold(1.0, f64::max);
        points.retain(|(_, y)| *y <= 1.0 + 2.0 * (highest - 1.0).max(0.05));
        chart = chart.series(
            Series::new(*name, points)
                .stroke(Stroke::Dashed)
                .without_markers(),
        );
    }
    if let Some(published) = &curve.published {
        let points = curve.levels_us.iter().zip(&published.slowdown);
        let points = points.filter_map(|(level, slowdown)| Some((place(knob, *level), (*slowdown)?)));
        chart = chart.series(Series::new(published.source, points).stroke(Stroke::None));
    }
    chart
}

fn table(knob: Knob, curve: &KnobReport) -> Table {
    let mut header = vec!["level", "slowdown", "95 % interval", "runs"];
    let names: Vec<String> = curve
        .models
        .keys()
        .map(|name| format!("{name} (error)"))
        .collect();
    header.extend(names.iter().map(String::as_str));
    header.extend(curve.published.iter().map(|published| published.source));
    let mut table = Table::new(1, &header);
    for (index, level) in curve.levels_us.iter().enumerate() {
        let dash = || "–".to_owned();
        let (failed, hung) = (curve.failed[index], curve.timed_out[index]);
        let mut runs = curve.runs[index].to_string();
        for (count, what) in [(failed, "failed"), (hung, "did not end")] {
            if count > 0 {
                runs += &format!(", {count} {what}");
            }
        }
        let mut cells = vec![
            knob.written(*level),
            curve.slowdown[index].map_or_else(dash, |slowdown| format!("{slowdown:.3}")),
            curve.slowdown_lower[index]
                .zip(curve.slowdown_upper[index])
                .map_or_else(dash, |(lower, upper)| format!("{lower:.3} … {upper:.3}")),
            runs,
        ];
        for model in curve.models.values() {
            let error = model.error_percent[index].map_or(String::new(), |error| format!(" ({error:+.1} %)"));
            cells.push(model.slowdown[index].map_or_else(dash, |slowdown| format!("{slowdown:.3}{error}")));
        }
        if let Some(published) = &curve.published {
            cells.push(published.slowdown[index].map_or_else(dash, |slowdown| format!("{slowdown:.3}")));
        }
        table.push(cells, failed + hung > 0);
    }
    table
}

fn csv(report: &Report) -> String {
    let mut text = String::from(
        "workload,knob,level_us,slowdown,slowdown_lower,slowdown_upper,runs,failed,timed_out,invalid,model,predicted\n",
    );
    for workload in &report.workloads {
        for (key, curve) in &workload.knobs {
            for (index, level) in curve.levels_us.iter().enumerate() {
                let measured = format!(
                    "{},{key},{level},{},{},{},{},{},{},{}",
                    workload.name,
                    cell(curve.slowdown[index]),
                    cell(curve.slowdown_lower[index]),
                    cell(curve.slowdown_upper[index]),
                    curve.runs[index],
                    curve.failed[index],
                    curve.timed_out[index],
                    curve.invalid[index]
                );
                if curve.models.is_empty() {
                    text += &format!("{measured},,\n");
                }
                for (name, model) in &curve.models {
                    text += &format!("{measured},{name},{}\n", cell(model.slowdown[index]));
                }
            }
        }
    }
    text
}
