//! The controller of perturb: from a YAML profile to an emulated network and back.
//!
//! ```text
//! cli ──► controller ──► registry (what is applied on this machine)
//!   │         └────────► perturb-dataplane (programs, maps, devices)
//!   ├───► lab (private hosts) ──► controller
//!   ├───► nfs, rto (perturb-workloads)
//!   └───► predict, locality (perturb-models)
//! ```

pub mod cli;
pub mod controller;
pub mod lab;
pub mod locality;
pub mod nfs;
pub mod page;
pub mod predict;
pub mod registry;
pub mod report;
pub mod rto;
