//! The way into hosts from outside of them: `perturb on --run`, and `perturb agent --lodge` for another machine.
//!
//! ```text
//! perturb on --run ID ──fork──► the command, in the lab's namespaces: it ends with the lab, and with `perturb on`
//! ```

use std::{
    collections::HashMap,
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, PipeWriter},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    process::{self, exit},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, setns},
    sys::{
        prctl,
        signal::{Signal, kill, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{ForkResult, Gid, Pid, Uid, fork, getpgrp, getpid, setgroups, setpgid, setresgid, setresuid},
};
use perturb_dataplane::netlink::Netlink;

use super::{
    guest::{DOOR, opened},
    inside::{
        Entered, enter, execute, forward_sent_signals, hold_signals, name_hosts, restore_signals, wait_for,
    },
    view::names,
};
use crate::{
    own_namespace, privileges,
    registry::{Record, records},
};

/// Runs a command on a host of the private hosts that the registry has by this name; its exit code. As [`on`] does inside, it
/// belongs to whoever called sudo, unless it is to stay with root.
pub fn join(id: &str, host: &str, as_root: bool, command: &[OsString]) -> anyhow::Result<u8> {
    if privileges::is_door() {
        bail!("--run: this process is on a private host already; leave --run out");
    }
    enter_lab(record(id)?.process.pid, host, as_root, command, |_| Ok(()))
}

/// Runs a shell command on a host that a process of this machine has, as [`lodge`](super::lodge) does; its exit code. `within`: the
/// process whose namespaces it gets, if the host is not private.
///
/// # Errors
/// If the host is not there any more, or may not be entered.
pub fn agent(process: u32, within: Option<u32>, host: &str, words: &[OsString]) -> anyhow::Result<u8> {
    let line = words.join(OsStr::new(" "));
    let command = ["sh".into(), "-c".into(), line];
    // SAFETY: no thread was started yet.
    unsafe { privileges::forget_sudo() };
    match within {
        Some(within) => enter_guest(process, within, host, &command),
        None => enter_lab(process, host, true, &command, |child| watch(child, None)),
    }
}

/// Runs a command where a guest is. A machine has no namespaces that this process does not have; in a container the command gets the
/// capabilities that the container has.
///
/// It ends with the process that has the host, and on a machine all that it has started. What is left in the background when the command
/// ends by itself is the machine's or the container's own.
fn enter_guest(process: u32, within: u32, host: &str, command: &[OsString]) -> anyhow::Result<u8> {
    let gone = || format!("{host} is no host any more: its network has ended");
    let lodge = opened(process).with_context(gone)?;
    let there = opened(within).with_context(gone)?;
    let other = other_namespaces(within).with_context(gone)?;
    if !other.is_empty() {
        let limits = privileges::limits_of(within).context("reading the container's capabilities")?;
        setgroups(&[]).context("leaving root's groups")?;
        setns(there, other).with_context(|| format!("entering {host}"))?;
        // A user namespace begins with all.
        privileges::limit_to(limits).context("taking the container's capabilities")?;
        if other.contains(CloneFlags::CLONE_NEWUSER) {
            setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0))?;
            setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0))?;
        }
    }
    // Numbers of processes are given again.
    ensure!(Netlink::open()?.link(DOOR)?.is_some(), gone());
    // With ssh, and with srun, it is already.
    if getpgrp() != getpid() {
        setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    }
    // What daemons start stays below this process.
    prctl::set_child_subreaper(true).context("taking orphans")?;
    let over = || -> anyhow::Result<()> {
        log::error!("{}", gone());
        // Numbers of processes in a container are others.
        if !other.contains(CloneFlags::CLONE_NEWPID) {
            end_descendants()?;
        }
        // This process, the command, and what that has started in the foreground.
        Ok(killpg(getpgrp(), Signal::SIGKILL)?)
    };
    attend(
        || Ok((command.to_vec(), Vec::new())),
        |child| watch(child, Some((&lodge, &over))),
    )
}

/// How long a command gets to end when it is asked to.
const PATIENCE: u16 = 2_000;

