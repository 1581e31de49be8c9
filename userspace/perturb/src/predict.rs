//! `perturb predict MODEL FILE`: the models on the command line.
//!
//! Each model has a module here that reads its input, runs it and prints what it gives: a table for
//! people, or one JSON object. The models themselves are in `perturb-models` and know nothing of files.

use std::io::Write;

use clap::{Args, Subcommand};

mod input;
mod loggp;
mod logpc;
mod nfs;
mod pipeline;
mod plogpt;
mod profile;
mod validate;
mod whatif;

pub(crate) use input::{InputError, read};
pub(crate) use loggp::LoggpArgs;
pub(crate) use logpc::LogpcArgs;
pub(crate) use nfs::NfsArgs;
pub(crate) use pipeline::PipelineArgs;
pub(crate) use plogpt::PlogptArgs;
pub(crate) use validate::ValidateArgs;
pub(crate) use whatif::WhatifArgs;

/// Arguments of `perturb predict`.
#[derive(Args, Debug)]
pub(crate) struct PredictArgs {
    /// Which model.
    #[command(subcommand)]
    pub model: Model,
}

/// The models.
#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    /// Run time against overhead, gap, latency and bandwidth (Martin)
    Loggp(LoggpArgs),
    /// Response time of an NFS server against its load (Martin)
    Nfs(NfsArgs),
    /// Delay of a message cut into fragments, and the best fragment size (Martin)
    Pipeline(PipelineArgs),
    /// Messages over a tree of switches with TCP's retransmission time-out (Nomura et al.)
    Plogpt(PlogptArgs),
    /// Messages with contention in a k-ary n-cube (Moritz and Frank)
    Logpc(LogpcArgs),
    /// A traced run placed otherwise, or on another network (Eom and Hollingsworth)
    Whatif(WhatifArgs),
    /// The models' numbers beside the papers'
    Validate(ValidateArgs),
}

/// Runs the command.
///
/// # Errors
/// An error for which [`is_invalid_input`] holds, or what went wrong while printing.
pub(crate) fn run(args: &PredictArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.model {
        Model::Loggp(args) => loggp::run(args, out),
        Model::Nfs(args) => nfs::run(args, out),
        Model::Pipeline(args) => pipeline::run(args, out),
        Model::Plogpt(args) => plogpt::run(args, out),
        Model::Logpc(args) => logpc::run(args, out),
        Model::Whatif(args) => whatif::run(args, out),
        Model::Validate(args) => validate::run(args, out),
    }
}

/// Whether an error of [`run`] is the input's fault: exit code 2 instead of 1.
#[must_use]
pub(crate) fn is_invalid_input(error: &anyhow::Error) -> bool {
    error.is::<InputError>()
        || error.is::<loggp::TwiceError>()
        || error.is::<perturb_trace::SummaryError>()
        || error.is::<plogpt::SweepError>()
        || error.is::<validate::UnknownModel>()
}

#[cfg(test)]
mod tests;
