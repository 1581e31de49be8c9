//! Reads and joins directories of runs.

use std::{
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
    /// A directory.
    #[error("{}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// A file of it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The runs of one directory: made on one machine, with baselines of their own.
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
    let mut parts = Vec::new();
    for path in &directories {
        let (traced, records) = store::records(path)?
            .into_iter()
            .partition(|record| record.traced);
        parts.push(Part {
            provenance: store::provenance(path)?,
            records,
            traced,
        });
    }
    let Some(first) = parts.first() else {
        return Err(InputError::NoSweep(directory.into()));
    };
    let experiment = first.provenance.experiment.clone();
    for (path, part) in directories.iter().zip(&parts) {
        if part.provenance.experiment != experiment {
            return Err(InputError::Different {
                first: directories[0].clone(),
                second: path.clone(),
            });
        }
    }
    Ok(Sweep { experiment, parts })
}
