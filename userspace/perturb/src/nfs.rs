//! `perturb nfs`: a SPECsfs-like load, an NFS server in memory, and the response-time curve.
//!
//! ```text
//! load ──► perturb_workloads::nfs::load ─────────────► any NFSv3 server
//! serve ─► perturb_workloads::nfs::server
//! curve ─► measure (levels one by one, into a file) ──► load
//!   └────► emulated: `perturb nfs part …` as a command on private hosts
//! ```
//!
//! A curve under emulation is measured by another process of this program on private hosts, so
//! the workloads do not know that emulation is on; the two share a file of settings and one of results.

mod curve;
mod effect;
mod emulated;
mod interrupt;
mod load;
mod measure;
mod options;
mod overlay;
mod processors;
mod reference;
mod report;
mod serve;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::exit::{DONE, FAILED};

/// Arguments of `perturb nfs`.
#[derive(Args, Debug)]
pub struct Nfs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put a SPECsfs-like load on an NFSv3 server, and report throughput and response time
    Load(Box<load::Load>),
    /// Serve NFSv3 from memory, with service times that you choose
    Serve(serve::Serve),
    /// Response time over throughput, up to saturation; also under emulation, and against the model
    Curve(Box<curve::Curve>),
    /// One end of a curve, on a private host
    #[command(hide = true)]
    Part(Part),
}

/// What the process on a private host is told.
#[derive(Args, Debug)]
struct Part {
    /// Which end.
    #[command(subcommand)]
    end: End,
}

#[derive(Debug, Subcommand)]
enum End {
    /// Serve.
    Server {
        /// The settings.
        settings: PathBuf,
    },
    /// Measure.
    Client {
        /// The settings.
        settings: PathBuf,
    },
}

/// The input is not valid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidInput {
    /// A file cannot be read.
    #[error("{path}: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {reason}")]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Line, column and reason.
        reason: Box<serde_saphyr::Error>,
    },
    /// A load is asked for that cannot be.
    #[error(transparent)]
    Load(#[from] perturb_workloads::nfs::load::LoadError),
    /// No such mix.
    #[error(transparent)]
    Mix(#[from] perturb_workloads::nfs::mix::MixError),
    /// A knob cannot be varied.
    #[error(
        "--vary {text}: {reason}; write KNOB=LEVEL,LEVEL,… with KNOB one of latency, overhead, gap, bandwidth"
    )]
    Vary {
        /// What was written.
        text: String,
        /// What is wrong with it.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The model knows nothing of it.
    #[error("--model predicts an added latency or overhead; leave --model out to vary {0}")]
    NotModeled(perturb_profile::Knob),
    /// TCP sends again by itself.
    #[error("--retransmit-after is for --transport udp; over TCP the kernel decides when to send again")]
    TcpRetransmits,
    /// Open arrivals wait for nobody.
    #[error("--processes is for --arrivals closed; open arrivals come at the rate, whoever waits")]
    OpenProcesses,
    /// A model needs service times.
    #[error(
        "--model without a file takes its service times from the embedded server: give --cpu-service, or a file"
    )]
    NoModel,
    /// A table has no curves.
    #[error("{0}: no curves; the table needs columns throughput_op_s and response_ms with numbers")]
    Reference(String),
    /// Neither a table nor a file.
    #[error("--reference {name}: there is no such file, and no table of that name; the tables are {names}")]
    NoTable {
        /// What was written.
        name: String,
        /// What could have been.
        names: String,
    },
    /// Two networks would write the same file.
    #[error("two networks are called `{0}`; rename one of the profiles")]
    SameName(String),
    /// A server outside cannot be reached from private hosts.
    #[error(
        "--over and --vary measure the embedded server on private hosts; for a server elsewhere, emulate on the \
         interface (`perturb apply`) and measure without them"
    )]
    ServerElsewhere,
}

/// Runs a subcommand and returns the exit code.
pub fn run(args: Nfs) -> anyhow::Result<u8> {
    match args.command {
        Command::Load(args) => load::run(*args),
        Command::Serve(args) => serve::run(&args),
        Command::Curve(args) => curve::run(&args),
        Command::Part(Part {
            end: End::Server { settings },
        }) => emulated::serve(&settings),
        Command::Part(Part {
            end: End::Client { settings },
        }) => emulated::measure(&settings),
    }
}
