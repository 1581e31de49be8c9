//! `cargo xtask test`: the tests, from a machine with nothing installed by hand.
//!
//! Model: four stages. Two run whole, but for long tests (`#[ignore]`): the crates', and end to end on this machine's kernel. Two
//! run a selection: the sandbox, for this machine may have no sch_fq, and stock kernels with several processors. `--full` runs all
//! tests of all stages, and more rounds of those that have rounds.

mod skips;
mod vm;

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use perturb_sandbox::Sandbox;
use serde_json::Value;

use self::skips::Place;
use crate::{
    command::{output, say},
    compile::{self, Built, Profile},
    setup::{self, Mode, kernels::Kernel, packages},
    tally::{self, SKIPS_VARIABLE, Tally},
    workspace,
};

/// Everything but the eBPF programs. Whatever is compiled of it has the features that all of it asks for, so nothing twice.
const WORKSPACE: [&str; 3] = ["--workspace", "--exclude", "perturb-ebpf"];
/// The target that the end-to-end tests are.
const END_TO_END: &str = "e2e";
/// Tells the end-to-end tests which program to test.
const PROGRAM_VARIABLE: &str = "PERTURB_BIN";

/// Part of the names of tests of sch_fq (`trials` of the end-to-end tests).
const OF_FQ: &str = "::fq";
/// What runs in the sandbox unless it is asked for: beginnings of names of tests whose subject is what sch_fq does with held
/// packets. What a controller does for its emulation does not depend on the pacer; it is tested on this machine's kernel.
const SANDBOX_SELECTION: &[&str] = &[
    "delay::error_at_1_ms",
    "delay::error_at_20_ms",
    "delay::catches",
    "rates::bandwidth_100_mbit",
    "rates::gap",
    "tcp::eight",
    "fates::nth",
    "fates::ecn",
    "fates::jitter",
    "buffers::bytes",
    "packets::fragments",
    "packets::exact",
    "life::live_update",
    "losses::",
    "update::horizon",
];
/// More of what the tests do by rounds.
const MORE: [(&str, &str); 3] = [
    ("PERTURB_KILLS", "200"),
    ("PERTURB_ORDER_DATAGRAMS", "100000"),
    ("PERTURB_SWEEP_FULL", "1"),
];

/// Which tests.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Only these, whole but for long tests; all by default, of `sandbox` and `vm` a selection
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Stage>,
    /// Only this kernel in the stage `vm`: stable, newest, or a package
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<Kernel>,
    /// All tests of all stages, long ones too, with more rounds: for hours
    #[arg(long)]
    full: bool,
    /// Only tests whose name contains this, long ones too
    filter: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Stage {
    /// The crates' own tests, and those of the program that need no test bed
    Unit,
    /// The end-to-end tests on this machine's kernel, in namespaces; needs root
    Host,
    /// The end-to-end tests in the sandbox
    Sandbox,
    /// The end-to-end tests on stock kernels with four processors
    Vm,
}

impl Stage {
    /// What runs unless stages are named.
    const DEFAULT: [Self; 4] = [Self::Unit, Self::Host, Self::Sandbox, Self::Vm];

