//! The paper's three applications (section 5).
//!
//! ```yaml
//! application: {name: all-to-all, elements: 4096, processors: 32}
//! application: {name: diamond-dag, size: 1024, processors: 32, point: 100cycles, aggregation: 20cycles, bytes_per_point: 8B}
//! application: {name: em3d, nodes: 100, degree: 32, remote: 1, edge: 20cycles, values_per_message: 10, iterations: 100}
//! ```
//!
//! **All-to-all remap** (5.1). Each of P processors sends its n/P elements to their new owners, one message
//! each, (P - 1)/P of them over the network: n/P (P-1)/P cycles of the pattern, its work included. For
//! long messages a cycle is T, with contention T_c.
//!
//! **Diamond DAG** (5.2): see [`dag`].
//!
//! **EM3D** (5.3). Each iteration updates every node of a graph from its neighbors, a share of which is
//! remote; their values travel in blocks before the computation. A processor's messages are one-way and
//! short, so that it pays o_s + o_r for each and C_n for none:
//!
//! ```text
//! messages = iterations ceil(nodes degree remote / values_per_message)
//! time     = iterations nodes degree edge + messages (o_s + o_r)
//! ```

mod dag;

use perturb_quantity::{ByteSize, Cycles};
use serde::{Deserialize, Serialize};

use super::input::{Kind, Parameters};
use super::prediction::predict;
use dag::Dag;

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
    /// A pipeline of stripes over a square of tasks.
    DiamondDag {
        /// n, tasks per side.
        size: u64,
        /// P, one stripe each.
        processors: u64,
        /// Cycles per task.
        point: Cycles,
        /// alpha, cycles per value that is sent.
        #[serde(default)]
        aggregation: Cycles,
        /// Bytes of a value.
        #[serde(default = "word")]
        bytes_per_point: ByteSize,
        /// B; n/b values if absent.
        #[serde(default)]
        message: Option<ByteSize>,
        /// b, blocks of a stripe; the best number if absent.
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
        /// Values that a message carries; 10 on Alewife.
        #[serde(default = "once")]
        values_per_message: u64,
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
    /// A value out of range.
    #[error("application.{key}: {value}; allowed: {allowed}")]
    Range {
        /// The key.
        key: &'static str,
        /// As given.
        value: f64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// EM3D with replies or long messages.
    #[error("application.name: em3d sends short messages without replies; use pattern.kind one-way")]
    Kind,
}

/// What a program takes, in cycles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApplicationTime {
    /// The program.
    pub name: &'static str,
    /// Without contention; Diamond DAG: M (15).
    pub logp_cycles: f64,
    /// With contention for processors and in the network; Diamond DAG: M and the bound on contention.
    pub logpc_cycles: f64,
    /// Messages that a processor sends.
    pub messages: f64,
    /// C_n per message; absent where an open load saturates the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_contention_cycles: Option<f64>,
    /// Diamond DAG: b.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// Diamond DAG: whether that number was chosen as the best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimal: Option<bool>,
    /// Diamond DAG: communication to computation, (O_s + O_r) / W; absent without computation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communication_ratio: Option<f64>,
}

/// Larger squares would make trying every number of blocks slow.
const MAX_SIZE: u64 = 1 << 24;

/// An error unless the value is one of those allowed.
fn require(
    holds: bool,
    key: &'static str,
    value: f64,
    allowed: &'static str,
) -> Result<(), ApplicationError> {
    if holds {
        Ok(())
    } else {
        Err(ApplicationError::Range { key, value, allowed })
    }
}

impl Application {
    /// Checks the numbers.
    pub(super) fn check(&self, kind: Kind) -> Result<(), ApplicationError> {
        let least =
            |key, value: u64, least: u64, allowed| require(value >= least, key, value as f64, allowed);
        match *self {
            Self::AllToAll { elements, processors } => {
                least("elements", elements, 1, "1 and up")?;
                least("processors", processors, 2, "2 and up")
            }
            Self::DiamondDag {
                size,
                processors,
                message,
                blocks,
                ..
            } => {
                least("size", size, 1, "1 and up")?;
                require(size <= MAX_SIZE, "size", size as f64, "up to 2^24")?;
                let stripes = (2..=size).contains(&processors);
                require(stripes, "processors", processors as f64, "2 to `size`")?;
                if let Some(message) = message {
                    require(message.0 > 0.0, "message", message.0, "above 0 B")?;
                }
                let blocks = blocks.unwrap_or(1);
                require(
                    (1..=size).contains(&blocks),
                    "blocks",
                    blocks as f64,
                    "1 to `size`",
                )
            }
            Self::Em3d {
                nodes,
                degree,
                remote,
                values_per_message,
                iterations,
                ..
            } => {
                least("nodes", nodes, 1, "1 and up")?;
                least("degree", degree, 1, "1 and up")?;
                least("values_per_message", values_per_message, 1, "1 and up")?;
                least("iterations", iterations, 1, "1 and up")?;
                require((0.0..=1.0).contains(&remote), "remote", remote, "0 to 1")?;
                if kind == Kind::OneWay {
                    Ok(())
                } else {
                    Err(ApplicationError::Kind)
                }
            }
        }
    }
}

/// What the application of the parameters takes, if there is one.
#[must_use]
pub fn time(parameters: &Parameters) -> Option<ApplicationTime> {
    match *parameters.application.as_ref()? {
        Application::AllToAll { elements, processors } => {
            let (elements, processors) = (elements as f64, processors as f64);
            let messages = elements / processors * (processors - 1.0) / processors;
            Some(remap(parameters, messages))
        }
        Application::DiamondDag {
            size,
            processors,
            point,
            aggregation,
            bytes_per_point,
            message,
            blocks,
        } => {
            let dag = Dag {
                size: size as f64,
                stripes: processors as f64,
                point: point.0,
                aggregation: aggregation.0,
                bytes_per_point: bytes_per_point.0,
                bytes: message.map(|bytes| bytes.0),
                message: parameters.message,
            };
            Some(dag.time(parameters.network, size, blocks))
        }
        Application::Em3d {
            nodes,
            degree,
            remote,
            edge,
            values_per_message,
            iterations,
        } => {
            let (edges, iterations) = (nodes as f64 * degree as f64, iterations as f64);
            let blocks = edges * remote / values_per_message as f64;
            // A product of decimal fractions may come out above its integer by its rounding.
            let messages = iterations * (blocks * (1.0 - 1e-12)).ceil();
            let message = parameters.message;
            let cycles = iterations * edges * edge.0 + messages * (message.send + message.receive);
            let rate = if cycles > 0.0 { messages / cycles } else { 0.0 };
            Some(ApplicationTime {
                name: "em3d",
                logp_cycles: cycles,
                logpc_cycles: cycles,
                messages,
                network_contention_cycles: parameters.network.open(rate, message.bytes),
                blocks: None,
                optimal: None,
                communication_ratio: None,
            })
        }
    }
}

/// `messages` cycles of the pattern.
fn remap(parameters: &Parameters, messages: f64) -> ApplicationTime {
    let found = predict(parameters);
    let (free, contended) = match found.intermessage_cycles {
        Some(interval) => (parameters.message.interval() + parameters.pattern.work, interval),
        None => (found.logp_cycles, found.logpc_cycles),
    };
    ApplicationTime {
        name: "all-to-all",
        logp_cycles: messages * free,
        logpc_cycles: messages * contended,
        messages,
        network_contention_cycles: found.network_contention_cycles,
        blocks: None,
        optimal: None,
        communication_ratio: None,
    }
}
