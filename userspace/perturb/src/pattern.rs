//! `perturb pattern`: programs of known communication on private hosts, one process on each.

use std::time::Duration;

use clap::{Args, Subcommand};
use perturb_workloads::{
    collective::Algorithm,
    pattern::{
        Exchange, Pattern, Plain, Remap,
        diamond::{self, Diamond},
        remap::{HEADER, Mapping, Style},
    },
};

use crate::{
    cli::{
        quantity,
        time::{self, within},
        words::{Words, one_of},
    },
    processes,
    rto::ALGORITHMS,
};

const EXAMPLES: &str = "\
Examples:
  perturb run configs/simple.yaml -- perturb pattern reads --reads 100
  perturb run configs/lan-1gbit.yaml --hosts 4 -- perturb pattern blocking-reads --reads 100
  perturb run configs/lan-1gbit.yaml --hosts 4 -- perturb pattern all-to-all --algorithm alltoall-b --rounds 20 --message 16KiB

  perturb run configs/alewife-4x4.yaml --hosts 16 -- perturb pattern remap --style synchronous --mapping random \\
      --iterations 100 --message 46B --send 600us --receive 4.88ms

Prints one JSON object: run_time_s, messages (of the first process); of a remap interval_us,
round_trip_us (means over all processes) and values (how many came where they should).";

/// Arguments of `perturb pattern`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PatternArgs {
    #[command(subcommand)]
    pattern: Command,
    /// Which process this is; without it, the first, which starts the others.
    #[arg(long, global = true, hide = true)]
    rank: Option<usize>,
}

/// Messages of a process of a remap: each process knows beforehand what all others send.
const MOST: i64 = 1_000_000;

/// Arguments of `perturb pattern remap`.
#[derive(Args, Clone, Copy, Debug)]
struct RemapArgs {
    /// How values travel.
    #[arg(long, value_parser = one_of(STYLES))]
    style: Style,
    /// To whom.
    #[arg(long, value_parser = one_of(MAPPINGS))]
    mapping: Mapping,
    /// Of the random mapping: at most so far away in number, counted around; EM3D's span.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=MOST))]
    span: Option<u32>,
    /// Messages that each process sends, replies aside.
    #[arg(long, value_parser = clap::value_parser!(u32).range(..=MOST))]
    iterations: u32,
    /// B: bytes of a message without headers, at least 20B; a short one is one packet, so at most the MTU less 28B.
    #[arg(long, value_parser = |text: &str| at_least(text, HEADER))]
    message: u64,
    /// o_s: time of the processor for a send.
    #[arg(long, value_parser = within(time::WORK_OR_NONE))]
    send: Duration,
    /// o_r: time of the processor for a message that has come; a long one hides it.
    #[arg(long, value_parser = within(time::WORK_OR_NONE),
          required_if_eq_any([("style", "synchronous"), ("style", "asynchronous")]))]
    receive: Option<Duration>,
    /// G, of long messages only, e.g. 20us.
    #[arg(long, value_parser = within(time::WORK), required_if_eq("style", "long"))]
    per_byte: Option<Duration>,
    /// Of the random mapping.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Arguments of `perturb pattern diamond`.
#[derive(Args, Clone, Copy, Debug)]
struct DiamondArgs {
    /// Which host has the next stripe: any, the next in number, or a neighbor.
    #[arg(long, value_parser = one_of(MAPPINGS))]
    mapping: Mapping,
    /// Hosts along the mesh's first dimension; the perfect mapping goes along every other row backwards.
    #[arg(long, required_if_eq("mapping", "perfect"), value_parser = clap::value_parser!(u16).range(1..))]
    row: Option<u16>,
    /// b: blocks of a stripe.
    #[arg(long)]
    blocks: u32,
    /// B: bytes of a message without headers, at least 72B.
    #[arg(long, value_parser = |text: &str| at_least(text, diamond::LEAST))]
    message: u64,
    /// W: time of the processor for a block.
    #[arg(long, value_parser = within(time::WORK_OR_NONE))]
    work: Duration,
    /// o_s: time of the processor for a send.
    #[arg(long, value_parser = within(time::WORK_OR_NONE))]
    send: Duration,
    /// G, e.g. 20us.
    #[arg(long, value_parser = within(time::WORK))]
    per_byte: Duration,
    /// Of the random mapping.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl DiamondArgs {
    fn checked(self) -> Result<Self, RemapError> {
        match self.mapping {
            Mapping::Random | Mapping::Linear if self.row.is_some() => Err(RemapError::Row),
            _ => Ok(self),
        }
    }

    fn diamond(self) -> Diamond {
        Diamond {
            mapping: self.mapping,
            row: self.row.unwrap_or(1).into(),
            blocks: self.blocks,
            message: self.message,
            work: self.work,
            send: self.send,
            per_byte: self.per_byte,
            seed: self.seed,
        }
    }
}

const STYLES: Words<Style> = &[
    (
        "synchronous",
        Style::Synchronous,
        "Request and reply before the next",
    ),
    (
        "asynchronous",
        Style::Asynchronous,
        "One after the other, without waiting",
    ),
    (
        "long",
        Style::Long,
        "In parts of 256 bytes; the next message when this one is there",
    ),
];

