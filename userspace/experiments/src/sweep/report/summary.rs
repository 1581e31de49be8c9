//! The report as data; the keys of `perturb report --json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    path::Path,
};

use perturb_stats::{Components, Line};
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
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
    /// Where several machines have measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) machines: Option<Spread>,
}

/// How far apart the baseline's runs are, as standard deviations over its mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    /// How many machines.
    pub(super) count: usize,
    /// From run to run on a machine.
    pub(super) within_percent: f64,
    /// From machine to machine, beyond what runs on one explain.
    pub(super) between_percent: f64,
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
                node: provenance.node.clone(),
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
    /// The knob over its baseline (of the bandwidth, G over its own), and the slowdown, if there is one; the baseline first.
    pub slowdowns: Vec<(f64, Option<f64>)>,
    /// Where runs failed or did not end, or none was valid.
    pub broken: Vec<f64>,
}

impl Report {
    /// The programs' responses to a knob. Without a baseline there is no slowdown.
    pub fn responses(&self, knob: Knob) -> impl Iterator<Item = Response<'_>> {
        self.workloads.iter().filter_map(move |workload| {
            let report = workload.knobs.get(knob.key())?;
            let base = workload.baseline.value;
            let relative = |level: &f64| level / report.baseline_us;
            let levels = report.levels_us.iter().zip(&report.slowdown);
            let levels = levels.map(|(level, slowdown)| (relative(level), *slowdown));
            let failed = report.failed.iter().zip(&report.timed_out).zip(&report.slowdown);
            let broken = report.levels_us.iter().zip(failed);
            let broken = broken.filter(|(_, ((failed, hung), slowdown))| {
                **failed + **hung > 0 || base.is_some() && slowdown.is_none()
            });
            Some(Response {
                name: &workload.name,
                hosts: workload.hosts,
                run_time_s: base.and(workload.baseline.run_time_s),
                slowdowns: iter::once((1.0, base.map(|_| 1.0))).chain(levels).collect(),
                broken: base
                    .is_none()
                    .then_some(1.0)
                    .into_iter()
                    .chain(broken.map(|(level, _)| relative(level)))
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
            machines: spread(sweep, workload),
        }
    }
}

/// How the baseline differs between machines. A directory of an older sweep, which does not say its machine, is one.
fn spread(sweep: &Sweep, workload: &WorkloadSummary) -> Option<Spread> {
    let mut machines: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (number, part) in sweep.parts.iter().enumerate() {
        let name = part.provenance.node.clone();
        let own = part.records.iter();
        let own = own.filter(|record| record.workload == workload.name && record.setting.is_empty());
        machines
            .entry(name.unwrap_or_else(|| number.to_string()))
            .or_default()
            .extend(own.filter_map(|record| record.value));
    }
    let groups: Vec<Vec<f64>> = machines
        .into_values()
        .filter(|values| !values.is_empty())
        .collect();
    let found = Components::of(&groups)?;
    Some(Spread {
        count: groups.len(),
        within_percent: 100.0 * found.within / found.mean,
        between_percent: 100.0 * found.between / found.mean,
    })
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
mod tests;
