//! Micro-benchmarks over real sockets: who sent what when, when it arrived, when it was read.
//!
//! ```text
//! Endpoint (socket + receiving thread)  ── trains, requests, answers ──►  Endpoint
//! ```
//!
//! Model: a datagram has four instants: `sent` (before the system call), `returned` (after it), `arrival` (the kernel's
//! stamp, taken when the packet enters the receiving host, before anything of that host handles it) and `read` (in the
//! program). The first two are of the sender's clock, the others of the receiver's; on one machine they are the same.
//! What is lacking: the kernel's stamp of the sending, and hardware stamps.

pub(crate) mod clock;
pub(crate) mod endpoint;
pub(crate) mod message;
pub(crate) mod stream;
