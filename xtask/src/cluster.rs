//! `cargo xtask cluster -- CMD`: any command beside three machines of namespaces, with sshd and Slurm.
//!
//! This process becomes the first one's guard (`unshare --kill-child`): whatever ends it, SIGKILL too, ends the cluster.

use std::{convert::Infallible, ffi::OsString, fs, os::unix::process::CommandExt as _, process::Command};

use anyhow::{Context as _, Result, bail};

use crate::{
    setup::{Mode, packages},
    workspace,
};

/// What the tests make their machines with, too.
const SCRIPT: &str = "tests/program/machines/cluster.sh";
/// PID 1's: the command, with what it needs to know in its environment.
const RUN: &str = r#". "$CLUSTER"; cd "$FROM"; export ssh; "$@""#;

/// What to run in it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command and its arguments, on the machine `login`; n01, n02 and n03 are reached by `$ssh` and by srun [default: a shell]
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Starts the cluster, runs the command, and ends the cluster: it does not return.
pub(crate) fn run(args: Args) -> Result<Infallible> {
    if !packages::is_root() {
        bail!("only root may make the cluster's namespaces");
    }
    packages::ensure(&[packages::Group::Cluster], Mode::Install)?;
    let out = workspace::own()?.join("cluster");
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot empty {}", out.display()))?;
    }
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let from = std::env::current_dir().context("cannot find the current directory")?;
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc"])
        .args(["--kill-child", "bash", "-c", RUN, "cluster"])
        .env("CLUSTER", workspace::root().join(SCRIPT))
        .env("FROM", from)
        .env("OUT", out)
        .env("SLURM", "1");
    if args.command.is_empty() {
        unshare.arg("bash");
    }
    Err(unshare.args(args.command).exec()).context("cannot start unshare (util-linux)")
}
