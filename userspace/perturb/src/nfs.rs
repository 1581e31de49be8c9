//! `perturb nfs`: a SPECsfs-like load, an NFS server in memory, and the response-time curve.

mod curve;
mod interrupt;
mod load;
mod options;
mod serve;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use perturb_experiments::nfs::{InvalidInput, Part};
use perturb_present::LiveLine;
use perturb_workloads::nfs::{Stop, load::LoadError, mix::MixError};

use self::interrupt::stop_on_signal;
use crate::cli::exit::{DONE, FAILED};

/// Arguments of `perturb nfs`.
#[derive(Args, Debug)]
pub(crate) struct Nfs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put a SPECsfs-like load on an NFSv3 server, and report throughput and response time
    Load(Box<load::Load>),
    /// Serve NFSv3 from memory, with service times that you choose
    Serve(Box<serve::Serve>),
    /// Response time over throughput, up to saturation; also under emulation, and against the model
    Curve(Box<curve::Curve>),
    /// One end of a curve, on a private host
    #[command(hide = true, subcommand)]
    Part(End),
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
        /// No live line.
        #[arg(long)]
        quiet: bool,
    },
}

/// Whether an error means that the input was invalid.
pub(crate) fn is_invalid_input(error: &anyhow::Error) -> bool {
    error.is::<InvalidInput>()
        || error.is::<MixError>()
        || matches!(error.downcast_ref(), Some(LoadError::Setting { .. }))
}

/// Runs a subcommand and returns the exit code.
pub(crate) fn run(args: Nfs) -> anyhow::Result<u8> {
    match args.command {
        Command::Load(args) => load::run(*args),
        Command::Serve(args) => serve::run(&args),
        Command::Curve(args) => curve::run(&args),
        Command::Part(End::Server { settings }) => serve::serve(&Part::server(settings)?, None, true),
        Command::Part(End::Client { settings, quiet }) => {
            let part = Part::client(settings)?;
            let stop = Stop::default();
            stop_on_signal(stop.clone(), false)?;
            let is_whole = part.measure(&stop, &LiveLine::stderr(quiet))?;
            Ok(if is_whole { DONE } else { FAILED })
        }
    }
}
