//! Reads and joins directories of runs.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use crate::sweep::{
    experiment::Summary,
    store::{self, Provenance, Record, StoreError},
};

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// No runs.
    #[error("{}: holds no sweep (no runs.jsonl, no task-… with one); name the --out of `perturb sweep`", .0.display())]
    NoSweep(PathBuf),
    /// The parts do not belong together.
    #[error("{} and {} are parts of different experiments; they cannot be joined", .first.display(), .second.display())]
    Different { first: PathBuf, second: PathBuf },
    /// What a calibration holds for differs.
    #[error(
        "{} and {} cannot be joined, for these differ: {what}; report each of them alone, or measure one anew", .first.display(), .second.display()
    )]
    Unlike {
        first: PathBuf,
        second: PathBuf,
        what: String,
    },
    /// A directory.
    #[error("{}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// A file of it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The runs of one directory that were made on one machine, with baselines of their own.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) provenance: Provenance,
    pub(super) records: Vec<Record>,
    /// Traced runs, which are no samples.
    pub(super) traced: Vec<Record>,
}

/// A sweep.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) experiment: Summary,
    pub(super) parts: Vec<Part>,
}

/// Loads a sweep from its directory, or from the directories of its tasks.
pub(super) fn load(directory: &Path) -> Result<Sweep, InputError> {
    let mut directories = Vec::new();
    if store::has_runs(directory) {
        directories.push(directory.to_owned());
    }
    let unreadable = |source| InputError::Unreadable {
        path: directory.into(),
        source,
    };
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.file_name().to_string_lossy().starts_with("task-") && store::has_runs(&entry.path()) {
            directories.push(entry.path());
        }
    }
    directories.sort();
    let (mut parts, mut begun) = (Vec::new(), Vec::new());
    for path in &directories {
        let provenance = store::provenance(path)?;
        let records = store::records(path)?;
        let pacer = pacer(&records);
        parts.extend(by_machine(&provenance, records));
        begun.push((path, provenance, pacer));
    }
    let Some((first, own, kept)) = begun.first() else {
        return Err(InputError::NoSweep(directory.into()));
    };
    for (path, provenance, pacer) in &begun {
        let (first, second) = ((*first).clone(), (*path).clone());
        if provenance.experiment != own.experiment {
            return Err(InputError::Different { first, second });
        }
        let pacers = match (kept, pacer) {
            (Some(one), Some(other)) if one != other => Some(format!("the pacer: {one} and {other}")),
            _ => None,
        };
        if let Some(what) = own.differs(provenance).or(pacers) {
            return Err(InputError::Unlike { first, second, what });
        }
    }
    let experiment = own.experiment.clone();
    Ok(Sweep { experiment, parts })
}

/// What held packets until they left.
fn pacer(records: &[Record]) -> Option<String> {
    let mut named = records
        .iter()
        .filter_map(|record| record.counters["pacer"].as_str());
    named.next().map(str::to_owned)
}

/// A directory's runs, by the machines that made them: a part goes on elsewhere when its machine dies.
fn by_machine(provenance: &Provenance, records: Vec<Record>) -> Vec<Part> {
    let mut machines: BTreeMap<Option<String>, Vec<Record>> = BTreeMap::new();
    for record in records {
        machines.entry(record.node.clone()).or_default().push(record);
    }
    if machines.is_empty() {
        machines.insert(provenance.node.clone(), Vec::new());
    }
    let parts = machines.into_iter().map(|(node, records)| {
        let (traced, records) = records.into_iter().partition(|record| record.traced);
        Part {
            provenance: Provenance {
                node,
                ..provenance.clone()
            },
            records,
            traced,
        }
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::report::fixture;

    #[test]
    fn a_part_that_went_on_elsewhere_is_two() {
        let program = fixture::Program {
            name: "p",
            micros: |_| 1000.0,
            packets: 1,
            bytes: 1,
            keys: "",
        };
        let mut part = fixture::sweep(&[program], 0.0).parts.remove(0);
        let other = Provenance {
            kernel: "7".into(),
            ..part.provenance.clone()
        };
        assert_eq!(
            part.provenance.differs(&other).as_deref(),
            Some("the kernel: 6 and 7")
        );
        assert_eq!(part.provenance.differs(&part.provenance), None);
        for (number, record) in part.records.iter_mut().enumerate() {
            record.node = Some(if number < 3 { "n1" } else { "n2" }.into());
        }
        let parts = by_machine(&part.provenance, part.records);
        let found: Vec<_> = parts.iter().map(|part| part.provenance.node.as_deref()).collect();
        assert_eq!((found, parts[0].records.len()), (vec![Some("n1"), Some("n2")], 3));
    }
}
