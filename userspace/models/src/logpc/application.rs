//! The paper's three applications.
//!
//! ```yaml
//! application: {name: all-to-all, elements: 4096, processors: 32}
//! application: {name: diamond-dag, size: 1024, processors: 32, point: 10cycles, bytes_per_point: 8B, blocks: 16}
//! application: {name: em3d, nodes: 1000, degree: 10, remote: 0.2, edge: 20cycles, iterations: 100}
//! ```
//!
//! **All-to-all remap.** Each of P processors sends its n/P elements to their new owners, one message
//! each, (P - 1)/P of them over the network: n/P (P-1)/P cycles of the pattern.
//!
//! **Diamond DAG.** N x N points, each needing its left and upper neighbor. Processor p owns N/P columns
//! and computes them in x blocks of N/x rows; after each block it sends the block's last column to p+1. The
//! pipeline has P + x - 1 steps:
//!
//! ```text
//! T(x) = (P + x - 1)(N^2 c / (P x) + o_s + o_r + C_n) + (P - 1)(L + b(x)),   b(x) = (N/x) bytes G
//! ```
//!
//! Many small blocks fill the pipeline soon but pay the overhead often. Without contention the best
//! number is x = sqrt((P - 1)(N^2 c/P + N bytes G) / (o_s + o_r)); with it every x from 1 to N is tried.
//! C_n is that of one message per step, a closed load; between neighbors (k_d = 1) it is zero.
//!
//! **EM3D.** Each processor has a number of graph nodes of some degree; an iteration updates each node from
//! its neighbors, of which a share is remote and fetched by the pattern's messages: work between two messages
//! is (local work)/(messages), so the more local the graph, the lower the load.
//!
//! Readings taken: the paper describes the programs in prose; these are the sums that its description and
//! LogGP's rules give. The pattern's `work` is not used with an application.

use perturb_quantity::{ByteSize, Cycles};
use serde::{Deserialize, Serialize};

use super::input::{Kind, Parameters};
use super::message::LogGp;
use super::prediction::{Prediction, predict};

/// One of the programs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Application {
    /// Every processor sends to every other.
    AllToAll {
        /// n, over all processors.
        elements: u64,
        /// P.
        processors: u64,
    },
    /// A pipeline over a square of points.
    DiamondDag {
        /// N, points per side.
        size: u64,
        /// P.
        processors: u64,
        /// c, cycles per point.
        point: Cycles,
        /// Bytes that a point sends.
        #[serde(default = "word")]
        bytes_per_point: ByteSize,
        /// x, the number of blocks; the best if absent.
        #[serde(default)]
        blocks: Option<u64>,
    },
    /// Electromagnetic waves on a bipartite graph.
    Em3d {
        /// Graph nodes per processor.
        nodes: u64,
        /// Neighbors of a node.
        degree: u64,
        /// Share of the neighbors that are on other processors, from 0 to 1.
        remote: f64,
        /// Cycles per neighbor.
        edge: Cycles,
        /// Iterations.
        #[serde(default = "once")]
        iterations: u64,
    },
}

fn word() -> ByteSize {
    ByteSize(8.0)
}

fn once() -> u64 {
    1
}

/// An application that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ApplicationError {
    /// A count of zero, or more processors than points.
    #[error("application.{key}: {value}; allowed: {allowed}")]
    Range {
        /// The key.
        key: &'static str,
        /// As given.
        value: f64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Bulk messages in a program of short ones.
    #[error("application.{name}: its messages are short; use pattern.kind request-reply or one-way")]
    Kind {
        /// The program.
        name: &'static str,
    },
}

/// What a program takes, in cycles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApplicationTime {
    /// The program.
    pub name: &'static str,
    /// Without contention.
    pub logp_cycles: f64,
    /// With contention for processors and in the network.
    pub logpc_cycles: f64,
    /// Messages that a processor sends.
    pub messages: f64,
    /// C_n per message; absent where an open load saturates the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_contention_cycles: Option<f64>,
    /// Diamond DAG: the number of blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// Diamond DAG: whether that number was chosen as the best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimal: Option<bool>,
}

