//! Instruments of the end-to-end tests, the demo and the comparison with other emulators.
//!
//! ```text
//! bed         two or more hosts in network namespaces, joined by veth pairs
//! product     the perturb executable under test: apply, status, clear
//! emulation   what is put between the hosts: nothing, netem, plain EDT+fq (edt), or perturb with one of its pacers
//! answers     requests and their answers, as a program sees them
//! datagrams   UDP: when each packet was sent and when it arrived
//! order       several flows of numbered datagrams at once, a processor for each sender
//! streams     TCP and UDP: bytes that arrived in a window of time
//! comparison  the same measurements with each emulator
//! frames      raw Ethernet frames, for what sockets do not send
//! processors  which processor does what
//! slice       how long a processor's time slices are
//! remains     what a finished emulation must not leave
//! ```
//!
//! The hosts share this machine's CLOCK_MONOTONIC, so one-way delays are measured directly. What sockets and
//! scheduler add is in every measurement, the control without emulation included, which is why every result
//! stands beside such a control. Nothing here knows how perturb works inside; only [`remains`] knows the names of
//! what it makes.

pub use perturb_clock as clock;

pub mod answers;
pub mod bed;
pub mod bystander;
pub mod comparison;
pub mod datagrams;
pub mod edt;
pub mod emulation;
pub mod kernel;
pub mod measure;
pub mod order;
pub mod processors;
pub mod product;
pub mod remains;
pub mod slice;
pub mod streams;