    fn name(self) -> &'static str {
        match self {
            Self::Unit => "crates",
            Self::Host => "end to end on this kernel",
            Self::Sandbox => "end to end in the sandbox",
            Self::Vm => "end to end on stock kernels",
        }
    }

    /// Why this stage cannot run here, if it cannot.
    fn obstacle(self) -> Option<String> {
        match self {
            // Each kernel of the stage `vm` has obstacles of its own.
            Self::Unit | Self::Vm => None,
            Self::Host => (!packages::is_root()).then(|| "only root may attach programs".to_owned()),
            Self::Sandbox => Sandbox::find().err().map(|error| error.to_string()),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    setup::run(&setup::Args::default())?;
    let built = compile::build(Profile::Demo, Mode::Check)?;
    let stages = if args.only.is_empty() {
        Stage::DEFAULT.to_vec()
    } else {
        args.only.clone()
    };
    let results = stages
        .into_iter()
        .map(|stage| {
            let filter = args.filter.as_deref();
            let tally = match stage {
                Stage::Vm => {
                    let extent = vm::Extent {
                        kernel: args.kernel.as_ref(),
                        all: is_whole(args),
                        long: has_long(args),
                        filter,
                    };
                    vm::test(&built, extent)?
                }
                stage => run_stage(stage, &built, args)?,
            };
            Ok((stage, tally))
        })
        .collect::<Result<Vec<_>>>()?;
    for (stage, tally) in &results {
        println!("{}: {tally}", stage.name());
    }
    let total: Tally = results.iter().map(|(_, tally)| *tally).sum();
    println!("{total}");
    Ok(if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Whether a stage that has a selection runs all its tests.
fn is_whole(args: &Args) -> bool {
    args.full || !args.only.is_empty() || args.filter.is_some()
}

/// Whether long tests run.
fn has_long(args: &Args) -> bool {
    args.full || args.filter.is_some()
}

fn run_stage(stage: Stage, built: &Built, args: &Args) -> Result<Tally> {
    let filter = args.filter.as_deref();
    if let Some(obstacle) = stage.obstacle() {
        let skipped = count(stage, built, filter)?;
        println!("{}: all {skipped} skipped: {obstacle}", stage.name());
        return Ok(Tally {
            skipped,
            ..Tally::default()
        });
    }
    let mut cargo = cargo(stage, built)?;
    cargo.args(filter);
    // Where this machine's kernel runs no end-to-end test, the sandbox runs all.
    if stage == Stage::Sandbox && !is_whole(args) && Stage::Host.obstacle().is_none() {
        let program = vm::program(built)?;
        let chosen = |test: &str| {
            test.ends_with(OF_FQ) && SANDBOX_SELECTION.iter().any(|begin| test.starts_with(begin))
        };
        let listed = vm::listed(&program)?;
        must_exist(&listed, SANDBOX_SELECTION)?;
        cargo.arg("--exact");
        for test in listed_tests(&listed).filter(|test| !chosen(test)) {
            cargo.args(["--skip", test]);
        }
    }
    if has_long(args) {
        cargo.arg("--include-ignored");
    }
    if args.full {
        for (variable, more) in MORE {
            if env::var_os(variable).is_none() {
                cargo.env(variable, more);
            }
        }
    }
    run_tests(stage, stage.name(), &mut cargo)
}

/// Runs a command that runs tests; what they say is shown, and summed. A test that is skipped for a reason that is not to be
/// expected in this stage counts as failed.
fn run_tests(stage: Stage, name: &str, command: &mut Command) -> Result<Tally> {
    let start = Instant::now();
    let skips_path = workspace::own()?.join("skips");
    fs::write(&skips_path, "").with_context(|| format!("cannot write {}", skips_path.display()))?;
    say(&format!("tests: {name}"));
    let mut child = command
        .env(SKIPS_VARIABLE, &skips_path)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start the tests {name}"))?;
    let stdout = child.stdout.take().context("the tests have no output")?;
    let mut tally = Tally::default();
    for line in BufReader::new(stdout).lines() {
        let line = line.context("cannot read the tests' output")?;
        println!("{line}");
        tally = tally + Tally::of_line(&line).unwrap_or_default();
    }
    let status = child.wait().context("cannot wait for the tests")?;
    if !status.success() && tally.failed == 0 {
        bail!("the tests did not all run ({name}): {status}");
    }
    let file =
        fs::read_to_string(&skips_path).with_context(|| format!("cannot read {}", skips_path.display()))?;
    let skipped = tally::skips(&file);
    let place = Place {
        stage,
        root: packages::is_root(),
        equipped: env::var_os("CI").is_some(),
        compiled: fs::read_to_string("/proc/sys/net/core/bpf_jit_enable")
            .is_ok_and(|text| text.trim() != "0"),
        several: thread::available_parallelism().is_ok_and(|processors| processors.get() > 1),
    };
    let (expected, unexpected): (Vec<_>, Vec<_>) = skipped
        .into_iter()
        .partition(|(test, reason)| skips::is_expected(test, reason, place));
    for (test, reason) in &expected {
        println!("skipped: {test}: {reason}");
    }
    for (test, reason) in &unexpected {
        println!("FAILED: {test}: skipped, which is not expected here (xtask/src/test/skips.rs): {reason}");
    }
    say(&format!("{name} took {:.0} s", start.elapsed().as_secs_f64()));
    let number = |skips: &[_]| u32::try_from(skips.len()).unwrap_or(u32::MAX);
    Ok(tally.moving(number(&expected), number(&unexpected)))
}

/// How many tests a stage would have run.
fn count(stage: Stage, built: &Built, filter: Option<&str>) -> Result<u32> {
    let mut cargo = cargo(Stage::Host, built)?;
    let listed = output(cargo.args(filter).args(["--list", "--format=terse"]));
    let listed = listed.with_context(|| format!("the tests of {} do not compile", stage.name()))?;
    Ok(u32::try_from(listed_tests(&listed).count()).unwrap_or(u32::MAX))
}

/// The tests that a test program's list names.
fn listed_tests(listed: &str) -> impl Iterator<Item = &str> {
    listed.lines().filter_map(|line| line.strip_suffix(": test"))
}

/// Fails if a beginning of a selection is that of no test: it would select nothing, unseen.
fn must_exist(listed: &str, selection: &[&str]) -> Result<()> {
    let is_there = |begin: &&&str| listed_tests(listed).any(|test| test.starts_with(**begin));
    match selection.iter().find(|begin| !is_there(begin)) {
        None => Ok(()),
        Some(begin) => bail!("a selection names {begin}, with which no end-to-end test begins"),
    }
}

/// `cargo test` for a stage, up to the arguments for the test programs.
fn cargo(stage: Stage, built: &Built) -> Result<Command> {
    let mut cargo = compile::cargo("test", &built.object);
    cargo.arg("--no-fail-fast").env(PROGRAM_VARIABLE, &built.program);
    cargo.arg("--target-dir").arg(workspace::target()?);
    cargo.args(WORKSPACE);
    match stage {
        Stage::Unit => {
            let others = test_targets()?;
            cargo.args(["--lib", "--bins"]);
            cargo.args(others.iter().flat_map(|target| ["--test", target]));
        }
        Stage::Host | Stage::Vm => {
            cargo.args(["--test", END_TO_END]);
        }
        Stage::Sandbox => {
            cargo.args(["--test", END_TO_END, "--config"]).arg(runner()?);
        }
    }
    cargo.arg("--");
    Ok(cargo)
}

/// The targets that are tests, but for the end-to-end tests.
fn test_targets() -> Result<BTreeSet<String>> {
    let mut metadata = Command::new("cargo");
    metadata.current_dir(workspace::root());
    let said = output(metadata.args(["metadata", "--no-deps", "--format-version=1"]));
    let metadata: Value = serde_json::from_str(&said.context("cargo metadata failed")?)
        .context("cargo metadata printed no JSON")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo names no packages")?;
    let targets = packages
        .iter()
        .filter_map(|package| package["targets"].as_array())
        .flatten();
    Ok(targets
        .filter(|target| target["kind"][0] == "test")
        .filter_map(|target| target["name"].as_str())
        .filter(|&target| target != END_TO_END)
        .map(str::to_owned)
        .collect())
}

/// A copy of this executable, which cargo may have compiled anew meanwhile, with the features that the whole workspace
/// asks for. It lies in a directory beside this one's, by which it finds what xtask has made.
fn own_copy() -> Result<PathBuf> {
    let xtask = workspace::own()?.join("runner");
    fs::copy("/proc/self/exe", &xtask).context("cannot copy xtask's own executable")?;
    Ok(xtask)
}

/// The setting that has cargo start test programs through `xtask sandbox`.
fn runner() -> Result<OsString> {
    let target: PathBuf = workspace::target()?;
    let words = [
        own_copy()?.into_os_string(),
        "sandbox".into(),
        "--writable".into(),
        target.into_os_string(),
        "--".into(),
    ];
    let words: Vec<_> = words
        .iter()
        .map(|word| format!("{:?}", word.to_string_lossy()))
        .collect();
    Ok(format!("target.'cfg(all())'.runner=[{}]", words.join(",")).into())
}
