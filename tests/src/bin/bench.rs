//! Everything that was measured, in one place: tables, JSON and one SVG.
//!
//! Reads the files that `cargo xtask bench` has its parts write to a directory, and writes bench.json, bench.md and
//! bench.svg beside them. A part that was not measured is left out.

use std::{fmt::Write as _, fs, path::Path, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use perturb_present::{
    Digits, Table,
    chart::{Axis, Chart, Kind, Series},
};
use serde_json::{Value, json};

/// Put the results of a benchmark together
#[derive(Parser)]
struct Cli {
    /// Directory of the results
    directory: PathBuf,
}

/// Files of comparisons, and what they are called; the machine's line says how many processors there were.
const COMPARISONS: [(&str, &str); 4] = [
    ("host.json", "this kernel"),
    ("sandbox.json", "the sandbox"),
    ("vm-1.json", "a stock kernel, emulated processor"),
    ("vm-4.json", "a stock kernel, emulated processors"),
];

fn main() -> Result<()> {
    let directory = Cli::parse().directory;
    let mut comparisons = Vec::new();
    for (file, place) in COMPARISONS {
        if let Some(text) = read(&directory.join(file))? {
            let comparison: Value = serde_json::from_str(&text).with_context(|| file.to_owned())?;
            comparisons.push((place, comparison));
        }
    }
    let cost = lines(&directory.join("cost.jsonl"))?;
    let models = lines(&directory.join("models.jsonl"))?;
    ensure!(
        !comparisons.is_empty() || !cost.is_empty() || !models.is_empty(),
        "{} has no results",
        directory.display()
    );
    let named = comparisons
        .iter()
        .map(|(place, comparison)| json!({ "place": place, "comparison": comparison }));
    let all = json!({
        "perturb": env!("CARGO_PKG_VERSION"),
        "comparisons": named.collect::<Vec<_>>(),
        "cost": cost,
        "models": models,
    });
    let mut text = String::new();
    for (place, comparison) in &comparisons {
        tabulate(&mut text, place, comparison)?;
    }
    costs(&mut text, &cost)?;
    throughputs(&mut text, &models)?;
    print!("{text}");
    write(&directory, "bench.json", serde_json::to_string_pretty(&all)?)?;
    write(&directory, "bench.md", text)?;
    let mut charts: Vec<Chart> = comparisons
        .iter()
        .filter_map(|(place, comparison)| delays(place, comparison))
        .collect();
    charts.extend(growth(&cost));
    if !charts.is_empty() {
        write(&directory, "bench.svg", Chart::stacked(&charts)?)?;
    }
    eprintln!("in {}: bench.json, bench.md, bench.svg", directory.display());
    Ok(())
}

fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

fn lines(path: &Path) -> Result<Vec<Value>> {
    let text = read(path)?.unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display())))
        .collect()
}

