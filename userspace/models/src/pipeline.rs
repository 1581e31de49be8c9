//! A message cut into fragments on its way through store-and-forward stages (Martin 1999, chapter 6).
//!
//! Model: stage `i` (a processor, a network interface, the wire) holds a fragment of `f` bytes for
//! `t_i(f) = occupancy_i + f G_i`, one fragment at a time, in order, and passes it on when it has all
//! of it. With unlimited room between the stages this is a permutation flow shop: fragment `k` leaves
//! stage `i` at
//!
//! ```text
//! C(i, k) = max(C(i - 1, k), C(i, k - 1)) + t_i(f_k)
//! ```
//!
//! All fragments are `f` bytes but the last, which carries the rest. So the delay of a message of `n`
//! equal fragments is the sum of all stages plus `(n - 1)` times the slowest: large fragments waste
//! the overlap of the stages, small ones pay the occupancies too often; in between lies the best size.
//!
//! The LogGP parameters that the pipeline amounts to: `o` of the sender and the receiver are the
//! occupancies of the first and the last stage, `L` the occupancies in between, `g` the largest
//! occupancy, and `G` the slowest stage's time per byte at the given fragment size.
//!
//! What it lacks: flow control (a stage never waits for room in the next), cut-through, and
//! processors that send and receive at the same time.

use perturb_quantity::{ByteSize, BytesPerSecond, Micros, MicrosPerByte};
use serde::{Deserialize, Serialize};

mod fragments;

pub use fragments::{Best, Cut, best_fragment, delay};

/// A pipeline and a message to send through it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineInput {
    /// The stages, the sender's first.
    pub stages: Vec<Stage>,
    /// Size of the message.
    pub message: ByteSize,
    /// Size of its fragments; the best one if not given.
    #[serde(default)]
    pub fragment: Option<ByteSize>,
    /// Smallest fragment considered as the best; 1 byte if not given.
    #[serde(default)]
    pub smallest_fragment: Option<ByteSize>,
    /// Fragment sizes for which the delay is wanted too.
    #[serde(default)]
    pub fragments: Vec<ByteSize>,
}

/// One stage.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Name.
    pub name: String,
    /// Time it spends on a fragment whatever its size.
    pub occupancy: Micros,
    /// Time it spends per byte.
    #[serde(default)]
    pub gap_per_byte: Option<MicrosPerByte>,
    /// The same as a rate.
    #[serde(default)]
    pub bandwidth: Option<BytesPerSecond>,
}

/// Why a prediction is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PipelineError {
    /// No stage.
    #[error("stages is empty; give at least one stage")]
    NoStages,
    /// A stage must have exactly one of the two.
    #[error("stage `{stage}` needs exactly one of `gap_per_byte` and `bandwidth`")]
    PerByte {
        /// The stage.
        stage: String,
    },
    /// A stage that never finishes.
    #[error("stage `{stage}` has a bandwidth of 0; give a rate above 0")]
    NoBandwidth {
        /// The stage.
        stage: String,
    },
    /// Two stages with one name.
    #[error("two stages are named `{stage}`; give each its own name")]
    SameName {
        /// The name.
        stage: String,
    },
    /// Fragments have at least one byte and bytes are whole.
    #[error(
        "{key} is {bytes} B; give a whole number of bytes between 1 and {}",
        fragments::MAX_BYTES
    )]
    Size {
        /// Where it stands.
        key: &'static str,
        /// The size.
        bytes: f64,
    },
    /// Nothing takes any time.
    #[error("no stage takes any time; give at least one occupancy or gap per byte above 0")]
    NoTime,
    /// Beyond what a double holds.
    #[error("the delay is not finite; an occupancy or a gap per byte is too large")]
    NotFinite,
}

/// The keys of `perturb predict pipeline --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PipelinePrediction {
    /// Size of the message.
    pub message_bytes: u64,
    /// Delay at the given fragment size, or at the best one.
    #[serde(flatten)]
    pub cut: Cut,
    /// Stage that limits the bandwidth at this fragment size.
    pub bottleneck: String,
    /// Bandwidth of an endless message in such fragments.
    #[serde(rename = "steady_bandwidth_MB_s")]
    pub steady_bandwidth_mb_s: f64,
    /// Size with the least delay; the largest of several.
    pub best_fragment_bytes: u64,
    /// Delay at that size.
    pub best_delay_us: f64,
    /// Delays at the sizes that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<Cut>,
    /// Time that each stage holds a full fragment.
    pub stages: Vec<StageTime>,
    /// LogGP parameters of the pipeline.
    pub loggp: PipelineLogGp,
}

/// Time of one stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageTime {
    /// Name.
    pub stage: String,
    /// Time it holds a full fragment.
    pub fragment_us: f64,
    /// Busy share while the message passes.
    pub utilization: f64,
}

