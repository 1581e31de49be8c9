//! The processes inside a lab.
//!
//! ```text
//! perturb run ──fork──► stage (mounts, host name; still in the outer PID namespace)
//!                         └─fork──► init (PID 1 of the private PID namespace: reaps, forwards signals)
//!                                     └─fork──► the command
//! ```
//!
//! Each dies with its parent (PR_SET_PDEATHSIG), and with `init` every process of its namespace: a
//! SIGKILL to `perturb run` leaves nothing, daemons that the command started included.

use std::{
    convert::Infallible,
    ffi::{CString, OsStr, OsString},
    fs, io,
    os::{
        fd::RawFd,
        unix::{ffi::OsStringExt as _, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicI32, AtomicI64, Ordering},
};

use anyhow::{Context as _, bail, ensure};
use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
    sys::{
        prctl,
        signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, kill, sigaction},
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, execvp, fork, getppid, sethostname},
};

use serde::{Deserialize, Serialize};

use super::{
    away,
    view::{self, NAMES, PROGRAMS},
};
use crate::{
    privileges::{self, Owner},
    registry::is_in_own_namespace,
    signals::is_ignored,
};

/// What the lab tells its stage, by the command line `perturb stage`.
#[derive(Debug)]
pub struct Stage {
    /// The numbers of the hosts that are here, and file descriptors of their network namespaces; the command runs on the first.
    pub namespaces: Vec<(u32, RawFd)>,
    /// How many hosts there are.
    pub hosts: u32,
    /// What runs commands on those that are on other machines.
    pub elsewhere: Elsewhere,
    /// Whose the command is; without it root's.
    pub owner: Option<Owner>,
    /// The command.
    pub command: Vec<OsString>,
}

/// Hosts on other machines, as a lab's processes reach them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Elsewhere {
    /// File descriptor of this machine's network namespace, from where they are reached.
    pub machine: Option<RawFd>,
    /// By number: [`super::away::Away::commands`].
    pub commands: Vec<(u32, Vec<String>)>,
}

impl Stage {
    /// As words after the program's name. The command line is to read `--namespaces NUMBER:FD,…`, `--hosts COUNT`, `--elsewhere JSON`,
    /// `--owner UID:GID` and `-- COMMAND…`.
    pub(super) fn words(&self) -> Vec<OsString> {
        let pairs = self
            .namespaces
            .iter()
            .map(|(number, fd)| format!("{number}:{fd}"));
        let mut words: Vec<OsString> = ["stage", "--namespaces"].map(Into::into).into();
        words.push(pairs.collect::<Vec<_>>().join(",").into());
        words.extend(["--hosts".into(), self.hosts.to_string().into()]);
        if self.elsewhere.machine.is_some() {
            let text = serde_json::to_string(&self.elsewhere).unwrap_or_default();
            words.extend(["--elsewhere".into(), text.into()]);
        }
        if let Some(owner) = self.owner {
            words.extend(["--owner".into(), owner.words().into()]);
        }
        words.push("--".into());
        words.extend(self.command.iter().cloned());
        words
    }
}

/// Runs a shell command on another private host, as ssh would.
pub fn agent(host: &str, words: &[OsString]) -> anyhow::Result<Infallible> {
    let line = words.join(OsStr::new(" "));
    on(host, false, &["sh".into(), "-c".into(), line])
}

/// Runs a command on another private host; for use inside `perturb run`. It belongs to whoever called sudo, if anyone did,
/// unless it is to stay with root.
pub fn on(host: &str, as_root: bool, command: &[OsString]) -> anyhow::Result<Infallible> {
    let (command, withheld) = enter(host, as_root, command)?;
    execute(&command, withheld)
}

