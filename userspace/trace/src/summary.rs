//! The communication summary of a trace's file.
//!
//! Where the events carry the times at which they happened (`perturb trace --times`), they are put into that order
//! first: in the file only the order of each thread's own events is sure.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use perturb_models::loggp::CommunicationSummary;
use perturb_models::whatif::MessageId;
use serde::Deserialize;

/// A trace that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// It cannot be read.
    #[error("{file}")]
    Read { file: String, source: io::Error },
    /// A line is no event.
    #[error("{file}, line {line}")]
    Line {
        file: String,
        /// From 1.
        line: usize,
        source: serde_json::Error,
    },
    /// A message of no possible size.
    #[error("{file}, line {line}: bytes is {bytes}; give 0 or more")]
    Bytes {
        file: String,
        /// From 1.
        line: usize,
        /// What stands there.
        bytes: f64,
    },
    /// Nothing in it.
    #[error("{file} has no events; the summary needs those of a whole run")]
    Empty { file: String },
}

/// What a summary needs of an event.
#[derive(Deserialize)]
struct Event {
    process: Name,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: Option<Name>,
    #[serde(default)]
    bytes: f64,
    #[serde(default)]
    time_us: Option<f64>,
}

/// A number or a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Name {
    Number(u64),
    Text(String),
}

impl Name {
    fn message(&self) -> MessageId {
        match self {
            Self::Number(number) => MessageId::of_number(*number),
            Self::Text(text) => MessageId::of_name(text.as_bytes()),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// Summarizes a file of events.
///
/// # Errors
/// When it cannot be read, a line is no event, or there is none.
pub fn summarize(path: &Path) -> Result<CommunicationSummary, SummaryError> {
    let file = || path.display().to_string();
    let read = |source| SummaryError::Read { file: file(), source };
    let mut events = Vec::new();
    for (line, text) in (1..).zip(BufReader::new(File::open(path).map_err(read)?).lines()) {
        let text = text.map_err(read)?;
        if text.trim().is_empty() {
            continue;
        }
        let event: Event = serde_json::from_str(&text).map_err(|source| SummaryError::Line {
            file: file(),
            line,
            source,
        })?;
        if event.bytes < 0.0 {
            return Err(SummaryError::Bytes {
                file: file(),
                line,
                bytes: event.bytes,
            });
        }
        events.push(event);
    }
    if events.is_empty() {
        return Err(SummaryError::Empty { file: file() });
    }
    order(&mut events);
    let mut summary = CommunicationSummary::default();
    for event in events {
        let message = event.message.as_ref().map(Name::message);
        let thread = event.process.text();
        match (event.kind.as_str(), message) {
            ("send", message) => summary.sent(&thread, message, event.bytes),
            ("end_recv", Some(message)) => summary.taken(&thread, message),
            _ => {
                summary.thread(&thread);
            }
        }
    }
    Ok(summary)
}

/// Puts events that all have times into their order. A send is told when its call is over, its receiver may have taken
/// it by then; it was sent before.
fn order(events: &mut [Event]) {
    let Some(mut times) = events
        .iter()
        .map(|event| event.time_us)
        .collect::<Option<Vec<f64>>>()
    else {
        return;
    };
    // The k-th send with an id meets the k-th receive, in whatever order the file has them.
    let mut ends: HashMap<MessageId, [Vec<usize>; 2]> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        if let Some(message) = event.message.as_ref().map(Name::message) {
            let [sends, receives] = ends.entry(message).or_default();
            let side = if event.kind == "send" { sends } else { receives };
            side.push(index);
        }
    }
    for [sends, receives] in ends.values() {
        for (&sent, &received) in sends.iter().zip(receives) {
            times[sent] = times[sent].min(times[received].next_down());
        }
    }
    for (event, time) in events.iter_mut().zip(times) {
        event.time_us = Some(time);
    }
    let time = |event: &Event| event.time_us.unwrap_or_default();
    events.sort_by(|one, other| time(one).total_cmp(&time(other)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(lines: &[&str]) -> CommunicationSummary {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        summarize(file.path()).unwrap()
    }

    #[test]
    fn an_inverted_pair_puts_nothing_off() {
        // Told by rings that were read one after the other: the server's receive of each request stands first.
        let mut lines = Vec::new();
        for round in 0..5 {
            let at = f64::from(round) * 10.0;
            for (process, kind, message, time) in [
                ("s", "end_recv", "q", at + 1.0),
                ("c", "send", "q", at + 1.0),
                ("s", "send", "r", at + 2.0),
                ("c", "end_recv", "r", at + 3.0),
            ] {
                lines.push(format!(
                    r#"{{"process": "{process}", "type": "{kind}", "cpu_us": 0, "message": "{message}", "bytes": 9, "time_us": {time:.1}}}"#
                ));
            }
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(summary(&lines).round_trips(), 5);
    }

    #[test]
    fn events_are_put_into_the_order_of_their_times() {
        // The client's thread that takes the replies was recorded after its next request; the server took the request
        // before the client's call was over.
        let lines = [
            r#"{"process": "c", "type": "send", "cpu_us": 0, "message": 1, "bytes": 9, "time_us": 1.0}"#,
            r#"{"process": "c", "type": "send", "cpu_us": 0, "message": 3, "bytes": 9, "time_us": 5.0}"#,
            r#"{"process": "s", "type": "end_recv", "cpu_us": 0, "message": 1, "time_us": 0.5}"#,
            r#"{"process": "s", "type": "send", "cpu_us": 0, "message": 2, "bytes": 9, "time_us": 3.0}"#,
            r#"{"process": "c/2", "type": "end_recv", "cpu_us": 0, "message": 2, "time_us": 4.0}"#,
        ];
        assert_eq!(summary(&lines).round_trips(), 1);
        let untimed: Vec<String> = lines
            .iter()
            .map(|line| line.split(", \"time_us\"").next().unwrap().to_owned() + "}")
            .collect();
        let untimed: Vec<&str> = untimed.iter().map(String::as_str).collect();
        assert_eq!(summary(&untimed).round_trips(), 0);
    }
}
