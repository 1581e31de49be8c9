//! A sweep as independent tasks of a cluster's scheduler.
//!
//! Each task writes a directory `task-I` of its own below the common one, with its own baselines, so that slowdowns are
//! relative to the machine that measured them; `perturb report` joins the directories.

use std::{env, path::Path};

use perturb_experiments::sweep::Task;
use perturb_present::shell::quoted;
use serde_json::{Value, json};

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

/// The tasks of a sweep, and the command of each.
pub(super) struct Array<'a> {
    pub(super) program: &'a Path,
    pub(super) experiment: &'a Path,
    pub(super) out: &'a Path,
    /// What else each task is given.
    pub(super) options: String,
    pub(super) tasks: usize,
    /// What the longest is expected to take.
    pub(super) seconds: f64,
}

impl Array<'_> {
    /// A shell's lines that make the runs of the task whose number a variable has, or those that it lacks.
    fn command(&self, variable: &str) -> String {
        format!(
            "if [ -e {out}/task-\"${variable}\"/sweep.json ]; then resume=--resume; fi\n\
             exec {} sweep {} --out {out}{} --tasks {} --array-index \"${variable}\" $resume\n",
            quoted(self.program),
            quoted(self.experiment),
            self.options,
            self.tasks,
            out = quoted(self.out),
        )
    }

    /// A job script for `sbatch`.
    #[must_use]
    pub(super) fn slurm(&self) -> String {
        let minutes = (self.seconds * 2.0 / 60.0).ceil() as u64 + 5;
        format!(
            "#!/bin/sh\n\
             # Twice the time that the plan expects. Each task needs a node of its own, and root on it; if that dies, it goes on on another.\n\
             #SBATCH --job-name=perturb-sweep\n\
             #SBATCH --array=0-{}\n\
             #SBATCH --nodes=1\n\
             #SBATCH --exclusive\n\
             #SBATCH --requeue\n\
             #SBATCH --open-mode=append\n\
             #SBATCH --time={minutes}\n\
             {}",
            self.tasks - 1,
            self.command("SLURM_ARRAY_TASK_ID"),
        )
    }

    /// An Indexed Job of Kubernetes' API, of an image that has perturb, the experiment and its programs. The results are in the volume that
    /// a claim of the job's name stands for.
    #[must_use]
    pub(super) fn kubernetes(&self, image: &str, name: &str) -> Value {
        let name = format!("perturb-{}", name.to_ascii_lowercase().replace(['_', '.'], "-"));
        let mount = std::path::absolute(self.out).unwrap_or_else(|_| self.out.into());
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": { "name": name },
            "spec": {
                "completionMode": "Indexed",
                "completions": self.tasks,
                "parallelism": self.tasks,
                "backoffLimit": 3 * self.tasks,
                "template": { "spec": {
                    "restartPolicy": "OnFailure",
                    // Tasks on one machine would disturb each other.
                    "topologySpreadConstraints": [{
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": { "matchLabels": { "batch.kubernetes.io/job-name": name } },
                    }],
                    "containers": [{
                        "name": "perturb",
                        "image": image,
                        "command": ["sh", "-c", self.command("JOB_COMPLETION_INDEX")],
                        // It makes network namespaces and attaches programs.
                        "securityContext": { "privileged": true, "runAsUser": 0 },
                        "volumeMounts": [{ "name": "runs", "mountPath": mount }],
                    }],
                    "volumes": [{ "name": "runs", "persistentVolumeClaim": { "claimName": name } }],
                } },
            },
        })
    }
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
        let array = Array {
            program: Path::new("/p"),
            experiment: Path::new("it's"),
            out: Path::new("o"),
            options: " --seed 7".into(),
            tasks: 4,
            seconds: 60.0,
        };
        let script = array.slurm();
        assert!(
            script.contains("--array=0-3")
                && script.contains(r"'it'\''s'")
                && script.contains("--out o --seed 7 --tasks 4"),
            "{script}"
        );
    }
}
