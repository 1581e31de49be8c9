//! `apply --detach`: a process stays behind, an ordinary `perturb apply` in a session of its own, until
//! `perturb clear` ends it. If it is killed instead, traffic passes untouched, as in the foreground;
//! pinned programs would go on without anyone to watch them, and could not keep time without sch_fq.

use std::{
    fs::{self, File},
    io, mem,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, setsid},
};
use perturb_emulator::{registry::RECORDS, signals::at_each_signal};

use super::{Request, service};
use crate::cli::exit::INTERRUPTED;

/// Time for the process to set everything up, and to take it down.
const PATIENCE: Duration = Duration::from_secs(60);

/// The process that was started, until its end is noticed: its number may be another's then.
#[derive(Default)]
struct Started(Mutex<Option<Pid>>);

impl Started {
    fn lock(&self) -> MutexGuard<'_, Option<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts it, and returns when it emulates.
pub(super) fn start<T>(
    request: &Request,
    is_ready: impl Fn(u32) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    // Its messages until then: inherited streams would keep a caller's pipe open for ever.
    let messages = PathBuf::from(RECORDS).join(format!("starting-{}", process::id()));
    // Whoever takes this and keeps it says how the call ends: the handler below, or this function. The other waits for the
    // end of this process.
    let started = Arc::new(Started::default());
    // In its own session it does not get the terminal's signals: whoever gives up waiting would leave it behind, unsaid.
    when_interrupted({
        let (started, messages) = (Arc::clone(&started), messages.clone());
        move || {
            let mut process = started.lock();
            if let Some(process) = process.take() {
                end(process);
            }
            // It may not be there yet.
            let _ = fs::remove_file(messages);
            mem::forget(process);
        }
    })?;
    let spawn = || {
        let mut process = started.lock();
        let file = File::create(&messages).with_context(|| format!("making {}", messages.display()))?;
        let child = spawn(request, file)?;
        *process = Some(Pid::from_raw(child.id().cast_signed()));
        anyhow::Ok(child)
    };
    let result = spawn().and_then(|mut child| wait_until_ready(&mut child, &started, &messages, is_ready));
    mem::forget(started.lock());
    let removed = fs::remove_file(&messages).with_context(|| format!("removing {}", messages.display()));
    let ready = result?;
    removed.map(|()| ready)
}

/// When a signal asks this process to end, a thread does what `end` says, and ends it.
fn when_interrupted(end: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let mut end = Some(end);
    at_each_signal(move |_| {
        if let Some(end) = end.take() {
            end();
        }
        process::exit(INTERRUPTED.into())
    })
}

fn spawn(request: &Request, messages: File) -> anyhow::Result<Child> {
    let (program, words) = service::out_of_session()?;
    let mut command = Command::new(program);
    command.args(words).arg("apply").arg(&request.file);
    command.args(options(request)).args(["--quiet", "--detached"]);
    for interface in &request.interfaces {
        command.args(["--iface", interface]);
    }
    if let Some(choice) = &request.containers {
        command.args(choice.options());
    }
    command.args(times([
        ("--for", request.duration),
        ("--confirm", request.confirm),
    ]));
    if let Some(address) = request.metrics {
        command.args(["--metrics", &address.to_string()]);
    }
    if request.follow {
        command.arg("--follow");
    }
    // It is no part of a service that calls this.
    command.env_remove(service::NOTIFY);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(messages);
    // SAFETY: setsid is async-signal-safe.
    unsafe { command.pre_exec(|| setsid().map(drop).map_err(io::Error::from)) };
    command.spawn().context("starting the process that stays behind")
}

/// The options that are settled for each emulation of a call.
pub(super) fn options(request: &Request) -> Vec<String> {
    let mut options = vec!["--pacer".to_owned(), request.pacer.name().to_owned()];
    options.extend(times([
        ("--spin", request.spin.map(|spin| spin.0)),
        ("--lease", request.lease),
    ]));
    if let Some(group) = &request.socket_group {
        options.extend(["--socket-group".to_owned(), group.clone()]);
    }
    for (option, given) in [
        ("--coarse", request.prepared.coarse),
        ("--verbose", request.verbose),
    ] {
        if given {
            options.push(option.to_owned());
        }
    }
    options
}

/// Options of times, of those that are set.
pub(crate) fn times<const N: usize>(given: [(&str, Option<Duration>); N]) -> Vec<String> {
    let given = given.into_iter();
    let set = given.filter_map(|(option, time)| Some((option, time.filter(|time| !time.is_zero())?)));
    set.flat_map(|(option, time)| [option.to_owned(), format!("{}ns", time.as_nanos())])
        .collect()
}

/// Asks a process to end, which takes down what it has set up, and kills one that does not.
fn end(process: Pid) {
    let start = Instant::now();
    let mut signal = Some(Signal::SIGTERM);
    // An error means that it has ended, and that its end was noticed.
    while kill(process, signal).is_ok() {
        if matches!(
            waitpid(process, Some(WaitPidFlag::WNOHANG)),
            Err(_) | Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
        ) {
            return;
        }
        if signal == Some(Signal::SIGKILL) {
            eprintln!(
                "perturb: the process that stays behind, {process}, did not end within {} s and was killed: perturb clear \
                 removes what it has left",
                PATIENCE.as_secs()
            );
            return;
        }
        signal = (start.elapsed() > PATIENCE).then_some(Signal::SIGKILL);
        thread::sleep(Duration::from_millis(10));
    }
}

fn wait_until_ready<T>(
    child: &mut Child,
    started: &Started,
    messages: &Path,
    is_ready: impl Fn(u32) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let mut process = started.lock();
        if let Some(status) = child.try_wait()? {
            *process = None;
            let said = fs::read_to_string(messages).unwrap_or_default();
            bail!("the process that stays behind ended ({status}): {}", said.trim());
        }
        drop(process);
        if let Some(ready) = is_ready(child.id())? {
            // What it warns of; from now on that goes to the journal.
            eprint!("{}", fs::read_to_string(messages).unwrap_or_default());
            return Ok(ready);
        }
        thread::sleep(Duration::from_millis(10));
    }
    if let Some(process) = started.lock().take() {
        end(process);
    }
    bail!(
        "the process that stays behind was not ready after {} s",
        PATIENCE.as_secs()
    )
}
