//! The directory of a sweep.
//!
//! ```text
//! experiment.yaml      what was asked for
//! sweep.json           on which machine, with which program
//! runs.jsonl, .csv     a line for each run, synced to disk as it ends
//! profiles/            the network of each setting; `perturb run` takes them
//! output/              what each run wrote
//! ```
//!
//! An interrupted sweep loses the current run only: a line that was cut off is removed when the sweep goes on.

mod error;
mod provenance;

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};
use perturb_present::cell;
use serde::{Deserialize, Serialize};

pub use self::error::StoreError;
pub(super) use self::provenance::Provenance;
use super::{plan::Task, setting::Level};

/// Names of the files.
pub(super) const EXPERIMENT: &str = "experiment.yaml";
const PROVENANCE: &str = "sweep.json";
const RUNS: &str = "runs.jsonl";
const TABLE: &str = "runs.csv";

type Result<T> = std::result::Result<T, StoreError>;

pub(super) fn file<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|source| StoreError::File {
        action,
        path: path.into(),
        source,
    })
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    /// It has a value.
    Ok,
    /// The program failed, or its output has no value: a result.
    Failed,
    /// It took longer than the limit: a result.
    TimedOut,
    /// The emulation did what was not asked for: no result.
    Invalid,
}

impl Status {
    /// As in the files.
    #[must_use]
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Invalid => "invalid",
        }
    }
}

/// What went from a host to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Traffic {
    /// Sender, from 1.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Wire packets.
    pub packets: u64,
    /// Wire bytes.
    pub bytes: u64,
    /// Packets that the profile dropped.
    pub dropped: u64,
}

/// A run that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub id: String,
    /// Of which workload.
    pub workload: String,
    /// What differs from the baseline.
    pub setting: BTreeMap<String, Level>,
    /// Its block.
    pub block: u32,
    /// From 0; above after invalid runs.
    pub attempt: u32,
    /// Whether it was traced; then it has no value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub traced: bool,
    /// How it ended.
    pub status: Status,
    /// Why it is not `ok`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The machine's name; older sweeps have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Seconds since 1970.
    pub started: f64,
    /// From the command's start to its end.
    pub wall_s: f64,
    /// Mean of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Unit of the value.
    pub unit: String,
    /// What was read off it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    /// The command's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// The network, relative to the directory.
    pub profile: String,
    /// Standard output and standard error, without `.out` and `.err`.
    pub output: String,
    /// Between hosts.
    pub traffic: Vec<Traffic>,
    /// 99 % of the packets left at most so late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_p99_us: Option<f64>,
    /// As `perturb status --json`.
    pub counters: serde_json::Value,
    /// What the trace of a traced run says; the events are in its output, with the extension `.trace.jsonl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Traced>,
}

/// A program's messages, by its processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Traced {
    /// Their names: ranks, or the program's name and a number.
    pub processes: Vec<String>,
    /// Messages from process (row) to process (column).
    pub matrix: Vec<Vec<u64>>,
    /// Their bytes.
    pub matrix_bytes: Vec<Vec<u64>>,
    /// Blocking round trips of the thread that makes most of them: Martin's t.
    pub round_trips: u64,
}

/// A sweep's directory, open for writing.
#[derive(Debug)]
pub(super) struct Store {
    directory: PathBuf,
    runs: Flock<File>,
    table: File,
    /// Runs that have ended.
    pub records: Vec<Record>,
}

impl Store {
    /// Opens `directory`, new or to be gone on with.
    pub(super) fn open(
        directory: &Path,
        experiment: &str,
        provenance: &Provenance,
        resume: bool,
    ) -> Result<Self> {
        let runs = directory.join(RUNS);
        if !resume && has_runs(directory) {
            return Err(StoreError::Taken(directory.into()));
        }
        let before = resume
            .then(|| begun(directory, experiment, provenance.task))
            .transpose()?;
        for part in ["profiles", "output"] {
            let part = directory.join(part);
            make_directory(&part)?;
        }
        let mut provenance = provenance.clone();
        if let Some(before) = before {
            if let Some(what) = before.differs(&provenance) {
                return Err(StoreError::Unlike {
                    path: directory.into(),
                    what,
                });
            }
            provenance.started = before.started;
            provenance.resumed = before.resumed + 1;
        }
        let append = |path: &Path| {
            let opened = OpenOptions::new().create(true).append(true).read(true).open(path);
            file("opening", path, opened)
        };
        let locked = Flock::lock(append(&runs)?, FlockArg::LockExclusiveNonblock)
            .map_err(|_| StoreError::Busy(directory.into()))?;
        write(&directory.join(EXPERIMENT), experiment.as_bytes())?;
        let text = serde_json::to_vec_pretty(&provenance).map_err(|source| StoreError::Damaged {
            path: directory.join(PROVENANCE),
            line: 0,
            source,
        })?;
        write(&directory.join(PROVENANCE), &text)?;
        let whole = whole_lines(&runs)?;
        file("cutting", &runs, locked.set_len(whole.len() as u64))?;
        let records = parse(&runs, &whole)?;
        // The table follows from the records; a line of it may have been cut off, too.
        let path = directory.join(TABLE);
        let rows: String = records.iter().map(row).collect();
        write(&path, format!("{HEADER}\n{rows}").as_bytes())?;
        Ok(Self {
            directory: directory.into(),
            runs: locked,
            table: append(&path)?,
            records,
        })
    }

