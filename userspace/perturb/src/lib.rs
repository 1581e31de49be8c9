//! The door of perturb: from a command line to an emulated network, a measurement, a prediction, and what they say.
//!
//! ```text
//! cli ──► apply, status ──► perturb-emulator (what is applied on this machine; private hosts)
//!   ├───► calibrate, measure ──► perturb-emulator, probe (sockets), estimate (pure)
//!   ├───► nfs, pattern, rto (perturb-workloads)
//!   ├───► sweep ──► perturb-emulator, and a directory of runs; sweep::report ──► stats, models
//!   ├───► predict, locality (perturb-models)
//!   └───► reproduce ──► the models, and the commands above as processes of their own
//! ```
//!
//! What results look like is in perturb-present.

#[macro_use]
mod say;

mod apply;
pub mod calibrate;
pub mod cli;
pub mod estimate;
pub mod locality;
pub mod measure;
pub mod nfs;
pub mod pattern;
pub mod predict;
pub mod probe;
pub mod reproduce;
pub mod rto;
pub mod sweep;
pub mod trace;
mod voice;