/// Enters another private host, as whoever the command is to belong to: the command, or what runs it on another machine, and
/// variables that it is to have back.
pub(super) fn enter(host: &str, as_root: bool, command: &[OsString]) -> anyhow::Result<Entered> {
    if as_root && privileges::is_door() {
        bail!("--as-root: this command is not root's; give --as-root to the `perturb run` around it");
    }
    // A path would lead to namespaces that are not the lab's.
    if host.contains('/') || host.starts_with('.') {
        bail!("{host} is not the name of a private host");
    }
    if let Some(words) = view::elsewhere(host)? {
        // The command would be root's there.
        ensure!(
            !privileges::is_door(),
            "{host} is on another machine: root only reaches it"
        );
        let directory = std::env::current_dir().context("finding the current directory")?;
        return Ok((away::quoted(words, &directory, command), Vec::new()));
    }
    let path = Path::new(NAMES).join(host);
    ensure!(
        path.exists() || !view::names().iter().any(|name| name == host),
        "{host} is on another machine: only commands on the machine of `perturb run` reach it"
    );
    let namespace = fs::File::open(&path).with_context(|| match view::names() {
        names if names.is_empty() => format!(
            "there is no private host {host}: `perturb on` works inside `perturb run`, or from outside with --run"
        ),
        names => format!("there is no private host {host}: there are {}", names.join(", ")),
    })?;
    setns(namespace, CloneFlags::CLONE_NEWNET).with_context(|| format!("entering {host}"))?;
    unshare(CloneFlags::CLONE_NEWUTS)?;
    name_host(host).context("naming the host")?;
    let mut withheld = Vec::new();
    if privileges::is_door() {
        withheld = privileges::withheld_variables().context("reading this process's environment")?;
        privileges::return_to_caller().context("giving up root's privileges")?;
    } else if let Some(owner) = Owner::of_sudo()?
        && !as_root
    {
        owner.assume()?;
    }
    Ok((command.to_vec(), withheld))
}

/// Gives this process's UTS namespace a host's name; false if a container's filter of system calls forbids that.
fn name_host(name: &str) -> nix::Result<bool> {
    match sethostname(name) {
        Err(Errno::EPERM) if is_in_own_namespace() => Ok(false),
        named => named.map(|()| true),
    }
}

/// A command, and variables that it is to have back.
pub(super) type Entered = (Vec<OsString>, Vec<(OsString, OsString)>);

/// Becomes a command.
pub(super) fn execute(
    command: &[OsString],
    variables: Vec<(OsString, OsString)>,
) -> anyhow::Result<Infallible> {
    let [program, arguments @ ..] = command else {
        bail!("no command")
    };
    let error = Command::new(program).args(arguments).envs(variables).exec();
    Err(error).with_context(|| format!("running {}", program.display()))
}

/// The stage's work: it is already in h1's network namespace, with mount and UTS namespaces of its
/// own, and its children are in a PID namespace of their own. Returns the command's exit code.
pub fn stage(args: &Stage) -> anyhow::Result<u8> {
    view::furnish(args).context("preparing the private hosts' view of the machine")?;
    let first = args.namespaces.first().map_or(1, |(number, _)| *number);
    if !name_host(&super::name(first)).context("naming the host")? {
        log::warn!(
            "the private hosts keep this machine's name: a filter of system calls forbids others; in a container \
             `--security-opt seccomp=unconfined` allows them"
        );
    }
    let command: Vec<CString> = args
        .command
        .iter()
        .map(|word| CString::new(word.clone().into_vec()))
        .collect::<Result<_, _>>()
        .context("the command has a zero byte")?;
    let names: Vec<String> = (1..=args.hosts).map(super::name).collect();
    let blocked = hold_signals().context("blocking signals")?;
    // SAFETY: this process has one thread, so its memory is consistent in the child.
    match unsafe { fork() }.context("starting the private hosts' first process")? {
        ForkResult::Child => {
            let code = init(&command, &names, args.owner, &blocked).unwrap_or_else(|error| {
                log::error!("{error:#}");
                127
            });
            std::process::exit(i32::from(code))
        }
        ForkResult::Parent { child } => {
            forward_signals(child)?;
            blocked.thread_set_mask()?;
            Ok(wait_for(child, None)?)
        }
    }
}

