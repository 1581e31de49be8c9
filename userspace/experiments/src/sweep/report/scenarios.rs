//! A program's response to scenarios: levels without a scale, each compared with the baseline by itself.

use std::fmt;

use perturb_present::{
    Table, cell,
    chart::{Axis, Chart, Point, Series, Stroke},
};
use serde::Serialize;

use super::{
    level::{Level, Runs},
    summary::{Report, WorkloadReport},
};
use crate::sweep::setting::SCENARIO;

/// A scenario, reported; null: nothing was measured.
#[derive(Debug, Serialize)]
pub(super) struct ScenarioReport {
    pub(super) name: String,
    pub(super) slowdown: Option<f64>,
    pub(super) slowdown_lower: Option<f64>,
    pub(super) slowdown_upper: Option<f64>,
    pub(super) value: Option<f64>,
    /// Runs with a value.
    pub(super) runs: usize,
    pub(super) failed: usize,
    pub(super) timed_out: usize,
    pub(super) invalid: usize,
}

/// The scenarios in their order.
pub(super) fn reports(names: &[String], runs: &Runs<'_>) -> Vec<ScenarioReport> {
    let report = |name: &String| {
        let key = vec![(SCENARIO.to_owned(), name.clone())];
        let slowdown = runs.slowdown(&key);
        let bound = |sign: f64| slowdown.and_then(|slowdown| Some(slowdown.point + sign * slowdown.half?));
        let count = |pick: fn(&Level) -> usize| runs.levels.get(&key).map_or(0, pick);
        ScenarioReport {
            name: name.clone(),
            slowdown: slowdown.map(|slowdown| slowdown.point),
            slowdown_lower: bound(-1.0),
            slowdown_upper: bound(1.0),
            value: runs.value(&key),
            runs: count(|level| level.slowdowns.len()),
            failed: count(|level| level.failed),
            timed_out: count(|level| level.timed_out),
            invalid: count(|level| level.invalid),
        }
    };
    names.iter().map(report).collect()
}

impl ScenarioReport {
    /// That runs failed or did not end, in words.
    pub(super) fn failures(&self) -> Option<String> {
        let (failed, hung) = (self.failed, self.timed_out);
        (failed + hung > 0).then(|| {
            format!(
                "{SCENARIO} {}: {failed} runs failed and {hung} did not end, of {}",
                self.name,
                self.runs + failed + hung
            )
        })
    }

    /// The 95 % interval of the slowdown.
    fn interval(&self) -> Option<(f64, f64)> {
        self.slowdown_lower.zip(self.slowdown_upper)
    }
}

impl fmt::Display for ScenarioReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCENARIO} {}: ", self.name)?;
        match self.slowdown {
            Some(slowdown) => write!(f, "slowdown {slowdown:.3}")?,
            None => write!(f, "nothing measured")?,
        }
        match self.interval() {
            Some((lower, upper)) => write!(f, " [{lower:.3}, {upper:.3}]"),
            None => Ok(()),
        }
    }
}

/// A point for each scenario, with its interval.
pub(super) fn chart(workload: &WorkloadReport) -> Option<Chart> {
    let series = (1_u32..)
        .zip(&workload.scenarios)
        .filter_map(|(place, scenario)| {
            let point = Point {
                x: place.into(),
                y: scenario.slowdown?,
                interval: scenario.interval(),
            };
            Some(Series::new(scenario.name.as_str(), [point]).stroke(Stroke::None))
        });
    let mut series = series.peekable();
    series.peek()?;
    let chart = Chart::new(
        format!("{}: slowdown in each scenario", workload.name),
        Axis::new("scenarios in the experiment's order", ""),
        Axis::new("slowdown", "").cut(),
    )
    .caption("bar: 95 % interval; the baseline is 1");
    Some(series.fold(chart, Chart::series))
}

