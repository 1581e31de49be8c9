//! The load generator against the embedded server, over loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod common;
mod failures;
mod mixes;
mod queueing;
mod rates;
mod safety;