impl Application {
    /// Checks the numbers.
    pub(super) fn check(&self, kind: Kind) -> Result<(), ApplicationError> {
        let range = |key, value: u64, least: u64, allowed| {
            if value >= least {
                Ok(())
            } else {
                Err(ApplicationError::Range {
                    key,
                    value: value as f64,
                    allowed,
                })
            }
        };
        match *self {
            Self::AllToAll { elements, processors } => {
                range("elements", elements, 1, "1 and up")?;
                range("processors", processors, 2, "2 and up")?;
                if kind == Kind::Bulk {
                    return Err(ApplicationError::Kind { name: "all-to-all" });
                }
            }
            Self::DiamondDag {
                size,
                processors,
                blocks,
                ..
            } => {
                range("size", size, 1, "1 and up")?;
                range("processors", processors, 1, "1 and up")?;
                if processors > size {
                    let value = processors as f64;
                    return Err(ApplicationError::Range {
                        key: "processors",
                        value,
                        allowed: "up to `size`",
                    });
                }
                if let Some(blocks) = blocks.filter(|blocks| *blocks == 0 || *blocks > size) {
                    let value = blocks as f64;
                    return Err(ApplicationError::Range {
                        key: "blocks",
                        value,
                        allowed: "1 to `size`",
                    });
                }
                if size > MAX_SIZE {
                    return Err(ApplicationError::Range {
                        key: "size",
                        value: size as f64,
                        allowed: "up to 2^24",
                    });
                }
            }
            Self::Em3d {
                nodes,
                degree,
                remote,
                iterations,
                ..
            } => {
                range("nodes", nodes, 1, "1 and up")?;
                range("degree", degree, 1, "1 and up")?;
                range("iterations", iterations, 1, "1 and up")?;
                if !(0.0..=1.0).contains(&remote) {
                    return Err(ApplicationError::Range {
                        key: "remote",
                        value: remote,
                        allowed: "0 to 1",
                    });
                }
                if kind == Kind::Bulk {
                    return Err(ApplicationError::Kind { name: "em3d" });
                }
            }
        }
        Ok(())
    }
}

/// Larger squares would make trying every number of blocks slow.
const MAX_SIZE: u64 = 1 << 24;

/// What the application of the parameters takes, if there is one.
#[must_use]
pub fn time(parameters: &Parameters) -> Option<ApplicationTime> {
    match *parameters.application.as_ref()? {
        Application::AllToAll { elements, processors } => {
            let (elements, processors) = (elements as f64, processors as f64);
            let messages = elements / processors * (processors - 1.0) / processors;
            Some(repeated("all-to-all", parameters, 0.0, messages))
        }
        Application::Em3d {
            nodes,
            degree,
            remote,
            edge,
            iterations,
        } => {
            let edges = nodes as f64 * degree as f64 * iterations as f64;
            Some(repeated("em3d", parameters, edges * edge.0, edges * remote))
        }
        Application::DiamondDag {
            size,
            processors,
            point,
            bytes_per_point,
            blocks,
        } => {
            let dag = Dag {
                parameters,
                size: size as f64,
                processors: processors as f64,
                point: point.0,
                // The channel's time per byte is that of the pattern's message.
                channel_per_row: bytes_per_point.0 * parameters.message.channel / parameters.bytes,
            };
            let chosen = blocks.unwrap_or_else(|| dag.best());
            Some(ApplicationTime {
                name: "diamond-dag",
                logp_cycles: dag.time(chosen as f64, false),
                logpc_cycles: dag.time(chosen as f64, true),
                messages: chosen as f64,
                network_contention_cycles: Some(dag.contention(chosen as f64)),
                blocks: Some(chosen),
                optimal: Some(blocks.is_none()),
            })
        }
    }
}

/// `messages` cycles of the pattern with the work spread between them.
fn repeated(name: &'static str, parameters: &Parameters, work: f64, messages: f64) -> ApplicationTime {
    let mut parameters = parameters.clone();
    parameters.pattern.work = if messages > 0.0 { work / messages } else { 0.0 };
    let Prediction {
        logp_cycles,
        logpc_cycles,
        network_contention_cycles,
        ..
    } = predict(&parameters);
    let (logp_cycles, logpc_cycles) = if messages > 0.0 {
        (logp_cycles * messages, logpc_cycles * messages)
    } else {
        (work, work)
    };
    ApplicationTime {
        name,
        logp_cycles,
        logpc_cycles,
        messages,
        network_contention_cycles,
        blocks: None,
        optimal: None,
    }
}

struct Dag<'p> {
    parameters: &'p Parameters,
    size: f64,
    processors: f64,
    point: f64,
    channel_per_row: f64,
}

impl Dag<'_> {
    /// One step without contention: a block's points and its message's overheads.
    fn step(&self, blocks: f64) -> f64 {
        let LogGp { send, receive, .. } = self.parameters.message;
        self.size * self.size * self.point / (self.processors * blocks) + send + receive
    }

    fn contention(&self, blocks: f64) -> f64 {
        let channel = self.channel_per_row * self.size / blocks;
        self.parameters.network.closed(1.0, self.step(blocks), channel)
    }

    fn time(&self, blocks: f64, contended: bool) -> f64 {
        let contention = if contended { self.contention(blocks) } else { 0.0 };
        let fill = self.parameters.message.latency + self.channel_per_row * self.size / blocks;
        (self.processors + blocks - 1.0) * (self.step(blocks) + contention) + (self.processors - 1.0) * fill
    }

    /// The number of blocks of least time, by trying all.
    fn best(&self) -> u64 {
        let mut best = (f64::INFINITY, 1);
        for blocks in 1..=self.size as u64 {
            let time = self.time(blocks as f64, true);
            if time < best.0 {
                best = (time, blocks);
            }
        }
        best.1
    }
}
