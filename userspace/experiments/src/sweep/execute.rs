//! Makes the runs of a sweep, one after another, each in hosts of its own.
//!
//! Model: a run is valid if the emulation did what the profile asks for: nothing dropped unasked, the lease alive, 99 %
//! of the packets no later than the experiment tolerates. An invalid run is repeated, and recorded as such. A program
//! that fails or does not end is a result and not repeated. The stop rule looks at the half width of the 95 %
//! interval of a cell's mean after each block.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use perturb_emulator::{
    conduct::{Pacing, SpinBudget},
    lab::{
        self,
        measured::{End, Measured, Request, measure},
    },
    prepared::Prepared,
    signals::Signals,
    status::Report,
};
use perturb_present::LiveLine;
use perturb_sandbox::exit_code;
use perturb_stats::Sample;

use crate::machine;

use super::{
    Sweep,
    experiment::{Experiment, Stop, Workload},
    plan::{self, Cell, Run},
    progress::Progress,
    scratch::Scratch,
    setting,
    store::{Record, Status, Store, Traffic},
    traced::{self, TracedError},
};

/// Of the intervals that the stop rule looks at.
const CONFIDENCE: f64 = 0.95;
/// Longest output from which a metric is read.
const MAX_OUTPUT: u64 = 64 << 20;

/// How a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All runs are made.
    Complete,
    /// A signal came.
    Interrupted,
}

/// A sweep under way.
pub(super) struct Execution<'a> {
    /// What is measured.
    pub sweep: &'a Sweep,
    /// What is there.
    pub store: Store,
}

