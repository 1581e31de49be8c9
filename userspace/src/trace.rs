//! `perturb trace`: the events of unmodified programs, as the what-if model reads them.
//!
//! ```text
//! perturb trace ──► program, with the interposition library preloaded (LD_PRELOAD)
//!      │                └─ and everything that it starts
//!      ├──◄ rings in shared memory, one per process (spool)
//!      ├──► assembler ──► file of JSON lines
//!      └──► whoever connects (serve), while the program runs
//!
//! perturb trace --to, on each machine ──► records (wire) ──► perturb trace --merge: the assembler and what follows it
//! ```

mod assembler;
mod collective;
mod line;
mod merge;
mod overhead;
mod ranks;
mod run;
mod serve;
mod spool;
mod streams;
mod summary;
mod wire;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

pub use assembler::ProcessReport;
pub use serve::{Address, AddressError};
pub use spool::SpoolError;
pub use summary::{SummaryError, summarize};

const EXAMPLES: &str = "\
Examples:
  perturb trace -- mpirun -n 4 --bind-to none ./solver                events of the ranks, in trace.jsonl
  perturb trace --out run.jsonl --scenario run.yaml -- ./program
                                                               and an input for `perturb predict whatif`
  perturb trace --collect /tmp/events.sock -- ./program &      the prediction runs while the program does:
  perturb predict whatif run.yaml --events /tmp/events.sock --follow
  perturb trace -- perturb run --mpi lan.yaml --hosts 4 -- ./solver   ranks on private hosts
  perturb run lan.yaml -- perturb trace -- sh -c './server & perturb on h2 -- ./client'
  perturb trace --merge tcp:0.0.0.0:7000 --senders 2 --scenario run.yaml
                                                               one trace of two machines, on each of which runs
  perturb trace --to tcp:collector:7000 -- ./program
  perturb trace --overhead 5 -- ./program                      what tracing costs: 5 runs with and 5 without

Processes are named by their ranks (MPI) or as PROGRAM.N, the N-th of its name; further threads of them that
communicate, NAME/2, NAME/3, ...";

/// Arguments of `perturb trace`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub struct TraceArgs {
    /// Where the events go, as JSON lines; `-` is standard output.
    #[arg(long, value_name = "FILE", default_value = "trace.jsonl")]
    pub out: PathBuf,
    /// Also give the events to whoever connects here, as they happen: a Unix socket's path, or tcp:HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub collect: Option<Address>,
    /// Only send what is recorded to the `perturb trace --merge` that listens there: a Unix socket's path, or
    /// tcp:HOST:PORT.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["out", "collect", "scenario", "overhead", "json"])]
    pub to: Option<Address>,
    /// Run nothing, but make one trace of what `perturb trace --to` sends from several machines.
    #[arg(long, value_name = "ADDRESS", requires = "senders", conflicts_with_all = ["to", "overhead", "layer", "command"])]
    pub merge: Option<Address>,
    /// With --merge: how many will send; the trace ends with the last of them.
    #[arg(long, value_name = "N", requires = "merge", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub senders: Option<u32>,
    /// Write an input for `perturb predict whatif`: every process on a processor of its own, messages that take
    /// no time; edit the groups and the network.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// What is traced.
    #[arg(long, value_enum, default_value_t = Layer::Auto)]
    pub layer: Layer,
    /// Run the command this many times without tracing and as often with it, alternating, and print what
    /// tracing costs.
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub overhead: Option<u32>,
    /// Say with each event when it happened (`time_us`, of this machine's monotonic clock).
    #[arg(long, conflicts_with_all = ["to", "merge"])]
    pub times: bool,
    /// Keep what the traced processes write here until it is read [default: /dev/shm].
    #[arg(long, value_name = "DIR", conflicts_with = "merge")]
    pub rings: Option<PathBuf>,
    /// Print the summary as one JSON object, on standard output.
    #[arg(long)]
    pub json: bool,
    /// Write the summary into this file, too, as one JSON object.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "merge", "overhead"])]
    pub summary: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(last = true, required_unless_present = "merge")]
    pub command: Vec<OsString>,
}

/// What is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layer {
    /// MPI calls where a program uses MPI, TCP sockets elsewhere.
    Auto,
    /// MPI calls only.
    Mpi,
    /// TCP sockets only, those of MPI libraries too.
    Sockets,
}

impl Layer {
    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mpi => "mpi",
            Self::Sockets => "sockets",
        }
    }
}

/// What went wrong, but for the command itself.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The output.
    #[error("writing {path}: {source}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The address of --collect.
    #[error("--collect: listening: {0}")]
    Listen(io::Error),
    /// The address of --merge.
    #[error("--merge: waiting for `perturb trace --to`: {0}")]
    Merge(io::Error),
    /// The collector.
    #[error("--to {address}: {source}; is `perturb trace --merge` running there?")]
    Send {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The directory for the rings and the library.
    #[error("making a directory for the traced processes in {path}: {source}")]
    Directory {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The traced processes.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The command.
    #[error("starting {command}: {source}")]
    Start {
        /// Which.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// Waiting for it.
    #[error("waiting for the command: {0}")]
    Wait(io::Error),
}

/// Runs the command; its exit code.
///
/// # Errors
/// What went wrong, but for the command itself.
pub fn run(args: &TraceArgs, out: &mut dyn io::Write) -> anyhow::Result<u8> {
    if let (Some(address), Some(senders)) = (&args.merge, args.senders) {
        merge::merge(args, address, senders)?.print(args.json, out)?;
        return Ok(0);
    }
    if let Some(address) = &args.to {
        let (code, records, processes) = run::sent(args, address)?;
        eprintln!("perturb: {records} records of {processes} processes are at {address}");
        return Ok(code);
    }
    match args.overhead {
        Some(runs) => overhead::measure(args, runs, out),
        None => {
            let (code, report) = run::traced(args)?;
            report.print(args.json, out)?;
            Ok(code)
        }
    }
}
