//! Partitionings of a sequence and the methods that make them.

use std::ops::Range;
use std::str::FromStr;

use super::notation::Document;
use super::sequence::{Distinct, Sequence};
use super::{Locality, Partition, Sums, detect, optimal};

/// How the sequence is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// One partition: P_S (3.1).
    Single,
    /// Greedy: a partition ends before the request that would give it more than M paths: P_Mm (3.1).
    Paths(u64),
    /// P_N (4): one partition per outermost loop, and one per stretch between loops. The loops are those of
    /// the notation; a sequence without any has them detected.
    Natural,
    /// Every w consecutive natural partitions as one, the last perhaps of fewer: P_Gw (4.3).
    Grouped(u64),
    /// The cuts that the input marks.
    Given,
    /// The partitioning of greatest L: exact for short sequences, else a search with a bound.
    Optimal,
}

/// Why a method cannot be had or applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// Not a method's name.
    #[error("partition `{text}`: use single, natural, given, optimal, `paths M` or `grouped W`")]
    Unknown {
        /// The input.
        text: String,
    },
    /// The method needs a number.
    #[error("partition `{text}`: `{method}` needs a number of {what} from 1 up, e.g. `{method} 4`")]
    Number {
        /// The input.
        text: String,
        /// The method.
        method: &'static str,
        /// What it counts.
        what: &'static str,
    },
    /// There are no requests.
    #[error("there are no requests to partition; give at least one")]
    Empty,
    /// `given` without marks, where marks cannot be.
    #[error(
        "partition `given` needs cuts marked by `|` in the sequence; captured traffic has none, use natural"
    )]
    NoCuts,
}

impl FromStr for Method {
    type Err = PartitionError;

    fn from_str(text: &str) -> Result<Self, PartitionError> {
        let trimmed = text.trim();
        let name_end = trimmed
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(trimmed.len());
        let (name, rest) = trimmed.split_at(name_end);
        let rest = rest.trim_start_matches([' ', '\t', '-', '=']).trim();
        let number = |method, what| match rest.parse::<u64>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(PartitionError::Number {
                text: text.to_owned(),
                method,
                what,
            }),
        };
        match (name, rest) {
            ("single", "") => Ok(Self::Single),
            ("natural", "") => Ok(Self::Natural),
            ("given", "") => Ok(Self::Given),
            ("optimal", "") => Ok(Self::Optimal),
            ("paths", _) => number("paths", "paths").map(Self::Paths),
            ("grouped", _) => number("grouped", "loops").map(Self::Grouped),
            _ => Err(PartitionError::Unknown {
                text: text.to_owned(),
            }),
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Single => out.write_str("single"),
            Self::Natural => out.write_str("natural"),
            Self::Given => out.write_str("given"),
            Self::Optimal => out.write_str("optimal"),
            Self::Paths(paths) => write!(out, "paths {paths}"),
            Self::Grouped(loops) => write!(out, "grouped {loops}"),
        }
    }
}

/// A sequence cut into partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Partitioning {
    /// The index after each partition's last request; the last is the sequence's length.
    pub ends: Vec<usize>,
    /// The partitions' counts.
    pub partitions: Vec<Partition>,
    /// For a searched optimum: no partitioning has a greater L than this. Absent where `ends` are
    /// exact or were not optimized.
    pub bound: Option<f64>,
}

impl Partitioning {
    /// The partitions between the given ends; `ends` ascend and the last is the sequence's length.
    #[must_use]
    pub fn from_ends(sequence: &Sequence, ends: Vec<usize>) -> Self {
        let mut distinct = Distinct::new(sequence.paths());
        let mut partitions = Vec::with_capacity(ends.len());
        let mut start = 0;
        for &end in &ends {
            for &path in &sequence.requests()[start..end] {
                distinct.add(path);
            }
            partitions.push(distinct.finish());
            start = end;
        }
        Self {
            ends,
            partitions,
            bound: None,
        }
    }

    /// By a method.
    ///
    /// # Errors
    /// When there are no requests, or `given` is asked for without marked cuts.
    pub fn by(method: Method, document: &Document) -> Result<Self, PartitionError> {
        let sequence = &document.sequence;
        if sequence.is_empty() {
            return Err(PartitionError::Empty);
        }
        let ends = match method {
            Method::Single => vec![sequence.len()],
            Method::Paths(limit) => by_paths(sequence, limit),
            Method::Natural => natural(document),
            Method::Grouped(loops) => grouped(&natural(document), loops),
            Method::Given => match &document.cuts {
                Some(cuts) => cuts.iter().copied().chain([sequence.len()]).collect(),
                None => return Err(PartitionError::NoCuts),
            },
            Method::Optimal => {
                let found = optimal::optimal(sequence, &natural(document), optimal::EXACT_REQUESTS);
                let mut partitioning = Self::from_ends(sequence, found.ends);
                partitioning.bound = found.bound;
                return Ok(partitioning);
            }
        };
        Ok(Self::from_ends(sequence, ends))
    }

    /// Eq. (1)–(3) and the alternative.
    #[must_use]
    pub fn locality(&self) -> Locality {
        self.sums().measures()
    }

    /// The sums behind the measures.
    #[must_use]
    pub fn sums(&self) -> Sums {
        self.partitions.iter().copied().fold(Sums::default(), Sums::with)
    }

    /// Each partition's requests as a range of the sequence.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| start..end)
    }

    /// The working set of each partition: its paths, in order of first use.
    #[must_use]
    pub fn working_sets(&self, sequence: &Sequence) -> Vec<Vec<u32>> {
        let mut distinct = Distinct::new(sequence.paths());
        let set = |range: Range<usize>| {
            let mut set = Vec::new();
            for &path in &sequence.requests()[range] {
                if !distinct.contains(path) {
                    set.push(path);
                }
                distinct.add(path);
            }
            distinct.finish();
            set
        };
        self.ranges().map(set).collect()
    }
}

fn by_paths(sequence: &Sequence, limit: u64) -> Vec<usize> {
    let mut distinct = Distinct::new(sequence.paths());
    let mut ends = Vec::new();
    for (index, &path) in sequence.requests().iter().enumerate() {
        if distinct.partition().paths == limit && !distinct.contains(path) {
            distinct.finish();
            ends.push(index);
        }
        distinct.add(path);
    }
    ends.push(sequence.len());
    ends
}

/// One partition per loop and per stretch between loops.
fn natural(document: &Document) -> Vec<usize> {
    let detected;
    let loops = if document.loops.is_empty() {
        detected = detect::loops(document.sequence.requests());
        &detected
    } else {
        &document.loops
    };
    let mut ends = Vec::new();
    let mut reached = 0;
    for span in loops {
        if span.start > reached {
            ends.push(span.start);
        }
        ends.push(span.end);
        reached = span.end;
    }
    if reached < document.sequence.len() {
        ends.push(document.sequence.len());
    }
    ends
}

fn grouped(natural: &[usize], loops: u64) -> Vec<usize> {
    let loops = usize::try_from(loops).unwrap_or(usize::MAX).max(1);
    natural
        .chunks(loops)
        .filter_map(|group| group.last().copied())
        .collect()
}
