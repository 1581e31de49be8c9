//! What the traced processes did, in all.

use super::Assembler;
use crate::line::Name;

/// What a traced process of the model did.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ProcessReport {
    /// Its name in the trace.
    pub process: String,
    /// The program's name.
    pub program: String,
    /// The host it ran on.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// Events written.
    pub events: u64,
    /// CPU time that they carry, in µs.
    pub cpu_us: f64,
}

impl Assembler {
    /// From the first to the last event of a machine, in ns; the longest.
    pub(crate) fn span_ns(&self) -> u64 {
        let lengths = self.spans.values().map(|(first, last)| last - first);
        lengths.max().unwrap_or(0)
    }

    /// Events written.
    pub(crate) fn events(&self) -> u64 {
        self.threads.values().map(|thread| thread.events).sum()
    }

    /// Processes of the model, ranks first.
    pub(crate) fn processes(&self) -> Vec<ProcessReport> {
        let mut reports: Vec<(&Name, ProcessReport)> = self
            .order
            .iter()
            .filter_map(|id| {
                let (thread, source) = (self.threads.get(id)?, &self.sources[id.0]);
                let report = ProcessReport {
                    process: thread.name.to_string(),
                    program: source.writer.name.clone(),
                    host: source.writer.host.clone(),
                    pid: source.writer.pid,
                    events: thread.events,
                    cpu_us: thread.total_ns as f64 / 1e3,
                };
                Some((&thread.name, report))
            })
            .collect();
        reports.sort_by_key(|(name, _)| *name);
        reports.into_iter().map(|(_, report)| report).collect()
    }
}
