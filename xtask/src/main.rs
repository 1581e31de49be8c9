//! `cargo xtask`: set-up, builds, tests, benches.
//!
//! The only place in the workspace that installs anything or knows how the eBPF programs are compiled.

mod sandbox;

use std::{fmt::Write as _, process::ExitCode};

use clap::{Parser, Subcommand};

/// Set-up, builds, tests, benches
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run a command inside the user-mode kernel, on a copy-on-write view of this machine's files
    Sandbox(sandbox::Args),
}

fn main() -> ExitCode {
    perturb_sandbox::init_hook();
    let result = match Cli::parse().task {
        Task::Sandbox(args) => sandbox::run(args),
    };
    result.unwrap_or_else(|error| {
        let mut message = format!("error: {error}");
        for cause in error.chain().skip(1) {
            // Writing to a string cannot fail.
            let _: std::fmt::Result = write!(message, ": {cause}");
        }
        eprintln!("{message}");
        ExitCode::FAILURE
    })
}
