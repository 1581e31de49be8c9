//! The communication summary of a program and the knob to vary, as YAML has them.

use perturb_quantity::{ByteSize, BytesPerSecond, Micros, Share};
use serde::Deserialize;

use super::Parameter;

/// A program, the network it ran on, and what is to be changed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggpInput {
    /// Name of the program, for the output only.
    #[serde(default)]
    pub application: Option<String>,
    /// Run time and parameters of the network where it was measured.
    pub baseline: Baseline,
    /// Its communication through Active Messages.
    #[serde(default)]
    pub messages: Option<Messages>,
    /// Its communication through MPI; adds to `messages` if both are given.
    #[serde(default)]
    pub mpi: Option<Mpi>,
    /// The knob and its values; exactly one.
    pub vary: Vary,
}

/// The measured run and its network. Only what the varied knob needs has to be given.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// Run time `r`.
    pub run_time: Micros,
    /// Overhead `o`.
    #[serde(default)]
    pub overhead: Option<Micros>,
    /// Gap `g`.
    #[serde(default)]
    pub gap: Option<Micros>,
    /// One-way latency `L`.
    #[serde(default)]
    pub latency: Option<Micros>,
    /// Bulk bandwidth `1/G`.
    #[serde(default)]
    pub bandwidth: Option<BytesPerSecond>,
    /// Time that each fragment of a bulk transfer costs beside its bytes; 0 if not given.
    #[serde(default)]
    pub fragment_overhead: Option<Micros>,
}

/// Communication of a program, per processor (Table 3.2).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Messages {
    /// Largest number of messages that any processor sends: `m`.
    pub maximum: u64,
    /// Average number of messages per processor; informative.
    #[serde(default)]
    pub average: Option<f64>,
    /// Mean time between two messages of a processor: `I`. `run_time / maximum` if not given.
    #[serde(default)]
    pub interval: Option<Micros>,
    /// Share of the messages that are read requests or their replies.
    #[serde(default)]
    pub reads: Option<Share>,
    /// Blocking round trips of the busiest processor, where known better than from `reads`.
    #[serde(default)]
    pub round_trips: Option<u64>,
    /// Share of the messages that are bulk transfers; informative.
    #[serde(default)]
    pub bulk: Option<Share>,
    /// Bytes the busiest processor moves in bulk: `b`.
    #[serde(default, alias = "bytes")]
    pub bulk_bytes: Option<ByteSize>,
    /// The same as a mean rate over the run.
    #[serde(default)]
    pub bulk_rate: Option<BytesPerSecond>,
    /// Bulk transfers are cut into fragments of this size; 4 KiB if not given.
    #[serde(default)]
    pub fragment: Option<ByteSize>,
}

/// Communication of an MPI program, per processor (Table 4.1).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mpi {
    /// Messages handed to the device.
    #[serde(default)]
    pub messages: Option<u64>,
    /// Bytes of these messages.
    #[serde(default)]
    pub bytes: Option<ByteSize>,
    /// Fragments they are cut into, where known better than from `bytes`.
    #[serde(default)]
    pub fragments: Option<u64>,
    /// Size of a fragment; 4 KiB if not given.
    #[serde(default)]
    pub fragment: Option<ByteSize>,
    /// Messages by size, instead of `messages` and `bytes`.
    #[serde(default)]
    pub sizes: Option<Vec<SizeCount>>,
}

/// So many messages of this size.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeCount {
    /// Bytes of one message.
    pub size: ByteSize,
    /// How many of them.
    pub count: u64,
}

/// The knob to vary and its values, as settings of the new network (not as increments).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vary {
    /// Values of the overhead `o`.
    #[serde(default)]
    pub overhead: Option<Vec<Micros>>,
    /// Values of the gap `g`.
    #[serde(default)]
    pub gap: Option<Vec<Micros>>,
    /// Values of the one-way latency `L`.
    #[serde(default)]
    pub latency: Option<Vec<Micros>>,
    /// Values of the bulk bandwidth `1/G`.
    #[serde(default)]
    pub bandwidth: Option<Vec<BytesPerSecond>>,
    /// Values of the cost per bulk fragment.
    #[serde(default)]
    pub fragment_overhead: Option<Vec<Micros>>,
}

/// Why a prediction is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LoggpError {
    /// No run time to start from.
    #[error("baseline.run_time is 0; give the measured run time, above 0")]
    NoRunTime,
    /// Neither kind of communication is given.
    #[error("neither `messages` nor `mpi` is given; say how much the program communicates")]
    NoCommunication,
    /// `vary` names no knob or several.
    #[error(
        "vary names {found} knobs; give exactly one of overhead, gap, latency, bandwidth, fragment_overhead"
    )]
    NotOneKnob {
        /// How many it names.
        found: usize,
    },
    /// The varied knob has no values.
    #[error("vary.{knob} is empty; give at least one value")]
    NoValues {
        /// The varied knob.
        knob: Parameter,
    },
    /// A bandwidth of zero would take forever.
    #[error("{key} is 0; a bandwidth must be above 0")]
    NoBandwidth {
        /// Where it stands.
        key: &'static str,
    },
    /// The model of the varied knob needs a key that is not there.
    #[error("vary.{knob} needs `{key}`, which is not given")]
    Missing {
        /// The varied knob.
        knob: Parameter,
        /// What is missing.
        key: &'static str,
    },
    /// More messages on average than at most.
    #[error("messages.average {average} is above messages.maximum {maximum}")]
    AverageAboveMaximum {
        /// The average.
        average: f64,
        /// The maximum.
        maximum: u64,
    },
    /// An average that is no number of messages.
    #[error("messages.average {average} is not a number of messages; give a finite number, 0 or more")]
    Average {
        /// The average.
        average: f64,
    },
    /// A share beyond the whole.
    #[error("{key} is {percent} %; a share lies between 0 % and 100 %")]
    ShareAboveOne {
        /// Where it stands.
        key: &'static str,
        /// The share.
        percent: f64,
    },
    /// The same thing is said twice.
    #[error("`{first}` and `{second}` say the same; give one of them")]
    Twice {
        /// One key.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// Zero-sized fragments never carry a byte.
    #[error("{key} is 0; a fragment carries at least one byte")]
    EmptyFragment {
        /// Where it stands.
        key: &'static str,
    },
    /// Nothing tells how many MPI messages there are.
    #[error("mpi needs `messages` with `bytes` or `fragments`, or `sizes`")]
    MpiCounts,
    /// The line of the model, continued below the baseline, reaches zero.
    #[error("{knob} {value}: the model leaves no run time ({run_time_s} s); it holds near the baseline only")]
    NothingLeft {
        /// The varied knob.
        knob: Parameter,
        /// Its value, in the unit of the knob.
        value: f64,
        /// The prediction.
        run_time_s: f64,
    },
    /// Beyond what a double holds.
    #[error("{knob} {value}: the predicted run time is not finite; the counts or the value are too large")]
    NotFinite {
        /// The varied knob.
        knob: Parameter,
        /// Its value, in the unit of the knob.
        value: f64,
    },
}
