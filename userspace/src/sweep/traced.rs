//! One run of a workload under `perturb trace`, at the baseline.
//!
//! Model: the trace tells what the program itself does: its messages, whatever packets they become, and the round trips
//! for which it waits (see [`perturb_models::loggp::CommunicationSummary`]). What it costs makes the run no sample.

use std::{ffi::OsString, path::Path};

use anyhow::Context as _;

use super::store::Traced;
use crate::trace::{SummaryError, summarize};

/// Why a trace says nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum TracedError {
    /// Nothing of it can be traced.
    #[error(
        "no message was traced; the program must be dynamically linked and use MPI or TCP; else leave `trace` out"
    )]
    Nothing,
    /// The trace.
    #[error("the trace: {0}")]
    Unusable(SummaryError),
}

/// A command under tracing.
pub(super) fn command(
    executable: &Path,
    trace: &Path,
    scratch: &Path,
    command: Vec<OsString>,
) -> anyhow::Result<Vec<OsString>> {
    let trace = std::path::absolute(trace).with_context(|| format!("finding {}", trace.display()))?;
    let mut words: Vec<OsString> = vec![
        executable.into(),
        "trace".into(),
        "--times".into(),
        "--out".into(),
        trace.into(),
        "--rings".into(),
        scratch.into(),
        "--".into(),
    ];
    words.extend(command);
    Ok(words)
}

/// What a trace says.
pub(super) fn messages(trace: &Path) -> Result<Traced, TracedError> {
    let summary = match summarize(trace) {
        Ok(summary) => summary,
        Err(SummaryError::Empty { .. }) => return Err(TracedError::Nothing),
        Err(error) => return Err(TracedError::Unusable(error)),
    };
    let (processes, matrix, bytes) = summary.balance();
    if processes.is_empty() {
        return Err(TracedError::Nothing);
    }
    let whole = |row: &Vec<f64>| row.iter().map(|bytes| *bytes as u64).collect();
    Ok(Traced {
        processes,
        matrix,
        matrix_bytes: bytes.iter().map(whole).collect(),
        round_trips: summary.round_trips(),
    })
}
