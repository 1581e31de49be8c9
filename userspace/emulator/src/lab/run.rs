//! `perturb run`: private hosts, joined by a profile, for the time of a command.

use std::{
    convert::identity,
    ffi::OsString,
    fs, io,
    os::fd::{AsRawFd, RawFd},
    pin::Pin,
    process::ExitStatus,
    time::Duration,
};

use anyhow::Context as _;
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    sched::{CloneFlags, setns, unshare},
    unistd::Pid,
};
use tokio::process::Command;

use super::{
    Lab, Namespace,
    away::Away,
    ends::{self, Accounts},
    inside::{Elsewhere, Forwarding, Stage, die_with_parent},
};
use crate::{
    conduct::{Conduct, Pacing},
    prepared::Prepared,
    privileges::{self, Owner},
    registry::Record,
    session::{End, Handle, OnSignal, OnTrouble, Outcome, Place, Session},
    signals::Signals,
    status::{self, Fault, Report},
};

/// The core is late if more than 1 % of the packets are later than this, as runs of sweeps are unless they say otherwise.
pub const LATE: Duration = Duration::from_millis(5);

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
    pub begun: &'a mut dyn FnMut(&Record, Handle, &Lab) -> anyhow::Result<()>,
    /// Is shown the record while the command runs, about twice a second.
    pub witness: &'a mut dyn FnMut(&Record),
    /// Is told what it has done, once it has ended.
    pub ended: &'a mut dyn FnMut(&Report) -> anyhow::Result<()>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// Hosts on other machines.
pub struct Spread<'a> {
    /// Which, and where.
    pub aways: Vec<Away>,
    /// Their machines.
    pub machines: &'a mut dyn Machines,
}

/// Other machines that have hosts.
pub trait Machines {
    /// Ends when one of them is lost, and says so. It may be dropped and called again.
    fn lost(&mut self) -> Pin<Box<dyn Future<Output = anyhow::Error> + '_>>;
    /// Ends the hosts there.
    fn end(&mut self) -> Pin<Box<dyn Future<Output = Accounts> + '_>>;
}

/// Runs the command, and warns of what speaks against its results. How it ended; nothing if something else ended the
/// emulation first.
pub async fn run(request: Request<'_>) -> anyhow::Result<Option<ExitStatus>> {
    run_spread(request, None).await
}

/// The same with hosts that are on other machines already.
pub async fn run_spread(
    request: Request<'_>,
    spread: Option<Spread<'_>>,
) -> anyhow::Result<Option<ExitStatus>> {
    // Those that come before the command runs; later ones: see [`Forwarding`].
    let mut signals = Signals::listen_for_command()?;
    let mut pacing = request.pacing;
    let (aways, mut machines) = spread.map_or_else(Default::default, |one| (one.aways, Some(one.machines)));
    let mut lab = Lab::spread(request.hosts, &request.prepared.profile, &mut pacing, &aways)?;
    let prepared = request.prepared.nearer(&lab.trips())?;
    let conduct = Conduct::of_hosts(pacing, request.verbose);
    let mut session = Session::open(Place::Hosts(&lab), conduct, &mut signals, request.witness);
    session.core().put(&prepared)?;
    let handle = session.handle();
    if let Some(running) = session.core().running() {
        (request.begun)(&running.record, handle, &lab)?;
    }
    if request.owner.is_some() {
        for host in lab.here() {
            let name = host.name();
            let let_ping = host.namespace.enter(let_everyone_ping).and_then(identity);
            let_ping.with_context(|| format!("letting users ping on {name}"))?;
        }
    }
    let mut child = spawn(&lab, &aways, request.command, request.owner, |_| {})?;
    if request.is_last {
        privileges::keep_needed().context("giving up capabilities")?;
    }
    let pid = child.id().context("the command has ended before it began")?;
    let pid = Pid::from_raw(pid.cast_signed());
    let forwarding = Forwarding::to(pid).context("passing on signals")?;
    let work = async {
        tokio::select! {
            ended = child.wait() => Ok(ended),
            error = lost(machines.as_deref_mut()) => Err(error),
        }
    };
    let end = session.keep(work, OnSignal::Pass(pid), OnTrouble::GoOn).await;
    drop(forwarding);
    let is_lost = matches!(end, Ok(End::Done(Err(_))));
    if is_lost {
        // With the stage its PID namespace ends, and everything in it.
        child.kill().await.context("ending the command")?;
    }
    let outcome = session.end(end)?;
    let mut faults = outcome.faults();
    if !aways.is_empty() {
        faults.extend(is_late(&outcome));
    }
    status::warn(&faults);
    if let Some(machines) = machines {
        lab.close_tunnels()?;
        let said = tokio::select! {
            said = machines.end() => Some(said),
            _ = signals.next() => None,
        };
        let lost = match &said {
            Some(said) => lost_between(&lab, said).await?,
            None => None,
        };
        status::warn(lost.as_slice());
        faults.extend(lost);
        if is_lost || said.is_none_or(|said| said.values().any(Option::is_none)) {
            faults.push(Fault::ENDED);
        }
    }
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
            Ok(Some(ended??))
        }
        (None, End::Asked | End::Over | End::Unconfirmed) => Ok(None),
    }
}

