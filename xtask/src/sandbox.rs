//! `cargo xtask sandbox -- CMD`: any command on a kernel that has everything perturb needs.

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use perturb_sandbox::{Sandbox, Task, exit_code};

/// What to run, and with which limits.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Memory of the sandbox in MiB, which also holds what is written outside the writable directories
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=65536))]
    memory: u32,
    /// Kill the command after this many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// A further directory whose changes are to stay; the current one's always do
    #[arg(long, value_name = "DIRECTORY")]
    writable: Vec<PathBuf>,
    /// Show the kernel's messages
    #[arg(long, short)]
    verbose: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut task = Task::new(args.command)?;
    task.memory_mib = args.memory;
    task.timeout = args.timeout.map(Duration::from_secs);
    task.writable.extend(args.writable);
    task.verbose = args.verbose;
    Ok(ExitCode::from(exit_code(Sandbox::find()?.run(&task)?)))
}
