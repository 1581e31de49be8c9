//! The knobs, and the straight line by which each of them lengthens a run.

use std::fmt;

use perturb_profile::Knob;
use serde::{Serialize, Serializer};

use super::input::{LoggpError, LoggpInput, Mpi};

/// Fragment size of bulk transfers where none is given (Martin, chapter 2).
const DEFAULT_FRAGMENT_BYTES: f64 = 4096.0;

/// Overheads that the protocol of one MPI message costs its processor (section 4.2).
const OVERHEADS_PER_MPI_MESSAGE: f64 = 4.0;

/// Overheads that one fragment of an MPI message costs its processor.
const OVERHEADS_PER_MPI_FRAGMENT: f64 = 2.0;

/// Small Active Messages that go out for one MPI message (Table 4.1: three times the messages).
const ACTIVE_MESSAGES_PER_MPI_MESSAGE: f64 = 3.0;

/// What can be set: a knob that profiles have, too, or one that Active Messages have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// Of LogGP.
    Knob(Knob),
    /// Time per fragment of a bulk transfer.
    FragmentOverhead,
}

impl Parameter {
    /// Processor time per message and side, `o`.
    pub const OVERHEAD: Self = Self::Knob(Knob::Overhead);
    /// Least time between two messages of a processor, `g`.
    pub const GAP: Self = Self::Knob(Knob::Gap);
    /// One-way latency, `L`.
    pub const LATENCY: Self = Self::Knob(Knob::Latency);
    /// Bulk bandwidth, `1/G`.
    pub const BANDWIDTH: Self = Self::Knob(Knob::Bandwidth);

    /// All of them, in the order of the letters L, o, g, G.
    pub const ALL: [Self; 5] = [
        Self::LATENCY,
        Self::OVERHEAD,
        Self::GAP,
        Self::BANDWIDTH,
        Self::FragmentOverhead,
    ];

    /// Unit of its values: of the bandwidth that of 1/G, as the thesis has it.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::BANDWIDTH => "MB/s",
            _ => "us",
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Knob(knob) => knob.fmt(out),
            Self::FragmentOverhead => out.write_str("fragment_overhead"),
        }
    }
}

impl Serialize for Parameter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How the run time answers to one knob: `r + coefficient (cost - origin)`.
///
/// The cost is the knob itself in µs, or `G` in µs per byte for the bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowdownModel {
    /// µs of run time per unit of cost.
    pub coefficient: f64,
    /// Cost from which the line starts.
    pub origin: f64,
    /// Whether costs below the origin change nothing (uniform gap) instead of continuing the line.
    pub flat_below: bool,
}

impl SlowdownModel {
    /// Run time added by a cost, in µs.
    #[must_use]
    pub fn added(&self, cost: f64) -> f64 {
        let excess = cost - self.origin;
        self.coefficient * if self.flat_below { excess.max(0.0) } else { excess }
    }

    /// The cost that adds `added` µs; `None` if none does.
    #[must_use]
    pub fn cost_of(&self, added: f64) -> Option<f64> {
        (self.coefficient > 0.0).then(|| self.origin + added / self.coefficient)
    }
}

/// The cost that a value of the knob stands for: µs, or µs per byte for a bandwidth in MB/s.
pub(super) fn cost(knob: Parameter, value: f64) -> f64 {
    match knob {
        Parameter::BANDWIDTH => 1.0 / value,
        _ => value,
    }
}

/// What the models need to know of the program, per busiest processor.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Overheads paid.
    overheads: f64,
    /// Messages that each wait a gap.
    messages: f64,
    /// Blocking round trips; `None` if nothing tells.
    round_trips: Option<f64>,
    /// Bytes moved in bulk; `None` if nothing tells.
    bulk_bytes: Option<f64>,
    /// Fragments of the bulk transfers; `None` if nothing tells.
    fragments: Option<f64>,
}

/// The main model of `knob` (for the gap: burst).
pub(super) fn model(input: &LoggpInput, knob: Parameter) -> Result<SlowdownModel, LoggpError> {
    let counts = counts(input)?;
    let baseline = &input.baseline;
    let missing = |key| LoggpError::Missing { knob, key };
    let (coefficient, origin) = match knob {
        Parameter::OVERHEAD => (
            counts.overheads,
            baseline.overhead.ok_or(missing("baseline.overhead"))?.0,
        ),
        Parameter::GAP => (counts.messages, baseline.gap.ok_or(missing("baseline.gap"))?.0),
        Parameter::LATENCY => (
            2.0 * counts.round_trips.ok_or(missing("messages.reads"))?,
            baseline.latency.ok_or(missing("baseline.latency"))?.0,
        ),
        Parameter::BANDWIDTH => {
            let bandwidth = baseline.bandwidth.ok_or(missing("baseline.bandwidth"))?.0;
            if bandwidth == 0.0 {
                return Err(LoggpError::NoBandwidth {
                    key: "baseline.bandwidth",
                });
            }
            let bytes = counts.bulk_bytes.ok_or(missing("messages.bulk_bytes"))?;
            (bytes, cost(knob, bandwidth / 1e6))
        }
        Parameter::FragmentOverhead => (
            counts.fragments.ok_or(missing("messages.bulk_bytes"))?,
            baseline.fragment_overhead.map_or(0.0, |overhead| overhead.0),
        ),
        Parameter::Knob(_) => return Err(missing("vary")),
    };
    Ok(SlowdownModel {
        coefficient,
        origin,
        flat_below: false,
    })
}

