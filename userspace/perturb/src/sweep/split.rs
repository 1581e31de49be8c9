//! A sweep as independent tasks of a cluster's scheduler.
//!
//! Each task writes a directory `task-I` of its own below the common one, with its own baselines, so that slowdowns are
//! relative to the machine that measured them; `perturb report` joins the directories.

use std::{env, path::Path};

use perturb_experiments::sweep::Task;
use perturb_present::shell::quoted;

/// Variables in which schedulers tell a task its index: Kubernetes' indexed jobs, Slurm's arrays, GNU parallel (which
/// counts from 1).
const INDEX_VARIABLES: [(&str, usize); 3] = [
    ("JOB_COMPLETION_INDEX", 0),
    ("SLURM_ARRAY_TASK_ID", 0),
    ("PARALLEL_SEQ", 1),
];

/// Why the part cannot be told.
#[derive(Debug, thiserror::Error)]
pub(super) enum SplitError {
    /// Beyond the end.
    #[error("--array-index {index}: there are {tasks} tasks, numbered from 0")]
    Beyond { index: usize, tasks: usize },
    /// No scheduler is around.
    #[error(
        "--array-index auto: none of JOB_COMPLETION_INDEX, SLURM_ARRAY_TASK_ID and PARALLEL_SEQ is set to a number; \
         write the index, from 0"
    )]
    NoVariable,
}

/// Which part is meant by `--array-index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    /// The scheduler's variable tells.
    Auto,
    /// This one.
    At(usize),
}

impl std::str::FromStr for Index {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            number => number
                .parse()
                .map(Self::At)
                .map_err(|_| "must be `auto` or a number from 0"),
        }
    }
}

/// The part with an index.
pub(super) fn task(index: Index, tasks: usize) -> Result<Task, SplitError> {
    let index = match index {
        Index::At(index) => index,
        Index::Auto => INDEX_VARIABLES
            .iter()
            .find_map(|(name, first)| {
                let number: usize = env::var(name).ok()?.parse().ok()?;
                number.checked_sub(*first)
            })
            .ok_or(SplitError::NoVariable)?,
    };
    if index >= tasks {
        return Err(SplitError::Beyond { index, tasks });
    }
    Ok(Task { index, tasks })
}

/// A job script for `sbatch`. Each task is given the `options`, too.
#[must_use]
pub(super) fn slurm(
    program: &Path,
    experiment: &Path,
    out: &Path,
    options: &str,
    tasks: usize,
    seconds: f64,
) -> String {
    let minutes = (seconds * 2.0 / 60.0).ceil() as u64 + 5;
    format!(
        "#!/bin/sh\n\
         # Twice the time that the plan expects. Each task needs a node of its own, and root on it.\n\
         #SBATCH --job-name=perturb-sweep\n\
         #SBATCH --array=0-{}\n\
         #SBATCH --nodes=1\n\
         #SBATCH --exclusive\n\
         #SBATCH --time={minutes}\n\
         if [ -e {out}/task-\"$SLURM_ARRAY_TASK_ID\"/runs.jsonl ]; then resume=--resume; fi\n\
         exec {} sweep {} --out {out}{options} --tasks {tasks} --array-index \"$SLURM_ARRAY_TASK_ID\" $resume\n",
        tasks - 1,
        quoted(program),
        quoted(experiment),
        out = quoted(out),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_numbers_below_the_count() {
        assert_eq!("3".parse(), Ok(Index::At(3)));
        assert!("three".parse::<Index>().is_err());
        assert_eq!(task(Index::At(3), 4).unwrap(), Task { index: 3, tasks: 4 });
        assert!(matches!(task(Index::At(4), 4), Err(SplitError::Beyond { .. })));
        let script = slurm(
            Path::new("/p"),
            Path::new("it's"),
            Path::new("o"),
            " --seed 7",
            4,
            60.0,
        );
        assert!(
            script.contains("--array=0-3")
                && script.contains(r"'it'\''s'")
                && script.contains("--out o --seed 7 --tasks 4"),
            "{script}"
        );
    }
}
