//! The controller of perturb: from a YAML profile to an emulated network and back.
//!
//! ```text
//! cli ──► controller ──► registry (what is applied on this machine)
//!   │         └────────► perturb-dataplane (programs, maps, devices)
//!   └───► lab (private hosts) ──► controller
//! ```

pub mod cli;
pub mod controller;
pub mod home;
pub mod lab;
pub mod nfs;
pub mod registry;
pub mod report;
