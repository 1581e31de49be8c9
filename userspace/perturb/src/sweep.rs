//! `perturb sweep`: one knob of the network after another is turned under unmodified programs.
//!
//! ```text
//! experiment.yaml ─read─► Experiment ─plan─► runs in a seeded order ─execute─► private hosts (lab)
//!                                                                     └──────► store (one directory)
//! ```
//!
//! The sweep only measures; what it means is `perturb report`'s affair, which reads the directory.

pub mod execute;
pub mod experiment;
pub mod metric;
pub mod needs;
pub mod network;
pub mod plan;
mod progress;
pub mod read;
pub mod report;
mod scratch;
pub mod split;
pub mod store;
mod traced;

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use clap::{ArgGroup, Args};
use perturb_present::{LiveLine, span};
use serde_json::json;

use execute::{Ended, Sweep};
use experiment::{Design, Experiment};
use plan::Task;
use store::{Provenance, Store, StoreError};

use crate::{
    calibrate::provenance::line_of,
    cli::exit::{DONE, FAILED},
};

const EXAMPLES: &str = "\
Examples:
  perturb sweep configs/experiments/synthetic.yaml --dry-run      the runs, and the time that they will take
  sudo perturb sweep configs/experiments/synthetic.yaml --out s   measure; then: perturb report s
  sudo perturb sweep configs/experiments/synthetic.yaml --out s --resume   go on after an interruption
  perturb sweep big.yaml --out s --tasks 8 --slurm | sbatch       as a job array on a cluster
  perturb sweep configs/experiments/knfsd.yaml --sandbox          on a user-mode kernel, without root
  parallel perturb sweep big.yaml --out s --tasks 8 --array-index auto ::: 0 1 2 3 4 5 6 7

Exit codes:
  0 done   1 failed or interrupted (--resume goes on)   2 invalid experiment, or DIR does not fit
  3 this kernel lacks something
  A program under test that fails or does not end is a result: it is recorded, and the sweep goes on.";

/// Arguments of `perturb sweep`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("part").args(["array_index", "slurm"]))]
pub struct SweepArgs {
    /// What to measure, in YAML; see docs/reference/experiment.md.
    experiment: PathBuf,
    /// Directory of the runs [default: the experiment's name].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the sweep in the directory.
    #[arg(long)]
    resume: bool,
    /// Print the runs that would be made and the time that they will take, and measure nothing.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: print one JSON object.
    #[arg(long, requires = "dry_run", conflicts_with = "quiet")]
    json: bool,
    /// Another seed of the order than the experiment's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Split the plan into so many independent tasks.
    #[arg(long, value_name = "N", requires = "part", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tasks: Option<u32>,
    /// Make the runs of this task only, from 0; `auto`: as the scheduler's variable says.
    #[arg(long, value_name = "I", requires = "tasks")]
    array_index: Option<split::Index>,
    /// Print a job script for Slurm, and measure nothing.
    #[arg(long, requires = "tasks", conflicts_with_all = ["array_index", "dry_run", "resume"])]
    slurm: bool,
    /// Measure on a user-mode kernel: without root, and with what this kernel lacks.
    #[arg(long, conflicts_with_all = ["slurm", "dry_run"])]
    sandbox: bool,
    /// Say nothing about each run.
    #[arg(long, short)]
    quiet: bool,
}

/// Whether an error means that the input was invalid.
#[must_use]
pub fn is_invalid_input(error: &anyhow::Error) -> bool {
    error.is::<read::ExperimentError>()
        || error.is::<split::SplitError>()
        || error.is::<report::InputError>()
        || matches!(
            error.downcast_ref(),
            Some(
                StoreError::Taken(_)
                    | StoreError::Nothing(_)
                    | StoreError::Different(_)
                    | StoreError::Edited(_)
            )
        )
}

/// Runs the subcommand; its exit code.
pub fn run(args: &SweepArgs) -> anyhow::Result<u8> {
    let mut experiment = read::load(&args.experiment)?;
    let tasks = args.tasks.map(|tasks| tasks as usize);
    let task = match (args.array_index, tasks) {
        (Some(index), Some(tasks)) => Some(split::task(index, tasks)?),
        _ => None,
    };
    if let Some(seed) = args.seed {
        experiment.seed = seed;
    }
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(experiment.name.as_str()));
    if let (true, Some(tasks)) = (args.slurm, tasks) {
        let program = env::current_exe()?;
        let longest = (0..tasks)
            .map(|index| seconds(&experiment, &runs(&experiment, Some(Task { index, tasks }))))
            .fold(0.0, f64::max);
        let seed = args
            .seed
            .map(|seed| format!(" --seed {seed}"))
            .unwrap_or_default();
        let options = seed + if args.quiet { " --quiet" } else { "" };
        print!(
            "{}",
            split::slurm(&program, &args.experiment, &out, &options, tasks, longest)
        );
        return Ok(DONE);
    }
    let directory = split::directory(&out, task);
    let missing = needs::check(&experiment);
    if args.dry_run {
        dry_run(&experiment, task, &directory, args)?;
        if let Err(missing) = missing {
            eprintln!("perturb: warning: {missing}");
        }
        return Ok(DONE);
    }
    missing?;
    if args.sandbox {
        store::make_directory(&out)?;
        return crate::cli::in_sandbox([&*out], false);
    }
    if !args.resume {
        store::make_directory(&directory)?;
    }
    let store = Store::open(
        &directory,
        &stored_text(&experiment),
        &provenance(&experiment, task),
        args.resume,
    )?;
    let mut sweep = Sweep {
        experiment: &experiment,
        task,
        directory: &directory,
        store,
    };
    // On this thread: the command dies with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(sweep.run(LiveLine::stderr(args.quiet)))?;
    let count = sweep.store.records.len();
    match ended {
        Ended::Complete => {
            eprintln!(
                "{count} runs are in {0}; `perturb report {1}` says what they mean",
                directory.display(),
                out.display()
            );
            Ok(DONE)
        }
        Ended::Interrupted => {
            eprintln!(
                "interrupted after {count} runs; the same command with --resume goes on with {}",
                directory.display()
            );
            Ok(FAILED)
        }
    }
}

