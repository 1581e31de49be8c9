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
//! `b_c(C, t)` is the rate of transfer `C`, the integrand. A transfer whose last packets are dropped waits for
//! TCP's retransmission time-out. That happens to transfer `O`, at its finish time `f` without it, if there
//! is another transfer `O'` with (eq. 14)
//!
//! * the same destination (section III-B.3, left out of eq. 14),
//! * a start near that end: `|e' - f| < J`,
//! * `P_S(h, h')`, there are switches between the heights of the two (eq. 5, on these two heights, `h <= h'`):
//!   `ln^2(2^(h'-h) b(h) / b(h')) + ln^2(d(h) / d(h')) > switch_tolerance`,
//! * `P_B(O)`, the message fills the buffers on its way (eq. 8, 9): `d(h) b_c(O, f) < m`.
//!
//! The height of a transfer is that of its ends' common ancestor. `P_B` looks at `O` alone.
//!
//! Readings taken where the paper leaves room:
//!
//! * Edges are full duplex. `b(h+1)` is limited to `2 b(h)`. Shares that a transfer cannot use, because
//!   it is narrower elsewhere, are not given to others.
//! * `b_c(O, f)` is the rate in the last moment before the end. Logarithms are natural.
//! * Finish times are decided in order. All transfers that qualify at the same instant, none of them
//!   being delayed, are delayed together: the worst case, which eq. 25 counts. The expectation delays
//!   one of them, drawn evenly.
//! * Data that ended at `f` no longer use the network while they wait for the time-out.
//!
//! [`Competitors::Overlapping`] is an alternative of ours: there `O'` may also be merely on its way when `O` ends
//! (`e' < f + J` and `f <= f' + J`). By eq. 14 a gather, whose transfers all start at 0, has no time-out; switches
//! do drop there.
//!
//! What it lacks: the window and slow start of TCP, acknowledgments, losses that are repaired without
//! a time-out, and a second loss of the same message.

mod closed_form;
mod collective;
mod input;
mod parameters;
mod prediction;
mod profile;
mod program;
mod simulation;
mod state;
mod timeout;

pub use closed_form::{ClosedForm, closed_form, plogp};
pub use input::{
    CollectiveKind, Competitors, GapPoint, Link, OpInput, Parameters, PlogptInput, ProgramInput, Receive,
    Send, Sharing,
};
pub use parameters::{Network, ParameterError};
pub use prediction::{Expectation, Operation, Operations, PlogptPrediction};
pub use profile::{Beside, FromProfile, OnProfile, Traffic, from_profile};
pub use program::{Op, Program, ProgramError};
pub use simulation::{OpTimes, Timeouts, Timing, simulate};
pub use state::Deadlock;

use crate::route::RouteError;

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
    /// A profile does not say what the model needs.
    #[error(transparent)]
    Profile(#[from] RouteError),
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
