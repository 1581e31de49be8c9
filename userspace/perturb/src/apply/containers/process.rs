//! One container's emulation: a process in its network namespace, and what is heard of it.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use nix::{
    sched::{CloneFlags, setns},
    sys::signal::Signal,
    unistd::{Pid, getpid},
};
use perturb_emulator::{container::Inside, registry::Contained, signals::end_with};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::{Notify, mpsc::UnboundedSender},
    time::{sleep, timeout},
};

use super::super::{Request, daemon, service};

/// A message is the last one unless another comes, or none for this long.
const QUIET: Duration = Duration::from_millis(300);
/// What a process that has ended may still have to say.
const REST: Duration = Duration::from_millis(100);
/// Time for a process to take its emulation down.
const PATIENCE: Duration = Duration::from_secs(6);

/// What is heard of a process.
pub(super) struct Heard {
    /// Its container.
    pub(super) id: String,
    /// Which of its processes.
    pub(super) serial: u64,
    pub(super) what: What,
}

pub(super) enum What {
    /// It emulates.
    Up,
    /// A message.
    Said(String),
    /// It has ended: how, and its last message.
    Ended(io::Result<ExitStatus>, Option<String>),
}

/// A process that emulates a container's interface.
pub(super) struct Process {
    pub(super) serial: u64,
    stop: Arc<Notify>,
}

impl Process {
    /// Starts it.
    pub(super) fn start(
        request: &Request,
        contained: &Contained,
        inside: &Inside,
        serial: u64,
        tell: UnboundedSender<Heard>,
    ) -> anyhow::Result<Self> {
        let child = spawn(request, contained, inside)?;
        let stop = Arc::new(Notify::new());
        tokio::spawn(tend(child, contained.id.clone(), serial, Arc::clone(&stop), tell));
        Ok(Self { serial, stop })
    }

    /// Asks it to end. It is heard of when it has.
    pub(super) fn stop(&self) {
        self.stop.notify_one();
    }
}

fn spawn(request: &Request, contained: &Contained, inside: &Inside) -> anyhow::Result<Child> {
    let mut command = std::process::Command::new("/proc/self/exe");
    command
        .arg("apply")
        .arg(&request.file)
        .args(daemon::options(request))
        .args(["--quiet", "--iface", &inside.interface, "--contained"])
        .arg(serde_json::to_string(contained)?)
        .env_remove(service::NOTIFY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let namespace = inside.namespace.as_raw_fd();
    let parent = getpid();
    let enter = move || {
        // SAFETY: the caller's `inside` keeps it open until the child has begun its program.
        let namespace = unsafe { BorrowedFd::borrow_raw(namespace) };
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        end_with(parent)
    };
    let mut command = Command::from(command);
    // The terminal's signals are for this process, which then ends the others.
    command.process_group(0);
    // SAFETY: setns, prctl and getppid are async-signal-safe, and nothing is allocated.
    unsafe { command.pre_exec(enter) };
    command.spawn().context("starting the process that emulates it")
}

/// Tells what is heard of a process until it has ended.
async fn tend(mut child: Child, id: String, serial: u64, stop: Arc<Notify>, tell: UnboundedSender<Heard>) {
    // Nobody listens any more: all processes are being ended.
    let say = |what| {
        let _ = tell.send(Heard {
            id: id.clone(),
            serial,
            what,
        });
    };
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return;
    };
    let (mut out, mut messages) = (BufReader::new(stdout).lines(), BufReader::new(stderr).lines());
    let (mut begins, mut speaks) = (true, true);
    let mut last: Option<String> = None;
    let mut asked = 0;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            line = out.next_line(), if begins => {
                begins = false;
                if let Ok(Some(_)) = line {
                    say(What::Up);
                }
            }
            line = messages.next_line(), if speaks => match line {
                Ok(Some(line)) => if let Some(before) = last.replace(line) {
                    say(What::Said(before));
                },
                _ => speaks = false,
            },
            () = sleep(QUIET), if last.is_some() && asked == 0 => if let Some(line) = last.take() {
                say(What::Said(line));
            },
            () = stop.notified() => {
                asked += 1;
                signal(&child, Signal::SIGTERM);
            }
            () = sleep(PATIENCE), if asked > 0 => signal(&child, Signal::SIGKILL),
        }
    };
    while let Ok(Ok(Some(line))) = timeout(REST, messages.next_line()).await {
        if let Some(before) = last.replace(line) {
            say(What::Said(before));
        }
    }
    say(What::Ended(status, last));
}

fn signal(child: &Child, signal: Signal) {
    // A number only as long as it has not been waited for.
    if let Some(pid) = child.id() {
        let _ = nix::sys::signal::kill(Pid::from_raw(pid.cast_signed()), signal);
    }
}
