//! Queueing models: Erlang's formula, and the response-time curve of an NFS server (Martin 1999,
//! chapter 5).
//!
//! Model: operations arrive at rate `λ` and pass, in turn,
//!
//! 1. a delay center `D` (network and client, nobody waits for anybody),
//! 2. the server's processor, M/M/1 with service time `S + 2.4 Δo` (an operation costs 2.4 added
//!    overheads),
//! 3. a splitter: with probability `P_hit = min(1, cache / (touched λ))` the data are in memory; the
//!    SPECsfs data set grows with the load, so the hits fall with it,
//! 4. the disks, M/M/m with `m` disks of service time `S_d`, fed by the misses.
//!
//! ```text
//! R(λ) = D + 2 ΔL + S' / (1 - λ S') + (1 - P_hit) (S_d + C(m, a) S_d / (m - a)),   a = λ (1 - P_hit) S_d
//! ```
//!
//! with Erlang's C and `S' = S + 2.4 Δo`. Saturation is where the processor or the disks have no time
//! left: `1 / S'`, or `m / S_d + cache / touched`.
//!
//! Readings. `o` is the *added* overhead: with the absolute one the RAID server of Table B.12 would
//! saturate 300 op/s below its measured throughput. `L` counts two one-way latencies per operation,
//! as the thesis predicts (it measures three). The base response is `R` at `base_rate`, slope,
//! intercept and r² are the least-squares line through `R` at the given rates.
//!
//! What it lacks: bandwidth (no queue for the link), writes that a battery-backed memory absorbs,
//! and the bounded number of clients of a closed loop, so it overestimates near saturation.

mod input;
mod prediction;
mod station;

pub use input::{Measured, Network, NfsError, NfsInput, NfsServer, VaryNetwork};
pub use prediction::{NfsPrediction, Response, Variation};
pub use station::{erlang_c, mm1_response, mmm_response};

/// Added overheads that an operation costs the server (section 5.3).
pub const OVERHEADS_PER_OPERATION: f64 = 2.4;

/// One-way latencies of an operation: the request's and the reply's.
pub const LATENCIES_PER_OPERATION: f64 = 2.0;

/// Most disks that a server may have; the time of a prediction is proportional to their number.
pub const MAX_DISKS: u32 = 1_000_000;

/// Predicts the response-time curve of a server.
///
/// # Errors
/// When the input is inconsistent or a rate is at or beyond saturation.
pub fn predict_nfs(input: &NfsInput) -> Result<NfsPrediction, NfsError> {
    prediction::predict(input)
}

#[cfg(test)]
mod tests;
