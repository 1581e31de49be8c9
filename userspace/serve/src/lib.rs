//! HTTP beside an emulation, from the process that keeps it up.
//!
//! ```text
//! address ──► Listener (before anything is emulated) ──► Server (a thread of its own) ──► GET /metrics
//!                                                                 │
//!                            perturb_emulator::status::Report ◄───┘ read from the maps when it is asked for
//! ```
//!
//! The thread shares nothing with the one that renews the lease, and runs at a lower priority than all others: however much is
//! asked of it, and however slowly that is read, costs only those who ask.

#![warn(missing_docs)]

mod metrics;
mod problem;
mod server;

pub use self::{
    metrics::{Form, exposition},
    server::{Listener, Server, own},
};