/// The uniform model of the gap; `None` where no interval is known (MPI).
pub(super) fn uniform_gap(input: &LoggpInput) -> Result<Option<SlowdownModel>, LoggpError> {
    let burst = model(input, Parameter::GAP)?;
    let Some(messages) = &input.messages else {
        return Ok(None);
    };
    let interval = match messages.interval {
        Some(interval) => interval.0,
        None if messages.maximum == 0 => return Ok(None),
        None => input.baseline.run_time.0 / messages.maximum as f64,
    };
    Ok(Some(SlowdownModel {
        origin: interval.max(burst.origin),
        flat_below: true,
        ..burst
    }))
}

fn counts(input: &LoggpInput) -> Result<Counts, LoggpError> {
    let mut counts = Counts::default();
    if let Some(messages) = &input.messages {
        let maximum = messages.maximum as f64;
        counts.overheads += 2.0 * maximum;
        counts.messages += maximum;
        counts.round_trips = match (messages.round_trips, messages.reads) {
            (Some(trips), _) => Some(trips as f64),
            (None, Some(reads)) => Some(maximum * reads.0 / 2.0),
            (None, None) => None,
        };
        counts.bulk_bytes = match (messages.bulk_bytes, messages.bulk_rate) {
            (Some(bytes), _) => Some(bytes.0),
            (None, Some(rate)) => Some(rate.0 * input.baseline.run_time.0 / 1e6),
            (None, None) => None,
        };
        let fragment = messages.fragment.map_or(DEFAULT_FRAGMENT_BYTES, |size| size.0);
        counts.fragments = counts.bulk_bytes.map(|bytes| (bytes / fragment).ceil());
    }
    if let Some(mpi) = &input.mpi {
        let mpi = mpi_counts(mpi)?;
        let add = |sum: Option<f64>, part: Option<f64>| match (sum, part) {
            (Some(sum), Some(part)) => Some(sum + part),
            (sum, part) => sum.or(part),
        };
        counts.overheads += mpi.overheads;
        counts.messages += mpi.messages;
        counts.round_trips = add(counts.round_trips, mpi.round_trips);
        counts.bulk_bytes = add(counts.bulk_bytes, mpi.bulk_bytes);
        counts.fragments = add(counts.fragments, mpi.fragments);
    }
    Ok(counts)
}

/// The staircase of MPI over Active Messages: `4 o` per message and `2 o` per fragment begun.
///
/// Where only totals are known the last fragments cannot be told apart, and Table 4.1 prints
/// `bytes / 4096` rounded down, so this does too.
fn mpi_counts(mpi: &Mpi) -> Result<Counts, LoggpError> {
    let fragment = mpi.fragment.map_or(DEFAULT_FRAGMENT_BYTES, |size| size.0);
    let (messages, bytes, fragments) = match (&mpi.sizes, mpi.messages) {
        (Some(sizes), None) => {
            let sum = |of: &dyn Fn(f64) -> f64| -> f64 {
                sizes
                    .iter()
                    .map(|entry| entry.count as f64 * of(entry.size.0))
                    .sum()
            };
            let fragments = sum(&|size| (size / fragment).ceil());
            (sum(&|_| 1.0), Some(sum(&|size| size)), fragments)
        }
        (None, Some(messages)) => {
            let bytes = mpi.bytes.map(|bytes| bytes.0);
            let fragments = match (mpi.fragments, bytes) {
                (Some(fragments), _) => fragments as f64,
                (None, Some(bytes)) => (bytes / fragment).floor(),
                (None, None) => return Err(LoggpError::MpiCounts),
            };
            (messages as f64, bytes, fragments)
        }
        (Some(_), Some(_)) => {
            return Err(LoggpError::Twice {
                first: "mpi.messages",
                second: "mpi.sizes",
            });
        }
        (None, None) => return Err(LoggpError::MpiCounts),
    };
    Ok(Counts {
        overheads: OVERHEADS_PER_MPI_MESSAGE * messages + OVERHEADS_PER_MPI_FRAGMENT * fragments,
        messages: ACTIVE_MESSAGES_PER_MPI_MESSAGE * messages + fragments,
        // A request and its answer precede the data of every message.
        round_trips: Some(messages),
        bulk_bytes: bytes,
        fragments: Some(fragments),
    })
}
