//! `cargo xtask vm -- CMD`: any command on a stock kernel with several processors.

use std::process::ExitCode;

use anyhow::Result;
use perturb_sandbox::{Sandbox, exit_code};

use crate::{sandbox::Conditions, setup::kernels::Kernel};

/// Processors unless more or fewer are asked for.
pub(crate) const CPUS: u8 = 4;
pub(crate) const MEMORY_MIB: u32 = 3072;

/// What to run, and on what.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Processors of the machine
    #[arg(long, default_value_t = CPUS, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    cpus: u8,
    /// The distribution's kernel (stable), that of its backports (newest), or that of a package; downloaded if missing
    #[arg(long, default_value = "stable", value_name = "KERNEL")]
    kernel: Kernel,
    /// One processor, whose clock counts instructions, 2 ns each: timing does not depend on what else this machine does
    #[arg(long, conflicts_with = "cpus")]
    counted: bool,
    #[command(flatten)]
    conditions: Conditions,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let kernel = args.kernel.ready()?;
    let machine = if args.counted {
        Sandbox::stock(&kernel, 1)?.counted()
    } else {
        Sandbox::stock(&kernel, args.cpus)?
    };
    let task = args.conditions.task(MEMORY_MIB)?;
    Ok(ExitCode::from(exit_code(machine.run(&task)?)))
}
