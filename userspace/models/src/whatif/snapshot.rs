//! The state of a prediction as fig. 5 of the paper prints it.

use serde::Serialize;

use super::engine::{Predictor, State};
use super::event::Kind;

/// An event that is not reported yet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventRow {
    /// The process.
    pub process: String,
    /// What happens.
    pub kind: &'static str,
    /// Where it stands in the input.
    pub line: u64,
    /// When it would be reported if nothing else happened, in µs; absent for the infinity of a queued
    /// or pending event.
    pub earliest: Option<f64>,
    /// CPU time left, in µs.
    pub remaining: f64,
    /// Of an `end_recv`: the time until the message arrives, in µs; below zero, how long the process
    /// has been waiting for a message that is not sent yet.
    pub wait: Option<f64>,
}

impl Predictor {
    /// Every event that is held, by process and in order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<EventRow> {
        let mut rows = Vec::new();
        for (index, process) in self.processes.iter().enumerate() {
            let processor = &self.processors[self.placement().group(index as u32) as usize];
            let clock = processor.clock();
            for (place, event) in process.queue.iter().enumerate() {
                let receives = matches!(event.kind, Kind::EndRecv { .. });
                let state = if place == 0 { process.state } else { State::Missing };
                let (earliest, remaining, wait) = match state {
                    State::Computing(at) => (
                        Some(processor.finish(index as u32, at)),
                        processor.remaining(index as u32, at),
                        0.0,
                    ),
                    State::Waiting { arrival, .. } => {
                        let finish = processor.finish_after(index as u32, arrival, event.cpu);
                        (Some(finish), event.cpu, arrival - clock)
                    }
                    State::Pending { since } => (None, event.cpu, since - clock),
                    State::Missing | State::Ended => (None, event.cpu, 0.0),
                };
                rows.push(EventRow {
                    process: self.placement().name(event.process).to_string(),
                    kind: event.kind.name(),
                    line: event.line,
                    earliest,
                    remaining,
                    wait: receives.then_some(wait),
                });
            }
        }
        rows
    }
}
