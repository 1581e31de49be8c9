//! The user pacer: packets wait in this process, for kernels without sch_fq.
//!
//! ```text
//! capture ──redirect──► TAP ──read──► departure queue ──write at its time──► TAP ──► perturb_release
//! ```
//!
//! One thread serves the TAPs of all interfaces. Departure times are absolute: the programs compute
//! them, they travel in the place of the MAC addresses ([`perturb_common::abi::Ticket`]), and
//! oversleeping never adds up. Super-packets stay whole (`IFF_VNET_HDR`), so a packet costs two system
//! calls whatever its size.

mod oversleep;
mod queue;
mod tap;
mod thread;
mod turns;

pub use tap::{Tap, TapError};
pub use thread::{SpinBudget, TellWakeUp, UserPacer, UserPacerError, UserPacerStats};
