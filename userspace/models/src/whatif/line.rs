//! Events as JSON lines.
//!
//! ```text
//! {"process": 1, "type": "send", "cpu_us": 200.0, "message": "a", "bytes": 8192}
//! ```
//!
//! | key | value | where |
//! |---|---|---|
//! | `process` | number or string | always |
//! | `type` | `compute` `start_recv` `end_recv` `send` `exit` `keep_alive` | always |
//! | `cpu_us` | number from 0 up: CPU time since the process's previous event | always |
//! | `message` | number or string, the same on the send and its receive | `send`, `end_recv`; optional on `start_recv` |
//! | `bytes` | number from 0 up | `send` |
//! | `to` | process: the receiver, so that a bus need not wait to learn it | optional on `send` |
//! | `from` `tag` `time_us` `note` | anything, ignored | optional |
//!
//! A reader of its own rather than a general one: it borrows from the line, so that a core reads some
//! millions of events per second, and its errors carry the column. Empty lines are skipped.

mod cursor;

use super::event::{Event, Kind, MessageId};
use super::placement::{Placement, ProcessName};
use cursor::{Cursor, Value};

/// What is wrong with a line, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct LineError {
    /// From 1.
    pub line: u64,
    /// From 1, in bytes.
    pub column: usize,
    /// What.
    pub problem: LineProblem,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LineProblem {
    /// Not JSON, or not an object of plain values.
    #[error("expected {expected}; an event is one JSON object of plain values per line")]
    Syntax {
        /// What should stand there.
        expected: &'static str,
    },
    /// Not UTF-8.
    #[error("not UTF-8 text")]
    NotText,
    /// A key that events do not have.
    #[error(
        "unknown key `{key}`; allowed: process, type, cpu_us, message, bytes, to, from, tag, time_us, note"
    )]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A key twice.
    #[error("key `{key}` is given twice")]
    Duplicate {
        /// The key.
        key: &'static str,
    },
    /// A value of the wrong type.
    #[error("`{key}`: expected {expected}")]
    Type {
        /// The key.
        key: &'static str,
        /// What should stand there.
        expected: &'static str,
    },
    /// A number out of range.
    #[error("`{key}`: {value} is not allowed; it must be finite and at least 0")]
    Range {
        /// The key.
        key: &'static str,
        /// The value.
        value: f64,
    },
    /// A key that this type of event needs.
    #[error("`{key}` is missing; an event of type {kind} needs it")]
    Missing {
        /// The key.
        key: &'static str,
        /// The event's type, as far as known.
        kind: &'static str,
    },
    /// Not an event type.
    #[error("`type`: `{kind}` is unknown; use compute, start_recv, end_recv, send, exit or keep_alive")]
    UnknownType {
        /// The type given.
        kind: String,
    },
    /// A process that no group has.
    #[error("process {process} is in no group; add it to `groups`")]
    UnknownProcess {
        /// The process.
        process: ProcessName,
    },
}

/// Reads lines, counting them.
#[derive(Clone, Debug, Default)]
pub struct LineReader {
    line: u64,
}

/// The fields seen so far.
#[derive(Default)]
struct Fields<'l> {
    process: Option<Value<'l>>,
    kind: Option<Value<'l>>,
    cpu: Option<Value<'l>>,
    message: Option<Value<'l>>,
    bytes: Option<Value<'l>>,
    to: Option<Value<'l>>,
}

impl LineReader {
    /// Before the first line.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of the last line read.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Reads a line; `None` if it is empty.
    ///
    /// # Errors
    /// With line and column, when it is no event.
    pub fn read(&mut self, line: &[u8], placement: &Placement) -> Result<Option<Event>, LineError> {
        self.line += 1;
        let error = |column: usize, problem| LineError {
            line: self.line,
            column: column + 1,
            problem,
        };
        let Ok(text) = std::str::from_utf8(line) else {
            return Err(error(0, LineProblem::NotText));
        };
        let mut cursor = Cursor { text, at: 0 };
        cursor.blanks();
        if cursor.at == text.len() {
            return Ok(None);
        }
        let fields = cursor.object().map_err(|problem| error(cursor.at, problem))?;
        fields
            .event(placement, self.line)
            .map(Some)
            .map_err(|problem| error(0, problem))
    }
}

