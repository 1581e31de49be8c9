//! The communication summary of a trace's file.
//!
//! In the file only the order of each thread's own events is sure. Where the events carry the times at which they happened
//! (`perturb trace --times`), the threads are merged by them first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
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

impl Event {
    /// Whether it sends a message or takes it, and which one; none if it does neither.
    fn moves(&self) -> Option<(bool, MessageId)> {
        let is_sent = self.kind == "send";
        let message = self.message.as_ref().map(Name::message);
        Some((is_sent, message.filter(|_| is_sent || self.kind == "end_recv")?))
    }
}

/// A number or a text.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize)]
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
    let mut summary = CommunicationSummary::default();
    for event in merged(events) {
        let (moves, is_send) = (event.moves(), event.kind == "send");
        let thread = event.process.text();
        match moves {
            Some((false, message)) => summary.taken(&thread, message),
            _ if is_send => summary.sent(&thread, moves.map(|(_, message)| message), event.bytes),
            _ => {
                summary.thread(&thread);
            }
        }
    }
    Ok(summary)
}

/// Messages of one id.
#[derive(Default)]
struct Way {
    /// That are not sent yet.
    to_come: u64,
    /// That are sent and not taken.
    sent: u64,
    /// Threads that are to take one.
    waiting: Vec<usize>,
}

/// Merges the threads' events, if all have times. A thread's keep their order, and what is taken comes after it was sent:
/// MPI's times of receives are those at which the wait began. Of the threads that can go on, the earliest one does.
fn merged(events: Vec<Event>) -> Vec<Event> {
    if events.iter().any(|event| event.time_us.is_none()) {
        return events;
    }
    let mut merged = Vec::with_capacity(events.len());
    let mut names: HashMap<Name, usize> = HashMap::new();
    let mut threads: Vec<VecDeque<Event>> = Vec::new();
    let mut ways: HashMap<MessageId, Way> = HashMap::new();
    for event in events {
        if let Some((true, message)) = event.moves() {
            ways.entry(message).or_default().to_come += 1;
        }
        let thread = *names.entry(event.process.clone()).or_insert(threads.len());
        if thread == threads.len() {
            threads.push(VecDeque::new());
        }
        threads[thread].push_back(event);
    }
    let head = |threads: &[VecDeque<Event>], thread: usize| {
        let event = threads[thread].front()?;
        let time_ns = (event.time_us? * 1e3) as u64;
        Some(Reverse((time_ns, thread)))
    };
    let mut ready: BinaryHeap<_> = (0..threads.len())
        .filter_map(|thread| head(&threads, thread))
        .collect();
    loop {
        let Some(Reverse((_, thread))) = ready.pop() else {
            // Those that are left wait for each other, which cannot have happened: the earliest one takes nothing.
            let left = (0..threads.len()).filter_map(|thread| head(&threads, thread));
            let message = left
                .max()
                .and_then(|Reverse((_, thread))| threads[thread].front()?.moves());
            let Some(way) = message.and_then(|(_, message)| ways.get_mut(&message)) else {
                return merged;
            };
            way.to_come = 0;
            ready.extend(way.waiting.drain(..).filter_map(|thread| head(&threads, thread)));
            continue;
        };
        if let Some((is_sent, message)) = threads[thread].front().and_then(Event::moves) {
            let way = ways.entry(message).or_default();
            if is_sent {
                way.to_come = way.to_come.saturating_sub(1);
                way.sent += 1;
                ready.extend(way.waiting.drain(..).filter_map(|thread| head(&threads, thread)));
            } else if way.sent == 0 && way.to_come > 0 {
                way.waiting.push(thread);
                continue;
            } else {
                way.sent = way.sent.saturating_sub(1);
            }
        }
        merged.extend(threads[thread].pop_front());
        ready.extend(head(&threads, thread));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(lines: &[&str]) -> CommunicationSummary {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        summarize(file.path()).unwrap()
    }

    /// Events of a process with their types, messages and times in us.
    fn lines(events: &[(&str, &str, &str, f64)]) -> Vec<String> {
        let line = |(process, kind, message, time): &(&str, &str, &str, f64)| {
            format!(
                r#"{{"process": "{process}", "type": "{kind}", "cpu_us": 0, "message": "{message}", "bytes": 9, "time_us": {time:.1}}}"#
            )
        };
        events.iter().map(line).collect()
    }

    /// Round trips of five rounds, each of which is told so, and ten us after the one before.
    fn five_rounds(round: [(&str, &str, &str, f64); 4]) -> u64 {
        let mut events = Vec::new();
        for at in [0.0, 10.0, 20.0, 30.0, 40.0] {
            events.extend(round.map(|(process, kind, message, time)| (process, kind, message, at + time)));
        }
        let lines = lines(&events);
        summary(&lines.iter().map(String::as_str).collect::<Vec<_>>()).round_trips()
    }

    #[test]
    fn an_inverted_pair_puts_nothing_off() {
        // Told by rings that were read one after the other: the server's receive of each request stands first.
        let round = [
            ("s", "end_recv", "q", 1.0),
            ("c", "send", "q", 1.0),
            ("s", "send", "r", 2.0),
            ("c", "end_recv", "r", 3.0),
        ];
        assert_eq!(five_rounds(round), 5);
    }

    #[test]
    fn what_is_sent_late_follows_what_its_sender_took_before() {
        // MPI's receives have the times at which the waits began. The server computes before it takes the request; the
        // client waits for the reply by then.
        let round = [
            ("c", "send", "q", 1.0),
            ("c", "end_recv", "r", 2.0),
            ("s", "end_recv", "q", 5.0),
            ("s", "send", "r", 6.0),
        ];
        assert_eq!(five_rounds(round), 5);
    }

    #[test]
    fn events_that_contradict_each_other_are_all_counted() {
        let lines = lines(&[
            ("a", "end_recv", "2", 1.0),
            ("a", "send", "1", 2.0),
            ("b", "end_recv", "1", 1.5),
            ("b", "send", "2", 2.5),
            ("b", "end_recv", "never sent", 3.0),
            ("b", "end_recv", "1", 4.0),
        ]);
        let summary = summary(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(summary.balance().1, [[0, 1], [1, 0]]);
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
