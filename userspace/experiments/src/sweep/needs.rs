//! What must be there before a sweep begins: a program that is missing would otherwise be recorded as one that fails.
//!
//! Known are the programs that the experiment names as its needs, the first word of each command that is a list, and
//! mpirun for MPI. A command for the shell is not looked into.

use std::{
    env, fmt,
    path::{Path, PathBuf},
};

use perturb_emulator::lab::mpi;

use super::experiment::Experiment;

/// Where administrators' programs are when PATH is an ordinary user's.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Programs that are not there.
#[derive(Debug, thiserror::Error)]
#[error("programs are missing; install or build them:{}", .0.iter().map(|missing| format!("\n  {missing}")).collect::<String>())]
pub struct MissingError(Vec<Missing>);

/// A program that is not there.
#[derive(Clone, Debug, PartialEq)]
struct Missing {
    program: String,
    remedy: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.program, self.remedy)
    }
}

/// Whether all programs are there, as far as can be known.
pub fn check(experiment: &Experiment) -> Result<(), MissingError> {
    none(missing(experiment, is_there))
}

/// Whether these programs are there, each with where it comes from.
pub fn check_programs(wanted: &[(&str, &str)]) -> Result<(), MissingError> {
    let missing = |(program, remedy): &(&str, &str)| Missing {
        program: (*program).to_owned(),
        remedy: (*remedy).to_owned(),
    };
    let wanted = wanted.iter().filter(|(program, _)| !is_there(program));
    none(wanted.map(missing).collect())
}

fn none(missing: Vec<Missing>) -> Result<(), MissingError> {
    if missing.is_empty() {
        Ok(())
    } else {
        Err(MissingError(missing))
    }
}

fn missing(experiment: &Experiment, is_there: impl Fn(&str) -> bool) -> Vec<Missing> {
    let mut wanted: Vec<Missing> = experiment
        .needs
        .iter()
        .map(|need| Missing {
            program: need.program.clone(),
            remedy: need.from.clone(),
        })
        .collect();
    let mut want = |program: &str, remedy: String| {
        if !wanted.iter().any(|other| other.program == program) {
            wanted.push(Missing {
                program: program.to_owned(),
                remedy,
            });
        }
    };
    for workload in &experiment.workloads {
        if workload.mpi {
            want(mpi::LAUNCHER, mpi::PACKAGE.to_owned());
        }
        if let Some(program) = workload.command.first() {
            let remedy = format!("workload {} starts it; install it, or build it", workload.name);
            want(program, remedy);
        }
    }
    wanted.retain(|wanted| !is_there(&wanted.program));
    wanted
}

/// A path as it is, relative to where the sweep is started; else as the shell looks it up.
fn is_there(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_DIRECTORIES.map(PathBuf::from))
        .any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::read::read;

    #[test]
    fn what_is_missing_is_said_once_with_where_it_comes_from() {
        let text = "version: 1\nname: t\nbase: { latency: 1us }\nknobs: { latency: [2us] }\n\
                    needs: [{ program: ./kernel, from: make kernel }, { program: wrk, from: apt-get install wrk }]\n\
                    workloads:\n  - { name: a, command: [./kernel], mpi: true }\n  - { name: b, command: wrk }\n\
                    \x20 - { name: c, command: [other] }\n  - { name: d, command: [other, again] }\n";
        let experiment = read(text, Path::new(""), "e").unwrap();
        let found = missing(&experiment, |program| ["sh", "wrk"].contains(&program));
        let said: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "./kernel: make kernel",
                "mpirun: apt-get install openmpi-bin (Open MPI, on Debian)",
                "other: workload c starts it; install it, or build it",
            ]
        );
        assert!(is_there("sh") && !is_there("./sh"));
    }
}
