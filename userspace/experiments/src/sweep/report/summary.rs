//! The report as data; the keys of `perturb report --json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use perturb_stats::Line;
use serde::Serialize;

use super::{
    answers,
    communication::Communication,
    curve::{self, KnobReport},
    effects::{self, Effects},
    findings::{Finding, findings},
    level::{CONFIDENCE, Key, Runs, cost, measured},
    load::{InputError, Sweep, load},
    models::Basis,
    published::published,
    scenarios::{self, ScenarioReport},
};
use crate::sweep::{
    experiment::{Design, Knob, WorkloadSummary},
    setting,
    store::{Record, Status},
};

/// A sweep, reported.
#[derive(Debug, Serialize)]
pub struct Report {
    pub(super) experiment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    pub(super) design: Design,
    pub(super) seed: u64,
    pub(super) machines: Vec<Machine>,
    pub(super) runs: Counts,
    pub(super) workloads: Vec<WorkloadReport>,
    /// The thesis's, confirmed or refuted.
    pub(super) findings: Vec<Finding>,
}

/// Where a part was measured.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) processors: usize,
    pub(super) kernel: String,
    pub(super) jit: Option<bool>,
    pub(super) memory_mib: Option<u64>,
    pub(super) perturb: String,
    pub(super) pacer: Option<String>,
    pub(super) resumed: u32,
}

/// How many runs ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) ok: usize,
    pub(super) failed: usize,
    pub(super) timed_out: usize,
    pub(super) invalid: usize,
}

/// A program, reported.
#[derive(Debug, Serialize)]
pub(super) struct WorkloadReport {
    pub(super) name: String,
    pub(super) command: Vec<String>,
    pub(super) hosts: u32,
    /// Whether its times are those of an operation.
    #[serde(skip)]
    pub(super) per_operation: bool,
    /// Whether it is a file server's, with the queueing model.
    #[serde(skip)]
    pub(super) is_server: bool,
    pub(super) baseline: Baseline,
    pub(super) knobs: BTreeMap<&'static str, KnobReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) scenarios: Vec<ScenarioReport>,
    pub(super) ranking: answers::Ranking,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effects: Option<Effects>,
    pub(super) answers: Vec<String>,
}

/// A program where nothing is turned.
#[derive(Debug, Serialize)]
pub(super) struct Baseline {
    /// Of the metric; null if no run has one.
    pub(super) value: Option<f64>,
    pub(super) unit: String,
    pub(super) interval: Option<[f64; 2]>,
    pub(super) runs: usize,
    /// From which the models start: the metric if it is a time, else the wall time.
    pub(super) run_time_s: Option<f64>,
    pub(super) overhead_us: f64,
    pub(super) gap_us: f64,
    pub(super) latency_us: f64,
    #[serde(rename = "bandwidth_MB_s")]
    pub(super) bandwidth_mb_s: Option<f64>,
    /// Whether steps or a trace change the network.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) changing: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) communication: Option<Communication>,
    /// Why there is no trace, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace_failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) drift: Option<Drift>,
}

/// Change of the baseline while the sweep went on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Drift {
    pub(super) percent_per_hour: f64,
    /// Whether the 95 % interval of the drift leaves 0 out.
    pub(super) significant: bool,
}

impl Report {
    /// Of the sweep in a directory, or of its tasks' in directories below.
    pub fn of_directory(directory: &Path) -> Result<Self, InputError> {
        Ok(Self::of(&load(directory)?))
    }

