//! `cargo xtask kernels`: the program of the packages on each kernel there is, with each pacer; docs/measured/kernels.md.
//!
//! Model: a place is a kernel on a kind of processor. In each place one script (`kernels/measure.sh`) pings over a profile with
//! each pacer, reads `perturb status`, and calibrates the profile; it leaves files, from which the figures are taken. They are kept
//! in docs/measured/kernels.json, of which only the places that were measured change, and the page is written from it.

mod figures;
mod page;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use perturb_sandbox::{Sandbox, SandboxError, Task};
use serde_json::Value;

use crate::{
    arch::Arch,
    command::{output, say},
    dist,
    setup::{
        self,
        kernels::Kernel,
        packages::{self, Group},
    },
    vm, workspace,
};

const SCRIPT: &str = include_str!("kernels/measure.sh");
/// One way. ping prints round trips below 10 ms with two decimals.
const LATENCY_MS: f64 = 4.0;
/// Relative to the workspace.
const FIGURES: &str = "docs/measured/kernels.json";
const PAGE: &str = "docs/measured/kernels.md";
/// Processors of the stock kernels: no more than a small machine can emulate at a time.
const CPUS: u8 = 2;
const MEMORY_MIB: u32 = 2048;
/// For all pacers of a place.
const LIMIT: Duration = Duration::from_secs(1500);

/// Where to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these places; the others' figures stay as they are
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Place>,
    /// Measure nothing: write the page from the figures
    #[arg(long, conflicts_with = "only")]
    page: bool,
}

/// A kernel on a kind of processor, in the order of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Place {
    /// This machine's kernel
    Host,
    /// The sandbox
    Sandbox,
    /// The distribution's kernel in qemu
    Stable,
    /// That of its backports
    Newest,
    /// That of Debian's unstable
    Unstable,
    /// The distribution's kernel on aarch64
    ArmStable,
    /// That of its backports
    ArmNewest,
    /// That of Debian's unstable
    ArmUnstable,
}

impl Place {
    /// As it is asked for.
    fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn arch(self) -> Result<Arch> {
        match self {
            Self::Host | Self::Sandbox => Arch::of_this_machine(),
            Self::Stable | Self::Newest | Self::Unstable => Ok(Arch::X86),
            Self::ArmStable | Self::ArmNewest | Self::ArmUnstable => Ok(Arch::Arm),
        }
    }

    /// The stock kernel, if it has one.
    fn stock(self) -> Option<Kernel> {
        match self {
            Self::Host | Self::Sandbox => None,
            Self::Stable | Self::ArmStable => Some(Kernel::Stable),
            Self::Newest | Self::ArmNewest => Some(Kernel::Newest),
            Self::Unstable | Self::ArmUnstable => Some(Kernel::Unstable),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (path, page) = (workspace::root().join(FIGURES), workspace::root().join(PAGE));
    let text = fs::read_to_string(&path).unwrap_or_else(|_| "[]".to_owned());
    let cells: Vec<Value> =
        serde_json::from_str(&text).with_context(|| format!("{} is not understood", path.display()))?;
    if args.page {
        return write(&page, &page::text(&cells)).map(|()| ExitCode::SUCCESS);
    }
    // Before it changes anything itself.
    let commit = output(
        Command::new("git")
            .args(["describe", "--always", "--dirty"])
            .current_dir(workspace::root()),
    );
    let commit = commit.context("git names no commit")?;
    setup::run(&setup::Args::default())?;
    packages::ensure(&[Group::Vm, Group::OtherVm, Group::Dist], setup::Mode::Install)?;
    let all = <Place as clap::ValueEnum>::value_variants();
    let asked = if args.only.is_empty() { all } else { &args.only };
    let mut cells = cells;
    let mut code = ExitCode::SUCCESS;
    for &place in asked {
        match measure(place, commit.trim()) {
            Ok(new) => {
                cells.retain(|cell| cell["place"] != *place.name());
                cells.extend(new);
            }
            Err(error) if matches!(error.downcast_ref(), Some(SandboxError::Interrupted { .. })) => {
                return Err(error);
            }
            Err(error) => {
                say(&format!("{}: {error:#}", place.name()));
                code = ExitCode::FAILURE;
            }
        }
        cells.sort_by_key(|cell| all.iter().position(|place| cell["place"] == *place.name()));
        let text = serde_json::to_string_pretty(&cells).context("cannot write JSON")? + "\n";
        write(&path, &text)?;
        write(&page, &page::text(&cells))?;
    }
    Ok(code)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The cells of one place.
fn measure(place: Place, commit: &str) -> Result<Vec<Value>> {
    let arch = place.arch()?;
    let directory = workspace::own()?.join("measured").join(place.name());
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    fs::copy(dist::program(arch)?, directory.join("perturb")).context("cannot copy the program")?;
    let profile = format!("version: 1\nname: kernels\nlatency: {LATENCY_MS}ms\n");
    write(&directory.join("profile.yaml"), &profile)?;
    write(&directory.join("measure.sh"), SCRIPT)?;
    say(&format!("measuring: {}", place.name()));
    let status = if place == Place::Host {
        ensure!(packages::is_root(), "only root may attach programs");
        Command::new("sh")
            .arg("measure.sh")
            .current_dir(&directory)
            .env("LC_ALL", "C")
            .status()?
    } else {
        let machine = match place.stock() {
            Some(kernel) => vm::machine(&kernel, arch, CPUS)?,
            None => Sandbox::find()?,
        };
        machine.run(&task(&directory)?)?
    };
    ensure!(status.success(), "the script failed: {status}");
    figures::read(&directory, &place.name(), arch.name(), commit)
}

fn task(directory: &Path) -> Result<Task> {
    let mut task = Task::new(["sh", "measure.sh"].map(OsString::from))?;
    task.env.push(("LC_ALL".into(), "C".into()));
    task.writable = vec![PathBuf::from(directory)];
    task.cwd = directory.to_owned();
    task.memory_mib = MEMORY_MIB;
    task.timeout = Some(LIMIT);
    Ok(task)
}
