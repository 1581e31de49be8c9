//! The eBPF programs in this machine's kernel, on packets made by hand (`BPF_PROG_TEST_RUN`).
//!
//! Each test has a network namespace of its own ([`support::Rig`]). Those that measure, or want all processors, are programs of
//! their own: `cost`, `concurrency`, `overhead`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod classification;
mod collisions;
mod departure;
mod fate;
mod grants;
mod interface;
mod legs;
mod load;
mod malformed;
mod native;
mod network;
mod queue;
mod room;
mod sight;
mod support;
mod timeline;
mod tunnels;
