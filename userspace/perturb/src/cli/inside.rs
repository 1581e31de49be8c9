//! Commands that run inside private hosts.

use std::{ffi::OsString, os::fd::RawFd};

use clap::Args;
use perturb_emulator::{
    lab::{inside, join},
    privileges::Owner,
};

/// What `perturb run` tells its stage: [`inside::Stage`].
#[derive(Args, Debug)]
pub(super) struct Stage {
    /// File descriptors of the hosts' network namespaces, h1's first.
    #[arg(long, value_delimiter = ',', required = true)]
    namespaces: Vec<RawFd>,
    /// Whose the command is, UID:GID; without it root's.
    #[arg(long, value_parser = Owner::parse)]
    owner: Option<Owner>,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Arguments of `perturb on`.
#[derive(Args, Debug)]
pub(super) struct On {
    /// Name of the private host: h1, h2, …
    host: String,
    /// From outside of `run`, as root: which one's hosts, by its `id` in `status --json`: run-4711.
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Run the command as root, even if sudo started this one.
    #[arg(long)]
    as_root: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Arguments of `perturb agent`: those that mpirun gives to ssh.
#[derive(Args, Debug)]
pub(super) struct Agent {
    /// Name of the private host.
    host: String,
    /// Words of a shell command.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

pub(super) fn stage(args: Stage) -> anyhow::Result<u8> {
    let Stage {
        namespaces,
        owner,
        command,
    } = args;
    inside::stage(&inside::Stage {
        namespaces,
        owner,
        command,
    })
}

pub(super) fn on(args: &On) -> anyhow::Result<u8> {
    match &args.run {
        Some(id) => join::join(id, &args.host, args.as_root, &args.command),
        None => match inside::on(&args.host, args.as_root, &args.command)? {},
    }
}

pub(super) fn agent(args: &Agent) -> anyhow::Result<u8> {
    match inside::agent(&args.host, &args.command)? {}
}
