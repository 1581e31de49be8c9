//! A measurement is what another command of this program does: the page shows it, and anybody can run it alone.
//!
//! Where the library gives values it is called in this process; programs under `perturb run` need a process of their own.

use std::{
    ffi::OsStr,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::Context as _;
use serde_json::Value;

use super::{figure::Setting, outcome::Outcome};
use crate::cli::exit::INTERRUPTED;

/// A command that has not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// It has said why. Its exit code, if it was no signal.
    #[error("`{command}` has failed; its own message says why")]
    Process { command: String, code: Option<u8> },
    /// A signal came.
    #[error("interrupted before the end of `{0}`")]
    Interrupted(String),
}

impl Failed {
    pub(super) const fn code(&self) -> Option<u8> {
        match self {
            Self::Process { code, .. } => *code,
            Self::Interrupted(_) => Some(INTERRUPTED),
        }
    }
}

impl Setting {
    /// Does in this process what a command would do, and notes the command. `None` of `work` is a signal.
    pub(crate) fn work<T>(
        &self,
        outcome: &mut Outcome,
        command: String,
        work: impl FnOnce() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        eprintln!("{command}");
        let Some(done) = work()? else {
            return Err(Failed::Interrupted(command).into());
        };
        outcome.commands.push(command);
        Ok(done)
    }

    /// Writes a file of its directory, and says where it is.
    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.directory.join(name);
        fs::create_dir_all(&self.directory)
            .and_then(|()| fs::write(&path, text))
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Runs `perturb ARGUMENTS` to its end, notes the command, and gives what it printed.
    pub(crate) fn perturb<S: AsRef<OsStr>>(
        &self,
        outcome: &mut Outcome,
        arguments: &[S],
    ) -> anyhow::Result<String> {
        let words: Vec<String> = arguments
            .iter()
            .map(|word| word.as_ref().to_string_lossy().into_owned())
            .collect();
        let command = format!("perturb {}", words.join(" "));
        eprintln!("{command}");
        fs::create_dir_all(&self.directory)
            .with_context(|| format!("making {}", self.directory.display()))?;
        // Its messages are for the same reader.
        let output = Command::new("/proc/self/exe")
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("running {command}"))?;
        if !output.status.success() {
            let code = output.status.code().and_then(|code| u8::try_from(code).ok());
            return Err(Failed::Process { command, code }.into());
        }
        outcome.commands.push(command);
        String::from_utf8(output.stdout).context("reading what it printed")
    }

    /// The same, where it prints one JSON value.
    pub(crate) fn json<S: AsRef<OsStr>>(
        &self,
        outcome: &mut Outcome,
        arguments: &[S],
    ) -> anyhow::Result<Value> {
        serde_json::from_str(&self.perturb(outcome, arguments)?).context("reading its JSON")
    }
}
