//! Operations by rank, checked and matched; the collectives written as such operations.

use std::collections::HashMap;

use super::input::{CollectiveKind, OpInput, ProgramInput};
use super::parameters::{Network, ParameterError};

/// No matching operation.
pub(super) const UNMATCHED: u32 = u32::MAX;

/// Most operations that a program may have.
const MAX_OPERATIONS: usize = 1 << 26;

/// What is wrong with a program.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProgramError {
    /// Neither, or both.
    #[error("program needs either `ranks` or `collective` with `message`")]
    RanksOrCollective,
    /// `message` or `root` without a collective, or a root that has no meaning.
    #[error("program.{key} has no meaning here; it belongs to {belongs}")]
    Meaningless {
        /// The key.
        key: &'static str,
        /// Where it belongs.
        belongs: &'static str,
    },
    /// As many lists as nodes.
    #[error(
        "program.ranks has {ranks} lists for {nodes} nodes; give one list per node, `[]` for an idle one"
    )]
    Ranks {
        /// Lists.
        ranks: usize,
        /// Nodes.
        nodes: u32,
    },
    /// A rank that is not there.
    #[error("rank {rank}, operation {op}: there is no rank {peer}; ranks are 0 to {}", nodes - 1)]
    NoSuchRank {
        /// Whose operation.
        rank: u32,
        /// Index of the operation.
        op: usize,
        /// The rank it names.
        peer: u32,
        /// Number of nodes.
        nodes: u32,
    },
    /// A root that is not there.
    #[error("program.root is {root}; ranks are 0 to {}", nodes - 1)]
    NoSuchRoot {
        /// The root.
        root: u32,
        /// Number of nodes.
        nodes: u32,
    },
    /// A message that does not enter the network.
    #[error("rank {rank}, operation {op}: a rank does not exchange messages with itself")]
    Itself {
        /// Whose operation.
        rank: u32,
        /// Index of the operation.
        op: usize,
    },
    /// A wait for nothing.
    #[error(
        "rank {rank}, operation {op}: wait names operation {target}, which is no earlier isend or irecv \
         of this rank (indices count from 0)"
    )]
    WaitTarget {
        /// Whose operation.
        rank: u32,
        /// Index of the operation.
        op: usize,
        /// What it names.
        target: u32,
    },
    /// A receive that expects another size than its send has.
    #[error(
        "rank {rank}, operation {op}: irecv expects {expected} B from rank {from}, whose matching isend \
         has {sent} B"
    )]
    SizeMismatch {
        /// Whose irecv.
        rank: u32,
        /// Index of the irecv.
        op: usize,
        /// The sender.
        from: u32,
        /// Size of the irecv.
        expected: f64,
        /// Size of the isend.
        sent: f64,
    },
    /// Exchange partners by xor need a power of two.
    #[error("collective {collective} needs a power of two nodes, not {nodes}")]
    PowerOfTwo {
        /// The collective.
        collective: CollectiveKind,
        /// Number of nodes.
        nodes: u32,
    },
    /// Too large to hold.
    #[error("the program has {operations} operations; at most {MAX_OPERATIONS} are supported")]
    TooManyOperations {
        /// How many.
        operations: usize,
    },
    /// A message size beyond the table.
    #[error(transparent)]
    Gap(#[from] ParameterError),
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Start to send a message.
    Isend {
        /// Receiver.
        to: u32,
        /// Index into the program's sizes.
        size: u32,
    },
    /// Start to receive.
    Irecv {
        /// Sender.
        from: u32,
    },
    /// Wait for the operation of this index in the same rank.
    Wait(u32),
    /// Compute for so many µs.
    Compute(f64),
}

impl Op {
    /// Its name in the output.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Isend { .. } => "isend",
            Self::Irecv { .. } => "irecv",
            Self::Wait(_) => "wait",
            Self::Compute(_) => "compute",
        }
    }
}

/// A message's size, and what it puts on the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    /// `m`, in bytes.
    pub bytes: f64,
    /// `b(1) g(m)`, in bytes.
    pub volume: f64,
}

impl Size {
    fn new(network: &Network, bytes: f64) -> Result<Self, ParameterError> {
        let volume = network.volume(bytes)?;
        Ok(Self { bytes, volume })
    }
}

/// A checked program. Operations of all ranks stand in one list, rank after rank.
#[derive(Clone, Debug)]
pub struct Program {
    ops: Vec<Op>,
    /// Start of each rank in `ops`, and the end.
    starts: Vec<u32>,
    /// For an isend its irecv and the other way round, as indices into `ops`.
    partners: Vec<u32>,
    /// Messages of one size each, by index of [`Op::Isend`].
    sizes: Vec<Size>,
    /// Messages sent.
    messages: u64,
}

