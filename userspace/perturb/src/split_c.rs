//! `perturb split-c`: the programs of Martin 1999 on private hosts, one process on each.

use std::{env, num::NonZeroUsize, path::PathBuf};

use clap::{Args, Subcommand, value_parser};
use perturb_quantity::{Rate, Share};
use perturb_workloads::split_c::{
    Barnes, Connect, Em3d, Form, MOST, Murphi, NowSort, PRay, Program, Radix, Sample,
};

use crate::{cli::quantity, processes};

const EXAMPLES: &str = "\
Examples:
  perturb run configs/lan-1gbit.yaml --hosts 4 -- perturb split-c radix
  perturb run configs/lan-1gbit.yaml --hosts 4 -- perturb split-c em3d-read --remote 20%
  perturb run configs/lan-1gbit.yaml --hosts 8 -- perturb split-c now-sort --disk 5.5MB/s

Each program computes something, and compares it with what one processor alone computes. Where
the answer is wrong, it says what, and the exit code is 1.
Prints one JSON object: run_time_s (without input and comparison), checked, answer (a digest), and
what Table 3.2 of the thesis has: messages, message_interval_us, barrier_interval_ms,
bulk_percent, reads_percent, bulk_kb_per_s, small_kb_per_s; and matrix: messages from each
process to each. Counts are of all processes together,
intervals and rates of one.";

/// Arguments of `perturb split-c`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SplitCArgs {
    #[command(subcommand)]
    program: Command,
    /// Which process this is; without it, the first, which starts the others.
    #[arg(long, global = true, hide = true)]
    rank: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Sort keys by digits: each key is a message
    Radix(RadixArgs),
    /// Sort keys by digits: the keys for another process are sent together
    Radb(RadixArgs),
    /// Sort keys by samples: each key is a message
    Sample {
        /// How many keys.
        #[arg(long, default_value_t = 16_384, value_parser = most(100_000_000))]
        keys: u64,
        /// Keys that each process draws to find the splitters.
        #[arg(long, default_value_t = 32, value_parser = most(100_000))]
        samples: u64,
        #[command(flatten)]
        seed: Seed,
    },
    /// A wave on a graph: values of other processes are read one after another
    Em3dRead(Em3dArgs),
    /// A wave on a graph: values are written to who needs them, without waiting
    Em3dWrite(Em3dArgs),
    /// Bodies that attract each other: a tree that all build at once, under locks
    Barnes {
        /// How many bodies, at least 8 for each process.
        #[arg(long, default_value_t = 512, value_parser = most(1_000_000))]
        bodies: u64,
        /// Steps in time.
        #[arg(long, default_value_t = 2, value_parser = most(1_000))]
        steps: u64,
        /// A group of bodies counts as one where its width is less than this part of its distance.
        #[arg(long, default_value = "60%", value_parser = quantity::fraction)]
        opening: Share,
        #[command(flatten)]
        seed: Seed,
    },
    /// Draw spheres by rays of light: what a ray meets is read and kept
    PRay {
        /// Pixels in a row, and rows.
        #[arg(long, default_value_t = 48, value_parser = most(10_000))]
        side: u64,
        /// How many spheres.
        #[arg(long, default_value_t = 500, value_parser = most(1_000_000))]
        spheres: u64,
        /// Spheres and cells of others that a process keeps.
        #[arg(long, default_value = "128")]
        cache: NonZeroUsize,
        #[command(flatten)]
        seed: Seed,
    },
    /// Label the connected components of a grid
    Connect {
        /// Vertices in a row, and rows.
        #[arg(long, default_value_t = 128, value_parser = most(20_000))]
        side: u64,
        /// Edges that are there.
        #[arg(long, default_value = "30%", value_parser = quantity::fraction)]
        connected: Share,
        #[command(flatten)]
        seed: Seed,
    },
    /// Find all states of a protocol for caches: a state is sent to whom it belongs
    Murphi {
        /// How many caches; each one more makes about ten times as many states.
        #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=i64::from(MOST)))]
        caches: u32,
    },
    /// Sort records from disk to disk: files in a temporary directory
    NowSort {
        /// How many records of 100 bytes.
        #[arg(long, default_value_t = 20_000, value_parser = most(100_000_000))]
        records: u64,
        /// What each of a process' two disks does, e.g. 5.5MB/s; without it, what this machine can.
        #[arg(long, value_parser = quantity::disk)]
        disk: Option<Rate>,
        /// Where the files lie. They have no names, so nothing is left of them. Without it, $TMPDIR.
        #[arg(long)]
        directory: Option<PathBuf>,
        #[command(flatten)]
        seed: Seed,
    },
}

