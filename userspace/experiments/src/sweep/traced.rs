//! One run of a workload under `perturb trace`, at the baseline.
//!
//! Model: the trace tells what the program itself does: its messages, whatever packets they become, and the round trips
//! for which it waits (see [`perturb_models::loggp::CommunicationSummary`]). What it costs makes the run no sample.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::Deserialize;

use super::store::Traced;
use perturb_trace::{SummaryError, summarize};

/// Why a trace says nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum TracedError {
    /// Nothing of it can be traced.
    #[error(
        "no message was traced; the program must be dynamically linked and use MPI or TCP; else leave `trace` out"
    )]
    Nothing,
    /// A trace with holes.
    #[error("{0} events of the trace are lost: the tracer had too little of a processor")]
    Lost(u64),
    /// It was not written to its end.
    #[error("the trace has no summary: {0}")]
    NoSummary(std::io::Error),
    /// The trace.
    #[error("the trace: {0}")]
    Unusable(SummaryError),
}

/// What `perturb trace` says of a trace that matters here.
#[derive(Deserialize)]
struct Account {
    lost: u64,
}

/// Beside a trace's file, the summary's.
fn account_of(trace: &Path) -> PathBuf {
    trace.with_extension("summary.json")
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
        trace.clone().into(),
        "--summary".into(),
        account_of(&trace).into(),
        "--rings".into(),
        scratch.into(),
        "--".into(),
    ];
    words.extend(command);
    Ok(words)
}

/// What a trace says.
pub(super) fn messages(trace: &Path) -> Result<Traced, TracedError> {
    let account = fs::read(account_of(trace)).map_err(TracedError::NoSummary)?;
    let Account { lost } =
        serde_json::from_slice(&account).map_err(|error| TracedError::NoSummary(error.into()))?;
    if lost > 0 {
        return Err(TracedError::Lost(lost));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_with_holes_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let trace = directory.path().join("run.trace.jsonl");
        let events = [
            r#"{"process": "a", "type": "send", "cpu_us": 0, "message": 1, "bytes": 9}"#,
            r#"{"process": "b", "type": "end_recv", "cpu_us": 0, "message": 1}"#,
        ];
        fs::write(&trace, events.join("\n")).unwrap();
        assert!(matches!(messages(&trace), Err(TracedError::NoSummary(_))));
        let account =
            |lost: u64| fs::write(account_of(&trace), format!("{{\"lost\": {lost}, \"events\": 2}}"));
        account(3).unwrap();
        assert!(matches!(messages(&trace), Err(TracedError::Lost(3))));
        account(0).unwrap();
        assert_eq!(messages(&trace).unwrap().processes, ["a", "b"]);
    }
}