pub(super) fn table(workload: &WorkloadReport) -> Table {
    let mut table = Table::new(1, &[SCENARIO, "slowdown", "95 % interval", "runs"]);
    for scenario in &workload.scenarios {
        let dash = || "–".to_owned();
        let failures = scenario.failures();
        let cells = vec![
            scenario.name.clone(),
            scenario
                .slowdown
                .map_or_else(dash, |slowdown| format!("{slowdown:.3}")),
            scenario
                .interval()
                .map_or_else(dash, |(lower, upper)| format!("{lower:.3} … {upper:.3}")),
            scenario.runs.to_string(),
        ];
        table.push(cells, failures.is_some());
    }
    table
}

/// All scenarios as a table; nothing if there are none.
pub(super) fn csv(report: &Report) -> Option<String> {
    let mut text = String::from(
        "workload,scenario,slowdown,slowdown_lower,slowdown_upper,runs,failed,timed_out,invalid\n",
    );
    let scenarios = report.workloads.iter();
    let mut rows = scenarios
        .flat_map(|workload| workload.scenarios.iter().map(move |one| (workload, one)))
        .peekable();
    rows.peek()?;
    for (workload, one) in rows {
        text += &format!(
            "{},{},{},{},{},{},{},{},{}\n",
            workload.name,
            one.name,
            cell(one.slowdown),
            cell(one.slowdown_lower),
            cell(one.slowdown_upper),
            one.runs,
            one.failed,
            one.timed_out,
            one.invalid
        );
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{
        report::{
            Comparison,
            fixture::{self, Program},
        },
        setting, store,
    };

    #[test]
    fn a_scenario_is_compared_with_the_baseline() {
        let program = Program {
            name: "w",
            micros: |_| 1e5,
            packets: 100,
            bytes: 100,
            keys: "",
        };
        let mut sweep = fixture::sweep(&[program], 0.01);
        sweep.experiment.workloads[0].scenarios = vec!["slow".into(), "unmade".into()];
        let records = &mut sweep.parts[0].records;
        for (record, value) in records.clone().iter().zip([0.29, 0.3, 0.31]) {
            let name = setting::Level::Name("slow".into());
            records.push(store::Record {
                setting: [(SCENARIO.to_owned(), name)].into(),
                value: Some(value),
                ..record.clone()
            });
        }
        let report = Report::of(&sweep);
        let [slow, unmade] = report.workloads[0].scenarios.as_slice() else {
            panic!("{report}");
        };
        assert!((slow.slowdown.unwrap() - 3.0).abs() < 0.03, "{slow}");
        // Student's half width of the three, 2.484 · 0.1, and the baseline's.
        let half = slow.slowdown_upper.unwrap() - slow.slowdown.unwrap();
        assert!((0.24..0.32).contains(&half), "{slow}");
        assert_eq!((slow.runs, unmade.runs, unmade.slowdown), (3, 0, None));
        assert!(
            report.to_string().contains("scenario slow: slowdown 3.0"),
            "{report}"
        );
        let same = Comparison::of(&report, &report);
        assert_eq!(same.compared, same.agreeing);
        let text = same.to_string();
        assert!(
            text.contains("scenario           slow     3.0") && text.contains("  agree\n"),
            "{text}"
        );
        sweep.parts[0].records.retain_mut(|record| {
            record.value = record
                .value
                .map(|value| value * if record.setting.is_empty() { 1.0 } else { 2.0 });
            record.setting.is_empty() || record.setting.contains_key(SCENARIO)
        });
        let text = Comparison::of(&report, &Report::of(&sweep)).to_string();
        assert!(text.contains("DIFFER\n1 of 2 settings agree"), "{text}");
        let mut other = Report::of(&sweep);
        other.workloads.clear();
        let text = Comparison::of(&report, &other).to_string();
        assert_eq!(text, "no setting of a workload was measured in both sweeps\n");
        let directory = tempfile::tempdir().unwrap();
        report.write(directory.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert!(read("index.html").contains("slowdown in each scenario"));
        let table = read("scenarios.csv");
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
        assert!(rows.iter().all(|row| row.len() == 9), "{table}");
        assert_eq!(rows[1][2].parse().ok(), slow.slowdown, "{table}");
    }
}
