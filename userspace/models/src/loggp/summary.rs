//! The communication summary of a traced run.

use std::collections::BTreeMap;

use super::input::Messages;
use crate::quantity::ByteSize;

/// Messages and bytes by sending process, gathered one message at a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommunicationSummary {
    processes: BTreeMap<u64, Sent>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sent {
    messages: u64,
    bytes: f64,
}

impl CommunicationSummary {
    /// Notes a process, so that one that sends nothing counts in the average.
    pub fn process(&mut self, process: u64) {
        self.processes.entry(process).or_default();
    }

    /// Notes a message.
    pub fn sent(&mut self, process: u64, bytes: f64) {
        let sent = self.processes.entry(process).or_default();
        sent.messages += 1;
        sent.bytes += bytes;
    }

    /// What the models need: the largest numbers of messages and bytes of any process, and the average
    /// number of messages. A trace does not tell which messages are blocking reads, so there are no
    /// round trips; the mean interval follows from the run time. `None` for an empty trace.
    #[must_use]
    pub fn messages(&self) -> Option<Messages> {
        let count = self.processes.len() as f64;
        let maximum = self.processes.values().map(|sent| sent.messages).max()?;
        let total: u64 = self.processes.values().map(|sent| sent.messages).sum();
        Some(Messages {
            maximum,
            average: Some(total as f64 / count),
            interval: None,
            reads: None,
            round_trips: None,
            bulk: None,
            bulk_bytes: Some(ByteSize(
                self.processes.values().map(|sent| sent.bytes).fold(0.0, f64::max),
            )),
            bulk_rate: None,
            fragment: None,
        })
    }
}