    /// Whether a run has a result, or was tried often enough.
    #[must_use]
    pub(super) fn is_done(&self, id: &str, retries: u32) -> bool {
        is_done(&self.records, id, retries)
    }

    /// The attempts at a run.
    pub(super) fn attempts<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Record> {
        self.records.iter().filter(move |record| record.id == id)
    }

    /// Adds a run; it is on disk when this returns.
    pub(super) fn add(&mut self, record: Record) -> Result<()> {
        let path = self.directory.join(RUNS);
        let mut line = serde_json::to_vec(&record).map_err(|source| StoreError::Damaged {
            path: path.clone(),
            line: self.records.len() + 1,
            source,
        })?;
        line.push(b'\n');
        let written = self.runs.write_all(&line).and_then(|()| self.runs.sync_data());
        file("writing", &path, written)?;
        let path = self.directory.join(TABLE);
        let written = self
            .table
            .write_all(row(&record).as_bytes())
            .and_then(|()| self.table.sync_data());
        file("writing", &path, written)?;
        self.records.push(record);
        Ok(())
    }
}

/// Whether a run has a result among these, or was tried often enough.
pub(super) fn is_done(records: &[Record], id: &str, retries: u32) -> bool {
    let mut attempts = records.iter().filter(|record| record.id == id);
    attempts.any(|record| record.status != Status::Invalid || record.attempt >= retries)
}

/// How the sweep of this experiment that a directory holds was begun.
fn begun(directory: &Path, experiment: &str, task: Option<Task>) -> Result<Provenance> {
    if !has_runs(directory) {
        return Err(StoreError::Nothing(directory.into()));
    }
    let before = provenance(directory)?;
    let path = directory.join(EXPERIMENT);
    let same = file("reading", &path, fs::read_to_string(&path))? == experiment;
    if same && before.task == task {
        Ok(before)
    } else {
        Err(StoreError::Different(directory.into()))
    }
}

/// The runs of the sweep of this experiment that would be gone on with.
pub(super) fn resumed(directory: &Path, experiment: &str, task: Option<Task>) -> Result<Vec<Record>> {
    begun(directory, experiment, task)?;
    records(directory)
}