fn write(directory: &Path, name: &str, text: String) -> Result<()> {
    let path = directory.join(name);
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

fn emulators(comparison: &Value) -> Vec<&str> {
    let names = comparison["emulators"].as_array();
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn rows(comparison: &Value) -> impl Iterator<Item = &Value> {
    comparison["rows"].as_array().into_iter().flatten()
}

/// A number, or a dash.
fn short(value: impl Into<Option<f64>>) -> String {
    Digits::of(4).trimmed().write(value)
}

fn part(text: &mut String, heading: &str, table: &Table) -> Result<()> {
    writeln!(text, "### {heading}\n\n{}", table.markdown())?;
    Ok(())
}

fn tabulate(text: &mut String, place: &str, comparison: &Value) -> Result<()> {
    let emulators = emulators(comparison);
    let mut table = Table::new(2, &[&["figure", "unit"], emulators.as_slice()].concat());
    for row in rows(comparison) {
        let cell = |emulator: &&str| {
            let figure = &row["emulators"][*emulator];
            let number = |key: &str| figure[key].as_f64();
            if let (Some(value), Some(low), Some(high)) = (number("value"), number("low"), number("high")) {
                format!("{} ({} to {})", short(value), short(low), short(high))
            } else if let (Some(p50), Some(p99)) = (number("p50"), number("p99")) {
                format!("{p50:.1} / {p99:.1}")
            } else {
                short(number("value"))
            }
        };
        let named = ["figure", "unit"].map(|key| word(row, key));
        table.row(named.into_iter().chain(emulators.iter().map(cell)).collect());
    }
    let heading = format!("Emulators on {place}: {}", word(comparison, "machine"));
    part(text, &heading, &table)
}

fn word(of: &Value, key: &str) -> String {
    of[key].as_str().unwrap_or_default().to_owned()
}

fn costs(text: &mut String, cost: &[Value]) -> Result<()> {
    let whole = |ns: f64| format!("{ns:.0}");
    let mut cases = Table::new(1, &["case", "25 %, ns", "50 %, ns", "75 %, ns"]);
    let mut grown = Table::new(1, &["of", "count", "caches", "ns"]);
    for line in cost {
        if line["case"].is_string() {
            let quartiles = line["ns"].as_array().into_iter().flatten();
            let quartiles = quartiles.filter_map(Value::as_f64).map(whole);
            cases.row([word(line, "case")].into_iter().chain(quartiles).collect());
        }
        if line["growth"].is_string() {
            grown.row(vec![
                word(line, "growth"),
                line["count"].to_string(),
                word(line, "caches"),
                whole(line["ns"].as_f64().unwrap_or(f64::NAN)),
            ]);
        }
    }
    if !cases.is_empty() {
        part(text, "Cost of a packet in the programs", &cases)?;
    }
    if !grown.is_empty() {
        part(text, "Cost over what there is", &grown)?;
    }
    Ok(())
}

fn throughputs(text: &mut String, models: &[Value]) -> Result<()> {
    let mut table = Table::new(1, &["model", "size", "rate, 1/s"]);
    for line in models {
        let variant = match (line["bus"].as_bool(), line["method"].as_str()) {
            (Some(true), _) => ", with a bus".to_owned(),
            (_, Some(method)) => format!(", {method}"),
            _ => String::new(),
        };
        let size = line["events"].as_f64().or_else(|| line["requests"].as_f64());
        let rate = line["events_per_s"]
            .as_f64()
            .or_else(|| Some(size? / line["seconds"].as_f64()?));
        table.row(vec![word(line, "bench") + &variant, short(size), short(rate)]);
    }
    if !table.is_empty() {
        part(text, "Throughput of the models", &table)?;
    }
    Ok(())
}

/// 99 % of the delay errors, in size, over the delay.
fn delays(place: &str, comparison: &Value) -> Option<Chart> {
    let mut chart = Chart::new(
        format!("Delay on {place}: how far off 99 % of the packets are at most"),
        Axis::new("asked one-way delay", "ms").kind(Kind::Logarithmic),
        Axis::new("error at 99 %", "us").kind(Kind::Logarithmic),
    )
    .caption(comparison["machine"].as_str().unwrap_or_default());
    let mut any = false;
    for emulator in emulators(comparison) {
        let points: Vec<(f64, f64)> = rows(comparison)
            .filter_map(|row| {
                let name = row["figure"].as_str()?.strip_prefix("delay ")?;
                let milliseconds = name.strip_suffix(": error, p50 / p99")?.strip_suffix(" ms")?;
                let p99 = row["emulators"][emulator]["p99"].as_f64()?;
                Some((milliseconds.parse().ok()?, p99.abs().max(0.1)))
            })
            .collect();
        if !points.is_empty() {
            any = true;
            chart = chart.series(Series::new(emulator, points));
        }
    }
    any.then_some(chart)
}

fn growth(cost: &[Value]) -> Option<Chart> {
    let mut chart = Chart::new(
        "Cost of a packet over the number of servers on its way, classes, and flows",
        Axis::new("count", "").kind(Kind::Logarithmic),
        Axis::new("time over that of an idle program", "ns"),
    )
    .caption("BPF_PROG_TEST_RUN; flows by turns, with cold caches; lines: what one read of as large a memory costs");
    let mut any = false;
    for of in ["servers", "classes", "flows", "lines"] {
        let points: Vec<(f64, f64)> = cost
            .iter()
            .filter(|line| line["growth"] == of)
            .filter_map(|line| Some((line["count"].as_f64()?, line["ns"].as_f64()?)))
            .collect();
        if !points.is_empty() {
            any = true;
            chart = chart.series(Series::new(of, points));
        }
    }
    any.then_some(chart)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison() -> Value {
        json!({
            "machine": "Linux 6.1",
            "emulators": ["off", "netem"],
            "rows": [
                { "figure": "delay 10 ms: error, p50 / p99", "unit": "us", "emulators": {
                    "off": { "p50": 8.04, "p99": 30.0, "max": 90.0 }, "netem": { "p50": 60.0, "p99": -70.0, "max": 99.0 } } },
                { "figure": "gap", "unit": "us", "emulators": { "off": { "value": 1234.5 } } },
            ],
        })
    }

    #[test]
    fn what_is_not_there_is_a_dash() {
        let mut text = String::new();
        tabulate(&mut text, "the sandbox", &comparison()).unwrap();
        assert!(text.contains("| delay 10 ms: error, p50 / p99 | us | 8.0 / 30.0 | 60.0 / -70.0 |"));
        assert!(text.contains("| gap | us | 1234 | - |"), "{text}");
    }

    #[test]
    fn charts_show_what_was_measured() {
        let svg = delays("here", &comparison()).unwrap().to_svg().unwrap();
        assert!(svg.contains(">off</text>") && svg.contains(">netem</text>"));
        let cost = [
            json!({ "growth": "flows", "count": 1, "caches": "cold", "ns": 300.0 }),
            json!({ "growth": "flows", "count": 1_000_000, "caches": "cold", "ns": 900.0 }),
            json!({ "case": "1 server", "ns": [1.0, 2.0, 3.0] }),
        ];
        assert!(growth(&cost).unwrap().to_svg().unwrap().contains(">flows</text>"));
        assert!(growth(&cost[2..]).is_none());
        let mut text = String::new();
        costs(&mut text, &cost).unwrap();
        assert!(
            text.contains("| 1 server | 1 | 2 | 3 |") && text.contains("| flows | 1000000 | cold | 900 |")
        );
    }

    #[test]
    fn a_rate_is_stated_or_computed() {
        let models = [
            json!({ "bench": "whatif", "bus": true, "events": 100, "events_per_s": 5e6 }),
            json!({ "bench": "locality", "method": "natural", "requests": 1000, "seconds": 0.5 }),
        ];
        let mut text = String::new();
        throughputs(&mut text, &models).unwrap();
        assert!(text.contains("| whatif, with a bus | 100 | 5000000 |"), "{text}");
        assert!(text.contains("| locality, natural | 1000 | 2000 |"), "{text}");
    }
}
