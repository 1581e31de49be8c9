//! `perturb sweep`.

mod slurm;
mod split;

use std::{
    env,
    path::{Path, PathBuf},
};

use clap::{ArgGroup, Args};
use perturb_experiments::sweep::{
    Ended, ExperimentError, StoreError, Sweep, Task, check, load, make_directory,
    report::{self, Rule},
};
use perturb_present::{LiveLine, span};
use serde_json::json;

use crate::cli::{
    beside,
    ci::{self, CiArgs},
    exit::{DONE, FAILED},
    in_sandbox,
};

const EXAMPLES: &str = "\
Examples:
  perturb sweep configs/experiments/synthetic.yaml --dry-run      the runs, and the time that they will take
  sudo perturb sweep configs/experiments/synthetic.yaml --out s   measure; then: perturb report s
  sudo perturb sweep configs/experiments/synthetic.yaml --out s --resume   go on after an interruption
  perturb sweep big.yaml --out s --tasks 8 --slurm                as a job array on a cluster; --resume looks after it again
  perturb sweep configs/experiments/knfsd.yaml --sandbox          on a user-mode kernel, without root
  sudo perturb sweep web.yaml --assert 'latency 20ms: p99 < 1.05x' --junit rules.xml   slower fails the build
  parallel perturb sweep big.yaml --out s --tasks 8 --array-index auto ::: 0 1 2 3 4 5 6 7

Exit codes:
  0 done   1 failed, interrupted (--resume goes on), or a rule is broken   2 invalid experiment, or DIR does not fit
  3 this kernel lacks something
  A program under test that fails or does not end is a result: it is recorded, and the sweep goes on.";

/// Arguments of `perturb sweep`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("part").args(["array_index", "slurm", "kubernetes"]))]
#[command(mut_arg("junit", |junit| junit.requires("rules")))]
#[command(mut_arg("ci", |ci| ci.requires("rules").conflicts_with("sandbox")))]
pub(crate) struct SweepArgs {
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
    /// Submit the tasks as a Slurm job array, and say how far they are until all are done; with --dry-run print the job's script.
    ///
    /// The job does not end with this command: --resume looks after it again, and submits what it has lost.
    #[arg(long, requires = "tasks", conflicts_with = "array_index")]
    slurm: bool,
    /// Print an Indexed Job for Kubernetes: of this image, which has perturb, the experiment and its programs.
    #[arg(long, value_name = "IMAGE", requires = "tasks", conflicts_with_all = ["array_index", "slurm", "dry_run", "resume"])]
    kubernetes: Option<String>,
    /// Measure on a user-mode kernel: without root, and with what this kernel lacks.
    #[arg(long, conflicts_with_all = ["slurm", "kubernetes", "dry_run"])]
    sandbox: bool,
    /// Say nothing about each run.
    #[arg(long, short)]
    quiet: bool,
    /// How slow programs may be, as times the baseline's: `median < 1.1x`, or where alone, `PROGRAM, latency 20ms: p99 < 1.1x`.
    /// Of what the metric reads: mean, median, max, p50 to p99.99.
    #[arg(long = "assert", value_name = "RULE", conflicts_with_all = ["part", "dry_run"])]
    rules: Vec<Rule>,
    #[command(flatten)]
    ci: CiArgs,
}

/// Whether an error means that the input was invalid.
pub(crate) fn is_invalid_input(error: &anyhow::Error) -> bool {
    error.is::<ExperimentError>()
        || error.is::<split::SplitError>()
        || error.is::<report::InputError>()
        || matches!(
            error.downcast_ref(),
            Some(
                StoreError::Taken(_)
                    | StoreError::Nothing(_)
                    | StoreError::Different(_)
                    | StoreError::Edited(_)
                    | StoreError::Unlike { .. }
            )
        )
}

