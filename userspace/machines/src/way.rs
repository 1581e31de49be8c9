//! How machines are reached: by the system's ssh, or in a Slurm job by srun. Both start a shell's line there, with its streams here.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    process::Stdio,
};

use nix::sys::{prctl::set_pdeathsig, signal::Signal};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
};

use crate::link::Failure;

/// What srun is told: a step of one task that shares what the job's other steps have, processors among it.
const SRUN: [&str; 8] = [
    "--overlap",
    "--nodes=1",
    "--ntasks=1",
    "--cpu-bind=none",
    "--mpi=none",
    "--unbuffered",
    "--quiet",
    // Else it asks whether Ctrl-C is meant.
    "--disable-status",
];

/// Which program reaches them.
#[derive(Debug, Clone)]
pub enum Client {
    /// ssh with its options.
    Ssh(Vec<String>),
    /// Slurm's, inside of a job.
    Srun,
}

/// How machines are reached.
#[derive(Debug, Clone)]
pub struct Way {
    /// By which program.
    pub client: Client,
    /// What perturb is called there: words of a shell.
    pub perturb: String,
    /// Whether this perturb is copied to where there is none or another one.
    pub push: bool,
}

impl Way {
    /// What starts a shell's line there: the line is its last word.
    #[must_use]
    pub fn words(&self, host: &str, line: &str) -> Vec<String> {
        let (mut words, more) = match &self.client {
            Client::Ssh(words) => (words.clone(), vec!["-T", "-o", "BatchMode=yes", "--", host, line]),
            Client::Srun => {
                let more = ["--nodelist", host, "sh", "-c", line];
                (vec!["srun".into()], SRUN.into_iter().chain(more).collect())
            }
        };
        if words.is_empty() {
            words.push("ssh".into());
        }
        words.extend(more.into_iter().map(str::to_owned));
        words
    }

    /// The same way to this program there.
    #[must_use]
    pub fn to_program(&self, path: &str) -> Self {
        Self {
            perturb: instead(&self.perturb, path),
            ..self.clone()
        }
    }

    /// Starts a shell's line there.
    pub(crate) fn start(&self, host: &str, line: &str) -> Result<Child, Failure> {
        let words = self.words(host, line);
        let (program, arguments) = words
            .split_first()
            .ok_or(Failure::Own(io::ErrorKind::InvalidInput.into()))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The terminal's signals are for this process, which then ends what the others do.
            .process_group(0)
            .kill_on_drop(true);
        // However this process ends, nobody else waits for a machine that does not answer.
        // SAFETY: the closure makes one system call; it neither allocates nor locks.
        unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGTERM)?)) };
        command
            .spawn()
            .map_err(|error| Failure::Start(program.clone(), error))
    }

    /// Copies this perturb there, unless it is there already: the way to that one.
    pub(crate) async fn pushed(&self, host: &str) -> Result<Self, Failure> {
        let own = env::current_exe().and_then(fs::read).map_err(Failure::Own)?;
        let mut child = self.start(host, &receiver(&own))?;
        if let Some(mut to) = child.stdin.take() {
            // Whoever has it already does not read.
            let _ = to.write_all(&own).await;
        }
        let output = child.wait_with_output().await.map_err(Failure::Own)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let path = text(&output.stdout);
        if !output.status.success() || path.is_empty() {
            let said = text(&output.stderr).lines().map(str::to_owned).collect();
            return Err(Failure::Push(output.status, said));
        }
        Ok(self.to_program(&path))
    }
}

/// A shell's line that keeps what it reads, and prints where. Its name says what it is, so that what is there stays; it is whole or not
/// there at all.
fn receiver(program: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    format!(
        "set -e; d=${{XDG_CACHE_HOME:-$HOME/.cache}}/perturb; f=$d/perturb-{}-{:016x}; if ! [ -x \"$f\" ]; then \
         mkdir -p \"$d\"; n=$f.$(uname -n).$$; cat >\"$n\"; [ \"$(wc -c <\"$n\")\" -eq {} ]; chmod 755 \"$n\"; mv \"$n\" \"$f\"; fi; \
         echo \"$f\"",
        env!("CARGO_PKG_VERSION"),
        hasher.finish(),
        program.len()
    )
}

/// What calls another program in the same way: the last word is the program.
fn instead(perturb: &str, path: &str) -> String {
    let path = format!("'{}'", path.replace('\'', r"'\''"));
    match perturb.trim_end().rsplit_once(' ') {
        Some((before, _)) => format!("{before} {path}"),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_called_as_what_was_there() {
        assert_eq!(instead("perturb", "/c/p"), "'/c/p'");
        assert_eq!(instead("sudo -n perturb", "/c/it's"), r"sudo -n '/c/it'\''s'");
    }

    /// The receiver's shell, here, with a home of its own.
    fn received(home: &std::path::Path, program: &[u8], sent: &[u8]) -> io::Result<std::process::Output> {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", &receiver(program)])
            .env_remove("XDG_CACHE_HOME")
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        if let Some(mut to) = shell.stdin.take() {
            io::Write::write_all(&mut to, sent)?;
        }
        shell.wait_with_output()
    }

    #[test]
    fn a_copy_is_whole_or_not_there() {
        let home = env::temp_dir().join(format!("perturb-push-{}", std::process::id()));
        fs::create_dir_all(&home).unwrap();
        let program = b"#!/bin/sh\n";
        assert!(!received(&home, program, b"#!/b").unwrap().status.success());
        let output = received(&home, program, program).unwrap();
        let path = String::from_utf8(output.stdout).unwrap();
        assert_eq!(fs::read(path.trim()).unwrap(), program);
        fs::remove_dir_all(&home).unwrap();
    }
}