/// Waits for the end of a command that another machine has asked for. If nobody reads there any more, it is told to end: `perturb on` has
/// ended there, as whose signals it would end here. `lodge` is what has the host, and what to do when that ends.
fn watch(child: Pid, lodge: Option<(&OwnedFd, &dyn Fn() -> anyhow::Result<()>)>) -> anyhow::Result<()> {
    let ends = opened(child.as_raw().cast_unsigned()).context("watching the command")?;
    let (stdout, mut is_cut) = (io::stdout(), false);
    loop {
        let command = PollFd::new(ends.as_fd(), PollFlags::POLLIN);
        let lodge_ends = lodge.map(|(lodge, _)| PollFd::new(lodge.as_fd(), PollFlags::POLLIN));
        let reader = (!is_cut).then(|| PollFd::new(stdout.as_fd(), PollFlags::empty()));
        let mut all = [Some(command), lodge_ends, reader]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>();
        let patience = if is_cut {
            PATIENCE.into()
        } else {
            PollTimeout::NONE
        };
        let ready = match poll(&mut all, patience) {
            Err(Errno::EINTR) => continue,
            ready => ready?,
        };
        let is_ready = |one: Option<&PollFd<'_>>| one.and_then(PollFd::any).unwrap_or_default();
        if is_ready(all.first()) {
            return Ok(());
        }
        match lodge {
            Some((_, over)) if is_ready(all.get(1)) => over()?,
            _ if !is_cut => {
                is_cut = true;
                kill(child, Signal::SIGTERM)?;
            }
            _ if ready == 0 => kill(child, Signal::SIGKILL)?,
            _ => {}
        }
    }
}

/// How long killed processes get to end.
const AGAIN: Duration = Duration::from_millis(10);

/// Kills what this process has started, and what that has started, until there is nothing.
fn end_descendants() -> anyhow::Result<()> {
    loop {
        let parents = parents()?;
        let is_below = |pid: &&u32| {
            let ancestors = std::iter::successors(Some(**pid), |pid| parents.get(pid).copied());
            // A number that was given again meanwhile could close a circle.
            let mut above = ancestors.skip(1).take(parents.len());
            above.any(|pid| pid == process::id())
        };
        let below: Vec<&u32> = parents.keys().filter(is_below).collect();
        if below.is_empty() {
            return Ok(());
        }
        for pid in below {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) =
            waitpid(None, Some(WaitPidFlag::WNOHANG))
        {}
        thread::sleep(AGAIN);
    }
}

/// Namespaces of a process that this one is not in.
fn other_namespaces(process: u32) -> io::Result<CloneFlags> {
    let kinds = [
        ("user", CloneFlags::CLONE_NEWUSER),
        ("mnt", CloneFlags::CLONE_NEWNS),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("net", CloneFlags::CLONE_NEWNET),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("ipc", CloneFlags::CLONE_NEWIPC),
    ];
    let mut other = CloneFlags::empty();
    for (name, flag) in kinds {
        let number =
            |process: &str| fs::metadata(format!("/proc/{process}/ns/{name}")).map(|file| file.ino());
        if number(&process.to_string())? != number("self")? {
            other |= flag;
        }
    }
    Ok(other)
}

/// `meanwhile`: see [`attend`].
fn enter_lab(
    process: u32,
    host: &str,
    as_root: bool,
    command: &[OsString],
    meanwhile: impl FnOnce(Pid) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let first = first_process(process)?;
    let here = env::current_dir().context("finding the current directory")?;
    let all = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWPID;
    // Those of a user are in a user namespace of theirs, whose root this process becomes.
    if !own_namespace::may_make_hosts() {
        setns(&first, CloneFlags::CLONE_NEWUSER)
            .with_context(|| format!("entering the user namespace of process {process}"))?;
    }
    setns(first, all).with_context(|| format!("entering the private hosts of process {process}"))?;
    env::set_current_dir(&here).with_context(|| format!("going to {}", here.display()))?;
    let enter = || {
        name_hosts(&names()).context("naming the hosts")?;
        enter(host, as_root, command)
    };
    attend(enter, meanwhile)
}