/// PID 1 of the private PID namespace, which has signals blocked; its caller had `blocked`.
fn init(command: &[CString], names: &[String], owner: Option<Owner>, blocked: &SigSet) -> anyhow::Result<u8> {
    die_with_parent()?;
    let none: Option<&str> = None;
    match mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none) {
        // As above: /proc shows more processes then.
        Err(Errno::EPERM) if is_in_own_namespace() => {}
        mounted => mounted.context("mounting /proc")?,
    }
    // SAFETY: this process has one thread.
    match unsafe { fork() }.context("starting the command")? {
        ForkResult::Child => {
            restore_signals()?;
            blocked.thread_set_mask()?;
            name_hosts(names)?;
            match owner {
                Some(owner) => owner.assume().context("giving the command back to its user")?,
                // SAFETY: this process has one thread.
                None => unsafe { privileges::forget_sudo() },
            }
            let [program, ..] = command else {
                bail!("no command")
            };
            let Err(errno) = execvp(program, command);
            log::error!("running {}: {}", program.to_string_lossy(), errno.desc());
            // As shells do.
            std::process::exit(if errno == Errno::ENOENT { 127 } else { 126 })
        }
        ForkResult::Parent { child } => {
            forward_signals(child)?;
            blocked.thread_set_mask()?;
            // Any other process that ends here is an orphan that PID 1 reaps.
            Ok(wait_for(child, Some(Pid::from_raw(-1)))?)
        }
    }
}

/// Tells the command, which this process becomes, of the hosts.
pub(super) fn name_hosts(names: &[String]) -> anyhow::Result<()> {
    // SAFETY: this process has one thread.
    unsafe {
        std::env::set_var("PERTURB_HOSTS", names.join(" "));
        std::env::set_var("PERTURB_PEER", names.get(1).map_or("", String::as_str));
        std::env::set_var("PATH", path_with_programs()?);
    }
    Ok(())
}

/// PATH, with this executable's place before all others: `perturb` is the one that made the hosts.
fn path_with_programs() -> anyhow::Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let places = std::iter::once(PathBuf::from(PROGRAMS)).chain(std::env::split_paths(&path));
    std::env::join_paths(places).context("adding to PATH")
}

/// Asks for SIGKILL when the parent dies, and makes sure that it has not already.
pub fn die_with_parent() -> nix::Result<()> {
    let parent = getppid();
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != parent {
        return Err(Errno::ESRCH);
    }
    Ok(())
}

/// Who gets what is passed on; 0 for nobody.
static FORWARD_TO: AtomicI32 = AtomicI32::new(0);
/// When this process last got SIGINT or SIGQUIT otherwise than by way of [`pass_on`]: CLOCK_MONOTONIC, ns.
static LAST_DIRECT: AtomicI64 = AtomicI64::new(i64::MIN);
/// One that was passed on within this time after another is the same: whoever sent it has sent it to the process group.
const SAME: i64 = 1_000_000_000;

/// Sends a signal on the way from `perturb run` to its command, which the next process knows by its code (SI_QUEUE).
/// Async-signal-safe.
pub(crate) fn pass_on(pid: libc::pid_t, signal: libc::c_int) {
    let errno = Errno::last_raw();
    let value = libc::sigval {
        sival_ptr: std::ptr::null_mut(),
    };
    // SAFETY: sigqueue is async-signal-safe, and touches no memory of this process.
    unsafe { libc::sigqueue(pid, signal, value) };
    Errno::set_raw(errno);
}

fn forward(signal: libc::c_int) {
    let child = FORWARD_TO.load(Ordering::Relaxed);
    if child > 0 {
        pass_on(child, signal);
    }
}

