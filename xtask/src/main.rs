//! `cargo xtask`: set-up, builds, tests, benches.
//!
//! The only place in the workspace that installs anything or knows how the eBPF programs are compiled.

mod arch;
mod bench;
mod cluster;
mod command;
mod compile;
mod demo;
mod dist;
mod kernels;
mod lint;
mod sandbox;
mod setup;
mod tally;
mod test;
mod tidy;
mod vm;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use setup::Mode;

/// Set-up, builds, tests, benches
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Check what building and testing need, and install what is missing
    Setup(setup::Args),
    /// Compile the eBPF programs and perturb; print the path of the latter
    Build(compile::Args),
    /// Run a command inside the user-mode kernel, on a copy-on-write view of this machine's files
    Sandbox(sandbox::Conditions),
    /// Run a command on a stock kernel with several emulated processors, on a copy-on-write view of this machine's files
    Vm(vm::Args),
    /// Run a command beside three machines of namespaces, with sshd and Slurm; they end with it
    Cluster(cluster::Args),
    /// Set up, build, and show the main job: a ping, and a table of emulators compared
    Demo(demo::Args),
    /// Set up, build, and measure what perturb claims, beside no emulation, netem and plain fq
    Bench(bench::Args),
    /// Check formatting and lints, of the eBPF programs too
    Lint,
    /// Check what no compiler checks: lengths of files, unused public items, links, the table of crates
    Tidy,
    /// Set up, build, and run the tests: those of the crates, then end to end, on this kernel, in the sandbox and on stock kernels
    Test(test::Args),
    /// Build packages: static programs for x86_64 and aarch64 as archives, .deb, .rpm and images, and the sources; print the directory
    Dist(dist::Args),
    /// Run the program on each kernel there is, with each pacer; write docs/measured/kernels.md: takes a quarter of an hour
    Kernels(kernels::Args),
    /// What continuous integration runs: lint, tidy, then test
    Ci,
}

fn main() -> ExitCode {
    perturb_sandbox::init_hook();
    run(Cli::parse().task).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Setup(args) => setup::run(&args)?,
        Task::Build(args) => println!("{}", compile::build(args.into(), Mode::Check)?.program.display()),
        Task::Sandbox(conditions) => return sandbox::run(conditions),
        Task::Vm(args) => return vm::run(args),
        Task::Cluster(args) => match cluster::run(args)? {},
        Task::Demo(args) => return demo::demonstrate(&args),
        Task::Bench(args) => return bench::measure(&args),
        Task::Kernels(args) => return kernels::run(&args),
        Task::Dist(args) => println!("{}", dist::build(&args)?.display()),
        Task::Lint => lint::run()?,
        Task::Tidy => return tidy::run(),
        Task::Test(args) => return test::run(&args),
        Task::Ci => {
            lint::run()?;
            if tidy::run()? != ExitCode::SUCCESS {
                return Ok(ExitCode::FAILURE);
            }
            return test::run(&test::Args::default());
        }
    }
    Ok(ExitCode::SUCCESS)
}