    /// Works everything out.
    pub(super) fn of(sweep: &Sweep) -> Self {
        let experiment = &sweep.experiment;
        let mut runs = Counts::default();
        for record in sweep.parts.iter().flat_map(|part| &part.records) {
            *match record.status.key() {
                "ok" => &mut runs.ok,
                "failed" => &mut runs.failed,
                "timed_out" => &mut runs.timed_out,
                _ => &mut runs.invalid,
            } += 1;
        }
        let machines = sweep.parts.iter().map(|part| {
            let provenance = &part.provenance;
            let pacer = part
                .records
                .first()
                .and_then(|record| record.counters["pacer"].as_str());
            Machine {
                processor: provenance.processor.clone(),
                processors: provenance.processors,
                kernel: provenance.kernel.clone(),
                jit: provenance.jit,
                memory_mib: provenance.memory_mib,
                perturb: provenance.perturb.clone(),
                pacer: pacer.map(Into::into),
                resumed: provenance.resumed,
            }
        });
        let workloads: Vec<WorkloadReport> = experiment
            .workloads
            .iter()
            .map(|workload| WorkloadReport::of(sweep, workload))
            .collect();
        Self {
            experiment: experiment.name.clone(),
            description: experiment.description.clone(),
            design: experiment.design,
            seed: experiment.seed,
            machines: machines.collect(),
            runs,
            findings: findings(&workloads),
            workloads,
        }
    }
}

/// A program's response to a knob.
#[derive(Clone, Debug, PartialEq)]
pub struct Response<'report> {
    /// The workload's name.
    pub name: &'report str,
    pub hosts: u32,
    /// At the baseline.
    pub run_time_s: Option<f64>,
    /// The knob over its baseline (of the bandwidth, G over its own), and the slowdown; the baseline first.
    pub slowdowns: Vec<(f64, f64)>,
    /// Where runs failed or did not end.
    pub broken: Vec<f64>,
}

impl Report {
    /// The programs' responses to a knob, of those whose baseline was measured.
    pub fn responses(&self, knob: Knob) -> impl Iterator<Item = Response<'_>> {
        self.workloads.iter().filter_map(move |workload| {
            workload.baseline.value?;
            let report = workload.knobs.get(knob.key())?;
            let relative = |level: &f64| level / report.baseline_us;
            let levels = report.levels_us.iter().zip(&report.slowdown);
            let measured = levels.filter_map(|(level, slowdown)| Some((relative(level), (*slowdown)?)));
            let failed = report.failed.iter().zip(&report.timed_out);
            let broken = report.levels_us.iter().zip(failed);
            Some(Response {
                name: &workload.name,
                hosts: workload.hosts,
                run_time_s: workload.baseline.run_time_s,
                slowdowns: std::iter::once((1.0, 1.0)).chain(measured).collect(),
                broken: broken
                    .filter(|(_, (failed, hung))| **failed + **hung > 0)
                    .map(|(level, _)| relative(level))
                    .collect(),
            })
        })
    }
}

impl WorkloadReport {
    fn of(sweep: &Sweep, workload: &WorkloadSummary) -> Self {
        let runs = Runs::of(sweep, workload);
        let baseline = Baseline::of(sweep, workload, &runs);
        let base = |knob| sweep.experiment.baseline(knob);
        let mut knobs = BTreeMap::new();
        if sweep.experiment.design != Design::Fractional {
            let seconds = if workload.per_operation {
                baseline.value
            } else {
                baseline.run_time_s
            };
            let basis = seconds.map(|seconds| Basis {
                run_time_us: seconds * 1e6,
                per_operation: workload.per_operation,
                baseline: &base,
                communication: baseline.communication.as_ref(),
                declared: workload.communication,
                queueing: workload.queueing.as_deref(),
                collective: workload.collective,
                hosts: workload.hosts,
            });
            for (knob, levels) in &workload.knobs {
                let mut report = curve::report(*knob, levels, base(*knob), &runs, basis.as_ref());
                report.published = workload
                    .published
                    .as_deref()
                    .and_then(|program| published(program, *knob, levels, base(*knob)));
                knobs.insert(knob.key(), report);
            }
        }
        let effects = match sweep.experiment.design {
            Design::Simple => None,
            design => effects::effects(design, &workload.knobs, &base, &runs),
        };
        let mean_size = baseline
            .communication
            .as_ref()
            .map(|communication| communication.sent.mean_size);
        let ranking = answers::Ranking::of(&knobs, mean_size);
        let answers = answers::answers(&knobs, &ranking);
        Self {
            name: workload.name.clone(),
            command: workload.command.clone(),
            hosts: workload.hosts,
            per_operation: workload.per_operation,
            is_server: workload.queueing.is_some(),
            baseline,
            knobs,
            scenarios: scenarios::reports(&workload.scenarios, &runs),
            ranking,
            effects,
            answers,
        }
    }
}

