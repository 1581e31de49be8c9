//! Run time against the LogGP parameters of the network (Martin 1999, chapters 2 to 4).
//!
//! Model: a program is its run time `r` on a known network and a summary of its communication; a
//! slower network adds a term that is linear in the knob:
//!
//! | knob | added run time | |
//! |---|---|---|
//! | overhead `o` | `2 m Δo` | each of the `m` messages costs its sender and its receiver one `o` |
//! | gap `g`, burst | `m Δg` | all messages go out in bursts, each waits a full gap |
//! | gap `g`, uniform | `m (g - I)` if `g > I`, else 0 | messages leave evenly, one per interval `I` |
//! | latency `L` | `2 t ΔL` | `t` blocking round trips |
//! | bandwidth `1/G` | `b ΔG` | `b` bytes moved in bulk |
//! | fragment overhead | `f Δ` | `f` fragments of the bulk transfers |
//!
//! `m` is the largest number of messages that any processor sends: the model assumes that the
//! busiest processor is the critical path. For MPI over Active Messages (chapter 4) a message costs
//! `4 o` for its protocol and each of its fragments `2 o`, a staircase in the message size.
//!
//! Readings. The thesis's "read messages" are requests *and* replies, so a processor makes
//! `m reads / 2` round trips, which Table B.4 confirms for EM3D(read) within 3 %. A new value below
//! the baseline predicts the gain that the same line predicts; a prediction without any run time
//! left is refused. The uniform model starts at `max(I, g)`: no baseline sends faster than its gap.
//! The burst prediction is also the one called `run_time_s`, as the thesis finds it the better one.
//!
//! What it lacks: any dependence between processors, so serialization and lock contention (Barnes,
//! Radix at high overhead) make programs slower than predicted; overlap of bulk transfers with
//! computation makes them faster.

mod input;
mod knob;
mod prediction;
mod profile;
mod summary;

pub use input::{Baseline, LoggpError, LoggpInput, Messages, Mpi, SizeCount, Vary};
pub use knob::{Parameter, SlowdownModel};
pub use prediction::{LoggpPrediction, Sensitivity, Tolerance};
pub use summary::CommunicationSummary;

/// Largest slowdowns for which the tolerance of a knob is reported, in percent.
pub const TOLERATED_PERCENT: [f64; 3] = [1.0, 2.0, 5.0];

/// Predicts the run time for every value of the varied knob.
///
/// # Errors
/// When the input is inconsistent, lacks what the varied knob needs, or a value leaves no run time.
pub fn predict(input: &LoggpInput) -> Result<LoggpPrediction, LoggpError> {
    prediction::predict(input)
}

#[cfg(test)]
mod tests;
