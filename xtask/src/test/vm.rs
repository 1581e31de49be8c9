//! The end-to-end tests on stock kernels with several processors.
//!
//! Model: one boot for each kernel, in which the end-to-end tests' program runs. Where the stage is asked for, all tests
//! run on the distribution's kernel. Otherwise a few do whose subject is what only several processors can make wrong
//! ([`SELECTION`]); on the newest kernel fewer ([`SMOKE`]). Emulated processors are 5 to 20 times slower
//! than real ones and not slower alike, so that bounds of figures mean nothing there. What is no figure is tested as
//! anywhere else.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{END_TO_END, PROGRAM_VARIABLE, Stage, WORKSPACE, listed_tests, must_exist, own_copy, run_tests};
use crate::{
    arch::Arch,
    command::output,
    compile::{self, Built},
    setup::kernels::Kernel,
    tally::Tally,
    vm, workspace,
};

/// What runs unless the stage is asked for: beginnings of names of tests of what several processors make wrong.
const SELECTION: &[&str] = &[
    "order::egress_plain::fq",
    "order::egress_frames::fq",
    "order::ingress_super_packets::fq",
    "accounting::losses_are_named::fq",
    "kept::pacing_of_tcp::fq",
    "life::ctrl_c_leaves_nothing::fq",
    "update::a_change_between_two_servers::fq",
];
/// What runs on the newest kernel: the programs load, and it is as they expect.
const SMOKE: &[&str] = &[
    "kept::launch_times::fq",
    "life::live_update_loses_nothing::fq",
    "order::egress_plain::fq",
];
/// Tests that compare figures, and where only they are asked for run by a clock that counts instructions.
const COUNTED: &str = "queues::";
/// All tests.
const ALL: &[&str] = &[""];
/// Says to the tests that bounds of figures are not for here, and why.
pub(super) const UNFIT: (&str, &str) = (
    "PERTURB_UNFIT_FOR_FIGURES",
    "processors that software emulates are slower than the bounds are for",
);
/// Fewer of what other stages do often: each takes seconds here.
const FEWER: [(&str, &str); 2] = [("PERTURB_KILLS", "6"), ("PERTURB_ORDER_DATAGRAMS", "1000")];
/// How long a selection may take on a kernel, seconds, before it is killed: a quarter of it is usual.
const LIMIT: u32 = 2400;

/// What is to be tested.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent<'a> {
    /// Only this kernel.
    pub(super) kernel: Option<&'a Kernel>,
    /// All tests, not the selection.
    pub(super) all: bool,
    /// Long tests, too.
    pub(super) long: bool,
    /// Of these, only tests whose names contain this.
    pub(super) filter: Option<&'a str>,
}

/// The tests on one kernel, or on the distribution's, and those of [`SMOKE`] on the newest.
pub(super) fn test(built: &Built, extent: Extent<'_>) -> Result<Tally> {
    let program = program(built)?;
    let chosen = if extent.all { ALL } else { SELECTION };
    let limit = (!extent.all).then_some(LIMIT);
    let on = |kernel, chosen, limit| on(built, kernel, &program, chosen, extent, limit);
    match extent.kernel {
        Some(kernel) => on(kernel, chosen, limit),
        None => Ok(on(&Kernel::Stable, chosen, limit)? + on(&Kernel::Newest, SMOKE, Some(LIMIT))?),
    }
}

/// The end-to-end tests, as their program lists them.
pub(super) fn listed(program: &Path) -> Result<String> {
    let listed = output(Command::new(program).args(["--list", "--format=terse"]));
    listed.context("the end-to-end tests cannot be listed")
}

/// The tests whose names begin with one of `chosen`, in one boot.
fn on(
    built: &Built,
    kernel: &Kernel,
    program: &Path,
    chosen: &[&str],
    extent: Extent<'_>,
    limit: Option<u32>,
) -> Result<Tally> {
    let name = format!("{} ({kernel})", Stage::Vm.name());
    let listed = listed(program)?;
    must_exist(&listed, chosen)?;
    let is_chosen = |test: &&str| {
        chosen.iter().any(|begin| test.starts_with(begin))
            && extent.filter.is_none_or(|part| test.contains(part))
    };
    let (tests, others): (Vec<&str>, Vec<&str>) = listed_tests(&listed).partition(is_chosen);
    if tests.is_empty() {
        return Ok(Tally::default());
    }
    let machine = Arch::of_this_machine().and_then(|arch| vm::machine(kernel, arch, vm::CPUS));
    if let Err(error) = machine {
        println!("{name}: all {} skipped: {error:#}", tests.len());
        return Ok(Tally {
            skipped: u32::try_from(tests.len()).unwrap_or(u32::MAX),
            ..Tally::default()
        });
    }
    let package = workspace::root().join("tests");
    let mut command = Command::new(own_copy()?);
    command.args(["vm", "--kernel", &kernel.to_string()]);
    if tests.iter().all(|test| test.starts_with(COUNTED)) {
        command.arg("--counted");
    }
    if let Some(limit) = limit {
        command.args(["--timeout", &limit.to_string()]);
    }
    command
        .arg("--writable")
        .arg(workspace::target()?)
        .arg("--")
        .arg(program)
        .args(["--test-threads=1", "--exact"]);
    for other in others {
        command.args(["--skip", other]);
    }
    if extent.long {
        command.arg("--include-ignored");
    }
    command
        .current_dir(package)
        .env(PROGRAM_VARIABLE, &built.program)
        .env(UNFIT.0, UNFIT.1);
    for (variable, fewer) in FEWER {
        if env::var_os(variable).is_none() {
            command.env(variable, fewer);
        }
    }
    run_tests(Stage::Vm, &name, &mut command)
}

/// Compiles the end-to-end tests; the path of their program.
pub(super) fn program(built: &Built) -> Result<PathBuf> {
    let mut cargo = compile::cargo("test", &built.object);
    cargo.args(WORKSPACE).args(["--test", END_TO_END]);
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]);
    cargo.arg("--target-dir").arg(workspace::target()?);
    let said = output(&mut cargo).context("the end-to-end tests do not compile")?;
    let artifacts = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let tests = artifacts.filter(|message| message["profile"]["test"] == true);
    let paths = tests.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
    let mut paths: Vec<PathBuf> = paths.collect();
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.starts_with("e2e-"))
    };
    paths.retain(is_wanted);
    paths
        .pop()
        .context("cargo names no program of the end-to-end tests")
}