impl Baseline {
    fn of(sweep: &Sweep, workload: &WorkloadSummary, runs: &Runs<'_>) -> Self {
        let base = |knob| sweep.experiment.baseline(knob);
        let level = runs.levels.get(&Key::new());
        let value = level.and_then(|level| measured(&level.values, sweep.experiment.statistic));
        let attempts = || {
            let records = sweep.parts.iter().flat_map(|part| &part.traced);
            records.filter(|record| record.workload == workload.name)
        };
        let valid = attempts().find(|record| record.status == Status::Ok);
        let traced = valid.and_then(|record| record.messages.as_ref());
        let walls: Vec<f64> = runs.baselines.iter().map(|record| record.wall_s).collect();
        let run_time_s = if workload.unit == "s" && !workload.per_operation {
            value.map(|value| value.point)
        } else {
            measured(&walls, sweep.experiment.statistic).map(|wall| wall.point)
        };
        Self {
            value: value.map(|value| value.point),
            unit: workload.unit.clone(),
            interval: value.and_then(|value| {
                let half = value.half?;
                Some([value.point - half, value.point + half])
            }),
            runs: runs.baselines.len(),
            run_time_s,
            overhead_us: base(Knob::Overhead),
            gap_us: base(Knob::Gap),
            latency_us: base(Knob::Latency),
            bandwidth_mb_s: (base(Knob::Bandwidth) > 0.0).then(|| 1.0 / base(Knob::Bandwidth)),
            changing: sweep.experiment.changing,
            communication: run_time_s
                .and_then(|seconds| Communication::of(&runs.baselines, workload, seconds, traced)),
            trace_failure: match (valid, attempts().next_back()) {
                (None, Some(last)) => Some(last.reasons.join("; ")),
                _ => None,
            },
            drift: drift(sweep, workload),
        }
    }
}

/// The baseline's slope over time, within the machines' parts.
fn drift(sweep: &Sweep, workload: &WorkloadSummary) -> Option<Drift> {
    let mut points = Vec::new();
    for part in &sweep.parts {
        let own: Vec<&Record> = part
            .records
            .iter()
            .filter(|record| record.workload == workload.name && record.setting.is_empty())
            .collect();
        let costs: Vec<f64> = own
            .iter()
            .filter_map(|record| record.value)
            .map(|value| cost(workload.better, value))
            .collect();
        let mean = costs.iter().sum::<f64>() / costs.len() as f64;
        let first = own.first().map_or(0.0, |record| record.started);
        points.extend(own.iter().filter_map(|record| {
            let cost = cost(workload.better, record.value?);
            Some(((record.started - first) / 3600.0, cost / mean))
        }));
    }
    if points.len() < 4 {
        return None;
    }
    let line = Line::fit(&points).ok()?;
    let interval = line.slope_interval(CONFIDENCE).ok()??;
    Some(Drift {
        percent_per_hour: 100.0 * line.slope,
        significant: !interval.contains(0.0),
    })
}