fn now() -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: clock_gettime is async-signal-safe, and writes to `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

extern "C" fn forward_any(signal: libc::c_int) {
    forward(signal);
}

/// In `perturb run`: what a process has sent. A terminal's reaches the command by itself.
extern "C" fn forward_sent(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's, for a handler with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    // What a process sends has a code of 0 or less; a terminal's is above (SI_KERNEL).
    if code <= 0 {
        forward(signal);
    }
}

/// In the processes between `perturb run` and the command: what was passed on, unless it was sent to the process group, and so
/// to the command.
extern "C" fn forward_queued(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's, for a handler with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    if code != libc::SI_QUEUE {
        LAST_DIRECT.store(now(), Ordering::Relaxed);
    } else if now().saturating_sub(LAST_DIRECT.load(Ordering::Relaxed)) > SAME {
        forward(signal);
    }
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// What is done about SIGINT and SIGQUIT.
type Actions = [(Signal, SigAction); 2];

/// What was done about them before.
fn handle_interrupts(handler: Handler) -> nix::Result<Actions> {
    let flags = SaFlags::SA_RESTART | SaFlags::SA_SIGINFO;
    let action = SigAction::new(SigHandler::SigAction(handler), flags, SigSet::empty());
    // SAFETY: the handler calls only what is async-signal-safe.
    let handle = |signal| unsafe { sigaction(signal, &action) }.map(|before| (signal, before));
    Ok([handle(Signal::SIGINT)?, handle(Signal::SIGQUIT)?])
}

/// Passes signals on to a child. Drop it when the child has ended: what was done about them before is done again.
pub(super) struct Forwarding(Actions);

impl Forwarding {
    /// In `perturb run`: passes SIGINT and SIGQUIT on to a child if a process has sent them. A terminal sends them to the command
    /// itself, too.
    pub(super) fn to(child: Pid) -> nix::Result<Self> {
        FORWARD_TO.store(child.as_raw(), Ordering::Relaxed);
        handle_interrupts(forward_sent).map(Self)
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        FORWARD_TO.store(0, Ordering::Relaxed);
        for (signal, before) in &self.0 {
            // SAFETY: it was there before. It cannot fail, for the signal is one that can be handled.
            let _ = unsafe { sigaction(*signal, before) };
        }
    }
}

/// Passes on what a user or a service manager sends, between `perturb run` and its command.
fn forward_signals(child: Pid) -> io::Result<()> {
    forward_with(child, forward_queued)
}

/// The same, where the child is the command: a terminal's interrupts reach it by themselves.
pub(super) fn forward_sent_signals(child: Pid) -> io::Result<()> {
    forward_with(child, forward_sent)
}

fn forward_with(child: Pid, interrupts: Handler) -> io::Result<()> {
    FORWARD_TO.store(child.as_raw(), Ordering::Relaxed);
    handle_interrupts(interrupts)?;
    let any = SigAction::new(
        SigHandler::Handler(forward_any),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // What this process's caller ignores, its command ignores, too: see `restore_signals`.
    let hangup = if is_ignored(Signal::SIGHUP)? {
        &ignore
    } else {
        &any
    };
    for (signal, action) in [
        (Signal::SIGTERM, &any),
        (Signal::SIGHUP, hangup),
        (Signal::SIGUSR1, &any),
        (Signal::SIGUSR2, &any),
    ] {
        // SAFETY: the handler calls only what is async-signal-safe.
        unsafe { sigaction(signal, action)? };
    }
    Ok(())
}

/// The signals that are passed on wait until their handlers are there: the kernel drops what the first process of a PID
/// namespace does not handle. Returns what was blocked before.
pub(super) fn hold_signals() -> nix::Result<SigSet> {
    let passed_on = [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGINT,
        Signal::SIGQUIT,
    ];
    passed_on
        .into_iter()
        .collect::<SigSet>()
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
}

/// What the command is to find: the defaults, except that `nohup` still holds.
pub(super) fn restore_signals() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGPIPE,
    ] {
        if signal == Signal::SIGHUP && is_ignored(signal)? {
            continue;
        }
        // SAFETY: the default action runs no code of ours.
        unsafe { sigaction(signal, &default)? };
    }
    Ok(())
}

/// Waits for a child's end, reaping `any` on the way; its exit code, or 128 plus its signal.
pub(super) fn wait_for(child: Pid, any: Option<Pid>) -> io::Result<u8> {
    loop {
        match waitpid(any.unwrap_or(child), None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => return Ok(code as u8),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => return Ok(128 + signal as u8),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                let _ = kill(child, Signal::SIGKILL);
                return Err(errno.into());
            }
        }
    }
}
