//! What would this program take, placed otherwise or on another network? The load balancing factor
//! (LBF) and network factor (NF) of Eom and Hollingsworth (2000), computed online from the events of
//! one run.
//!
//! **Model.** The processes of a *group* share one processor, in equal parts among those that compute
//! (fair round robin with an infinitesimal quantum). An event is the end of a stretch of computing:
//! it carries the CPU time since the process's previous event. A message arrives its look-up time
//! after its send: the local table between processes of a group, else the remote one (NF). An
//! `end_recv` is over when its message has arrived and its own CPU time is spent.
//!
//! **Events** of a process are *queued* behind its *current* one; a current `end_recv` whose send has
//! not been reported is *pending*; at its predicted time an event is *reported* and freed. Only the
//! earliest event of all processes is reported, and only while every process that has not exited has
//! a current event (fig. 2 and 5), so the prediction never has to be taken back. Hence memory is
//! bounded by what is pending: events that arrived ahead of the slowest process, and messages on
//! their way. Beyond the paper, a process whose `start_recv` names its message needs no event until
//! that message has been sent: it can do nothing before.
//!
//! **Scheduler** (optional, not the paper's): round robin with a quantum of some length instead, see
//! [`round_robin`].
//!
//! **Symbols** (fig. 5): *group time*, the predicted clock of a processor; *remaining*, CPU time left
//! until the event; *earliest*, when it would be reported if nothing else happened; *wait*, the time
//! until the message arrives, below zero once the process waits for it.
//!
//! **Readings taken.** Message time is added to the send time. The wait of a current `end_recv` is
//! lowered too while its group computes (fig. 2 lowers pending ones only). A group's clock never runs
//! backwards. CPU time given on an `end_recv` is charged after the message is there. The program's
//! time is the largest group time. Keep-alives carry the CPU time since the process's previous event
//! and are reported like a stretch of computing: they let the others proceed.
//!
//! **Bus** (section 4): one FIFO server that every message between groups passes, in the order in
//! which the sends are reported; it is the [`perturb_common::departure`] recursion. The remote table
//! applies behind it.
//!
//! **What it lacks:** memory and cache effects of a placement, competing load, the senders' blocking
//! (a send costs what CPU time the trace saw), several processors per group.

pub mod bus;
pub mod engine;
pub mod event;
mod few;
pub mod input;
pub mod line;
pub mod placement;
mod processor;
mod profile;
pub mod round_robin;
mod schedule;
mod shares;
pub mod snapshot;
pub mod suggest;
pub mod table;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod published_tests;
#[cfg(test)]
mod reading_tests;
#[cfg(test)]
mod scheduler_tests;

pub use engine::{Counters, Prediction, PredictionError, Predictor, Report};
pub use event::{Event, Kind, MessageId};
pub use input::{Scenario, ScenarioError};
pub use line::{LineError, LineReader};
pub use placement::Placement;
