//! `cargo xtask bench`: everything perturb claims of itself, beside controls and peers in the same run.
//!
//! Parts, each of which leaves its results in `target/bench`: emulators compared on this kernel, in the sandbox and on a stock
//! kernel with several processors, the cost of a packet in the programs, the models' throughput. Then all of it as tables, JSON and one SVG. A part that cannot
//! run here (no root, no sandbox) says so and is left out; old results of parts that were not asked for stay.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use perturb_sandbox::{Sandbox, Task, exit_code};

use crate::{
    arch::Arch,
    command::{run, say},
    compile::{self, Built, Profile},
    setup::{self, Mode, kernels::Kernel, packages},
    vm, workspace,
};

/// What is measured, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these parts; all but `vm` by default
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Short measurements: to see that it works, not to be quoted
    #[arg(long)]
    quick: bool,
    /// Of the emulators, only the rows whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    rows: String,
    /// Only these emulators, as they are named in the table
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    emulators: Vec<String>,
    /// Measure each cell of the emulators so many times, by turns [default: 3, or 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Processors of the stock kernel, in a boot for each number
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [1, vm::CPUS], value_parser = clap::value_parser!(u8).range(1..=64))]
    cpus: Vec<u8>,
    /// The stock kernel: stable, newest, or a package
    #[arg(long, default_value = "stable", value_name = "KERNEL")]
    kernel: Kernel,
}

impl Args {
    /// Whether some rows or emulators are left out.
    fn chosen(&self) -> bool {
        !self.rows.is_empty() || !self.emulators.is_empty()
    }

    /// Where a comparison's figures go: those of chosen rows or emulators do not take the place of all.
    fn file(&self, place: &str) -> String {
        format!("{place}{}.json", if self.chosen() { ".chosen" } else { "" })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Emulators on this kernel; needs root
    Host,
    /// Emulators in the sandbox, whose kernel has all of them
    Sandbox,
    /// Emulators on a stock kernel with emulated processors: their figures say nothing but beside each other
    Vm,
    /// The cost of a packet; needs root
    Cost,
    /// Events and requests per second of the models
    Models,
}

impl Part {
    const DEFAULT: [Self; 4] = [Self::Host, Self::Sandbox, Self::Cost, Self::Models];

    fn obstacle(self) -> Option<String> {
        match self {
            Self::Host | Self::Cost => {
                (!packages::is_root()).then(|| "only root may attach programs".to_owned())
            }
            Self::Sandbox => Sandbox::find().err().map(|error| error.to_string()),
            // What is missing is installed when it runs.
            Self::Vm | Self::Models => None,
        }
    }
}

pub(crate) fn measure(args: &Args) -> Result<ExitCode> {
    setup::run(&setup::Args::default())?;
    let built = compile::build(Profile::Release, Mode::Check)?;
    let target = workspace::target()?;
    run(cargo(&built, &["build"], "perturb-tests", &target).arg("--bins"))?;
    let results = target.join("bench");
    fs::create_dir_all(&results).with_context(|| format!("cannot make {}", results.display()))?;
    let parts = if args.only.is_empty() {
        Part::DEFAULT.to_vec()
    } else {
        args.only.clone()
    };
    for part in parts {
        if let Some(obstacle) = part.obstacle() {
            say(&format!("{part:?}: left out: {obstacle}"));
            continue;
        }
        match part {
            Part::Host => {
                let argv = compare(&target, &results.join(args.file("host")), args);
                let (program, arguments) = argv.split_first().context("a command has a program")?;
                run(Command::new(program).args(arguments))?;
            }
            Part::Sandbox => {
                say("comparing emulators in the sandbox");
                compare_in(&Sandbox::find()?, 2048, "sandbox", &target, args)?;
            }
            Part::Vm => {
                for &cpus in &args.cpus {
                    say(&format!(
                        "comparing emulators on the stock kernel {}, {cpus} processor(s)",
                        args.kernel
                    ));
                    let machine = vm::machine(&args.kernel, Arch::of_this_machine()?, cpus)?;
                    compare_in(&machine, vm::MEMORY_MIB, &format!("vm-{cpus}"), &target, args)?;
                }
            }
            Part::Cost => cost(&built, &target, &results, args.quick)?,
            Part::Models => models(&built, &target, &results, args.quick)?,
        }
    }
    // The table of all is no place for a choice, which was printed.
    if !args.chosen() {
        run(Command::new(target.join("release/bench")).arg(&results))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares in a guest.
fn compare_in(guest: &Sandbox, memory_mib: u32, place: &str, target: &Path, args: &Args) -> Result<()> {
    let results = target.join("bench");
    let mut task = Task::new(compare(target, &results.join(args.file(place)), args))?;
    task.writable.push(results);
    task.memory_mib = memory_mib;
    let code = exit_code(guest.run(&task)?);
    ensure!(code == 0, "the comparison in {place} ended with {code}");
    Ok(())
}

fn cargo(built: &Built, words: &[&str], package: &str, target: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo
        .args(words)
        .args(["--release", "--package", package, "--target-dir"])
        .arg(target)
        .env(compile::OBJECT_VARIABLE, &built.object)
        .current_dir(workspace::root());
    cargo
}

fn compare(target: &Path, results: &Path, args: &Args) -> Vec<OsString> {
    let [packets, seconds, rounds] = if args.quick { [100, 1, 1] } else { [1000, 2, 3] };
    let rounds = args.rounds.unwrap_or(rounds);
    let words = format!("--packets {packets} --seconds {seconds} --rounds {rounds}");
    let program = target.join("release/compare").into_os_string();
    let mut argv = vec![program];
    argv.extend(words.split(' ').map(OsString::from));
    argv.extend(["--only".into(), args.rows.clone().into()]);
    for emulator in &args.emulators {
        argv.extend(["--emulators".into(), emulator.into()]);
    }
    argv.extend(["--json".into(), results.as_os_str().to_owned()]);
    argv
}

fn cost(built: &Built, target: &Path, results: &Path, quick: bool) -> Result<()> {
    let file = fresh(results.join("cost.jsonl"))?;
    let mut command = cargo(built, &["test"], "perturb-tests", target);
    command
        .args([
            "--test",
            "cost",
            "--",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
            "growth",
        ])
        .env("PERTURB_COST_JSON", &file);
    if !quick {
        command.arg("table");
    }
    run(&mut command)
}

fn models(built: &Built, target: &Path, results: &Path, quick: bool) -> Result<()> {
    let file = fresh(results.join("models.jsonl"))?;
    let output = fs::File::create(&file).with_context(|| format!("cannot write {}", file.display()))?;
    let events = if quick { "200000" } else { "10000000" };
    let mut command = cargo(built, &["run"], "perturb-models", target);
    command.args(["--example", "throughput", "--", events]);
    say("the models' throughput");
    let status = command
        .stdin(Stdio::null())
        .stdout(output)
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the models' benchmark failed: {status}");
    Ok(())
}

/// A file without yesterday's results.
fn fresh(path: PathBuf) -> Result<PathBuf> {
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(path),
    }
}
