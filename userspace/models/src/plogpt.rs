//! Messages over a tree of switches with TCP's retransmission time-out: PlogPT (Nomura, Matsuba and
//! Ishikawa, "Network performance model for TCP/IP based cluster computing", CLUSTER 2007).
//!
//! Model. The `nodes` are the leaves of a perfect binary tree. An edge of height `h` joins a subtree of
//! `2^(h-1)` nodes to its parent; it carries `b(h)` each way and its switch port buffers `d(h)` worth of
//! that. A message of `m` bytes puts `b(1) g(m)` bytes on the way up to the common ancestor and down
//! again, from the time its `Isend` is entered. Every edge is shared evenly by the transfers on it and
//! a transfer goes as fast as its narrowest share, so it finishes at the `f` with (eq. 6)
//!
//! ```text
//! b(1) g(m) = integral from e to f of  min over its edges of b(h) / count(edge, t)  dt
//! ```
//!
//! An `Irecv` finishes `L` after its `Isend`; a `Wait` leaves when its operation has finished. With no
//! contention this is PlogP: a message takes `g(m)`, and `L` more to arrive.
//!
//! A transfer whose last packets are dropped waits for TCP's retransmission time-out. That happens to
//! transfer `i`, at its finish time `f_i` without it, if there is a transfer `j` with (eq. 14)
//!
//! * the same destination (section III-B.3),
//! * on the way at that time, or within the jitter `J` of it: `e_j < f_i + J` and `f_i <= f_j + J`,
//! * `P_S`: the two come from different switches,
//! * `P_B`: enough bytes to fill the buffer of the port where they meet.
//!
//! Readings taken where the paper leaves room:
//!
//! * Edges are full duplex. `b(h+1)` is limited to `2 b(h)`. Shares that a transfer cannot use, because
//!   it is narrower elsewhere, are not given to others.
//! * `P_S(h, h+1)`, "the edges of height h and h+1 belong to different switches": in one switch `d` is
//!   the same and `b` doubles, so it holds if `ln²(b(h+1) / 2b(h)) + ln²(d(h+1) / d(h))` exceeds the
//!   switch tolerance. With Table II it holds for h = 1 and 4 and not for 2 and 3, as the paper says.
//!   Two transfers come from different switches if `P_S` holds anywhere between the heights of their
//!   common ancestors with the destination.
//! * `P_B(h, m)`: they meet on the way down at the port of height `h`, that of the lower ancestor; the
//!   queue there grows by no more than the smaller of the two, and each of the `2^(h-1)` nodes below
//!   has its share of the buffer: `b(1) g(m) > d(h) b(h) / 2^(h-1)`.
//! * The forms of `P_S` and `P_B` are reconstructed, from natural logarithms, a tolerance, a size above
//!   which time-outs begin, and the outcome for Table II.
//! * Finish times are decided in order. All transfers that qualify at the same instant, none of them
//!   being delayed, are delayed together: the worst case, which eq. 25 counts. The expectation delays
//!   one of them, drawn evenly.
//! * Data that ended at `f` no longer use the network while they wait for the time-out.
//!
//! What it lacks: the window and slow start of TCP, acknowledgments, losses that are repaired without
//! a time-out, and a second loss of the same message.

mod closed_form;
mod collective;
mod input;
mod network;
mod prediction;
mod program;
mod simulation;
mod state;
mod timeout;

pub use closed_form::{ClosedForm, closed_form, plogp};
pub use input::{
    CollectiveKind, GapPoint, Link, OpInput, Parameters, PlogptInput, ProgramInput, Receive, Send, Sharing,
};
pub use network::{Network, ParameterError};
pub use prediction::{Expectation, Operation, Operations, PlogptPrediction};
pub use program::{Op, Program, ProgramError};
pub use simulation::{OpTimes, Timeouts, Timing, simulate};
pub use state::Deadlock;

/// Why a prediction is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlogptError {
    /// The network makes no sense.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// The program makes no sense.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The program never ends.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
}

/// Predicts when every operation of a program is entered, left and finished.
///
/// # Errors
/// When the network or the program makes no sense, or the program never ends.
pub fn predict(input: &PlogptInput) -> Result<PlogptPrediction, PlogptError> {
    prediction::predict(input)
}

#[cfg(test)]
mod tests;
