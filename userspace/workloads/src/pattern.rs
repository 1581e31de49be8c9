//! Programs of known communication.
//!
//! Two kinds. The *synthetic* ones exchange exactly the datagrams that they are told to, between two processes, so that
//! the LogGP models' coefficients are known beforehand:
//!
//! | program | messages on the critical path | run time on a slow network |
//! |---|---|---|
//! | `reads` of R reads | m = 2R, one after another | grows by 2m Δo, m Δg, 2R ΔL |
//! | `burst` of m | m, at once | grows by m Δg |
//! | `paced` of m, one per interval I | m | max(I, g) m |
//!
//! The *patterns* stand for the Split-C programs of Martin 1999, chapter 3, over TCP between any number of processes:
//! blocking reads (EM3D(read)), pipelined writes (EM3D(write)), all-to-all with short messages (Radix) and in bulk
//! (Sample), and task queues from which idle processes steal under a lock (Barnes).
//! What they lack: the computation. They are all communication, so they are more sensitive than what they stand for.

pub mod mesh;
pub mod programs;
pub mod synthetic;

use std::{io, time::Duration};

/// How long nothing may happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Why a program ended early.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// A socket.
    #[error("{action}: {source}")]
    Socket {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The others are gone, or messages were lost.
    #[error("nothing has come from the other processes for {} s, or a connection is lost", PATIENCE.as_secs())]
    Silence,
    /// A message that no process sends.
    #[error("process {from} sent a message of the unknown kind {kind}")]
    Unknown {
        /// Its sender, from 0.
        from: usize,
        /// The kind.
        kind: u8,
    },
}

pub(crate) fn socket<T>(action: &'static str, result: io::Result<T>) -> Result<T, PatternError> {
    result.map_err(|source| PatternError::Socket { action, source })
}

/// What a process did, the first one's standing for all.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// From the start, which all processes wait for, to the end of the last.
    pub run_time_s: f64,
    /// Messages that this process sent.
    pub messages: u64,
    /// Locks that were asked for in vain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_locks: Option<u64>,
}