/// Runs the command that `enter` finds in a child, which ends with this process; its exit code. `meanwhile` gets the child.
fn attend(
    enter: impl FnOnce() -> anyhow::Result<Entered>,
    meanwhile: impl FnOnce(Pid) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let (ended, alive) = io::pipe().context("making a pipe")?;
    let blocked = hold_signals().context("blocking signals")?;
    // SAFETY: this process has one thread, so its memory is consistent in the child.
    match unsafe { fork() }.context("starting the command's process")? {
        ForkResult::Child => {
            let begin = || {
                die_with(alive, &ended.into())?;
                restore_signals()?;
                blocked.thread_set_mask()?;
                enter()
            };
            let (command, variables) = begin().unwrap_or_else(|error| fail(&error, 1));
            let Err(error) = execute(&command, variables);
            let kind = error.downcast_ref().map(io::Error::kind);
            // As shells do.
            let is_missing = kind == Some(io::ErrorKind::NotFound);
            fail(&error, if is_missing { 127 } else { 126 })
        }
        ForkResult::Parent { child } => {
            forward_sent_signals(child).context("passing on signals")?;
            blocked.thread_set_mask()?;
            meanwhile(child)?;
            let code = wait_for(child, None)?;
            drop(alive);
            Ok(code)
        }
    }
}

fn fail(error: &anyhow::Error, code: i32) -> ! {
    log::error!("{error:#}");
    exit(code)
}

/// SIGKILL when the parent dies, whose end of a pipe says whether it already has: its number is not to be seen from this
/// namespace.
fn die_with(alive: PipeWriter, ended: &OwnedFd) -> anyhow::Result<()> {
    drop(alive);
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let mut ended = [PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
    ensure!(
        poll(&mut ended, PollTimeout::ZERO)? == 0,
        "`perturb on` has ended"
    );
    Ok(())
}

fn record(id: &str) -> anyhow::Result<Record> {
    let mut records = records()?.records;
    records.retain(Record::has_private_hosts);
    let found = records.iter().position(|record| record.id == id);
    let Some(found) = found else {
        let ids: Vec<&str> = records.iter().map(|record| record.id.as_str()).collect();
        let there = if ids.is_empty() {
            "none runs on this machine now".to_owned()
        } else {
            format!("there are {}", ids.join(", "))
        };
        bail!(
            "there are no private hosts {id}; `perturb status --json` has the `id` of each `perturb run`: {there}"
        );
    };
    Ok(records.swap_remove(found))
}

/// The first process of the PID namespace of the hosts that a process has.
pub(super) fn first_process(process: u32) -> anyhow::Result<OwnedFd> {
    let parents = parents()?;
    let is_below = |pid: u32| {
        let stage = parents.get(&pid);
        stage.and_then(|stage| parents.get(stage)) == Some(&process)
    };
    let of_lab = |pid: &&u32| is_below(**pid) && is_first(**pid);
    let found = parents.keys().find(of_lab).with_context(|| {
        format!(
            "the command of process {process} has not begun yet, or has ended: there is no process to join"
        )
    })?;
    let first = opened(*found).context("opening the lab's first process")?;
    // Its number was not given to another one meanwhile.
    ensure!(is_first(*found), "the command of process {process} has ended");
    Ok(first)
}

/// The parents of all processes.
fn parents() -> anyhow::Result<HashMap<u32, u32>> {
    let processes = fs::read_dir("/proc").context("reading /proc")?;
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers
        .filter_map(|pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name before, in parentheses, may have any letters.
            let (_, rest) = stat.rsplit_once(')')?;
            Some((pid, rest.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect())
}

/// Whether a process is the first one of a PID namespace below this one's.
fn is_first(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let mut numbers = numbers.unwrap_or_default().split_whitespace().rev();
    numbers.next() == Some("1") && numbers.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_parent_and_is_not_the_first() {
        let this = process::id();
        assert_eq!(
            parents().unwrap().get(&this),
            Some(&std::os::unix::process::parent_id())
        );
        assert!(
            !is_first(this) && !is_first(1),
            "1 is first in this namespace, not below it"
        );
    }
}
