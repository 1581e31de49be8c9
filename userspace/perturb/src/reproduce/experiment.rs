//! A measurement is another command of this program: the page shows it, and anybody can run it alone.

use std::{
    ffi::OsStr,
    fs,
    process::{Command, Stdio},
};

use anyhow::Context as _;
use serde_json::Value;

use super::{figure::Setting, outcome::Outcome};

/// A command that has failed has said why.
#[derive(Debug, thiserror::Error)]
#[error("`{command}` has failed; its own message says why")]
pub(crate) struct Failed {
    command: String,
    /// Its exit code, if it was no signal.
    pub(super) code: Option<u8>,
}

impl Setting {
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
            return Err(Failed { command, code }.into());
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
