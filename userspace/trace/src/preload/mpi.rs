//! MPI: point-to-point calls, completions, collectives, and what makes communicators; in C and in Fortran.
//!
//! The hooks of Fortran do not call those of C: libraries implement the former by the profiling interface,
//! which no hook sees.

mod abi;
mod call;
mod collectives;
mod communicators;
mod completions;
mod define;
mod messages;
mod shape;