impl Execution<'_> {
    /// Makes the runs that are missing.
    pub(super) async fn run(&mut self, line: LiveLine) -> anyhow::Result<Ended> {
        let mut signals = Signals::listen()?;
        let experiment = &self.sweep.experiment;
        let cells = self.sweep.cells();
        let mut progress = Progress::new(experiment, line);
        for block in 0.. {
            let wanted = wanted(experiment, &self.store.records, &cells, block);
            let rest = experiment.repetitions.saturating_sub(block + 1);
            let runs = plan::block(experiment, &wanted, block);
            if runs.is_empty() {
                break;
            }
            let retries = experiment.retries;
            let missing = |run: &&Run| !self.store.is_done(&run.id, retries);
            let todo: Vec<Run> = runs.iter().filter(missing).cloned().collect();
            progress.block(block, runs.len() - todo.len(), &todo, rest as usize * runs.len());
            for run in todo {
                let mut attempt = self.store.attempts(&run.id).count() as u32;
                loop {
                    let Some(record) = self.make(&run, attempt, &mut signals).await? else {
                        progress.finish();
                        return Ok(Ended::Interrupted);
                    };
                    progress.ended(&record, &run);
                    self.store.add(record)?;
                    if self.store.is_done(&run.id, retries) {
                        break;
                    }
                    attempt += 1;
                }
            }
        }
        progress.finish();
        Ok(Ended::Complete)
    }

    /// One attempt at a run; `None` if a signal ended it.
    async fn make(&self, run: &Run, attempt: u32, signals: &mut Signals) -> anyhow::Result<Option<Record>> {
        let experiment = &self.sweep.experiment;
        let workload = &experiment.workloads[run.cell.workload];
        let profile = format!(
            "profiles/{}-hosts.{}.yaml",
            workload.hosts,
            run.cell.setting.file_part()
        );
        let path = self.sweep.directory.join(&profile);
        let network = setting::network(&experiment.base, &run.cell.setting, workload.hosts)?;
        super::store::write_network(&path, &network.to_string())?;
        let prepared = Prepared::load_for(&path, &lab::all_addresses(workload.hosts))?;
        let output = match attempt {
            0 => format!("output/{}", run.id),
            again => format!("output/{}.{again}", run.id),
        };
        let path = |extension: &str| {
            PathBuf::from(format!(
                "{}.{extension}",
                self.sweep.directory.join(&output).display()
            ))
        };
        let create = |extension: &str| {
            let path = path(extension);
            let created = File::create(&path);
            created.with_context(|| format!("making {}", path.display()))
        };
        let scratch = Scratch::make(&self.sweep.directory)?;
        let started = machine::now_s();
        let mut command: Vec<OsString> = workload.command.iter().map(OsString::from).collect();
        if workload.mpi {
            command = lab::mpi::command(workload.hosts, None, false, command)?;
        }
        let executable = std::env::current_exe().context("finding this executable")?;
        let trace = run.traced.then(|| path("trace.jsonl"));
        if let Some(trace) = &trace {
            command = traced::command(&executable, trace, scratch.path(), command)?;
        }
        let request = Request {
            prepared,
            hosts: workload.hosts,
            pacing: Pacing {
                choice: experiment.pacer,
                spin: SpinBudget::default(),
            },
            command,
            stdout: create("out")?,
            stderr: create("err")?,
            limit: workload.time_limit,
            pin: workload.pin.clone(),
            executable,
            scratch: scratch.path().to_owned(),
            directory: std::path::absolute(&experiment.directory)
                .context("finding the experiment's directory")?,
        };
        let measured = measure(request, signals)
            .await
            .with_context(|| format!("running {}", run.id))?;
        scratch.remove()?;
        if measured.end == End::Interrupted {
            return Ok(None);
        }
        let text = read_output(&path("out"))?;
        let mut verdict = judge(experiment, workload, &measured, &text);
        let messages = trace.and_then(|trace| match traced::messages(&trace) {
            Ok(messages) => Some(messages),
            Err(error) => {
                verdict.spoil(&error);
                None
            }
        });
        let value = match verdict.samples.len() {
            0 => None,
            count => Some(verdict.samples.iter().sum::<f64>() / count as f64),
        };
        Ok(Some(Record {
            id: run.id.clone(),
            workload: workload.name.to_string(),
            setting: run.cell.setting.levels(),
            block: run.block,
            attempt,
            traced: run.traced,
            status: verdict.status,
            reasons: verdict.reasons,
            node: machine::node(),
            started,
            wall_s: measured.wall.as_secs_f64(),
            // An invalid run's value stays in the samples, for whoever looks into it, and a traced one's.
            value: value.filter(|_| verdict.status == Status::Ok && !run.traced),
            unit: workload.metric.unit.clone(),
            samples: verdict.samples,
            exit_code: match measured.end {
                End::Exited(status) => Some(exit_code(status)),
                End::TimedOut | End::Interrupted => None,
            },
            profile,
            output,
            traffic: traffic(&measured.report, workload.hosts),
            lateness_p99_us: measured.report.lateness.as_ref().map(|lateness| lateness.p99_us),
            counters: serde_json::to_value(&measured.report)?,
            messages,
        }))
    }
}

/// The cells of a block: all, then those whose interval is too wide.
pub(super) fn wanted(experiment: &Experiment, records: &[Record], cells: &[Cell], block: u32) -> Vec<Cell> {
    if block < experiment.repetitions {
        return cells.to_vec();
    }
    let Some(stop) = experiment.stop.filter(|stop| block < stop.at_most) else {
        return Vec::new();
    };
    let mut values: HashMap<(&str, String), Vec<f64>> = HashMap::new();
    // Later blocks must not decide what an earlier one has.
    let samples = records.iter().filter(|record| !record.traced);
    let before = samples.filter(|record| record.block < block);
    for record in before {
        let key = (record.workload.as_str(), key(&record.setting));
        values.entry(key).or_default().extend(record.value);
    }
    let wide = |cell: &&Cell| {
        let name = experiment.workloads[cell.workload].name.as_str();
        let values = values.get(&(name, key(&cell.setting.levels())));
        values.is_some_and(|values| is_wide(values, stop))
    };
    cells.iter().filter(wide).cloned().collect()
}

/// Whether a setting with these values is to be measured again.
fn is_wide(values: &[f64], stop: Stop) -> bool {
    match Sample::new(values.to_vec()).map(|sample| sample.mean_interval(CONFIDENCE)) {
        Ok(Ok(interval)) => interval
            .relative_half_width()
            .is_some_and(|width| width > stop.interval),
        // One value has no interval yet; none at all is a program that does not work there.
        _ => !values.is_empty(),
    }
}

