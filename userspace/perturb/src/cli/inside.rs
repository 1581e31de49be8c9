//! Commands that run inside private hosts.

use std::{ffi::OsString, os::fd::RawFd, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use perturb_emulator::{
    lab::{
        inside, join,
        lodge::{self, Lodged, Lodging},
    },
    prepared::ProfileError,
    privileges::Owner,
    runtime,
};
use perturb_machines::agent::READY;
use perturb_profile::Whose;

use super::DONE;

/// What `perturb run` tells its stage: [`inside::Stage`].
#[derive(Args, Debug)]
pub(super) struct Stage {
    /// NUMBER:FD of the hosts that are here, with their network namespaces.
    #[arg(long, value_delimiter = ',', required = true, value_parser = numbered)]
    namespaces: Vec<(u32, RawFd)>,
    /// How many hosts there are.
    #[arg(long)]
    hosts: u32,
    /// [`inside::Elsewhere`], as JSON.
    #[arg(long, value_parser = elsewhere)]
    elsewhere: Option<inside::Elsewhere>,
    /// Whose the command is, UID:GID; without it root's.
    #[arg(long, value_parser = Owner::parse)]
    owner: Option<Owner>,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

fn numbered(text: &str) -> Result<(u32, RawFd), String> {
    let pair = text.split_once(':');
    let pair = pair.and_then(|(number, fd)| number.parse().ok().zip(fd.parse().ok()));
    pair.ok_or_else(|| "no NUMBER:FD".to_owned())
}

fn elsewhere(text: &str) -> Result<inside::Elsewhere, serde_json::Error> {
    serde_json::from_str(text)
}

fn lodging(text: &str) -> Result<Lodging, serde_json::Error> {
    serde_json::from_str(text)
}

/// What `perturb run` on another machine has this one do.
#[derive(Args, Debug)]
pub(super) struct Lodge {
    /// [`Lodging`], as JSON.
    #[arg(long, value_parser = lodging)]
    lodging: Lodging,
    /// The network's profile.
    profile: PathBuf,
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
    /// Which process has the host, if another machine calls.
    #[arg(long)]
    lodge: Option<u32>,
    /// The process whose namespaces the command gets, if the host is not private.
    #[arg(long, requires = "lodge")]
    within: Option<u32>,
    /// Name of the private host.
    host: String,
    /// Words of a shell command.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

pub(super) fn stage(args: Stage) -> anyhow::Result<u8> {
    let Stage {
        namespaces,
        hosts,
        elsewhere,
        owner,
        command,
    } = args;
    inside::stage(&inside::Stage {
        namespaces,
        hosts,
        elsewhere: elsewhere.unwrap_or_default(),
        owner,
        command,
    })
}

pub(super) fn lodge(args: &Lodge) -> anyhow::Result<u8> {
    let loaded = perturb_profile::load_for(&args.profile, Whose::Everyone).map_err(ProfileError::from)?;
    let tell = |lodged: &Lodged| {
        println!(
            "{}",
            serde_json::to_string(lodged).context("printing where the hosts are")?
        );
        println!("{READY}");
        Ok(())
    };
    let passed = runtime()?.block_on(lodge::lodge(&args.lodging, &loaded.profile, tell))?;
    let passed = serde_json::to_string(&passed).context("printing what has passed the tunnels")?;
    println!("{passed}");
    Ok(DONE)
}

pub(super) fn on(args: &On) -> anyhow::Result<u8> {
    match &args.run {
        Some(id) => join::join(id, &args.host, args.as_root, &args.command),
        None => match inside::on(&args.host, args.as_root, &args.command)? {},
    }
}

pub(super) fn agent(args: &Agent) -> anyhow::Result<u8> {
    match args.lodge {
        Some(process) => join::agent(process, args.within, &args.host, &args.command),
        None => match inside::agent(&args.host, &args.command)? {},
    }
}
