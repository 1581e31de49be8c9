//! LoGPC: LogGP with contention, in the network and for processors (Moritz and Frank, "LoGPC: Modeling
//! Network Contention in Message-Passing Programs", IEEE TPDS 12(4), 2001).
//!
//! All times are processor cycles. Symbols:
//!
//! ```text
//! o_s o_r  overhead of sending and receiving        L  latency without contention, one way
//! G        gap per byte (a channel's time per byte)  B  message size; b = B G its channel time
//! n        dimensions of the k-ary n-cube            k_d  mean distance per dimension
//! m        messages per node and cycle               C_n  network contention per message
//! C_r      contention for processors per cycle of the program (LoPC)
//! ```
//!
//! **Messages without contention** (1), (2), [`message`]: o_s + L + o_r for a short one; a long one
//! leaves the sender after o_s while the DMA engine moves it, o_s + b + L + o_r end to end, and messages
//! in a row are a pipeline whose stages are o_s, b and o_r.
//!
//! **Network** (3)–(7), [`network`]: Agarwal's M/G/1 model of a buffered k-ary n-cube with dimension-ordered
//! routing, closed by the program: what a message waits delays the next one, so that the rate falls.
//!
//! **Readings taken.** A channel moves one byte per cycle where `gap_per_byte` is absent; with B = 44 byte
//! and k_d = 2 (neither is printed) Table 4 comes out. In request-reply m = 2 / (LogP + C_n) with LogP
//! the contention-free cycle: the paper does not say how C_n enters, this gives its 23 and 499 while
//! 1 / (LogP/2 + C_n) gives 21.4 and 495.9. One-way messages are an open load: m = 1/(o_s + o_r), and C_n
//! does not enter the cost. In bulk, T is the slowest stage of the DMA pipeline and T_c = T + C_n the
//! interval that the network allows: (13), and its greatest value over T, (14), is 2.22 for n = 2, k_d = 2.
//!
//! **What it lacks:** hot spots, finite buffers, traffic that is not spread evenly. [`crate::mesh`]
//! simulates the same network exactly; the two are compared there.

pub mod application;
pub mod input;
pub mod lopc;
pub mod message;
pub mod network;
mod prediction;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod published_tests;

pub use input::{Input, InputError, Kind, Parameters, Pattern};
pub use prediction::{Prediction, predict};