/// When a machine is lost; never without any.
async fn lost(machines: Option<&mut (dyn Machines + '_)>) -> anyhow::Error {
    match machines {
        Some(machines) => machines.lost().await,
        None => std::future::pending().await,
    }
}

/// That this machine was not fast enough for hosts on others.
fn is_late<T>(outcome: &Outcome<T>) -> Option<Fault> {
    let report = outcome.report.as_ref().ok()?.as_ref()?;
    let is_late = report.lateness.as_ref()?.p99_us > LATE.as_secs_f64() * 1e6;
    is_late.then(|| Fault {
        place: status::Place::Late,
        packets: report.balance.released.div_ceil(100),
    })
}

/// What was lost in tunnels to other machines, of which each has said what has passed its ends.
async fn lost_between(lab: &Lab, said: &Accounts) -> anyhow::Result<Option<Fault>> {
    let here = lab.passed().await?;
    let mut packets = 0;
    for (machine, there) in said {
        let lost = there.as_ref().map_or(0, |there| ends::lost(&here, there));
        if lost > 0 {
            log::info!("{machine}: {lost} packets were lost on the way to it, or from there");
        }
        packets += lost;
    }
    let fault = Fault {
        place: status::Place::Tunnel,
        packets,
    };
    Ok((packets > 0).then_some(fault))
}

/// A user without capabilities may send ICMP echo requests from then on (`ping_init_sock` in the kernel).
pub(super) fn let_everyone_ping() -> io::Result<()> {
    fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647")
}

/// Starts the stage of the owner's command in the first host, with adjustments of the caller's.
pub(super) fn spawn(
    lab: &Lab,
    aways: &[Away],
    command: Vec<OsString>,
    owner: Option<Owner>,
    adjust: impl FnOnce(&mut Command),
) -> anyhow::Result<tokio::process::Child> {
    let here = lab.here().map(|host| (host.number, host.namespace.as_raw_fd()));
    let namespaces: Vec<(u32, RawFd)> = here.collect();
    let &(_, first) = namespaces.first().context("a lab without hosts")?;
    let mut fds: Vec<RawFd> = namespaces.iter().map(|(_, fd)| *fd).collect();
    // Open until the child has started.
    let machine = (!aways.is_empty()).then(Namespace::current).transpose()?;
    let machine_fd = machine.as_ref().map(AsRawFd::as_raw_fd);
    fds.extend(machine_fd);
    let commands = aways
        .iter()
        .flat_map(|away| away.hosts.iter().copied().zip(away.commands.iter().cloned()));
    let told = Stage {
        namespaces,
        hosts: lab.count,
        elsewhere: Elsewhere {
            machine: machine_fd,
            commands: commands.collect(),
        },
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
