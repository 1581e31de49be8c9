//! The server, the load and the network of an NFS prediction, as YAML has them.

use perturb_quantity::{ByteSize, Micros, OperationsPerSecond, Share};
use serde::Deserialize;

/// A server and the loads at which its response time is wanted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NfsInput {
    /// The server.
    pub server: NfsServer,
    /// Offered rates, all below saturation.
    pub rates: Vec<OperationsPerSecond>,
    /// Rate of the base response time; the lowest of `rates` if not given.
    #[serde(default)]
    pub base_rate: Option<OperationsPerSecond>,
    /// What the network adds to the one the server was measured on.
    #[serde(default)]
    pub network: Network,
    /// Added overheads or latencies for which the curve is repeated.
    #[serde(default)]
    pub vary: Option<VaryNetwork>,
    /// Measured responses that the model is compared with, all below saturation.
    #[serde(default)]
    pub measured: Vec<Measured>,
}

/// A measured point of the response-time curve.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Load.
    pub rate: OperationsPerSecond,
    /// Mean response time.
    pub response: Micros,
}

/// The stations of a server.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NfsServer {
    /// Processor time of one operation: `S`.
    pub cpu_service: Micros,
    /// Memory that holds file data.
    #[serde(default)]
    pub cache: Option<ByteSize>,
    /// Data touched for each op/s of load.
    #[serde(default)]
    pub touched_per_rate: Option<ByteSize>,
    /// Share of the operations served from memory whatever the load, instead of `cache`.
    #[serde(default)]
    pub hit: Option<Share>,
    /// Number of disks: `m`.
    pub disks: u32,
    /// Service time of one disk access.
    pub disk_service: Micros,
    /// Delay that every operation has beside the server's stations: `D`.
    #[serde(default)]
    pub fixed_delay: Micros,
}

impl NfsServer {
    /// The server with plain disks of Martin 1999, as section 5.3.1 states it.
    pub const MARTIN_SCSI: Self = Self {
        cpu_service: Micros(900.0),
        cache: Some(ByteSize(128e6)),
        touched_per_rate: Some(ByteSize(1e6)),
        hit: None,
        disks: 24,
        disk_service: Micros(12_000.0),
        fixed_delay: Micros(3_400.0),
    };

    /// The one with a disk array; its cache is memory (448 MB) and NVRAM (64 MB).
    pub const MARTIN_RAID: Self = Self {
        cpu_service: Micros(650.0),
        cache: Some(ByteSize(512e6)),
        disks: 28,
        ..Self::MARTIN_SCSI
    };
}

/// What is added to the measured network.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Added overhead per packet: `Δo`.
    #[serde(alias = "overhead")]
    pub added_overhead: Micros,
    /// Added one-way latency: `ΔL`.
    #[serde(alias = "latency")]
    pub added_latency: Micros,
    /// Overheads per operation.
    pub overheads_per_operation: f64,
    /// One-way latencies per operation.
    pub latencies_per_operation: f64,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            added_overhead: Micros(0.0),
            added_latency: Micros(0.0),
            overheads_per_operation: super::OVERHEADS_PER_OPERATION,
            latencies_per_operation: super::LATENCIES_PER_OPERATION,
        }
    }
}

/// One of the two knobs of [`Network`] and its values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum VaryNetwork {
    /// Added overheads.
    #[serde(alias = "overhead")]
    AddedOverhead(Vec<Micros>),
    /// Added one-way latencies.
    #[serde(alias = "latency")]
    AddedLatency(Vec<Micros>),
}

/// Why a prediction is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NfsError {
    /// No loads.
    #[error("rates is empty; give at least one rate, e.g. `[200op/s]`")]
    NoRates,
    /// A response that takes no time.
    #[error("measured: the response at {rate_op_s} op/s is 0; give the measured time, above 0")]
    NoResponse {
        /// The rate.
        rate_op_s: f64,
    },
    /// No disk, but operations that need one.
    #[error("server.disks is 0, but {miss_percent} % of the operations miss the cache at {rate_op_s} op/s")]
    NoDisks {
        /// The rate.
        rate_op_s: f64,
        /// Misses at that rate.
        miss_percent: f64,
    },
    /// More disks than the recursion of Erlang's formula should walk through.
    #[error("server.disks is {disks}; at most {} are supported", super::MAX_DISKS)]
    TooManyDisks {
        /// The number.
        disks: u32,
    },
    /// Neither a cache nor a hit ratio, or both.
    #[error(
        "server needs either `cache` and `touched_per_rate`, or `hit`; {found} \
         (a server without a cache has `hit: 0%`)"
    )]
    Hits {
        /// What is there.
        found: HitKeys,
    },
    /// A share beyond the whole.
    #[error("server.hit is {percent} %; a share lies between 0 % and 100 %")]
    HitAboveOne {
        /// The share.
        percent: f64,
    },
    /// A number of packets or latencies that cannot be.
    #[error("network.{key} is {value}; give a finite number, 0 or more")]
    PerOperation {
        /// Which.
        key: &'static str,
        /// Its value.
        value: f64,
    },
    /// A rate without a steady state.
    #[error(
        "{key}: {rate_op_s} op/s is not below saturation ({saturation_op_s:.1} op/s), where queues \
         grow without end; give lower rates"
    )]
    Saturated {
        /// Where the rate stands.
        key: &'static str,
        /// The rate.
        rate_op_s: f64,
        /// The limit.
        saturation_op_s: f64,
    },
    /// Beyond what a double holds.
    #[error("the response at {rate_op_s} op/s is not finite; a service time or delay is too large")]
    NotFinite {
        /// The rate.
        rate_op_s: f64,
    },
}

/// Which keys of the cache model are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitKeys {
    /// None of them.
    None,
    /// `hit` and one of the others.
    Both,
    /// Only one of `cache` and `touched_per_rate`.
    Half,
}

impl std::fmt::Display for HitKeys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::None => "none of them is given",
            Self::Both => "both are given",
            Self::Half => "one of `cache` and `touched_per_rate` is missing",
        })
    }
}