/// The experiment's text, with the seed that was asked for instead of its own.
fn stored_text(experiment: &Experiment) -> String {
    let own = |line: &str| line.starts_with("seed:");
    let seed = format!("seed: {}", experiment.seed);
    let mut found = false;
    let lines: Vec<&str> = experiment
        .text
        .lines()
        .map(|line| {
            if own(line) {
                found = true;
                seed.as_str()
            } else {
                line
            }
        })
        .collect();
    let text = lines.join("\n") + "\n";
    if found { text } else { format!("{text}{seed}\n") }
}

/// The runs of all repetitions; the stop rule may add to them.
fn runs(experiment: &Experiment, task: Option<Task>) -> Vec<plan::Run> {
    let cells = plan::cells(experiment);
    let cells = task.map_or(cells.clone(), |task| task.of(cells));
    (0..experiment.repetitions)
        .flat_map(|block| plan::block(experiment, &cells, block))
        .collect()
}

fn seconds(experiment: &Experiment, runs: &[plan::Run]) -> f64 {
    runs.iter()
        .map(|run| progress::expected(experiment, run.cell.workload))
        .sum()
}

fn dry_run(
    experiment: &Experiment,
    task: Option<Task>,
    directory: &Path,
    args: &SweepArgs,
) -> anyhow::Result<()> {
    let mut runs = runs(experiment, task);
    if args.resume {
        let made = store::resumed(directory, &stored_text(experiment), task)?;
        runs.retain(|run| !store::is_done(&made, &run.id, experiment.retries));
    }
    let expected = seconds(experiment, &runs);
    let longest: f64 = runs
        .iter()
        .map(|run| {
            let limit = experiment.workloads[run.cell.workload].time_limit;
            limit.as_secs_f64() + progress::SET_UP_S
        })
        .sum();
    let confounding: Vec<String> = if experiment.design == Design::Fractional {
        let knobs = |workload: &experiment::Workload| {
            let knobs: Vec<_> = workload.knobs.iter().map(|(knob, _)| *knob).collect();
            plan::confounding(&knobs)
        };
        experiment.workloads.first().map(knobs).unwrap_or_default()
    } else {
        Vec::new()
    };
    if args.json {
        let listed: Vec<_> = runs
            .iter()
            .map(|run| {
                json!({
                    "id": run.id,
                    "workload": experiment.workloads[run.cell.workload].name,
                    "setting": run.cell.setting.iter().map(|(knob, value)| (knob.key(), value)).collect::<std::collections::BTreeMap<_, _>>(),
                    "block": run.block,
                    "traced": run.traced,
                })
            })
            .collect();
        let plan = json!({
            "experiment": experiment.name,
            "design": experiment.design.key(),
            "seed": experiment.seed,
            "out": directory,
            "runs": listed,
            "expected_s": expected,
            "at_most_s": longest,
            "confounding": confounding,
        });
        println!("{}", serde_json::to_string_pretty(&plan)?);
        return Ok(());
    }
    for (number, run) in (1..).zip(runs.iter().filter(|_| !args.quiet)) {
        println!(
            "{number:>5}  block {:<3} {:<20} {}",
            run.block,
            experiment.workloads[run.cell.workload].name.as_str(),
            run.written()
        );
    }
    for line in &confounding {
        println!("{line}");
    }
    println!(
        "{} runs, {} design, seed {}: about {}, at most {}; their directory is {}",
        runs.len(),
        experiment.design.key(),
        experiment.seed,
        span(expected),
        span(longest),
        directory.display()
    );
    if let Some(stop) = experiment.stop {
        println!(
            "settings whose 95 % interval is wider than ±{} % are measured up to {} times",
            stop.interval * 100.0,
            stop.at_most
        );
    }
    Ok(())
}

fn provenance(experiment: &Experiment, task: Option<Task>) -> Provenance {
    let jit = fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").ok();
    Provenance {
        version: 1,
        perturb: env!("CARGO_PKG_VERSION").into(),
        kernel: nix::sys::utsname::uname()
            .map(|name| name.release().to_string_lossy().into_owned())
            .unwrap_or_default(),
        processor: line_of("/proc/cpuinfo", "model name").unwrap_or_default(),
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        jit: jit.map(|value| value.trim() != "0"),
        memory_mib: line_of("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .map(|kib| kib / 1024),
        started: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |time| time.as_secs_f64()),
        resumed: 0,
        task,
        experiment: experiment.summary(),
    }
}
