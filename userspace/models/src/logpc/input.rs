//! The YAML input.
//!
//! ```yaml
//! network:
//!   dimensions: 2
//!   mean_distance_per_dimension: 2      # or, instead of both: topology and shape
//!   topology: mesh                      # mesh | torus | unidirectional-torus, mesh if absent
//!   shape: [4, 8]
//!   latency: 21cycles
//!   gap_per_byte: 0.5cycles/B           # G, 1cycles/B if absent
//!   header: 8B                          # a, bytes before the interrupt; 0B if absent
//!   gap_memory: 0.3625cycles/B          # G_m; with it (2) holds for long messages, without it (1)
//! overheads: {send: 15cycles, receive: 122cycles}
//! pattern:
//!   kind: request-reply                 # request-reply | one-way | bulk
//!   message: 44B
//!   work: 0cycles                       # computing per message (one-way, bulk) or per request
//!   resource_contention: 137cycles      # C_r per cycle; or `lopc`, to have it estimated
//!   messages: 1                         # how many
//! application: {name: all-to-all, ...}  # optional, see the module `application`
//! ```

use perturb_quantity::{ByteSize, Cycles, CyclesPerByte, QuantityError};
use serde::Deserialize;

use super::application::{Application, ApplicationError};
use super::lopc;
use super::message::LogGp;
use super::network::{Network, Wiring};

/// The file as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    #[serde(default)]
    pub(super) network: NetworkInput,
    #[serde(default)]
    pub(super) overheads: Option<OverheadInput>,
    pattern: PatternInput,
    #[serde(default)]
    application: Option<Application>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NetworkInput {
    pub(super) dimensions: Option<u32>,
    pub(super) mean_distance_per_dimension: Option<f64>,
    pub(super) topology: Option<Wiring>,
    pub(super) shape: Option<Vec<u32>>,
    pub(super) latency: Option<Cycles>,
    pub(super) gap_per_byte: Option<CyclesPerByte>,
    header: Option<ByteSize>,
    gap_memory: Option<CyclesPerByte>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverheadInput {
    pub(super) send: Cycles,
    pub(super) receive: Cycles,
}

/// The traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A short request, a short reply, then the next request.
    RequestReply,
    /// Short messages without replies, as fast as the processors go.
    OneWay,
    /// Long messages by DMA, as fast as possible.
    Bulk,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PatternInput {
    kind: Kind,
    message: ByteSize,
    #[serde(default)]
    work: Cycles,
    #[serde(default)]
    resource_contention: Option<String>,
    #[serde(default)]
    messages: Option<u64>,
}

/// What is wrong with an input beyond its form.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InputError {
    /// Neither in the input nor from a profile.
    #[error("{key}: missing; give it, or the network of a profile")]
    Missing {
        /// What is missing.
        key: &'static str,
    },
    /// Neither or both ways of giving distances.
    #[error(
        "network: give either `dimensions` and `mean_distance_per_dimension`, or `shape` (with `topology`)"
    )]
    Distances,
    /// Dimensions that contradict the shape.
    #[error("network.dimensions: {dimensions}, but `shape` has {shape}; leave one of them out")]
    Dimensions {
        /// As given.
        dimensions: u32,
        /// The length of the shape.
        shape: usize,
    },
    /// No dimension.
    #[error("network.dimensions: 0; allowed: 1 and up")]
    NoDimensions,
    /// A radix of 0.
    #[error("network.shape: a dimension of {radix} nodes; allowed: 1 to {MAX_RADIX}")]
    Radix {
        /// As given.
        radix: u32,
    },
    /// A distance that cannot be.
    #[error("network.mean_distance_per_dimension: {distance}; must be finite and not negative")]
    Distance {
        /// As given.
        distance: f64,
    },
    /// A message without bytes occupies no channel.
    #[error("pattern.message: {bytes} B; must be above 0")]
    Message {
        /// As given.
        bytes: f64,
    },
    /// A rate without limit.
    #[error(
        "overheads: send + receive + pattern.work is 0, so messages follow each other in no time; give one of them"
    )]
    NoPeriod,
    /// Long messages without an interval.
    #[error(
        "network.gap_per_byte and pattern.work are 0, so long messages follow each other in no time; give one of them"
    )]
    NoInterval,
    /// C_r is neither a number nor `lopc`.
    #[error("pattern.resource_contention: `{text}` {fault}, or `lopc` to have it estimated")]
    Contention {
        /// As given.
        text: String,
        /// What is wrong with it.
        fault: QuantityError,
    },
    /// C_r is estimated for request-reply only.
    #[error("pattern.resource_contention: `lopc` models request-reply; give a number of cycles for {kind:?}")]
    ContentionKind {
        /// As given.
        kind: Kind,
    },
    /// No messages.
    #[error("pattern.messages: 0; allowed: 1 and up")]
    NoMessages,
    /// The application.
    #[error(transparent)]
    Application(#[from] ApplicationError),
}