impl Program {
    /// Checks and matches the operations of `input`.
    ///
    /// # Errors
    /// When ranks, sizes or waits do not fit together.
    pub fn new(input: &ProgramInput, network: &Network) -> Result<Self, ProgramError> {
        match (&input.ranks, input.collective, input.message) {
            (Some(ranks), None, None) => {
                if input.root.is_some() {
                    return Err(meaningless("root", "broadcast and gather"));
                }
                Self::from_ranks(ranks, network)
            }
            (None, Some(kind), Some(message)) => {
                if input.root.is_some() && !kind.one_way() {
                    return Err(meaningless("root", "broadcast and gather"));
                }
                Self::collective(kind, message.0, input.root.unwrap_or(0), network)
            }
            (Some(_), None, Some(_)) => Err(meaningless("message", "`collective`")),
            _ => Err(ProgramError::RanksOrCollective),
        }
    }

    /// A collective operation of all nodes of `network`.
    ///
    /// # Errors
    /// When the collective does not fit the number of nodes or the root is none of them.
    pub fn collective(
        kind: CollectiveKind,
        bytes: f64,
        root: u32,
        network: &Network,
    ) -> Result<Self, ProgramError> {
        let nodes = network.nodes;
        if kind == CollectiveKind::RecursiveDoubling && !nodes.is_power_of_two() {
            return Err(ProgramError::PowerOfTwo {
                collective: kind,
                nodes,
            });
        }
        if root >= nodes {
            return Err(ProgramError::NoSuchRoot { root, nodes });
        }
        let mut builder = Builder::default();
        let steps = super::parameters::heights(nodes) as u32;
        let sizes = match kind {
            CollectiveKind::RecursiveDoubling => (0..steps)
                .map(|step| Size::new(network, bytes * f64::from(1_u32 << step)))
                .collect::<Result<Vec<_>, _>>()?,
            _ => vec![Size::new(network, bytes)?],
        };
        for rank in 0..nodes {
            builder.start_rank()?;
            match kind {
                CollectiveKind::AlltoallA => builder.alltoall_a(rank, nodes),
                CollectiveKind::AlltoallB => builder.alltoall_b(rank, nodes),
                CollectiveKind::Ring => builder.ring(rank, nodes),
                CollectiveKind::RecursiveDoubling => builder.recursive_doubling(rank, steps),
                CollectiveKind::Broadcast => builder.broadcast(rank, root, nodes),
                CollectiveKind::Gather => builder.gather(rank, root, nodes),
            }
        }
        Ok(builder.finish(sizes)?.0)
    }

    fn from_ranks(ranks: &[Vec<OpInput>], network: &Network) -> Result<Self, ProgramError> {
        if ranks.len() != network.nodes as usize {
            return Err(ProgramError::Ranks {
                ranks: ranks.len(),
                nodes: network.nodes,
            });
        }
        let mut builder = Builder::default();
        let mut sizes: Vec<f64> = Vec::new();
        let mut known: HashMap<u64, u32> = HashMap::new();
        // Size of each operation's message; NaN if not given.
        let mut size_of_op = Vec::new();
        for (rank, list) in (0_u32..).zip(ranks) {
            builder.start_rank()?;
            for (index, op) in list.iter().enumerate() {
                check(rank, index, list, network.nodes)?;
                let mut bytes = f64::NAN;
                builder.push(match *op {
                    OpInput::Isend(send) => {
                        bytes = send.size.0;
                        let size = *known.entry(bytes.to_bits()).or_insert_with(|| {
                            sizes.push(bytes);
                            sizes.len() as u32 - 1
                        });
                        Op::Isend { to: send.to, size }
                    }
                    OpInput::Irecv(receive) => {
                        bytes = receive.size.map_or(f64::NAN, |size| size.0);
                        Op::Irecv { from: receive.from }
                    }
                    OpInput::Wait(target) => Op::Wait(target),
                    OpInput::Compute(time) => Op::Compute(time.0),
                });
                size_of_op.push(bytes);
            }
        }
        let sizes = sizes
            .iter()
            .map(|&bytes| Size::new(network, bytes))
            .collect::<Result<_, _>>()?;
        let (program, receives) = builder.finish(sizes)?;
        for receive in receives {
            let send = program.partners[receive as usize];
            let (expected, sent) = (size_of_op[receive as usize], size_of_op[send as usize]);
            if !expected.is_nan() && expected != sent {
                let (rank, op) = program.place(receive);
                let from = program.place(send).0;
                return Err(ProgramError::SizeMismatch {
                    rank,
                    op,
                    from,
                    expected,
                    sent,
                });
            }
        }
        Ok(program)
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        (self.starts.len() - 1) as u32
    }

    /// Number of messages.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// All operations, rank after rank.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Where a rank's operations stand in [`Program::ops`].
    #[must_use]
    pub fn range(&self, rank: u32) -> std::ops::Range<usize> {
        self.starts[rank as usize] as usize..self.starts[rank as usize + 1] as usize
    }

    /// A message by size index.
    pub(super) fn size(&self, size: u32) -> Size {
        self.sizes[size as usize]
    }

