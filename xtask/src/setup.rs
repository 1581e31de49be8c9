//! `cargo xtask setup`: what building and testing need, checked first, installed if missing.
//!
//! Four kinds of things. A *compiler* for the eBPF target (`compiler`), the *linker* for its bitcode, which must
//! read what the compiler's LLVM writes (`linker`), *programs* the tests use (`packages`), and, where they are asked for,
//! the *stock kernels* that tests run on (`kernels`). Distribution packages go where the distribution puts them and need
//! root; the rest goes below the target directory or into rustup's.

pub(crate) mod compiler;
pub(crate) mod kernels;
pub(crate) mod linker;
pub(crate) mod packages;

use std::{path::PathBuf, time::Instant};

use anyhow::{Result, bail};

use crate::{arch::Arch, command::say};
use compiler::Compiler;
use kernels::Kernel;
use packages::Group;

/// Which optional programs are wanted.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Also install programs that only some experiments use
    #[arg(long, value_enum, value_delimiter = ',', value_name = "GROUPS")]
    with: Vec<Group>,
    /// Only say what is missing
    #[arg(long)]
    check: bool,
}

/// Whether what is missing may be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Check,
    Install,
}

/// What compiles the eBPF programs.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) compiler: Compiler,
    pub(crate) linker: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    let mode = if args.check { Mode::Check } else { Mode::Install };
    let programs = packages::ensure(&args.with, mode);
    let programs = programs.and_then(|()| {
        if args.with.contains(&Group::Vm) {
            ensure_kernels(mode)
        } else {
            Ok(())
        }
    });
    let tools = tools(mode);
    match (programs, tools) {
        (Ok(()), Ok(_)) => {
            say(&format!(
                "everything is there ({:.1} s)",
                start.elapsed().as_secs_f64()
            ));
            Ok(())
        }
        (Err(error), Ok(_)) | (Ok(()), Err(error)) => Err(error),
        (Err(first), Err(second)) => bail!("{first:#}\n{second:#}"),
    }
}

/// The stock kernels. That of the backports is optional: the tests on it are skipped, and counted, where it is missing.
fn ensure_kernels(mode: Mode) -> Result<()> {
    let arch = Arch::of_this_machine()?;
    let stable = Kernel::Stable.ensure(arch, mode)?;
    say(&format!("stock kernel: {}", stable.display()));
    match Kernel::Newest.ensure(arch, mode) {
        Ok(newest) => say(&format!("newest stock kernel: {}", newest.display())),
        Err(error) => say(&format!(
            "tests on the newest stock kernel will be skipped: {error:#}"
        )),
    }
    Ok(())
}

/// The first compiler for which there is, or can be made, a linker.
pub(crate) fn tools(mode: Mode) -> Result<Tools> {
    let mut reasons = Vec::new();
    for candidate in compiler::candidates() {
        let found = compiler::ensure(candidate, mode)
            .and_then(|compiler| linker::ensure(&compiler, mode).map(|linker| Tools { compiler, linker }));
        match found {
            Ok(tools) => {
                say(&format!("compiler: {}", tools.compiler));
                say(&format!("linker: {}", tools.linker.display()));
                return Ok(tools);
            }
            Err(error) => reasons.push(format!("\n  {candidate}: {error:#}")),
        }
    }
    let way_out = match mode {
        Mode::Check => "`cargo xtask setup` installs what is missing",
        Mode::Install => "any one of these is enough",
    };
    bail!(
        "no compiler for the eBPF programs; {way_out}:{}",
        reasons.concat()
    )
}