/// LogGP parameters that a pipeline amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PipelineLogGp {
    /// Overhead of the sender: the first stage's occupancy.
    pub send_overhead_us: f64,
    /// Overhead of the receiver: the last stage's occupancy.
    pub receive_overhead_us: f64,
    /// Latency: the occupancies in between.
    pub latency_us: f64,
    /// Gap: the largest occupancy.
    pub gap_us: f64,
    /// Gap per byte: the slowest stage's time per byte of a full fragment.
    pub gap_per_byte_us: f64,
    /// Its inverse.
    #[serde(rename = "bandwidth_MB_s")]
    pub bandwidth_mb_s: f64,
}

/// A stage as the arithmetic wants it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageCost {
    /// Time per fragment, µs.
    pub occupancy: f64,
    /// Time per byte, µs.
    pub per_byte: f64,
}

impl StageCost {
    /// Time that the stage holds a fragment.
    #[must_use]
    pub fn holds(&self, bytes: u64) -> f64 {
        self.occupancy + bytes as f64 * self.per_byte
    }
}

/// Predicts the delay of a message, the best fragment size and the bottleneck.
///
/// # Errors
/// When the stages or sizes make no sense.
pub fn predict(input: &PipelineInput) -> Result<PipelinePrediction, PipelineError> {
    let costs = costs(&input.stages)?;
    let message = whole("message", input.message)?;
    let smallest = input
        .smallest_fragment
        .map_or(Ok(1), |size| whole("smallest_fragment", size))?;
    let best = best_fragment(&costs, message, smallest.min(message));
    let fragment = match input.fragment {
        Some(size) => whole("fragment", size)?.min(message),
        None => best.fragment_bytes,
    };
    let cut = delay(&costs, message, fragment);
    if !cut.delay_us.is_finite() {
        return Err(PipelineError::NotFinite);
    }
    if cut.delay_us <= 0.0 {
        return Err(PipelineError::NoTime);
    }
    let fragments = input
        .fragments
        .iter()
        .map(|&size| Ok(delay(&costs, message, whole("fragments", size)?.min(message))))
        .collect::<Result<Vec<_>, _>>()?;
    let slowest = slowest(&costs, fragment);
    let per_byte = costs[slowest].holds(fragment) / fragment as f64;
    let last = costs.len() - 1;
    Ok(PipelinePrediction {
        message_bytes: message,
        bottleneck: input.stages[slowest].name.clone(),
        steady_bandwidth_mb_s: 1.0 / per_byte,
        best_fragment_bytes: best.fragment_bytes,
        best_delay_us: best.delay_us,
        fragments,
        stages: input
            .stages
            .iter()
            .zip(&costs)
            .map(|(stage, cost)| StageTime {
                stage: stage.name.clone(),
                fragment_us: cost.holds(fragment),
                utilization: fragments::busy(cost, message, fragment) / cut.delay_us,
            })
            .collect(),
        loggp: PipelineLogGp {
            send_overhead_us: costs[0].occupancy,
            receive_overhead_us: if last > 0 { costs[last].occupancy } else { 0.0 },
            latency_us: costs.iter().take(last).skip(1).map(|cost| cost.occupancy).sum(),
            gap_us: costs.iter().map(|cost| cost.occupancy).fold(0.0, f64::max),
            gap_per_byte_us: per_byte,
            bandwidth_mb_s: 1.0 / per_byte,
        },
        cut,
    })
}

/// Index of the stage that holds a full fragment longest; the first of several.
fn slowest(costs: &[StageCost], fragment: u64) -> usize {
    let mut slowest = 0;
    for (index, cost) in costs.iter().enumerate() {
        if cost.holds(fragment) > costs[slowest].holds(fragment) {
            slowest = index;
        }
    }
    slowest
}

fn costs(stages: &[Stage]) -> Result<Vec<StageCost>, PipelineError> {
    if stages.is_empty() {
        return Err(PipelineError::NoStages);
    }
    for (index, stage) in stages.iter().enumerate() {
        if stages[..index].iter().any(|other| other.name == stage.name) {
            return Err(PipelineError::SameName {
                stage: stage.name.clone(),
            });
        }
    }
    stages
        .iter()
        .map(|stage| {
            let per_byte = match (stage.gap_per_byte, stage.bandwidth) {
                (Some(gap), None) => gap.0,
                (None, Some(rate)) if rate.0 == 0.0 => {
                    return Err(PipelineError::NoBandwidth {
                        stage: stage.name.clone(),
                    });
                }
                (None, Some(rate)) => 1e6 / rate.0,
                _ => {
                    return Err(PipelineError::PerByte {
                        stage: stage.name.clone(),
                    });
                }
            };
            Ok(StageCost {
                occupancy: stage.occupancy.0,
                per_byte,
            })
        })
        .collect()
}

fn whole(key: &'static str, size: ByteSize) -> Result<u64, PipelineError> {
    let bytes = size.0;
    if bytes.fract() != 0.0 || !(1.0..=fragments::MAX_BYTES as f64).contains(&bytes) {
        return Err(PipelineError::Size { key, bytes });
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests;