    /// Size of an isend's message, or of the one that an irecv is for, in bytes; none for others.
    #[must_use]
    pub fn bytes(&self, op: u32) -> Option<f64> {
        match self.ops[op as usize] {
            Op::Isend { size, .. } => Some(self.size(size).bytes),
            Op::Irecv { .. } => self.partner(op).and_then(|send| self.bytes(send)),
            Op::Wait(_) | Op::Compute(_) => None,
        }
    }

    /// The matching operation of an isend or irecv, if it has one.
    #[must_use]
    pub fn partner(&self, op: u32) -> Option<u32> {
        Some(self.partners[op as usize]).filter(|partner| *partner != UNMATCHED)
    }

    /// Rank and index in the rank of an operation.
    #[must_use]
    pub fn place(&self, op: u32) -> (u32, usize) {
        let rank = self.starts.partition_point(|start| *start <= op) - 1;
        (rank as u32, (op - self.starts[rank]) as usize)
    }
}

fn meaningless(key: &'static str, belongs: &'static str) -> ProgramError {
    ProgramError::Meaningless { key, belongs }
}

fn check(rank: u32, op: usize, list: &[OpInput], nodes: u32) -> Result<(), ProgramError> {
    let peer = match list[op] {
        OpInput::Isend(send) => send.to,
        OpInput::Irecv(receive) => receive.from,
        OpInput::Wait(target) => {
            let earlier = list[..op].get(target as usize);
            return match earlier {
                Some(OpInput::Isend(_) | OpInput::Irecv(_)) => Ok(()),
                _ => Err(ProgramError::WaitTarget { rank, op, target }),
            };
        }
        OpInput::Compute(_) => return Ok(()),
    };
    if peer >= nodes {
        return Err(ProgramError::NoSuchRank {
            rank,
            op,
            peer,
            nodes,
        });
    }
    if peer == rank {
        return Err(ProgramError::Itself { rank, op });
    }
    Ok(())
}

/// Collects operations rank by rank.
#[derive(Default)]
pub(super) struct Builder {
    ops: Vec<Op>,
    starts: Vec<u32>,
}

impl Builder {
    fn start_rank(&mut self) -> Result<(), ProgramError> {
        self.check_size()?;
        self.starts.push(self.ops.len() as u32);
        Ok(())
    }

    fn check_size(&self) -> Result<(), ProgramError> {
        let operations = self.ops.len();
        if operations > MAX_OPERATIONS {
            return Err(ProgramError::TooManyOperations { operations });
        }
        Ok(())
    }

    /// Appends an operation; returns its index in the rank.
    pub(super) fn push(&mut self, op: Op) -> u32 {
        let start = self.starts.last().copied().unwrap_or(0);
        self.ops.push(op);
        self.ops.len() as u32 - 1 - start
    }

    pub(super) fn isend(&mut self, to: u32) -> u32 {
        self.push(Op::Isend { to, size: 0 })
    }

    pub(super) fn irecv(&mut self, from: u32) -> u32 {
        self.push(Op::Irecv { from })
    }

    pub(super) fn wait(&mut self, op: u32) {
        self.push(Op::Wait(op));
    }

    /// Matches sends and receives, first in, first out per pair of ranks; returns the matched
    /// receives too.
    fn finish(mut self, sizes: Vec<Size>) -> Result<(Program, Vec<u32>), ProgramError> {
        self.check_size()?;
        self.starts.push(self.ops.len() as u32);
        let mut sends: Vec<(u32, u32, u32)> = Vec::new();
        let mut receives: Vec<(u32, u32, u32)> = Vec::new();
        for (rank, bounds) in (0_u32..).zip(self.starts.windows(2)) {
            for op in bounds[0]..bounds[1] {
                match self.ops[op as usize] {
                    Op::Isend { to, .. } => sends.push((rank, to, op)),
                    Op::Irecv { from } => receives.push((from, rank, op)),
                    Op::Wait(_) | Op::Compute(_) => {}
                }
            }
        }
        let messages = sends.len() as u64;
        // Sorted by pair, then by order of posting, the k-th send meets the k-th receive.
        sends.sort_unstable();
        receives.sort_unstable();
        let mut partners = vec![UNMATCHED; self.ops.len()];
        let mut matched = Vec::new();
        let mut receive = receives.iter().copied().peekable();
        for group in sends.chunk_by(|one, other| one.0 == other.0 && one.1 == other.1) {
            let pair = (group[0].0, group[0].1);
            while receive.next_if(|(from, to, _)| (*from, *to) < pair).is_some() {}
            for (_, _, send) in group {
                let Some((_, _, op)) = receive.next_if(|(from, to, _)| (*from, *to) == pair) else {
                    break;
                };
                partners[*send as usize] = op;
                partners[op as usize] = *send;
                matched.push(op);
            }
        }
        let program = Program {
            ops: self.ops,
            starts: self.starts,
            partners,
            sizes,
            messages,
        };
        Ok((program, matched))
    }
}