/// A larger radix is a slip, not a machine.
const MAX_RADIX: u32 = 1 << 20;

/// The traffic of a checked input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pattern {
    /// What is sent.
    pub kind: Kind,
    /// Cycles of computing per message or request.
    pub work: f64,
    /// C_r, if any.
    pub resource_contention: Option<f64>,
    /// How many messages or requests each node sends.
    pub messages: u64,
}

/// A checked input.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// The network.
    pub network: Network,
    /// The shape, where it was given: what the mesh simulation needs.
    pub shape: Option<Vec<u32>>,
    /// The message.
    pub message: LogGp,
    /// The traffic.
    pub pattern: Pattern,
    /// The program, if one of the three.
    pub application: Option<Application>,
}

impl Input {
    /// Checks the input.
    ///
    /// # Errors
    /// The first thing that is wrong, by key.
    pub fn parameters(self) -> Result<Parameters, InputError> {
        let network = self.network.checked()?;
        let bytes = self.pattern.message.0;
        if bytes <= 0.0 {
            return Err(InputError::Message { bytes });
        }
        let missing = |key| InputError::Missing { key };
        let latency = self.network.latency.ok_or(missing("network.latency"))?;
        let overheads = self.overheads.ok_or(missing("overheads"))?;
        let message = LogGp {
            latency: latency.0,
            send: overheads.send.0,
            receive: overheads.receive.0,
            bytes,
            gap_per_byte: self.network.gap_per_byte.map_or(1.0, |gap| gap.0),
            header: self.network.header.map_or(0.0, |size| size.0),
            gap_memory: self.network.gap_memory.map(|gap| gap.0),
        };
        let pattern = self.pattern.checked(&message)?;
        if let Some(application) = &self.application {
            application.check(pattern.kind)?;
        }
        Ok(Parameters {
            network,
            shape: self.network.shape,
            message,
            pattern,
            application: self.application,
        })
    }
}

impl NetworkInput {
    fn checked(&self) -> Result<Network, InputError> {
        let wiring = self.topology.unwrap_or(Wiring::Mesh);
        let (dimensions, distance) = match (&self.shape, self.dimensions, self.mean_distance_per_dimension) {
            (None, Some(dimensions), Some(distance)) => (dimensions, distance),
            (Some(shape), dimensions, distance) => {
                if let Some(dimensions) = dimensions.filter(|given| *given as usize != shape.len()) {
                    return Err(InputError::Dimensions {
                        dimensions,
                        shape: shape.len(),
                    });
                }
                if let Some(radix) = shape.iter().find(|radix| **radix == 0 || **radix > MAX_RADIX) {
                    return Err(InputError::Radix { radix: *radix });
                }
                // Locality: a distance given along with the shape is that of the program's messages.
                let mean = wiring.mean_distance_per_dimension(shape);
                (shape.len() as u32, distance.unwrap_or(mean))
            }
            _ => return Err(InputError::Distances),
        };
        if dimensions == 0 {
            return Err(InputError::NoDimensions);
        }
        if !distance.is_finite() || distance < 0.0 {
            return Err(InputError::Distance { distance });
        }
        Ok(Network {
            dimensions,
            distance,
            wiring,
        })
    }
}

impl PatternInput {
    fn checked(self, message: &LogGp) -> Result<Pattern, InputError> {
        if message.send + message.receive + self.work.0 <= 0.0 && self.kind != Kind::Bulk {
            return Err(InputError::NoPeriod);
        }
        if message.gap_per_byte + self.work.0 <= 0.0 && self.kind == Kind::Bulk {
            return Err(InputError::NoInterval);
        }
        let messages = self.messages.unwrap_or(1);
        if messages == 0 {
            return Err(InputError::NoMessages);
        }
        let resource_contention = match self.resource_contention.as_deref() {
            None => None,
            Some("lopc") if self.kind == Kind::RequestReply => {
                let cycle = lopc::Cycle {
                    work: self.work.0 + message.send,
                    latency: message.latency,
                    request_handler: message.receive + message.send,
                    reply_handler: message.receive,
                    variation: 0.0,
                };
                Some(cycle.contention())
            }
            Some("lopc") => return Err(InputError::ContentionKind { kind: self.kind }),
            Some(text) => {
                let cycles: Cycles = text.parse().map_err(|fault| InputError::Contention {
                    text: text.to_owned(),
                    fault,
                })?;
                Some(cycles.0)
            }
        };
        Ok(Pattern {
            kind: self.kind,
            work: self.work.0,
            resource_contention,
            messages,
        })
    }
}
