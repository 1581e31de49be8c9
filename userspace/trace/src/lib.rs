//! What `perturb trace` preloads into unmodified programs (LD_PRELOAD): it sees their calls of MPI and of
//! sockets and writes a record of each into memory that it shares with the collector.
//!
//! ```text
//! program ──► hook ──► the library's own function
//!               └────► ring in shared memory ──► collector (`perturb trace`): JSON lines
//! ```
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

#![cfg_attr(
    not(feature = "interpose"),
    allow(
        dead_code,
        reason = "only the shared object has callers for the hooks: other programs"
    )
)]

mod hook;
mod mpi;
mod process;
pub mod record;
mod sockets;
mod sys;
mod writer;

/// The environment variable that names the directory in which rings are made.
pub const DIRECTORY_VARIABLE: &str = "PERTURB_TRACE_DIRECTORY";
/// The environment variable that says what is traced: `mpi`, `sockets`, or anything else for MPI where a
/// program uses it and sockets where not.
pub const LAYER_VARIABLE: &str = "PERTURB_TRACE_LAYER";
