//! The controller of perturb: from a YAML profile to an emulated network and back.
//!
//! ```text
//! cli ──► controller ──► registry (what is applied on this machine)
//!   │         └────────► perturb-dataplane (programs, maps, devices)
//!   ├───► lab (private hosts) ──► controller
//!   ├───► calibrate, measure ──► lab, probe (sockets), estimate (pure)
//!   ├───► nfs, pattern, rto (perturb-workloads)
//!   ├───► sweep ──► lab, and a directory of runs; sweep::report ──► stats, models
//!   └───► predict, locality (perturb-models)
//! ```
//!
//! What results look like is in perturb-present.

#[macro_use]
mod say;

pub mod calibrate;
pub mod cli;
pub mod controller;
pub mod estimate;
pub mod flows;
pub mod lab;
pub mod locality;
mod logs;
pub mod measure;
pub mod nfs;
pub mod pattern;
pub mod predict;
pub mod privileges;
pub mod probe;
pub mod registry;
pub mod report;
pub mod rto;
mod signals;
pub mod sweep;
pub mod told;
pub mod trace;
mod voice;
