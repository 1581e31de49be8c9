//! `cargo xtask vm -- CMD`: any command on a stock kernel with several processors.

use std::process::ExitCode;

use anyhow::Result;
use perturb_sandbox::{Other, Sandbox, exit_code};

use crate::{
    arch::Arch,
    dist,
    sandbox::Conditions,
    setup::kernels::{self, Kernel},
};

/// Processors unless more or fewer are asked for.
pub(crate) const CPUS: u8 = 4;
pub(crate) const MEMORY_MIB: u32 = 3072;

/// What to run, and on what.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Processors of the machine
    #[arg(long, default_value_t = CPUS, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    cpus: u8,
    /// The distribution's kernel (stable), that of its backports (newest), of Debian's unstable, or of a package; downloaded if missing
    #[arg(long, default_value = "stable", value_name = "KERNEL")]
    kernel: Kernel,
    /// The processors' kind; another than this machine's has files of its own, but shares the directories that may be written to
    #[arg(long, value_enum)]
    arch: Option<Arch>,
    /// One processor, whose clock counts instructions, 2 ns each: timing does not depend on what else this machine does
    #[arg(long, conflicts_with = "cpus")]
    counted: bool,
    #[command(flatten)]
    conditions: Conditions,
}

/// A stock kernel on this machine's or another processor.
pub(crate) fn machine(kernel: &Kernel, arch: Arch, cpus: u8) -> Result<Sandbox> {
    let root = kernel.ready(arch)?;
    let other = if arch.is_this_machine() {
        None
    } else {
        Some(Other {
            processor: arch.name().to_owned(),
            files: kernels::system(arch)?,
            init: dist::program(arch)?,
        })
    };
    Ok(Sandbox::stock_on(&root, cpus, other)?)
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let arch = args.arch.map_or_else(Arch::of_this_machine, Ok)?;
    let machine = if args.counted {
        machine(&args.kernel, arch, 1)?.counted()
    } else {
        machine(&args.kernel, arch, args.cpus)?
    };
    let task = args.conditions.task(MEMORY_MIB)?;
    Ok(ExitCode::from(exit_code(machine.run(&task)?)))
}
