//! What goes wrong, in words.

use std::{process::ExitStatus, time::Duration};

use perturb_ask::AskError;

/// Why a network is not there, does not change, or is not to be trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There can be no emulated networks here: no perturb, no root, or a kernel that lacks something. A test may be skipped.
    #[error("{0}")]
    Missing(String),
    /// perturb said no, and why.
    #[error("{0}")]
    Refused(String),
    /// The hosts were not there in time.
    #[error("perturb run has made no hosts within {limit:?}: {said}")]
    Late {
        /// How long it was waited for.
        limit: Duration,
        /// What it said meanwhile.
        said: String,
    },
    /// The hosts are gone before they were to.
    #[error("the network has ended by itself ({status}): {said}")]
    Ended {
        /// How `perturb run` has ended.
        status: ExitStatus,
        /// What it said.
        said: String,
    },
    /// There is no such host.
    #[error("there is no host {name}: there are {}", there.join(", "))]
    NoHost {
        /// What was asked for.
        name: String,
        /// Those that are there.
        there: Vec<String>,
    },
    /// A command on a host failed.
    #[error(
        "{command} (on {host}): {status}{}{}",
        shown("standard output", out),
        shown("standard error", err)
    )]
    Command {
        /// The host's name.
        host: String,
        /// The program and its arguments.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it printed.
        out: String,
        /// What it said.
        err: String,
    },
    /// A command on a host took longer than it may.
    #[error(
        "{command} (on {host}) was killed, for it took longer than {limit:?}{}{}",
        shown("standard output", out),
        shown("standard error", err)
    )]
    Slow {
        /// The host's name.
        host: String,
        /// The program and its arguments.
        command: String,
        /// How long it may take.
        limit: Duration,
        /// What it printed until then.
        out: String,
        /// What it said until then.
        err: String,
    },
    /// What was seen is not what the profile makes of a network: no packet crossed it, or packets met what no profile asks for.
    #[error("{}", .0.join("\n"))]
    Against(Vec<String>),
    /// The network does not answer at its socket.
    #[error("the network does not answer at {socket}: {why}")]
    Silent {
        /// Where it was asked.
        socket: String,
        /// Why not.
        why: String,
    },
    /// A process could not be started or waited for, or a file not be written.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        source: std::io::Error,
    },
}

/// perturb's exit code where the kernel lacks something.
const LACKING: i32 = 3;

/// Why `perturb run` ended before its hosts were there.
pub(crate) fn refusal(status: ExitStatus, said: String) -> Error {
    let not_root = said.contains("needs root") || said.contains("(os error 1)");
    let words = if said.is_empty() {
        format!("perturb run has ended ({status}) and said nothing")
    } else {
        said
    };
    if status.code() == Some(LACKING) || not_root {
        Error::Missing(words)
    } else {
        Error::Refused(words)
    }
}

pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    |source| Error::Io { what, source }
}

pub(crate) fn silent(socket: &str) -> impl Fn(AskError) -> Error {
    let socket = socket.to_owned();
    move |error| Error::Silent {
        socket: socket.clone(),
        why: error.to_string(),
    }
}

fn shown(name: &str, said: &str) -> String {
    let said = said.trim();
    if said.is_empty() {
        String::new()
    } else {
        format!("\n{name}:\n{said}")
    }
}
