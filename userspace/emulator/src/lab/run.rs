//! `perturb run`: private hosts, joined by a profile, for the time of a command.

use std::{
    convert::identity,
    ffi::OsString,
    fs, io,
    os::fd::{AsRawFd as _, RawFd},
    process::ExitStatus,
};

use anyhow::Context as _;
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sched::{CloneFlags, setns, unshare},
    unistd::Pid,
};
use tokio::process::Command;

use super::{
    Lab,
    inside::{Forwarding, Stage, die_with_parent},
};
use crate::{
    conduct::{Conduct, Pacing},
    prepared::Prepared,
    privileges::{self, Owner},
    registry::Record,
    session::{End, Handle, OnSignal, OnTrouble, Place, Session},
    signals::Signals,
    status::{self, Report},
};

/// What was asked for.
pub struct Request<'a> {
    /// The profile.
    pub prepared: Prepared,
    /// How many hosts.
    pub hosts: u32,
    /// How the time is kept.
    pub pacing: Pacing,
    /// Show the programs' own messages.
    pub verbose: bool,
    /// Whose the command is; without one it is root's.
    pub owner: Option<Owner>,
    /// Whether this process emulates nothing after it, and gives up what it does not need for that.
    pub is_last: bool,
    /// Is told when it emulates, before the command runs.
    pub begun: &'a mut dyn FnMut(&Record, Handle) -> anyhow::Result<()>,
    /// Is shown the record while the command runs, about twice a second.
    pub witness: &'a mut dyn FnMut(&Record),
    /// Is told what it has done, once it has ended.
    pub ended: &'a mut dyn FnMut(&Report) -> anyhow::Result<()>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// Runs the command, and warns of what speaks against its results. How it ended; nothing if something else ended the
/// emulation first.
pub async fn run(request: Request<'_>) -> anyhow::Result<Option<ExitStatus>> {
    // Those that come before the command runs; later ones: see [`Forwarding`].
    let mut signals = Signals::listen_for_command()?;
    let mut pacing = request.pacing;
    let lab = Lab::new(request.hosts, &request.prepared.profile, &mut pacing)?;
    let conduct = Conduct::of_hosts(pacing, request.verbose);
    let mut session = Session::open(Place::Hosts(&lab), conduct, &mut signals, request.witness);
    session.core().put(&request.prepared)?;
    let handle = session.handle();
    if let Some(running) = session.core().running() {
        (request.begun)(&running.record, handle)?;
    }
    if request.owner.is_some() {
        for host in &lab.hosts {
            let name = host.name();
            let let_ping = host.namespace.enter(let_everyone_ping).and_then(identity);
            let_ping.with_context(|| format!("letting users ping on {name}"))?;
        }
    }
    let mut child = spawn(&lab, request.command, request.owner, |_| {})?;
    if request.is_last {
        privileges::keep_needed().context("giving up capabilities")?;
    }
    let pid = child.id().context("the command has ended before it began")?;
    let pid = Pid::from_raw(pid.cast_signed());
    let forwarding = Forwarding::to(pid).context("passing on signals")?;
    let end = session
        .keep(child.wait(), OnSignal::Pass(pid), OnTrouble::GoOn)
        .await;
    drop(forwarding);
    let outcome = session.end(end)?;
    let faults = outcome.faults();
    status::warn(&faults);
    let mut outcome = outcome;
    if let Ok(Some(report)) = &mut outcome.report {
        report.faults = Some(faults);
        (request.ended)(report)?;
    }
    match (outcome.trouble, outcome.end) {
        (Some(trouble), _) | (None, End::Trouble(trouble)) => Err(trouble.into()),
        (None, End::Done(ended)) => {
            // Without its maps there is nothing to be said; whoever ended it has said that.
            outcome.report?;
            Ok(Some(ended?))
        }
        (None, End::Asked | End::Over | End::Unconfirmed) => Ok(None),
    }
}

/// A user without capabilities may send ICMP echo requests from then on (`ping_init_sock` in the kernel).
fn let_everyone_ping() -> io::Result<()> {
    fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647")
}

/// Starts the stage of the owner's command in the first host, with adjustments of the caller's.
pub(super) fn spawn(
    lab: &Lab,
    command: Vec<OsString>,
    owner: Option<Owner>,
    adjust: impl FnOnce(&mut Command),
) -> anyhow::Result<tokio::process::Child> {
    let first: RawFd = lab
        .hosts
        .first()
        .context("a lab without hosts")?
        .namespace
        .as_raw_fd();
    let fds: Vec<RawFd> = lab.hosts.iter().map(|host| host.namespace.as_raw_fd()).collect();
    let told = Stage {
        namespaces: fds.clone(),
        owner,
        command,
    };
    let mut stage = Command::new("/proc/self/exe");
    stage.args(told.words());
    // It must not outlive an error here.
    stage.kill_on_drop(true);
    adjust(&mut stage);
    let enter = move || -> io::Result<()> {
        die_with_parent()?;
        // SAFETY: the namespaces' handles outlive the child's start.
        let first = unsafe { std::os::fd::BorrowedFd::borrow_raw(first) };
        setns(first, CloneFlags::CLONE_NEWNET)?;
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWPID)?;
        for &fd in &fds {
            // SAFETY: as above. The stage binds names to them.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only; it neither allocates nor locks.
    unsafe { stage.pre_exec(enter) };
    stage.spawn().context("starting the private hosts' first process")
}