#[derive(Args, Clone, Copy, Debug)]
struct Seed {
    /// Where the input comes from: the same seed, the same input.
    #[arg(long, default_value_t = 1999)]
    seed: u64,
}

#[derive(Args, Debug)]
struct RadixArgs {
    /// How many keys of 32 bits.
    #[arg(long, default_value_t = 8_192, value_parser = most(100_000_000))]
    keys: u64,
    /// Bits of a digit.
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u32).range(1..=16))]
    digit: u32,
    #[command(flatten)]
    seed: Seed,
}

#[derive(Args, Debug)]
struct Em3dArgs {
    /// How many nodes, half electric, half magnetic.
    #[arg(long, default_value_t = 400, value_parser = most(10_000_000))]
    nodes: u64,
    /// Neighbors of a node.
    #[arg(long, default_value_t = 10, value_parser = most(1_000))]
    degree: u64,
    /// Neighbors that are with another process.
    #[arg(long, default_value = "40%", value_parser = quantity::fraction)]
    remote: Share,
    /// Steps in time.
    #[arg(long, default_value_t = 5, value_parser = most(100_000))]
    steps: u64,
    #[command(flatten)]
    seed: Seed,
}

/// A number of at least 1.
fn most(most: u64) -> clap::builder::RangedU64ValueParser<u64> {
    value_parser!(u64).range(1..=most)
}

impl Command {
    fn program(&self) -> Program {
        let radix = |args: &RadixArgs, bulk| {
            Program::Radix(Radix {
                keys: args.keys as usize,
                digit: args.digit,
                bulk,
                seed: args.seed.seed,
            })
        };
        let em3d = |args: &Em3dArgs, form| {
            Program::Em3d(Em3d {
                nodes: args.nodes as usize,
                degree: args.degree as usize,
                remote: args.remote.0,
                steps: args.steps as usize,
                form,
                seed: args.seed.seed,
            })
        };
        match self {
            Self::Radix(args) => radix(args, false),
            Self::Radb(args) => radix(args, true),
            Self::Sample { keys, samples, seed } => Program::Sample(Sample {
                keys: *keys as usize,
                samples: *samples as usize,
                seed: seed.seed,
            }),
            Self::Em3dRead(args) => em3d(args, Form::Read),
            Self::Em3dWrite(args) => em3d(args, Form::Write),
            Self::Barnes {
                bodies,
                steps,
                opening,
                seed,
            } => Program::Barnes(Barnes {
                bodies: *bodies as usize,
                steps: *steps as usize,
                opening: opening.0,
                seed: seed.seed,
            }),
            Self::PRay {
                side,
                spheres,
                cache,
                seed,
            } => Program::PRay(PRay {
                side: *side as usize,
                spheres: *spheres as usize,
                cache: *cache,
                seed: seed.seed,
            }),
            Self::Connect {
                side,
                connected,
                seed,
            } => Program::Connect(Connect {
                side: *side as usize,
                connected: connected.0,
                seed: seed.seed,
            }),
            Self::Murphi { caches } => Program::Murphi(Murphi { caches: *caches }),
            Self::NowSort {
                records,
                disk,
                directory,
                seed,
            } => Program::NowSort(NowSort {
                records: *records as usize,
                disk: disk.map(|disk| disk.bits_per_second() as f64 / 8.0),
                directory: directory.clone().unwrap_or_else(env::temp_dir),
                seed: seed.seed,
            }),
        }
    }
}

/// Runs the subcommand; its exit code.
pub(crate) fn run(args: &SplitCArgs) -> anyhow::Result<u8> {
    let program = args.program.program();
    processes::run(
        args.rank,
        |hosts| hosts,
        |rank, addresses| Ok(program.run(rank, addresses)?),
    )
}
