//! What the eBPF programs and the controller share: units, the departure recursion, the random
//! draws, and the wire types (ABI) of the maps between them.
//!
//! Everything here is pure, `no_std`, free of floats and of panics: the same code runs in the
//! kernel, in the predictors and in ordinary host tests, so emulation and prediction cannot drift
//! apart. Nothing here reads a clock or a map.
#![warn(missing_docs)]
#![no_std]

pub mod abi;
pub mod collisions;
pub mod departure;
pub mod ends;
pub mod fate;
pub mod flow;
pub mod framing;
pub mod grants;
pub mod instance;
pub mod lead;
pub mod memory;
pub mod network;
pub mod priorities;
pub mod queue;
pub mod shared;
pub mod slots;
pub mod steps;
#[cfg(feature = "alloc")]
pub mod tables;
pub mod ticks;
pub mod ties;
pub mod timeline;
pub mod units;
pub mod word;

#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod tests;
