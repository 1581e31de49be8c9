//! `cargo xtask sandbox -- CMD`: any command on a kernel that has everything perturb needs.

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use perturb_sandbox::{Sandbox, Task, exit_code};

const MEMORY_MIB: u32 = 1024;

/// A command, and the conditions it runs under in a guest of whatever kind.
#[derive(Debug, clap::Args)]
pub(crate) struct Conditions {
    /// Memory in MiB, which also holds what is written outside the writable directories
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(64..=65536))]
    memory: Option<u32>,
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

impl Conditions {
    /// The task, with so much memory unless it was said.
    pub(crate) fn task(self, memory_mib: u32) -> std::io::Result<Task> {
        let mut task = Task::new(self.command)?;
        task.memory_mib = self.memory.unwrap_or(memory_mib);
        task.timeout = self.timeout.map(Duration::from_secs);
        task.writable.extend(self.writable);
        task.verbose = self.verbose;
        Ok(task)
    }
}

pub(crate) fn run(conditions: Conditions) -> anyhow::Result<ExitCode> {
    let task = conditions.task(MEMORY_MIB)?;
    Ok(ExitCode::from(exit_code(Sandbox::find()?.run(&task)?)))
}
