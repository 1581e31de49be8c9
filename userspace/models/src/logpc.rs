//! LoGPC: LogGP with contention, in the network and for processors (Moritz and Frank, "LoGPC: Modeling
//! Network Contention in Message-Passing Programs", IEEE TPDS 12(4), 2001).
//!
//! All times are processor cycles. Symbols:
//!
//! ```text
//! o_s o_r  overhead of sending and receiving        L    latency without contention, to the first byte
//! G        gap per byte of a long message           G_m  gap per byte from the input queue to memory
//! B        message size in bytes                    a    bytes that arrive before the interrupt
//! n        dimensions of the k-ary n-cube           k_d  mean distance per dimension
//! m m_c    messages per node and cycle, without and with contention; T, T_c their inverses
//! C_n      network contention per message           C_r  contention for processors per cycle (LoPC)
//! ```
//!
//! **Messages without contention** (1), (2), (8), 5.1.3: [`message`].
//!
//! **Network** (3)–(7), (11), (14), [`network`]: Agarwal's M/G/1 model of a buffered k-ary n-cube with
//! dimension-ordered routing, closed by the program: what a message waits delays the next one, so that the
//! rate falls. B is in bytes there, a channel carrying a byte per cycle; G enters T and the end-to-end
//! times alone.
//!
//! **Traffic** (9), (10), (13), 5.1: [`predict`]. **Programs** (15), 5.1 to 5.3: [`application`].
//!
//! **Readings taken.** With B = 44 byte and k_d = 2 (neither is printed) Table 4 comes out. In request-reply
//! m = 2 / (LogP + C_n) with LogP the contention-free cycle: the paper does not say how C_n enters, this gives
//! its 23 and 499 while 1 / (LogP/2 + C_n) gives 21.4 and 495.9. One-way messages are an open load:
//! m = 1/(o_s + o_r), and C_n does not enter the cost (5.1.2). The printed bound of 2.22 needs k_d = 2.
//!
//! **What it lacks:** hot spots, finite buffers, traffic that is not spread evenly. [`crate::mesh`]
//! simulates the same network exactly; the two are compared there.

pub mod application;
pub mod input;
pub mod lopc;
pub mod message;
pub mod network;
mod prediction;
mod profile;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod published_tests;

pub use input::{Input, InputError, Kind, Parameters, Pattern};
pub use prediction::{Prediction, predict};
