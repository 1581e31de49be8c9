//! The end-to-end tests on stock kernels with several processors.
//!
//! Model: one boot for each kernel, in which the end-to-end tests' program runs: all of its tests on the distribution's
//! kernel, some on the newest one, which is to show that the programs load there and that the basics hold. Emulated
//! processors are 5 to 20 times slower than real ones and not slower alike, so that bounds of figures mean nothing
//! there. What is no figure is tested as anywhere else.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use perturb_sandbox::Sandbox;
use serde_json::Value;

use super::{END_TO_END, PROGRAM_VARIABLE, Stage, listed_tests, own_copy, run_tests};
use crate::{
    command::output,
    compile::{self, Built},
    setup::kernels::Kernel,
    tally::Tally,
    vm, workspace,
};

/// What runs on the newest kernel: load, apply and follow, order, the basics of life.
const SMOKE: [&str; 8] = [
    "delay::both_ways",
    "fates::nth_loses",
    "packets::",
    "order::egress_plain",
    "order::ingress_super_packets",
    "life::ctrl_c",
    "life::live_update",
    "runs::exit_codes",
];
/// Says to the tests that bounds of figures are not for here, and why.
const UNFIT: (&str, &str) = (
    "PERTURB_UNFIT_FOR_FIGURES",
    "processors that software emulates are slower than the bounds are for",
);
/// Fewer of what other stages do often: each takes seconds here.
const KILLS: (&str, &str) = ("PERTURB_KILLS", "12");
/// How long all tests may take on a kernel, seconds, before they are killed.
const LIMIT: u32 = 1500;
/// How long those of [`SMOKE`] may.
const SMOKE_LIMIT: u32 = 600;

/// All tests on one kernel, or on the distribution's, and those of [`SMOKE`] on the newest.
pub(super) fn test(built: &Built, kernel: Option<&Kernel>, filter: Option<&str>) -> Result<Tally> {
    let program = program(built)?;
    let all: Vec<&str> = vec![filter.unwrap_or_default()];
    match (kernel, filter) {
        (Some(kernel), _) => on(built, kernel, &program, &all, LIMIT),
        (None, Some(_)) => on(built, &Kernel::Stable, &program, &all, LIMIT),
        (None, None) => {
            let stable = on(built, &Kernel::Stable, &program, &all, LIMIT)?;
            Ok(stable + on(built, &Kernel::Newest, &program, &SMOKE, SMOKE_LIMIT)?)
        }
    }
}

/// The tests that any of the filters selects, in one boot.
fn on(built: &Built, kernel: &Kernel, program: &Path, filters: &[&str], limit: u32) -> Result<Tally> {
    let name = format!("{} ({kernel})", Stage::Vm.name());
    let machine = kernel
        .unpacked()
        .and_then(|root| Ok(Sandbox::stock(&root, vm::CPUS)?));
    if let Err(error) = machine {
        let mut skipped = 0;
        for filter in filters {
            let listed = output(Command::new(program).args([filter, "--list", "--format=terse"]));
            skipped += listed_tests(&listed.context("the end-to-end tests cannot be listed")?);
        }
        println!("{name}: all {skipped} skipped: {error:#}");
        return Ok(Tally {
            skipped,
            ..Tally::default()
        });
    }
    let package = workspace::root().join("tests");
    let mut command = Command::new(own_copy()?);
    command
        .args([
            "vm",
            "--kernel",
            &kernel.to_string(),
            "--timeout",
            &limit.to_string(),
            "--writable",
        ])
        .arg(workspace::target()?)
        .args(["--", "sh", "-c", EACH_FILTER])
        .arg(program)
        .args(filters)
        .current_dir(package)
        .env(PROGRAM_VARIABLE, &built.program)
        .env(UNFIT.0, UNFIT.1)
        .env(KILLS.0, KILLS.1);
    run_tests(&name, &mut command)
}

/// `$0` is the program, the arguments are filters.
const EACH_FILTER: &str =
    r#"code=0; for filter; do "$0" --test-threads=1 "$filter" || code=$?; done; exit "$code""#;

/// Compiles the end-to-end tests; the path of their program.
fn program(built: &Built) -> Result<PathBuf> {
    let mut cargo = compile::cargo("test", &built.object);
    cargo.args([
        "--package",
        END_TO_END,
        "--test",
        "e2e",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
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
