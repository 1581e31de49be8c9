//! The report as data; the keys of `perturb report --json`.

use std::collections::{BTreeMap, BTreeSet};

use perturb_stats::Line;
use serde::Serialize;

use super::{
    answers,
    curve::{self, KnobReport},
    effects::{self, Effects},
    level::{CONFIDENCE, Key, Runs, cost, measured},
    load::Sweep,
    models::Basis,
};
use crate::sweep::{
    experiment::{Design, Knob, WorkloadSummary},
    network,
    store::{Record, Traffic},
};

/// A sweep, reported.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) experiment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    pub(super) design: Design,
    pub(super) seed: u64,
    pub(super) machines: Vec<Machine>,
    pub(super) runs: Counts,
    pub(super) workloads: Vec<WorkloadReport>,
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
    pub(super) baseline: Baseline,
    pub(super) knobs: BTreeMap<&'static str, KnobReport>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) communication: Option<Communication>,
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

/// A program's communication at the baseline, as the emulator counted it; means over the runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Communication {
    /// Wire packets of the host that sends most.
    pub(super) messages: u64,
    /// Of all hosts, on average.
    pub(super) average_messages: f64,
    /// Wire bytes of the host that sends most.
    pub(super) bytes: u64,
    pub(super) total_messages: u64,
    pub(super) total_bytes: u64,
    pub(super) mean_size: f64,
    /// Mean time between two packets of the host that sends most.
    pub(super) interval_us: f64,
    /// Longest time that a packet waited behind others, which a smooth sender does not have.
    pub(super) max_backlog_us: f64,
    /// `max_backlog_us` over `interval_us`: 0 for a smooth sender, the packets in the longest queue for bursts.
    pub(super) burstiness: f64,
    /// Packets from host (row) to host (column).
    pub(super) matrix: Vec<Vec<u64>>,
    pub(super) matrix_bytes: Vec<Vec<u64>>,
    /// Round trips of the busiest host, where the experiment says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_trips: Option<u64>,
}

