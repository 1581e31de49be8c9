//! The laboratory: what measures on an emulated network or a real path, and what judges the results.
//!
//! ```text
//! calibrate, measure ──► probe (sockets), estimate (parameters from samples, pure)
//! sweep ───► programs on private hosts, a directory of runs ──► sweep::report ──► perturb-stats, perturb-models
//! nfs, rto ► perturb-workloads on private hosts, beside the predictions of perturb-models
//! carry ───► what this machine carries, beside what a profile asks for
//! tcp ─────► the same, beside what the profile's servers could carry
//! ```
//!
//! An experiment takes plain options, works in a session of perturb-emulator, tells how it gets on by a [`LiveLine`] that its
//! caller has made, and gives values. Values become text by [`Display`](std::fmt::Display) and JSON by serde; pages, tables and
//! charts are files beside the raw results.
//!
//! What is absent: no command line, no standard output, no exit code. Messages go to [`log`].
//!
//! [`LiveLine`]: perturb_present::LiveLine

pub mod calibrate;
pub mod carry;
mod estimate;
mod hosts;
mod judged;
pub mod machine;
pub mod measure;
pub mod nfs;
mod probe;
pub mod rto;
pub mod sweep;
pub mod tcp;

pub use judged::Judged;