impl<'l> Cursor<'l> {
    fn object(&mut self) -> Result<Fields<'l>, LineProblem> {
        let mut fields = Fields::default();
        self.sign(b'{', "`{`")?;
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                let start = self.at;
                let key = self.string()?;
                self.sign(b':', "`:` after a key")?;
                let before_value = self.at;
                let value = self.value()?;
                let after = std::mem::replace(&mut self.at, start);
                let (slot, name) = match &*key {
                    "process" => (&mut fields.process, "process"),
                    "type" => (&mut fields.kind, "type"),
                    "cpu_us" => (&mut fields.cpu, "cpu_us"),
                    "message" => (&mut fields.message, "message"),
                    "bytes" => (&mut fields.bytes, "bytes"),
                    "to" => (&mut fields.to, "to"),
                    "from" | "tag" | "time_us" | "note" => {
                        self.at = after;
                        if self.more()? {
                            continue;
                        }
                        break;
                    }
                    _ => {
                        return Err(LineProblem::UnknownKey {
                            key: key.into_owned(),
                        });
                    }
                };
                if slot.is_some() {
                    return Err(LineProblem::Duplicate { key: name });
                }
                self.at = before_value;
                // Types are checked here, where the column is still known.
                check(name, &value)?;
                *slot = Some(value);
                self.at = after;
                if !self.more()? {
                    break;
                }
            }
        }
        self.blanks();
        if self.at < self.text.len() {
            return Err(LineProblem::Syntax {
                expected: "the end of the line",
            });
        }
        Ok(fields)
    }
}

/// Whether a key may have this value.
fn check(key: &'static str, value: &Value<'_>) -> Result<(), LineProblem> {
    match (key, value) {
        ("cpu_us" | "bytes", &Value::Number(value)) if !value.is_finite() || value < 0.0 => {
            Err(LineProblem::Range { key, value })
        }
        ("cpu_us" | "bytes", Value::Number(_) | Value::Integer(_)) => Ok(()),
        ("cpu_us" | "bytes", _) => Err(LineProblem::Type {
            key,
            expected: "a number",
        }),
        (_, Value::Text(_)) | ("process" | "message" | "to", Value::Integer(_)) => Ok(()),
        ("type", _) => Err(LineProblem::Type {
            key,
            expected: "a string",
        }),
        _ => Err(LineProblem::Type {
            key,
            expected: "a string or a whole number from 0 up",
        }),
    }
}

impl Fields<'_> {
    fn event(self, placement: &Placement, line: u64) -> Result<Event, LineProblem> {
        let Some(Value::Text(kind)) = &self.kind else {
            return Err(LineProblem::Missing {
                key: "type",
                kind: "any",
            });
        };
        let name = match &**kind {
            "compute" | "nonendRecv" => "compute",
            "start_recv" | "startRecv" => "start_recv",
            "end_recv" | "endRecv" => "end_recv",
            "send" => "send",
            "exit" => "exit",
            "keep_alive" | "keepAlive" => "keep_alive",
            _ => {
                return Err(LineProblem::UnknownType {
                    kind: kind.clone().into_owned(),
                });
            }
        };
        let missing = |key| LineProblem::Missing { key, kind: name };
        let process = process(
            self.process.as_ref().ok_or_else(|| missing("process"))?,
            placement,
        )?;
        let cpu = number(self.cpu.as_ref()).ok_or_else(|| missing("cpu_us"))?;
        let message = || match &self.message {
            Some(Value::Integer(number)) => Ok(MessageId::of_number(*number)),
            Some(Value::Text(text)) => Ok(match text.parse() {
                Ok(number) if text.starts_with(|c: char| c.is_ascii_digit()) => MessageId::of_number(number),
                _ => MessageId::of_name(text.as_bytes()),
            }),
            _ => Err(missing("message")),
        };
        let kind = match name {
            "compute" => Kind::Compute,
            "start_recv" => Kind::StartRecv {
                message: message().ok(),
            },
            "end_recv" => Kind::EndRecv { message: message()? },
            "exit" => Kind::Exit,
            "keep_alive" => Kind::KeepAlive,
            _ => Kind::Send {
                message: message()?,
                bytes: number(self.bytes.as_ref()).ok_or_else(|| missing("bytes"))?,
                to: self
                    .to
                    .as_ref()
                    .map(|to| self::process(to, placement))
                    .transpose()?,
            },
        };
        Ok(Event {
            process,
            cpu,
            kind,
            line,
        })
    }
}

fn number(value: Option<&Value<'_>>) -> Option<f64> {
    match value {
        Some(Value::Number(number)) => Some(*number),
        Some(Value::Integer(integer)) => Some(*integer as f64),
        _ => None,
    }
}

fn process(value: &Value<'_>, placement: &Placement) -> Result<u32, LineProblem> {
    let name = match value {
        Value::Integer(number) => {
            if let Some(index) = placement.number(*number) {
                return Ok(index);
            }
            ProcessName::Number(*number)
        }
        Value::Text(text) => ProcessName::from(&**text),
        Value::Number(_) | Value::Other => {
            return Err(LineProblem::Type {
                key: "process",
                expected: "a string or a whole number from 0 up",
            });
        }
    };
    placement
        .index(&name)
        .ok_or(LineProblem::UnknownProcess { process: name })
}