impl Report {
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
        Self {
            experiment: experiment.name.clone(),
            description: experiment.description.clone(),
            design: experiment.design,
            seed: experiment.seed,
            machines: machines.collect(),
            runs,
            workloads: experiment
                .workloads
                .iter()
                .map(|workload| WorkloadReport::of(sweep, workload))
                .collect(),
        }
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
            });
            for (knob, levels) in &workload.knobs {
                let report = curve::report(*knob, levels, base(*knob), &runs, basis.as_ref());
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
            .map(|communication| communication.mean_size);
        let ranking = answers::Ranking::of(&knobs, mean_size);
        let answers = answers::answers(&knobs, &ranking, &base);
        Self {
            name: workload.name.clone(),
            command: workload.command.clone(),
            hosts: workload.hosts,
            baseline,
            knobs,
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
            communication: run_time_s
                .and_then(|seconds| Communication::of(&runs.baselines, workload, seconds)),
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

impl Communication {
    fn of(records: &[&Record], workload: &WorkloadSummary, seconds: f64) -> Option<Self> {
        let hosts = workload.hosts as usize;
        let count = records.len() as u64;
        if count == 0 {
            return None;
        }
        let table = |pick: fn(&Traffic) -> u64| -> Vec<Vec<u64>> {
            let mut table = vec![vec![0; hosts]; hosts];
            for traffic in records.iter().flat_map(|record| &record.traffic) {
                table[traffic.from as usize - 1][traffic.to as usize - 1] += pick(traffic);
            }
            for cell in table.iter_mut().flatten() {
                *cell = (*cell + count / 2) / count;
            }
            table
        };
        let (matrix, matrix_bytes) = (table(|traffic| traffic.packets), table(|traffic| traffic.bytes));
        let sums = |table: &[Vec<u64>]| -> Vec<u64> { table.iter().map(|row| row.iter().sum()).collect() };
        let (sent, bytes) = (sums(&matrix), sums(&matrix_bytes));
        let total_messages: u64 = sent.iter().sum();
        if total_messages == 0 {
            return None;
        }
        let messages = sent.iter().copied().max().unwrap_or_default();
        let interval_us = seconds * 1e6 / messages as f64;
        let backlogs: Vec<f64> = records
            .iter()
            .filter_map(|record| {
                let servers = record.counters["servers"].as_array()?;
                let backlogs = servers
                    .iter()
                    .filter_map(|server| server["max_backlog_us"].as_f64());
                backlogs.reduce(f64::max)
            })
            .collect();
        let max_backlog_us = backlogs.iter().sum::<f64>() / backlogs.len().max(1) as f64;
        Some(Self {
            messages,
            average_messages: total_messages as f64 / hosts as f64,
            bytes: bytes.iter().copied().max().unwrap_or_default(),
            total_messages,
            total_bytes: bytes.iter().sum(),
            mean_size: bytes.iter().sum::<u64>() as f64 / total_messages as f64,
            interval_us,
            max_backlog_us,
            burstiness: max_backlog_us / interval_us,
            matrix,
            matrix_bytes,
            round_trips: workload.communication.round_trips,
        })
    }

    /// Largest over mean number of packets that a host sends: 1 for perfect balance.
    pub(super) fn imbalance(&self) -> f64 {
        self.messages as f64 / self.average_messages
    }
}

impl Report {
    /// Settings under which a program failed or did not end, in words.
    pub(super) fn failures(sweep: &WorkloadReport) -> BTreeSet<String> {
        let mut said = BTreeSet::new();
        for knob in Knob::ALL {
            let Some(report) = sweep.knobs.get(knob.key()) else {
                continue;
            };
            for (index, level) in report.levels_us.iter().enumerate() {
                let (failed, hung) = (report.failed[index], report.timed_out[index]);
                if failed + hung > 0 {
                    said.insert(format!(
                        "{}: {failed} runs failed and {hung} did not end, of {}",
                        network::written(&[(knob, *level)]),
                        report.runs[index] + failed + hung
                    ));
                }
            }
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sweep::{
        plan,
        report::{compare::Comparison, load::Part, output},
        store::{self, Status},
    };

    /// Run times of a program on two hosts with 1000 and 500 packets of 100 bytes, which the machine disturbs by
    /// `noise`: 2m Δo, m (g - 40 us) above 40 us, nothing for L, b ΔG.
    fn sweep(noise: f64) -> Sweep {
        let text = "version: 1\nname: t\nbase: { overhead: 2us, gap: 5us, latency: 20us, bandwidth: 100MB/s }\n\
                    knobs:\n  overhead: [2us, 10us, 20us, 40us, 60us]\n  gap: [10us, 20us, 30us, 60us, 80us, 120us]\n  \
                    latency: [100us, 200us, 400us]\n  bandwidth: [50MB/s, 20MB/s, 10MB/s]\n\
                    workloads: [{ name: w, command: [w] }]\n";
        let experiment = crate::sweep::read::read(text, std::path::Path::new(""), "e").unwrap();
        let cells = plan::cells(&experiment);
        let mut records = Vec::new();
        for run in (0..3).flat_map(|block| plan::block(&experiment, &cells, block)) {
            let knob = |knob: Knob| {
                let turned = run.cell.setting.iter().find(|(other, _)| *other == knob);
                turned.map_or(experiment.base.value(knob), |(_, value)| *value)
            };
            let micros = 1e5
                + 2000.0 * (knob(Knob::Overhead) - 2.0)
                + 1000.0 * (knob(Knob::Gap) - 40.0).max(0.0)
                + 1e5 * (knob(Knob::Bandwidth) - 0.01);
            let disturbed = micros * (1.0 + noise * (f64::from(records.len() as u32 % 3) - 1.0));
            let traffic = |from, to, packets| Traffic {
                from,
                to,
                packets,
                bytes: 100 * packets,
                dropped: 0,
            };
            records.push(Record {
                id: run.id,
                workload: "w".into(),
                setting: run
                    .cell
                    .setting
                    .iter()
                    .map(|(knob, value)| (knob.key().into(), *value))
                    .collect(),
                block: run.block,
                attempt: 0,
                status: Status::Ok,
                reasons: Vec::new(),
                started: records.len() as f64,
                wall_s: disturbed / 1e6,
                value: Some(disturbed / 1e6),
                unit: "s".into(),
                samples: Vec::new(),
                exit_code: Some(0),
                profile: String::new(),
                output: String::new(),
                traffic: vec![traffic(1, 2, 1000), traffic(2, 1, 500)],
                lateness_p99_us: None,
                counters: json!({ "servers": [{ "max_backlog_us": 250.0 }] }),
            });
        }
        Sweep {
            experiment: experiment.summary(),
            parts: vec![Part {
                provenance: store::Provenance {
                    version: 1,
                    perturb: "0".into(),
                    kernel: "6".into(),
                    processor: "p".into(),
                    processors: 2,
                    jit: Some(true),
                    memory_mib: None,
                    started: 0.0,
                    resumed: 0,
                    task: None,
                    experiment: experiment.summary(),
                },
                records,
            }],
        }
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
        assert_eq!((same.compared, same.agreeing), (17, 17));
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
        output::write(&report, directory.path()).unwrap();
        let page = std::fs::read_to_string(directory.path().join("index.html")).unwrap();
        // Four curves and the matrix.
        assert_eq!(page.matches("<svg ").count(), 5);
        assert!(page.contains("Measured against predicted") && page.contains("Does a better gap g pay?"));
        assert!(!page.contains("NaN") && !page.contains("<script"));
        let table = std::fs::read_to_string(directory.path().join("curves.csv")).unwrap();
        assert!(table.lines().all(|line| line.split(',').count() == 12));
        assert!(report.to_string().contains("knee at"));
    }
}
