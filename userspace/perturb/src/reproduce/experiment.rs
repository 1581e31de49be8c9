//! A measurement is what another command of this program does: the page shows it as a shell reads it, and anybody can run it alone.
//!
//! Where the library gives values it is called in this process; programs under `perturb run` need a process of their own.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::Read as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::Context as _;
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};
use perturb_emulator::signals::at_each_signal;
use perturb_present::shell;
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

/// Signals are for the command that measures, which takes its emulation down; this process waits for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    came: bool,
    measuring: Option<Pid>,
}

impl Signals {
    pub(super) fn listen() -> anyhow::Result<Self> {
        let signals = Self::default();
        let own = signals.clone();
        at_each_signal(move |signal| own.pass_on(signal))?;
        Ok(signals)
    }

    /// Whether one came.
    pub(super) fn came(&self) -> bool {
        self.state().came
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(&self, signal: Signal) {
        let mut state = self.state();
        state.came = true;
        let Some(measuring) = state.measuring else {
            return;
        };
        // A terminal's signals come to all of its foreground.
        if signal == Signal::SIGTERM {
            // It may end by itself meanwhile.
            let _ = kill(measuring, signal);
        }
        eprintln!("waiting for the measurement to end (process {measuring})");
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
        if self.signals.came() {
            return Err(Failed::Interrupted(command).into());
        }
        let Some(done) = work()? else {
            return Err(Failed::Interrupted(command).into());
        };
        outcome.commands.push(self.told(&command));
        Ok(done)
    }

    /// A command as one gives it in the directory of the pages: it says nothing of where they were made.
    fn told(&self, command: &str) -> String {
        let mut places: Vec<(PathBuf, &str)> = env::current_exe()
            .into_iter()
            .map(|own| (own, "perturb"))
            .collect();
        if let Some(name) = self.directory.file_name().and_then(OsStr::to_str) {
            places.extend(fs::canonicalize(&self.directory).ok().map(|path| (path, name)));
            places.push((self.directory.clone(), name));
        }
        places.iter().fold(command.to_owned(), |told, (path, name)| {
            told.replace(&*path.to_string_lossy(), name)
        })
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
        let command = format!("perturb {}", shell::command(arguments));
        eprintln!("{command}");
        fs::create_dir_all(&self.directory)
            .with_context(|| format!("making {}", self.directory.display()))?;
        let running = || format!("running {command}");
        let mut signals = self.signals.state();
        if signals.came {
            return Err(Failed::Interrupted(command).into());
        }
        // Its messages are for the same reader.
        let mut child = Command::new("/proc/self/exe")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(running)?;
        let id = Pid::from_raw(child.id().cast_signed());
        signals.measuring = Some(id);
        drop(signals);
        let mut printed = Vec::new();
        let stdout = child.stdout.take();
        let read = stdout.map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut printed));
        // Until it is reaped its number is nobody else's.
        let ended = waitid(Id::Pid(id), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        self.signals.state().measuring = None;
        ended.with_context(running)?;
        read.with_context(running)?;
        let status = child.wait().with_context(running)?;
        if self.signals.came() {
            return Err(Failed::Interrupted(command).into());
        }
        if !status.success() {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Err(Failed::Process { command, code }.into());
        }
        outcome.commands.push(self.told(&command));
        String::from_utf8(printed).context("reading what it printed")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_say_nothing_of_where_they_were_run() {
        let out = tempfile::tempdir().unwrap();
        let setting = Setting {
            quick: true,
            directory: out.path().join("a-figure"),
            signals: Signals::default(),
        };
        let path = setting.write("star.yaml", "").unwrap();
        let own = env::current_exe().unwrap();
        let command = format!("perturb run {} -- {} serve", path.display(), own.display());
        let told = "perturb run a-figure/star.yaml -- perturb serve";
        assert_eq!(setting.told(&command), told);
    }

    #[test]
    fn nothing_begins_after_a_signal() {
        let setting = Setting {
            quick: true,
            directory: PathBuf::new(),
            signals: Signals::default(),
        };
        let mut outcome = Outcome::default();
        let begun = setting.work(&mut outcome, "a".into(), || Ok(Some(1)));
        assert_eq!(begun.unwrap(), 1);
        setting.signals.pass_on(Signal::SIGINT);
        let refused = setting.work(&mut outcome, "b".into(), || -> anyhow::Result<Option<()>> {
            unreachable!("it was begun")
        });
        assert!(matches!(
            refused.unwrap_err().downcast(),
            Ok(Failed::Interrupted(_))
        ));
        assert_eq!(outcome.commands, ["a"]);
    }
}
