//! The load generator against the embedded server, over loopback.

mod common;
mod failures;
mod mixes;
mod queueing;
mod rates;
mod safety;
