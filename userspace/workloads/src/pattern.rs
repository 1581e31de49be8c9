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
//!
//! The [remap](remap) is that of Moritz and Frank 2001, on a mesh.

mod mesh;
mod programs;
pub mod remap;
mod synthetic;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

pub use self::{
    programs::Program,
    remap::{Remap, Remapped},
    synthetic::Exchange,
};
use crate::collective::{Algorithm, CollectiveError, Listening};

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Port of the synthetic programs.
const PORT: u16 = 7701;
/// Rounds of a collective before those that are timed.
const WARM_UP: u64 = 3;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Of datagrams that two processes exchange.
    Datagrams(Exchange),
    /// Of Split-C's kind.
    Mesh(Program),
    /// Values to all, by datagrams.
    Remap(Remap),
    /// Rounds of a collective, each begun when the one before is complete here.
    Rounds {
        /// Which.
        algorithm: Algorithm,
        /// How many, after some that open TCP's windows.
        rounds: u64,
        /// Bytes of each message.
        message: u64,
    },
}

impl Pattern {
    /// How many of so many hosts take part.
    #[must_use]
    pub fn processes(self, hosts: usize) -> usize {
        match self {
            Self::Datagrams(_) => 2,
            Self::Mesh(_) | Self::Remap(_) | Self::Rounds { .. } => hosts,
        }
    }

    /// The part of process `rank`, from 0, of those on the hosts with these addresses. The others may begin later.
    /// The second process of two that exchange datagrams measures nothing.
    ///
    /// # Errors
    /// When the others are not there, or a message is lost.
    pub fn run(self, rank: usize, addresses: &[IpAddr]) -> Result<Option<Outcome>, PatternError> {
        let outcome = match self {
            Self::Datagrams(exchange) => {
                let peer = SocketAddr::new(addresses[1], PORT);
                if rank > 0 {
                    return synthetic::second(exchange, peer).map(|()| None);
                }
                synthetic::first(exchange, peer)?
            }
            Self::Mesh(program) => programs::run(program, rank, addresses)?,
            Self::Remap(remap) => remap::run(&remap, rank, addresses)?,
            Self::Rounds {
                algorithm,
                rounds,
                message,
            } => {
                let mut process = Listening::new(rank)?.connect(addresses)?;
                let mut start = Instant::now();
                for round in 0..WARM_UP + rounds {
                    if round == WARM_UP {
                        start = Instant::now();
                    }
                    process.round(algorithm, message, Instant::now(), PATIENCE)?;
                }
                let run_time_s = start.elapsed().as_secs_f64();
                // Nobody hangs up before what it sent has come.
                process.settle(PATIENCE)?;
                Outcome {
                    run_time_s,
                    messages: rounds * (addresses.len() as u64 - 1),
                    failed_locks: None,
                    remap: None,
                }
            }
        };
        Ok(Some(outcome))
    }
}

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
    /// A collective.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The others are gone, or messages were lost.
    #[error("nothing has come from the other processes for {} s, or a connection is lost", PATIENCE.as_secs())]
    Silence,
    /// A value that is not one of those that should come here, or comes again.
    #[error("message {number} of process {from} came where it should not, twice, or with another value")]
    Misplaced {
        /// Its sender, from 0.
        from: usize,
        /// Its number there, from 0.
        number: u32,
    },
    /// A process without a neighbor.
    #[error("the perfect mapping pairs hosts, but their number is odd; take one more, or another mapping")]
    NoNeighbor,
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
    /// What a remap measured.
    #[serde(flatten)]
    pub remap: Option<Remapped>,
}
