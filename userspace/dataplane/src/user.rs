//! The user pacer: packets wait in this process, for kernels without sch_fq.
//!
//! ```text
//! capture ──redirect──► TAP ──read──► departure queue ──write at its time──► TAP ──► perturb_release
//! ```
//!
//! There is a thread for every two processors, and each TAP has a queue for each thread, which `perturb_steer` chooses by the
//! hash of the flow: a flow has one thread, and keeps its order. The threads share nothing but the limit and the figures.
//! Departure times are absolute: the programs compute them, they travel in the place of the MAC addresses
//! ([`perturb_common::abi::Ticket`]), and oversleeping never adds up. Super-packets stay whole (`IFF_VNET_HDR`), so a packet
//! costs two system calls whatever its size.

mod figures;
mod held;
mod oversleep;
mod pacer;
mod processors;
mod queue;
mod tap;
mod turns;
mod worker;

pub(crate) use figures::Figures;
pub use figures::{TellWakeUp, ThreadStats, UserPacerStats};
pub(crate) use held::{Buffers, HEADER, Held};
pub use pacer::{SpinBudget, UserPacer, UserPacerError, usual_threads};
pub(crate) use queue::DepartureQueue;
pub(crate) use tap::Queue;
pub use tap::{Tap, TapError};
pub(crate) use worker::Course;
