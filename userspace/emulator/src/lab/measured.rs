//! A command on private hosts under observation: output to files, a time limit, and the emulation's counters at its end.

use std::{
    ffi::OsString,
    fs::File,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};

use super::{Lab, run};
use crate::{
    conduct::{Conduct, Pacing},
    prepared::Prepared,
    registry::Record,
    session::{self, OnSignal, OnTrouble, Place, Session},
    signals::Signals,
    status::Report,
};

/// Names this executable to the command.
pub const EXECUTABLE_VARIABLE: &str = "PERTURB";
/// Names the directory of the files beside the experiment to the command.
pub const DIRECTORY_VARIABLE: &str = "EXPERIMENT";

/// Where programs put temporary files.
const SCRATCH_VARIABLE: &str = "TMPDIR";

/// What is to be run.
pub struct Request {
    /// The network.
    pub prepared: Prepared,
    /// How many hosts.
    pub hosts: u32,
    /// How the time is kept.
    pub pacing: Pacing,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Where its standard output goes.
    pub stdout: File,
    /// Where its standard error goes.
    pub stderr: File,
    /// When it is killed.
    pub limit: Duration,
    /// Processors on which it runs; empty: all.
    pub pin: Vec<usize>,
    /// Named to the command in [`EXECUTABLE_VARIABLE`].
    pub executable: PathBuf,
    /// Named to the command in [`DIRECTORY_VARIABLE`].
    pub directory: PathBuf,
    /// Where the command's temporary files go; whoever asks removes them.
    pub scratch: PathBuf,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, in this way.
    Exited(ExitStatus),
    /// It was killed at its limit.
    TimedOut,
    /// It was killed because this process is to end.
    Interrupted,
}

/// What was observed.
pub struct Measured {
    /// How it ended.
    pub end: End,
    /// From its start to its end, the making of its namespaces included.
    pub wall: Duration,
    /// The emulation's counters at the end.
    pub report: Report,
}

/// Makes the hosts, runs the command, and removes them.
pub async fn measure(request: Request, signals: &mut Signals) -> anyhow::Result<Measured> {
    let mut pacing = request.pacing;
    let lab = Lab::new(request.hosts, &request.prepared.profile, &mut pacing)?;
    let mut nobody = |_: &Record| ();
    let conduct = Conduct::of_hosts(pacing, false);
    let mut session = Session::open(Place::Hosts(&lab), conduct, signals, &mut nobody);
    session.core().put(&request.prepared)?;
    let mut affinity = CpuSet::new();
    for processor in &request.pin {
        affinity
            .set(*processor)
            .with_context(|| format!("pinning to processor {processor}"))?;
    }
    let pinned = !request.pin.is_empty();
    let started = Instant::now();
    let mut child = run::spawn(&lab, &[], request.command, None, |stage| {
        stage
            .stdin(Stdio::null())
            .stdout(request.stdout)
            .stderr(request.stderr)
            .env(EXECUTABLE_VARIABLE, &request.executable)
            .env(DIRECTORY_VARIABLE, &request.directory)
            .env(SCRATCH_VARIABLE, &request.scratch);
        if pinned {
            let pin = move || Ok(sched_setaffinity(Pid::from_raw(0), &affinity)?);
            // SAFETY: the closure makes one system call; it neither allocates nor locks.
            unsafe { stage.pre_exec(pin) };
        }
    })?;
    let work = tokio::time::timeout(request.limit, child.wait());
    let end = session.keep(work, OnSignal::End, OnTrouble::End).await;
    let wall = started.elapsed();
    let is_over = matches!(end, Ok(session::End::Done(Ok(_))));
    // With the stage its PID namespace ends, and everything in it.
    let killed = if is_over { Ok(()) } else { child.kill().await };
    let outcome = session.end(end)?;
    killed.context("ending the command")?;
    let end = match outcome.end {
        session::End::Done(Ok(status)) => End::Exited(status?),
        session::End::Done(Err(_)) => End::TimedOut,
        session::End::Trouble(trouble) => return Err(trouble.into()),
        session::End::Asked | session::End::Over | session::End::Unconfirmed => End::Interrupted,
    };
    let report = outcome
        .report?
        .context("the emulation has ended before its command")?;
    Ok(Measured { end, wall, report })
}
