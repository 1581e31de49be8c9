//! The events of unmodified programs, as the what-if model reads them.
//!
//! What is preloaded into the programs (LD_PRELOAD, [`preload`]) sees their calls of MPI and of sockets and writes a
//! [record](record::Record) of each into memory that it shares with the collector, which makes the trace of them.
//!
//! ```text
//! program ──► hook ──► the library's own function
//!               └────► ring in shared memory, one per process (spool)
//!                        ├──► assembler ──► file of JSON lines, and whoever connects (serve)
//!                        └──► sent to another machine (wire) ──► merge: the assembler and what follows it
//! ```
//!
//! This crate is compiled twice: as it is, and by its build script, with `cfg(interpose)`, as the shared object, of
//! which [`preload`] and [`record`] are a part and which has no dependencies.
//!
//! **Model.** A thread that communicates is a process of the what-if model. CPU time is that of the
//! thread (CLOCK_THREAD_CPUTIME_ID). CPU time inside MPI calls is left out: MPI waits by polling, and what
//! the calls themselves take is in the look-up table of message times, which is measured with the same
//! calls. CPU time inside socket calls counts.
//!
//! **Why a ring:** no system call, lock or allocation per event, so a hook may run in a signal handler, and
//! what was recorded survives the program's death, by whatever signal. When the ring is full, the program
//! waits for the collector; when the collector is gone, it goes on without tracing.
//!
//! **What it lacks:** one-sided communication, MPI I/O, system calls that do not go through the C library's
//! exported functions (static programs, stdio on sockets, io_uring), and what makes one thread wait for
//! another.

#[cfg(not(interpose))]
mod address;
#[cfg(not(interpose))]
mod alive;
#[cfg(not(interpose))]
mod assembler;
#[cfg(not(interpose))]
mod collective;
#[cfg(not(interpose))]
mod line;
#[cfg(not(interpose))]
mod merge;
#[cfg_attr(
    not(interpose),
    allow(
        dead_code,
        reason = "only the shared object has callers for the hooks: other programs"
    )
)]
mod preload;
#[cfg(not(interpose))]
mod ranks;
mod record;
#[cfg(not(interpose))]
mod run;
#[cfg(not(interpose))]
mod serve;
#[cfg(not(interpose))]
mod spool;
#[cfg(not(interpose))]
mod streams;
#[cfg(not(interpose))]
mod summary;
#[cfg(not(interpose))]
mod wire;

#[cfg(not(interpose))]
pub use crate::{
    address::{Address, AddressError},
    assembler::ProcessReport,
    merge::merge,
    run::{Layer, Options, Report, TraceError, sent, traced, untraced},
    spool::SpoolError,
    summary::{SummaryError, summarize},
    wire::FrameError,
};
