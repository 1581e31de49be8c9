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
//! *Plain* reads and writes go over TCP between any number of processes, and so do the rounds of a collective. All are
//! communication and nothing else; programs that compute are those of [`split_c`](crate::split_c).
//!
//! The [remap](remap) and the [Diamond DAG](diamond) are those of Moritz and Frank 2001, on a mesh.

pub mod diamond;
mod plain;
pub mod remap;
mod synthetic;

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

pub use self::{
    diamond::Diamond,
    plain::Plain,
    remap::{Remap, Remapped},
    synthetic::Exchange,
};
use crate::{
    collective::{Algorithm, CollectiveError, Listening},
    mesh::{MeshError, PATIENCE},
};

/// Port of the synthetic programs.
const PORT: u16 = 7701;
/// Rounds of a collective before those that are timed.
const WARM_UP: u64 = 3;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Of datagrams that two processes exchange.
    Datagrams(Exchange),
    /// Reads or writes over TCP.
    Plain(Plain),
    /// Values to all, by datagrams.
    Remap(Remap),
    /// A table in stripes, block after block.
    Diamond(Diamond),
    /// Rounds of a collective, each begun when the one before is complete here.
    Rounds {
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
            Self::Plain(_) | Self::Remap(_) | Self::Diamond(_) | Self::Rounds { .. } => hosts,
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
                    synthetic::second(exchange, peer)?;
                    return Ok(None);
                }
                synthetic::first(exchange, peer)?
            }
            Self::Plain(plain) => plain::run(plain, rank, addresses)?,
            Self::Remap(remap) => remap::run(&remap, rank, addresses)?,
            Self::Diamond(dag) => diamond::run(&dag, rank, addresses)?,
            Self::Rounds {
                algorithm,
                rounds,
                message,
            } => {
                let mut process = Listening::new(rank)?.connect(addresses)?;
                let steps = algorithm.steps(rank, addresses.len(), message);
                let mut start = Instant::now();
                for round in 0..WARM_UP + rounds {
                    if round == WARM_UP {
                        start = Instant::now();
                    }
                    process.round(&steps, Instant::now(), PATIENCE)?;
                }
                let run_time_s = start.elapsed().as_secs_f64();
                // Nobody hangs up before what it sent has come.
                process.settle(PATIENCE)?;
                Outcome {
                    run_time_s,
                    messages: rounds * (addresses.len() as u64 - 1),
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
    /// A process, or its connection.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// A collective.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// A value that is not one of those that should come here, or comes again.
    #[error(
        "message {number} of process {from} came where it should not, twice, out of order, or with another value"
    )]
    Misplaced {
        /// Its sender, from 0.
        from: usize,
        /// Its number there, from 0.
        number: u32,
    },
    /// A message that would become several packets.
    #[error(
        "a message of {message} bytes is more than the {most} that a packet here carries; take a shorter one, or --style long"
    )]
    TooLong {
        /// Its bytes.
        message: u64,
        /// What a packet carries.
        most: u64,
    },
    /// A process without a neighbor.
    #[error("the perfect mapping pairs hosts, but their number is odd; take one more, or another mapping")]
    NoNeighbor,
}

/// What a process did, the first one's standing for all.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// From the start, which all processes wait for, to the end of the last.
    pub run_time_s: f64,
    /// Messages that this process sent.
    pub messages: u64,
    /// What a remap measured.
    #[serde(flatten)]
    pub remap: Option<Remapped>,
}
