//! The input of the locality model: labels, loops and cuts.
//!
//! ```text
//! # a comment
//! (1 2 3 3)^20 (4 5 6 6)^20      labels between blanks; ( ... )^N repeats, loops nest
//! 1 | 3 2 3 | 1                  | marks a cut of a given partitioning
//! partition: natural             single | natural | paths M | grouped W | given | optimal
//! ```
//!
//! A label is anything without blanks and without the signs of the notation, so `a->b` and `10.1.2.3`
//! are labels. A `|` inside a loop cuts in every iteration. Loops are expanded.

use std::ops::Range;

use super::partition::{Method, PartitionError};
use super::sequence::{Interner, Sequence};

/// The longest sequence that is expanded, to turn a slip such as `((1)^1000000)^1000000` into an
/// error instead of a full memory (4 bytes a request).
pub const MAX_REQUESTS: u64 = 400_000_000;

/// A parsed input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// The requests.
    pub sequence: Sequence,
    /// Outermost loops of the notation, in order.
    pub loops: Vec<Range<usize>>,
    /// The marked cuts: indices of the requests they stand before. `None` where the input has no
    /// place for marks.
    pub cuts: Option<Vec<usize>>,
    /// The method that the input names.
    pub method: Option<Method>,
}

/// What is wrong with an input, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct NotationError {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What.
    pub problem: Problem,
}

/// What is wrong with an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A `)` without its `(`.
    #[error("`)` closes no loop; remove it or add the `(`")]
    Unopened,
    /// A `(` without its `)`.
    #[error("`(` opens a loop that is never closed; add `)^N`")]
    Unclosed,
    /// A loop without requests.
    #[error("the loop is empty; put at least one label between `(` and `)`")]
    EmptyLoop,
    /// No `^N` after `)`.
    #[error("`)` must be followed by `^` and the number of iterations, e.g. `(1 2)^20`")]
    NoCount,
    /// N is not a positive number.
    #[error("`^{text}`: the number of iterations must be a whole number from 1 up")]
    Count {
        /// What stood there.
        text: String,
    },
    /// A `^` that follows no loop.
    #[error("`^` must follow the `)` of a loop")]
    StrayCaret,
    /// Two cuts with nothing between, or a cut at either end.
    #[error("`|` leaves an empty partition; there must be requests on both sides")]
    EmptyPartition,
    /// Too long.
    #[error("the sequence expands to more than {MAX_REQUESTS} requests; repeat the loops less often")]
    TooLong,
    /// The method is wrong.
    #[error(transparent)]
    Method(#[from] PartitionError),
    /// A second `partition:`.
    #[error("a second `partition:` line; the first is in line {first}")]
    SecondMethod {
        /// Line of the first.
        first: usize,
    },
    /// Cuts, but another method.
    #[error(
        "`|` marks cuts of a given partitioning, but the method is `{method}`; write `partition: given` or remove it"
    )]
    UnusedCut {
        /// The method named.
        method: Method,
    },
    /// Nothing to measure.
    #[error("there are no requests; give labels such as `1 2 3` or a loop such as `(1 2 3)^10`")]
    NoRequests,
}

#[derive(Clone, Copy)]
struct Place {
    line: usize,
    column: usize,
}

impl Place {
    fn error(self, problem: impl Into<Problem>) -> NotationError {
        NotationError {
            line: self.line,
            column: self.column,
            problem: problem.into(),
        }
    }
}

/// An open loop: where it started, in the text and in the sequence.
struct Open {
    place: Place,
    requests: usize,
    cuts: usize,
}

#[derive(Default)]
struct Reader {
    interner: Interner<String>,
    requests: Vec<u32>,
    loops: Vec<Range<usize>>,
    cuts: Vec<usize>,
    cut_places: Vec<Place>,
    open: Vec<Open>,
    method: Option<(Method, usize)>,
}

/// Reads an input.
///
/// # Errors
/// With line and column, when the notation is not as described in the module.
pub fn parse(text: &str) -> Result<Document, NotationError> {
    let mut reader = Reader::default();
    let mut closed: Option<Place> = None;
    for (number, line) in text.lines().enumerate() {
        let line_number = number + 1;
        let line = line.split('#').next().unwrap_or_default();
        let start = line.len() - line.trim_start().len();
        if let Some(method) = partition_line(line.trim()) {
            let place = Place {
                line: line_number,
                column: start + 1,
            };
            if let Some((_, first)) = reader.method {
                return Err(place.error(Problem::SecondMethod { first }));
            }
            let method = method.parse::<Method>().map_err(|error| place.error(error))?;
            reader.method = Some((method, line_number));
            continue;
        }
        reader.line(line, line_number, &mut closed)?;
    }
    if let Some(place) = closed {
        return Err(place.error(Problem::NoCount));
    }
    reader.document()
}