const MAPPINGS: Words<Mapping> = &[
    (
        "random",
        Mapping::Random,
        "Any other process, drawn for each message",
    ),
    (
        "linear",
        Mapping::Linear,
        "By number: of a remap p to p + 1, p + 2, … in turn, of a DAG the next",
    ),
    (
        "perfect",
        Mapping::Perfect,
        "Neighbors: of a remap pairs in number, of a DAG along rows, every other backwards",
    ),
];

/// A message that has room for a value and what tells it from others.
fn at_least(text: &str, least: u64) -> Result<u64, String> {
    match quantity::message(text)? {
        bytes if bytes < least => Err(format!("must be at least {least} bytes")),
        bytes => Ok(bytes),
    }
}

/// A remap that cannot be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemapError {
    /// G without long messages.
    #[error("--per-byte is of long messages; leave it out, or use --style long")]
    PerByte,
    /// Rows where none is gone along.
    #[error("--row is of the perfect mapping; leave it out, or use --mapping perfect")]
    Row,
    /// A span where nothing is drawn.
    #[error("--span is of the random mapping; leave it out, or use --mapping random")]
    Span,
    /// o_r of long messages.
    #[error("--receive: a long message hides it; leave it out")]
    Receive,
}

impl RemapArgs {
    fn checked(self) -> Result<Self, RemapError> {
        if self.span.is_some() && self.mapping != Mapping::Random {
            return Err(RemapError::Span);
        }
        match self.style {
            Style::Long if self.receive.is_some() => Err(RemapError::Receive),
            Style::Long => Ok(self),
            _ if self.per_byte.is_some() => Err(RemapError::PerByte),
            _ => Ok(self),
        }
    }

    fn remap(self) -> Remap {
        Remap {
            style: self.style,
            mapping: self.mapping,
            span: self.span,
            iterations: self.iterations,
            message: self.message,
            send: self.send,
            receive: self.receive.unwrap_or_default(),
            per_byte: self.per_byte.unwrap_or_default(),
            seed: self.seed,
        }
    }
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Command {
    /// Two hosts: so many requests, each after the reply before
    Reads {
        /// How many.
        #[arg(long)]
        reads: u64,
    },
    /// Two hosts: so many datagrams at once
    Burst {
        /// How many.
        #[arg(long)]
        messages: u64,
    },
    /// Two hosts: so many datagrams, one per interval
    Paced {
        /// How many.
        #[arg(long)]
        messages: u64,
        /// Time between two, e.g. 200us.
        #[arg(long, value_parser = within(time::WORK_OR_NONE))]
        interval: Duration,
    },
    /// Each process reads values of others over TCP, one after another
    BlockingReads {
        /// How many.
        #[arg(long)]
        reads: u64,
    },
    /// Each process writes values to others over TCP, without waiting
    PipelinedWrites {
        /// How many.
        #[arg(long)]
        writes: u64,
    },
    /// Rounds in which each process writes so many bytes over TCP to each other one
    BulkAllToAll {
        /// Rounds.
        #[arg(long)]
        rounds: u64,
        /// Bytes to each other process in a round.
        #[arg(long)]
        bytes: u64,
    },
    /// Rounds of a collective of known algorithm, one after another
    AllToAll {
        /// Who sends to whom in which order: alltoall-a or alltoall-b, as `perturb rto` has them.
        #[arg(long, value_parser = one_of(&ALGORITHMS[..2]))]
        algorithm: Algorithm,
        /// Rounds.
        #[arg(long)]
        rounds: u64,
        /// Size of each message, e.g. 16KiB.
        #[arg(long, value_parser = quantity::message)]
        message: u64,
    },
    /// Stripes of a table, block after block, on such processors: LoGPC's Diamond DAG
    Diamond(DiamondArgs),
    /// Values to all, by datagrams, on a processor of each process that waits and burns nothing: LoGPC's remap
    Remap(RemapArgs),
}

impl Command {
    fn pattern(self) -> Pattern {
        match self {
            Self::Reads { reads } => Pattern::Datagrams(Exchange::Reads(reads)),
            Self::Burst { messages } => Pattern::Datagrams(Exchange::Burst(messages)),
            Self::Paced { messages, interval } => Pattern::Datagrams(Exchange::Paced(messages, interval)),
            Self::BlockingReads { reads } => Pattern::Plain(Plain::Reads(reads)),
            Self::PipelinedWrites { writes } => Pattern::Plain(Plain::Writes(writes)),
            Self::BulkAllToAll { rounds, bytes } => Pattern::Plain(Plain::Bulk { rounds, bytes }),
            Self::AllToAll {
                algorithm,
                rounds,
                message,
            } => Pattern::Rounds {
                algorithm,
                rounds,
                message,
            },
            Self::Diamond(args) => Pattern::Diamond(args.diamond()),
            Self::Remap(args) => Pattern::Remap(args.remap()),
        }
    }
}

/// Runs the subcommand; its exit code.
pub(crate) fn run(args: &PatternArgs) -> anyhow::Result<u8> {
    if let Command::Diamond(dag) = args.pattern {
        dag.checked()?;
    }
    if let Command::Remap(remap) = args.pattern {
        remap.checked()?;
    }
    let pattern = args.pattern.pattern();
    processes::run(
        args.rank,
        |hosts| pattern.processes(hosts),
        |rank, addresses| Ok(pattern.run(rank, addresses)?),
    )
}