impl Report {
    /// Settings under which a program failed or did not end, in words.
    pub(super) fn failures(sweep: &WorkloadReport) -> BTreeSet<String> {
        let mut said = BTreeSet::new();
        for (knob, report) in curve::turned(&sweep.knobs) {
            for (index, level) in report.levels_us.iter().enumerate() {
                let (failed, hung) = (report.failed[index], report.timed_out[index]);
                if failed + hung > 0 {
                    said.insert(format!(
                        "{}: {failed} runs failed and {hung} did not end, of {}",
                        setting::written(&[(knob, *level)]),
                        report.runs[index] + failed + hung
                    ));
                }
            }
        }
        said.extend(sweep.scenarios.iter().filter_map(ScenarioReport::failures));
        said
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sweep::report::{
        compare::Comparison,
        fixture::{self, Program},
    };

    /// Run times of a program on two hosts with 1000 and 500 packets of 100 bytes, which the machine disturbs by
    /// `noise`: 2m Δo, m (g - 40 us) above 40 us, nothing for L, b ΔG.
    fn sweep(noise: f64) -> Sweep {
        let program = Program {
            name: "w",
            micros: |knob| {
                1e5 + 2000.0 * (knob(Knob::Overhead) - 2.0)
                    + 1000.0 * (knob(Knob::Gap) - 40.0).max(0.0)
                    + 1e5 * (knob(Knob::Bandwidth) - 0.01)
            },
            packets: 1000,
            bytes: 100,
            keys: "",
        };
        fixture::sweep(&[program], noise)
    }

    #[test]
    fn what_made_the_runs_is_found_again() {
        let report = serde_json::to_value(Report::of(&sweep(0.001))).unwrap();
        let workload = &report["workloads"][0];
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or(f64::NAN);
        let about = |value: &serde_json::Value, expected: f64| {
            assert!(
                (number(value) / expected - 1.0).abs() < 0.03,
                "{value}, expected {expected}"
            );
        };
        let baseline = &workload["baseline"];
        about(&baseline["run_time_s"], 0.1);
        assert_eq!(baseline["communication"]["matrix"], json!([[0, 1000], [500, 0]]));
        about(&baseline["communication"]["burstiness"], 2.5);
        let overhead = &workload["knobs"]["overhead"];
        assert_eq!(overhead["levels_us"], json!([2.0, 10.0, 20.0, 40.0, 60.0]));
        about(&overhead["slowdown"][4], 1.0 + 2000.0 * 58.0 / 1e5);
        about(&overhead["coefficient"], 2000.0);
        about(&overhead["slope"], 0.02);
        about(&overhead["tolerance_5pct_us"], 4.5);
        about(&overhead["models"]["loggp"]["coefficient"], 2000.0);
        about(&overhead["models"]["serial"]["coefficient"], 3000.0);
        let gap = &workload["knobs"]["gap"];
        assert_eq!(gap["shape"], "threshold");
        about(&gap["knee_us"], 40.0);
        about(&gap["coefficient"], 1000.0);
        assert!(gap["models"]["uniform"].is_object());
        let latency = &workload["knobs"]["latency"];
        assert_eq!(latency["shape"], "flat");
        assert_eq!(latency["tolerance_at_least_pct"], json!([1, 2, 5]));
        assert_eq!(latency["models"]["loggp"], serde_json::Value::Null);
        let bandwidth = &workload["knobs"]["bandwidth"];
        about(&bandwidth["levels_MB_s"][0], 50.0);
        about(&bandwidth["coefficient"], 1e5);
        // One µs over 100 bytes costs as much as one µs of gap.
        let ranking = &workload["ranking"];
        let text = ranking["text"].as_str().unwrap();
        assert!(
            text.starts_with("o > ") && text.ends_with("; no response to L"),
            "{text}"
        );
        about(
            &ranking["places"][1]["percent_per_us"],
            number(&ranking["places"][2]["percent_per_us"]),
        );
    }

    #[test]
    fn the_same_sweep_agrees_with_itself_and_not_with_another_machine() {
        let (report, again) = (Report::of(&sweep(0.01)), Report::of(&sweep(0.01)));
        let same = Comparison::of(&report, &again);
        assert_eq!((same.compared, same.agreeing), (19, 19));
        let mut other = sweep(0.01);
        for record in other.parts.iter_mut().flat_map(|part| &mut part.records) {
            if !record.setting.is_empty() {
                record.value = record.value.map(|value| 1.5 * value);
            }
        }
        let differing = Comparison::of(&report, &Report::of(&other));
        assert!(differing.agreeing <= 1, "{differing}");
    }

    #[test]
    fn the_page_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let report = Report::of(&sweep(0.01));
        report.write(directory.path()).unwrap();
        let page = std::fs::read_to_string(directory.path().join("index.html")).unwrap();
        // Four curves and the matrix; one program needs no overview.
        assert_eq!(page.matches("<svg ").count(), 5);
        assert!(page.contains("Sensitivity, the greatest first") && page.contains("loggp (error)"));
        assert!(!page.contains("NaN") && !page.contains("<script"));
        let table = std::fs::read_to_string(directory.path().join("curves.csv")).unwrap();
        assert!(table.lines().all(|line| line.split(',').count() == 12));
        assert!(report.to_string().contains("knee at"));
    }
}
