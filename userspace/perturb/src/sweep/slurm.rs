//! A sweep's tasks as a job array of Slurm's: submitted, looked after, submitted again where one was lost.
//!
//! What is known of the tasks is what their directories say; Slurm is asked only which of them still wait or run, by the job's name, which
//! follows from the directory's. So this command may be killed at any time, and begun again with --resume.

use std::{
    collections::BTreeSet,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, absolute},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use perturb_experiments::sweep::{StoreError, Sweep, make_directory};
use perturb_present::{LiveLine, progress, span};

use super::split::Array;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// From when a task is neither waiting nor running until it counts as lost: directories of a network's may show late what it has done.
const LATE: Duration = Duration::from_secs(3);
/// The job's script.
const SCRIPT: &str = "job.sh";
/// Tasks that Slurm has not given up.
const ALIVE: &str = "PENDING,RUNNING,SUSPENDED,COMPLETING,CONFIGURING,REQUEUED";

/// Has the tasks make their runs; returns once all are made.
///
/// # Errors
/// When there is a sweep already and it is not to be gone on with, there is no Slurm, or a task ends without having made a run.
pub(super) fn submit(
    array: &Array<'_>,
    parts: &[Sweep],
    resume: bool,
    line: &LiveLine,
) -> anyhow::Result<()> {
    make_directory(array.out)?;
    let script = array.out.join(SCRIPT);
    if !resume && script.exists() {
        return Err(StoreError::Taken(array.out.into()).into());
    }
    let name = name(array.out)?;
    fs::write(&script, array.slurm()).with_context(|| format!("writing {}", script.display()))?;
    let begin = Instant::now();
    let first = done(parts)?.iter().map(|(made, _)| made).sum::<usize>();
    // How many runs a task had when it was submitted, and since when it has been missing.
    let mut submitted: Vec<Option<usize>> = vec![None; parts.len()];
    let mut missing: Vec<Option<Instant>> = vec![None; parts.len()];
    let mut told = String::new();
    loop {
        let states = done(parts)?;
        let alive = alive(&name)?;
        let mut lost = Vec::new();
        for (index, (made, left)) in states.iter().enumerate() {
            if *left == 0 || alive.tasks.contains(&index) {
                missing[index] = None;
                continue;
            }
            let since = *missing[index].get_or_insert_with(Instant::now);
            match submitted[index] {
                Some(_) if since.elapsed() < LATE => {}
                Some(before) if before == *made => bail!(
                    "task {index} has ended without a further run; what it said is in {}",
                    array.out.join(format!("task-{index}.log")).display()
                ),
                _ => lost.push(index),
            }
        }
        if !lost.is_empty() {
            let job = sbatch(&name, &script, array.out, &lost)?;
            if !line.is_silent() {
                line.say(format_args!(
                    "submitted {} tasks as job {job}; it goes on without this command, and --resume looks after it again",
                    lost.len()
                ));
            }
            for index in lost {
                (submitted[index], missing[index]) = (Some(states[index].0), None);
            }
        }
        let (made, left) = states
            .iter()
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if left == 0 {
            line.keep();
            return Ok(());
        }
        let made_here = made - first.min(made);
        let rest = if made_here > 0 {
            begin.elapsed().as_secs_f64() / made_here as f64 * left as f64
        } else {
            array.seconds
        };
        let whole = states.iter().filter(|(_, left)| *left == 0).count();
        let tasks = format!(
            "tasks: {whole} done, {} run, {} wait",
            alive.running,
            alive.tasks.len() - alive.running
        );
        if line.is_live() {
            line.show(format_args!(
                "{} · {tasks}",
                progress(made, made + left, Some(rest))
            ));
        } else if !line.is_silent() && told != format!("{made} {tasks}") {
            line.say(format_args!(
                "[{made}/{}, {} left] {tasks}",
                made + left,
                span(rest)
            ));
            told = format!("{made} {tasks}");
        }
        thread::sleep(LOOK);
    }
}

/// What each task has made, and what is left.
fn done(parts: &[Sweep]) -> anyhow::Result<Vec<(usize, usize)>> {
    parts.iter().map(|part| Ok(part.progress()?)).collect()
}

/// Tasks that Slurm has not given up.
struct Alive {
    tasks: BTreeSet<usize>,
    running: usize,
}

/// What the directory's jobs are called.
fn name(out: &Path) -> anyhow::Result<String> {
    let mut hasher = DefaultHasher::new();
    absolute(out).context("finding the directory")?.hash(&mut hasher);
    Ok(format!("perturb-{:016x}", hasher.finish()))
}

/// Of the jobs of this name.
fn alive(name: &str) -> anyhow::Result<Alive> {
    let mut alive = Alive {
        tasks: BTreeSet::new(),
        running: 0,
    };
    let output = Command::new("squeue")
        .args([
            "--me",
            "--noheader",
            "--array",
            "--format=%K %T",
            "--states",
            ALIVE,
            "--name",
            name,
        ])
        .output()
        .context("asking squeue, Slurm's; --dry-run prints the job's script")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "squeue: {}", said.trim());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((Ok(index), state)) = line
            .trim()
            .split_once(' ')
            .map(|(index, state)| (index.parse(), state))
        {
            alive.tasks.insert(index);
            alive.running += usize::from(state == "RUNNING");
        }
    }
    Ok(alive)
}

/// Submits these tasks; the job's number.
fn sbatch(name: &str, script: &Path, out: &Path, tasks: &[usize]) -> anyhow::Result<String> {
    let indices: Vec<String> = tasks.iter().map(usize::to_string).collect();
    let output = Command::new("sbatch")
        .args(["--parsable", "--job-name", name, "--array", &indices.join(",")])
        .arg("--output")
        .arg(out.join("task-%a.log"))
        .arg(script)
        .output()
        .context("starting sbatch, Slurm's")?;
    ensure!(
        output.status.success(),
        "sbatch: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    // NUMBER, or NUMBER;CLUSTER.
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.trim().split(';').next().unwrap_or_default().to_owned())
}