/// Writes the network of a setting, which may be there already.
pub(super) fn write_network(path: &Path, network: &str) -> Result<()> {
    match fs::read_to_string(path) {
        Ok(text) if text == network => Ok(()),
        Ok(_) => Err(StoreError::Edited(path.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => write(path, network.as_bytes()),
        Err(source) => file("reading", path, Err(source)),
    }
}

/// Makes a directory, and those above it.
pub fn make_directory(path: &Path) -> Result<()> {
    file("making", path, fs::create_dir_all(path))
}

/// Writes a file whole or not at all.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<()> {
    let fresh = path.with_extension("new");
    let put = || {
        let mut out = File::create(&fresh)?;
        out.write_all(content)?;
        out.sync_data()?;
        fs::rename(&fresh, path)
    };
    file("writing", path, put())
}

/// How a directory's sweep was made.
pub(super) fn provenance(directory: &Path) -> Result<Provenance> {
    let path = directory.join(PROVENANCE);
    let text = file("reading", &path, fs::read(&path))?;
    serde_json::from_slice(&text).map_err(|source| StoreError::Damaged {
        path,
        line: 0,
        source,
    })
}

/// The runs of a directory.
pub(super) fn records(directory: &Path) -> Result<Vec<Record>> {
    let path = directory.join(RUNS);
    parse(&path, &whole_lines(&path)?)
}

/// Whether a directory holds a sweep that has begun.
#[must_use]
pub(super) fn has_runs(directory: &Path) -> bool {
    [RUNS, PROVENANCE]
        .iter()
        .all(|name| directory.join(name).exists())
}

fn whole_lines(path: &Path) -> Result<String> {
    let mut text = file("reading", path, fs::read_to_string(path))?;
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    Ok(text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<Record>> {
    (1..)
        .zip(text.lines())
        .map(|(line, text)| {
            serde_json::from_str(text).map_err(|source| StoreError::Damaged {
                path: path.into(),
                line,
                source,
            })
        })
        .collect()
}

const HEADER: &str = "id,workload,setting,block,attempt,status,started_s,wall_s,value,unit,exit_code,packets,bytes,\
                      lateness_p99_us,reasons";

fn row(record: &Record) -> String {
    let knobs = record
        .setting
        .iter()
        .map(|(knob, value)| format!("{knob}={value}"));
    let setting: Vec<String> = knobs.chain(record.traced.then(|| "traced".to_owned())).collect();
    let total = |pick: fn(&Traffic) -> u64| record.traffic.iter().map(pick).sum::<u64>();
    format!(
        "{},{},{},{},{},{},{:.3},{:.6},{},{},{},{},{},{},\"{}\"\n",
        record.id,
        record.workload,
        setting.join(" "),
        record.block,
        record.attempt,
        record.status.key(),
        record.started,
        record.wall_s,
        cell(record.value),
        record.unit,
        cell(record.exit_code),
        total(|traffic| traffic.packets),
        total(|traffic| traffic.bytes),
        cell(record.lateness_p99_us),
        record.reasons.join("; ").replace(['"', '\n'], " "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn record(id: &str, attempt: u32, status: Status) -> Record {
        Record {
            id: id.into(),
            workload: "a".into(),
            setting: BTreeMap::from([("gap".into(), Level::Value(5.0))]),
            block: 0,
            attempt,
            traced: false,
            status,
            reasons: Vec::new(),
            node: None,
            started: 1.0,
            wall_s: 1.0,
            value: Some(2.0),
            unit: "s".into(),
            samples: vec![2.0],
            exit_code: Some(0),
            profile: String::new(),
            output: String::new(),
            traffic: Vec::new(),
            lateness_p99_us: None,
            counters: serde_json::Value::Null,
            messages: None,
        }
    }

    fn provenance() -> Provenance {
        Provenance {
            version: 1,
            perturb: "0".into(),
            kernel: "6".into(),
            node: None,
            processor: "p".into(),
            processors: 2,
            jit: None,
            memory_mib: None,
            started: 0.0,
            resumed: 0,
            task: None,
            experiment: super::super::plan::tests::experiment("simple").summary(),
        }
    }

    #[test]
    fn a_network_that_was_edited_is_not_measured() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("network.yaml");
        write_network(&path, "latency: 1ms").unwrap();
        write_network(&path, "latency: 1ms").unwrap();
        fs::write(&path, "latency: 2ms").unwrap();
        assert!(matches!(
            write_network(&path, "latency: 1ms"),
            Err(StoreError::Edited(_))
        ));
    }

    #[test]
    fn a_cut_line_is_lost_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut store = Store::open(path, "text", &provenance(), false).unwrap();
        store.add(record("one", 0, Status::Ok)).unwrap();
        store.add(record("two", 0, Status::Invalid)).unwrap();
        assert!(matches!(
            Store::open(path, "text", &provenance(), true),
            Err(StoreError::Busy(_))
        ));
        drop(store);
        let mut runs = OpenOptions::new().append(true).open(path.join(RUNS)).unwrap();
        runs.write_all(b"{\"id\": \"thr").unwrap();
        assert!(matches!(
            Store::open(path, "text", &provenance(), false),
            Err(StoreError::Taken(_))
        ));
        assert!(matches!(
            Store::open(path, "other", &provenance(), true),
            Err(StoreError::Different(_))
        ));
        let mut store = Store::open(path, "text", &provenance(), true).unwrap();
        assert_eq!(store.records.len(), 2);
        assert!(store.is_done("one", 2) && !store.is_done("two", 2) && store.is_done("two", 0));
        store.add(record("three", 0, Status::TimedOut)).unwrap();
        drop(store);
        assert_eq!(records(path).unwrap().len(), 3);
        assert_eq!(super::provenance(path).unwrap().resumed, 1);
        let table = fs::read_to_string(path.join(TABLE)).unwrap();
        assert_eq!(table.lines().count(), 4);
        assert_eq!(table.lines().next().unwrap().split(',').count(), 15);
    }
}