/// What follows `partition:`, if the line is one.
fn partition_line(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("partition")?;
    rest.trim_start().strip_prefix(':').map(str::trim)
}

impl Reader {
    /// Reads one line. `closed` is the place of a `)` whose `^N` has yet to come.
    fn line(&mut self, line: &str, number: usize, closed: &mut Option<Place>) -> Result<(), NotationError> {
        let mut rest = line;
        let mut column = 1;
        while let Some(first) = rest.chars().next() {
            let place = Place { line: number, column };
            let token_end = match first {
                '(' | ')' | '|' | '^' => first.len_utf8(),
                c if c.is_whitespace() => c.len_utf8(),
                _ => rest
                    .find(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '|' | '^'))
                    .unwrap_or(rest.len()),
            };
            let (token, after) = rest.split_at(token_end);
            rest = after;
            column += token.chars().count();
            if first.is_whitespace() {
                continue;
            }
            if let Some(close) = closed.take() {
                if first != '^' {
                    return Err(close.error(Problem::NoCount));
                }
                let trimmed = rest.trim_start();
                let length = trimmed
                    .find(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '|' | '^'))
                    .unwrap_or(trimmed.len());
                let count = &trimmed[..length];
                self.repeat(count, place)?;
                column += rest.len() - trimmed.len() + count.chars().count();
                rest = &trimmed[length..];
                continue;
            }
            match first {
                '(' => self.open.push(Open {
                    place,
                    requests: self.requests.len(),
                    cuts: self.cuts.len(),
                }),
                ')' => match self.open.last() {
                    None => return Err(place.error(Problem::Unopened)),
                    Some(open) if open.requests == self.requests.len() => {
                        return Err(open.place.error(Problem::EmptyLoop));
                    }
                    Some(_) => *closed = Some(place),
                },
                '^' => return Err(place.error(Problem::StrayCaret)),
                '|' => {
                    self.cuts.push(self.requests.len());
                    self.cut_places.push(place);
                }
                _ => {
                    let path = self.interner.index(&token.to_owned());
                    self.requests.push(path);
                }
            }
        }
        Ok(())
    }

    /// Repeats the innermost open loop, which has just been closed.
    fn repeat(&mut self, count: &str, place: Place) -> Result<(), NotationError> {
        let iterations = match count.parse::<u64>() {
            Ok(iterations) if iterations > 0 => iterations,
            _ => {
                return Err(place.error(Problem::Count {
                    text: count.to_owned(),
                }));
            }
        };
        let Some(open) = self.open.pop() else {
            return Err(place.error(Problem::Unopened));
        };
        let body = self.requests.len() - open.requests;
        let total = (body as u64)
            .checked_mul(iterations)
            .and_then(|all| all.checked_add(open.requests as u64));
        if total.is_none_or(|total| total > MAX_REQUESTS) {
            return Err(place.error(Problem::TooLong));
        }
        let cuts = open.cuts..self.cuts.len();
        for iteration in 1..iterations as usize {
            self.requests
                .extend_from_within(open.requests..open.requests + body);
            for cut in cuts.clone() {
                self.cuts.push(self.cuts[cut] + iteration * body);
                self.cut_places.push(self.cut_places[cut]);
            }
        }
        if self.open.is_empty() {
            self.loops.push(open.requests..self.requests.len());
        }
        Ok(())
    }

    fn document(self) -> Result<Document, NotationError> {
        if let Some(open) = self.open.last() {
            return Err(open.place.error(Problem::Unclosed));
        }
        if self.requests.is_empty() {
            return Err(Place { line: 1, column: 1 }.error(Problem::NoRequests));
        }
        let mut before = 0;
        for (cut, place) in self.cuts.iter().zip(&self.cut_places) {
            if *cut == before || *cut == self.requests.len() {
                return Err(place.error(Problem::EmptyPartition));
            }
            before = *cut;
        }
        let method = self.method.map(|(method, _)| method);
        match (method, self.cut_places.first()) {
            (None | Some(Method::Given), _) | (_, None) => {}
            (Some(method), Some(place)) => return Err(place.error(Problem::UnusedCut { method })),
        }
        Ok(Document {
            sequence: Sequence::new(self.requests, self.interner.into_labels()),
            loops: self.loops,
            cuts: Some(self.cuts),
            method,
        })
    }
}
