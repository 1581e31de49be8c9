//! `perturb run`: private hosts, joined by a profile, for the time of a command.

use std::{
    convert::identity,
    ffi::OsString,
    fs, io,
    os::fd::{AsRawFd as _, RawFd},
    process::ExitStatus,
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sched::{CloneFlags, setns, unshare},
    unistd::Pid,
};
use perturb_dataplane::{machine, netlink::Netlink, steering::Steering};
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
};

use super::{
    Host, INTERFACE, Lab,
    inside::{Stage, die_with_parent, forward_interrupts, forward_nothing, pass_on},
};
use crate::{
    conduct::{Conduct, Lease, Pacing},
    enter,
    logs::follow_logs,
    prepared::Prepared,
    privileges::{self, Owner},
    registry::{self, Record},
    running::Running,
    setup::{Target, set_up},
    signals::Hangup,
    status::{self, Report},
};

/// What was asked for.
pub struct Request {
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
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// The lease inside a lab: nobody else's traffic is at stake, so it is generous.
pub const LEASE: Lease = Lease::For(Duration::from_secs(60));

/// Runs the command; how its stage has ended.
pub async fn run(request: Request) -> anyhow::Result<ExitStatus> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = Hangup::listen()?;
    // Those that come before the command runs; later ones: see `forward_interrupts`.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;

    let lab = Lab::new(request.hosts, &request.prepared.profile.tcp)?;
    let mut running = emulate(&lab, &request.prepared, request.pacing, request.verbose)?;
    let logs = request
        .verbose
        .then(|| follow_logs(running.emulation.programs()))
        .transpose()?;
    if request.owner.is_some() {
        for host in &lab.hosts {
            let name = host.name();
            let let_ping = host.namespace.enter(let_everyone_ping).and_then(identity);
            let_ping.with_context(|| format!("letting users ping on {name}"))?;
        }
    }
    let mut child = spawn(&lab, request.command, request.owner, |_| {})?;
    privileges::keep_needed().context("giving up capabilities")?;
    let pid = child.id().context("the command has ended before it began")?;
    let pid = pid.cast_signed();
    forward_interrupts(Pid::from_raw(pid)).context("passing on signals")?;

    let mut trouble = None;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            _ = terminate.recv() => pass_on(pid, libc::SIGTERM),
            _ = hangup.recv() => pass_on(pid, libc::SIGHUP),
            _ = interrupt.recv() => pass_on(pid, libc::SIGINT),
            _ = quit.recv() => pass_on(pid, libc::SIGQUIT),
            found = running.keeper.trouble(), if trouble.is_none() => {
                log::error!("{found}; nothing is emulated from now on");
                trouble = Some(found);
            }
        }
    };
    forward_nothing();
    let status = status?;
    drop(logs);
    // Without its maps there is nothing to be said; whoever ended it has said that.
    if let Some(report) = Report::settled(&mut running)? {
        status::warn(&report.faults());
    }
    // The hosts' processes are gone: nobody waits for what is still held.
    running.abandon()?;
    if let Some(trouble) = trouble {
        return Err(trouble.into());
    }
    Ok(status)
}

/// A user without capabilities may send ICMP echo requests from then on (`ping_init_sock` in the kernel).
fn let_everyone_ping() -> io::Result<()> {
    fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647")
}

/// Puts a lab under emulation.
pub fn emulate(lab: &Lab, prepared: &Prepared, pacing: Pacing, verbose: bool) -> anyhow::Result<Running> {
    let registry = enter()?;
    let mut targets = lab.hosts.iter().map(target).collect::<anyhow::Result<Vec<_>>>()?;
    if prepared.has_topology {
        for target in &mut targets {
            target.rank = 0;
        }
    }
    let id = Record::of_private_hosts();
    let conduct = Conduct::plain(pacing, LEASE, verbose);
    // A thread has the capabilities of the one that started it: those that keep the emulation alive get what they need, and
    // this one still has all, to start the hosts' processes.
    let set_up = || {
        privileges::keep_needed().context("giving up capabilities")?;
        set_up(&registry, &id, prepared, targets, conduct)
    };
    let running = thread::scope(|scope| {
        let spawned = thread::Builder::new().spawn_scoped(scope, set_up);
        let thread = spawned.context("starting the thread that sets the emulation up")?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    if prepared.profile.overhead.receive.nanos() > 0 {
        receive_where_receivers_run(lab)?;
    }
    Ok(running)
}

/// Overhead is its host's own: it is burnt by the processor that runs the receiver, not by that of a sender or a pacer.
fn receive_where_receivers_run(lab: &Lab) -> anyhow::Result<()> {
    registry::raised::raise(&machine::RECEIVERS)?;
    for host in &lab.hosts {
        let follow = || Steering::here()?.follow(INTERFACE);
        host.namespace.enter(follow).with_context(|| host.name())??;
    }
    Ok(())
}

fn target(host: &Host) -> anyhow::Result<Target> {
    let namespace = host.namespace.try_clone()?;
    let link = namespace.enter(|| Netlink::open()?.link(INTERFACE))??;
    let Some(link) = link else {
        bail!("{} has lost its interface", host.name())
    };
    Ok(Target {
        namespace,
        link,
        host: Some(host.name()),
        rank: host.number,
        indices: host.device_indices(),
    })
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