/// Runs the subcommand; its exit code.
pub(crate) fn run(args: &SweepArgs) -> anyhow::Result<u8> {
    let mut experiment = load(&args.experiment)?;
    let tasks = args.tasks.map(|tasks| tasks as usize);
    let task = match (args.array_index, tasks) {
        (Some(index), Some(tasks)) => Some(split::task(index, tasks)?),
        _ => None,
    };
    if let Some(seed) = args.seed {
        experiment.seed = seed;
    }
    let own_name = || PathBuf::from(experiment.name.as_str());
    let out = args.out.clone().unwrap_or_else(own_name);
    let mut sweep = Sweep::new(experiment, task, &out);
    if let (true, Some(tasks)) = (args.slurm || args.kubernetes.is_some(), tasks) {
        let program = env::current_exe()?;
        let longest = (0..tasks)
            .map(|index| {
                sweep.task = Some(Task { index, tasks });
                sweep.seconds(&sweep.runs()).0
            })
            .fold(0.0, f64::max);
        let seed = args
            .seed
            .map(|seed| format!(" --seed {seed}"))
            .unwrap_or_default();
        let array = split::Array {
            program: &program,
            experiment: &args.experiment,
            out: &out,
            options: seed + if args.quiet { " --quiet" } else { "" },
            tasks,
            seconds: longest,
        };
        let name = sweep.experiment.name.to_string();
        if let Some(image) = &args.kubernetes {
            // In the image perturb is where its PATH says.
            let array = split::Array {
                program: Path::new("perturb"),
                ..array
            };
            println!(
                "{}",
                serde_json::to_string_pretty(&array.kubernetes(image, &name))?
            );
            return Ok(DONE);
        }
        if args.dry_run {
            print!("{}", array.slurm());
            return Ok(DONE);
        }
        let parts: Vec<Sweep> = (0..tasks)
            .map(|index| Sweep::new(sweep.experiment.clone(), Some(Task { index, tasks }), &out))
            .collect();
        slurm::submit(&array, &parts, args.resume, &LiveLine::stderr(args.quiet))?;
        report::Report::of_directory(&out)?;
        let count = parts.iter().map(|part| part.progress().map(|(done, _)| done));
        let count = count.sum::<Result<usize, _>>()?;
        eprintln!(
            "{count} runs are in {0}; `perturb report {0}` says what they mean",
            out.display()
        );
        return Ok(DONE);
    }
    let missing = check(&sweep.experiment);
    if args.dry_run {
        dry_run(&sweep, args)?;
        if let Err(missing) = missing {
            eprintln!("perturb: warning: {missing}");
        }
        return Ok(DONE);
    }
    report::check(&sweep.experiment, &args.rules)?;
    missing?;
    if args.sandbox {
        make_directory(&out)?;
        let mut shared = beside(&args.ci.junit)?;
        shared.push(out);
        return in_sandbox(&shared, false);
    }
    perturb_emulator::own_namespace::ready(sweep.experiment.pacer)?;
    let (ended, count) = sweep.measure(args.resume, LiveLine::stderr(args.quiet))?;
    match ended {
        Ended::Complete => {
            eprintln!(
                "{count} runs are in {0}; `perturb report {1}` says what they mean",
                sweep.directory.display(),
                out.display()
            );
            judge(&out, &args.rules, &args.ci)
        }
        Ended::Interrupted => {
            eprintln!(
                "interrupted after {count} runs; the same command with --resume goes on with {}",
                sweep.directory.display()
            );
            Ok(FAILED)
        }
    }
}

/// Judges the runs in a directory, and says it; the exit code.
pub(crate) fn judge(directory: &Path, rules: &[Rule], told: &CiArgs) -> anyhow::Result<u8> {
    if rules.is_empty() {
        return Ok(DONE);
    }
    let cases = report::judge(directory, rules)?;
    for case in &cases {
        println!(
            "{} {}",
            if case.passes { "ok    " } else { "FAILED" },
            ci::said(case)
        );
    }
    told.tell("perturb sweep", &cases)
}

fn dry_run(sweep: &Sweep, args: &SweepArgs) -> anyhow::Result<()> {
    let experiment = &sweep.experiment;
    let runs = if args.resume {
        sweep.missing()?
    } else {
        sweep.runs()
    };
    let (expected, longest) = sweep.seconds(&runs);
    let confounding = sweep.confounding();
    if args.json {
        let listed: Vec<_> = runs
            .iter()
            .map(|run| {
                json!({
                    "id": run.id,
                    "workload": sweep.workload(run).name,
                    "setting": run.cell.setting.levels(),
                    "block": run.block,
                    "traced": run.traced,
                })
            })
            .collect();
        let plan = json!({
            "experiment": experiment.name,
            "design": experiment.design.key(),
            "seed": experiment.seed,
            "out": sweep.directory,
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
            sweep.workload(run).name.as_str(),
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
        sweep.directory.display()
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