fn read_output(path: &Path) -> anyhow::Result<String> {
    let length = fs::metadata(path)
        .with_context(|| format!("reading {}", path.display()))?
        .len();
    if length > MAX_OUTPUT {
        return Ok(String::new());
    }
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What is to be thought of a run.
struct Verdict {
    status: Status,
    reasons: Vec<String>,
    samples: Vec<f64>,
}

impl Verdict {
    /// The run is of no use after all: another may have no holes, and what cannot be traced cannot be traced again.
    fn spoil(&mut self, reason: &TracedError) {
        if self.status == Status::Ok {
            self.status = match reason {
                TracedError::Lost(_) => Status::Invalid,
                _ => Status::Failed,
            };
        }
        self.reasons.push(reason.to_string());
    }
}

fn judge(experiment: &Experiment, workload: &Workload, measured: &Measured, output: &str) -> Verdict {
    let mut reasons = invalid(experiment, &measured.report);
    let samples = workload.metric.samples(output, measured.wall.as_secs_f64());
    let found = samples.as_ref().cloned().unwrap_or_default();
    if !reasons.is_empty() {
        return Verdict {
            status: Status::Invalid,
            reasons,
            samples: found,
        };
    }
    let (status, reason) = match (measured.end, samples) {
        (End::TimedOut | End::Interrupted, _) => (
            Status::TimedOut,
            Some(format!("did not end within {:?}", workload.time_limit)),
        ),
        (End::Exited(status), samples) => match (exit_code(status), samples) {
            (0, Ok(_)) => (Status::Ok, None),
            (0, Err(error)) => (Status::Failed, Some(error.to_string())),
            (code, _) => (Status::Failed, Some(format!("ended with exit code {code}"))),
        },
    };
    reasons.extend(reason);
    Verdict {
        status,
        reasons,
        samples: if status == Status::Ok { found } else { Vec::new() },
    }
}

/// What the emulation did unasked.
fn invalid(experiment: &Experiment, report: &Report) -> Vec<String> {
    let mut reasons: Vec<String> = report.faults().iter().map(ToString::to_string).collect();
    let tolerated = experiment.lateness.as_secs_f64() * 1e6;
    if let Some(lateness) = report.lateness.as_ref().filter(|late| late.p99_us > tolerated) {
        reasons.push(format!(
            "1 % of the packets left more than {tolerated} us late (99 % at most {} us)",
            lateness.p99_us
        ));
    }
    reasons
}

/// The balance matrix: what each class `hi-hj` counted.
fn traffic(report: &Report, hosts: u32) -> Vec<Traffic> {
    let pairs = (1..=hosts).flat_map(|from| (1..=hosts).map(move |to| (from, to)));
    pairs
        .filter_map(|(from, to)| {
            let name = setting::class_name(from, to);
            let class = report.classes.iter().find(|class| class.name == name)?;
            let sum =
                |pick: fn(&perturb_emulator::status::Flow) -> u64| pick(&class.egress) + pick(&class.ingress);
            Some(Traffic {
                from,
                to,
                packets: sum(|flow| flow.wire_packets),
                bytes: sum(|flow| flow.bytes),
                dropped: sum(|flow| flow.dropped),
            })
        })
        .collect()
}

fn key(setting: &BTreeMap<String, setting::Level>) -> String {
    format!("{setting:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_repeated_until_its_interval_is_narrow() {
        let stop = Stop {
            interval: 0.1,
            at_most: 10,
        };
        assert!(!is_wide(&[], stop));
        assert!(is_wide(&[1.0], stop));
        assert!(!is_wide(&[2.0, 2.0], stop));
        // Student's 95 % intervals: ±60 %, ±13 % and ±7.4 % of the mean.
        assert!(is_wide(&[1.0, 1.1], stop));
        assert!(is_wide(&[1.0, 1.1, 1.1], stop));
        assert!(!is_wide(&[1.0, 1.1, 1.1, 1.1], stop));
    }
}
