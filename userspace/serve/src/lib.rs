//! HTTP beside an emulation, from the process that keeps it up.
//!
//! ```text
//! address ──► Listeners (before anything is emulated) ──► Server (a thread of its own) ──► GET /metrics
//! record ───► Socket (root's, or a group's) ───────────►   │        │
//!                                                          │        └──► status::Report, read from the maps when it is asked for
//!                              session::Handle (errands) ◄─┘ profile, pause, confirm
//! ```
//!
//! Another process asks through a [`Client`], whichever command it is.
//!
//! The thread shares nothing with the one that renews the lease, and runs at a lower priority than all others: however much is
//! asked of it, and however slowly that is read, costs only those who ask.

#![warn(missing_docs)]

mod api;
mod client;
mod metrics;
mod problem;
mod server;
mod socket;

pub use self::{
    api::{Controls, Event, Events, events, openapi},
    client::{AskError, Client},
    metrics::{Form, exposition},
    server::{Listeners, Server},
    socket::sweep,
};
