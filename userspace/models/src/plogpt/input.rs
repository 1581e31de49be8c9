//! A network and a program, as YAML has them.

use perturb_quantity::{ByteSize, BytesPerSecond, Micros};
use std::fmt;

use serde::{Deserialize, Serialize};

/// A network and a program that runs on it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlogptInput {
    /// The network.
    pub parameters: Parameters,
    /// The program.
    pub program: ProgramInput,
}

/// The parameters of PlogPT.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Number of nodes, one rank on each.
    pub nodes: u32,
    /// One-way latency `L`.
    pub latency: Micros,
    /// TCP's retransmission time-out.
    pub rto: Micros,
    /// How far apart nominally simultaneous events may be: `J`.
    pub jitter: Micros,
    /// Difference up to which two heights count as the same switch (see `P_S`).
    pub switch_tolerance: f64,
    /// The edges of each height, the nodes' own first; at least `log2(nodes)` of them.
    pub links: Vec<Link>,
    /// The same for programs that load the edges one way only (broadcast, gather); `links` if not
    /// given.
    #[serde(default)]
    pub one_way_links: Option<Vec<Link>>,
    /// The gap `g(m)` by message size: linear in between, the nearest segment continued outside.
    pub gap: Vec<GapPoint>,
    /// Whether the directions of an edge share its bandwidth.
    #[serde(default)]
    pub sharing: Sharing,
    /// Which transfers can cost another one a time-out.
    #[serde(default)]
    pub competitors: Competitors,
}

/// The edges of one height.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bandwidth of one edge, `b(h)`.
    pub bandwidth: BytesPerSecond,
    /// Time that a full buffer of its switch port takes to drain, `d(h)`.
    pub buffer_delay: Micros,
}

/// A measured gap.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GapPoint {
    /// Message size `m`.
    pub size: ByteSize,
    /// Its gap `g(m)`.
    pub gap: Micros,
}

/// Whether the two directions of an edge share its bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// Each direction has `b(h)`.
    #[default]
    FullDuplex,
    /// Both together have `b(h)`.
    HalfDuplex,
}

/// Which other transfers to the same destination can cost a transfer its last packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Competitors {
    /// Those that start when it ends, give or take the jitter: eq. 14.
    #[default]
    Starting,
    /// Those also that are merely on their way when it ends. This is not the paper's rule, but ours.
    Overlapping,
}

/// Either the operations of every rank, or a collective.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramInput {
    /// Operations by rank.
    #[serde(default)]
    pub ranks: Option<Vec<Vec<OpInput>>>,
    /// A collective operation of all ranks.
    #[serde(default)]
    pub collective: Option<CollectiveKind>,
    /// Its message size.
    #[serde(default)]
    pub message: Option<ByteSize>,
    /// Its root, for broadcast and gather; rank 0 if not given.
    #[serde(default)]
    pub root: Option<u32>,
}

impl ProgramInput {
    /// One collective of all ranks, from rank 0 where it has a root.
    #[must_use]
    pub fn collective(kind: CollectiveKind, message: ByteSize) -> Self {
        Self {
            ranks: None,
            collective: Some(kind),
            message: Some(message),
            root: None,
        }
    }
}

/// One operation of a rank.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpInput {
    /// Start to send a message.
    Isend(Send),
    /// Start to receive a message.
    Irecv(Receive),
    /// Wait for an earlier operation of this rank, by its index from 0.
    Wait(u32),
    /// Compute.
    Compute(Micros),
}

/// Where to send how much.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// Receiving rank.
    pub to: u32,
    /// Message size.
    pub size: ByteSize,
}

/// From where to receive how much.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    /// Sending rank.
    pub from: u32,
    /// Message size; that of the matching send if not given.
    #[serde(default)]
    pub size: Option<ByteSize>,
}

/// The collectives whose messages are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveKind {
    /// Fig. 13 A: in step `i` each rank exchanges with `rank xor i` and waits for both directions.
    AlltoallA,
    /// Fig. 13 B: the same, but a step waits for its send only; the receives are waited for at the end.
    AlltoallB,
    /// Allgather by a ring: `nodes - 1` steps, each to the right neighbor and from the left one.
    Ring,
    /// Allgather by recursive doubling: in step `k` each rank exchanges all it has, `2^k` messages,
    /// with `rank xor 2^k`.
    RecursiveDoubling,
    /// Binomial tree from the root, the largest subtree first.
    Broadcast,
    /// Every rank sends to the root at once.
    Gather,
}

impl CollectiveKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::AlltoallA,
        Self::AlltoallB,
        Self::Ring,
        Self::RecursiveDoubling,
        Self::Broadcast,
        Self::Gather,
    ];

    /// Its name in inputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AlltoallA => "alltoall-a",
            Self::AlltoallB => "alltoall-b",
            Self::Ring => "ring",
            Self::RecursiveDoubling => "recursive-doubling",
            Self::Broadcast => "broadcast",
            Self::Gather => "gather",
        }
    }

    /// Whether its messages load the edges near the root in one direction only.
    #[must_use]
    pub const fn one_way(self) -> bool {
        matches!(self, Self::Broadcast | Self::Gather)
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}
