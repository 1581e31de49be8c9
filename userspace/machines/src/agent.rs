//! `perturb machine`: on each machine, what its link asks for.
//!
//! Standard input and output are the connection. A thread reads, and one writes, so that a connection that is dead, or takes no more,
//! keeps nobody from ending the emulation.

use std::{
    future::pending,
    io::{self, BufRead as _, Write as _},
    process::Stdio,
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_clock::{is_kept, wall};
use perturb_profile::Unpacked;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, interval, sleep_until, timeout},
};

use crate::words::{Answer, Ask, BEAT, Greeting, Order};

/// Until it is asked for something: other machines may have to be reached first.
const ASKED: Duration = Duration::from_secs(120);
/// Time for a command to take its emulation down.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a command that has ended may still have to say, and what has been said may take to be written.
const REST: Duration = Duration::from_millis(500);
/// What a command says on standard output once it emulates.
pub const READY: &str = "ready";

/// Why an agent ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// Nobody asks for anything.
    #[error("`perturb machine` is what `perturb --on` calls on each machine; nobody asked it for anything")]
    NotAsked,
    /// The profile cannot be written.
    #[error("writing the profile into a temporary directory: {0}")]
    Profile(io::Error),
    /// The command cannot be started.
    #[error("starting perturb: {0}")]
    Start(io::Error),
}

/// Does what is asked on standard input; `command` makes a command of its words.
///
/// # Errors
/// When nothing was asked, or it could not begin. The other side is told, too.
pub async fn serve(command: impl Fn(&[String]) -> std::process::Command) -> Result<(), AgentError> {
    let (say, written) = speaker();
    let tell = |answer: Answer| {
        // Without its writer, the end of standard input says that the connection is gone.
        let _ = say.send(answer);
    };
    tell(Answer::Greeting(Greeting::ours()));
    let mut asked = listener();
    let order = loop {
        match timeout(ASKED, asked.recv()).await {
            Ok(Some(Ask::Time)) => tell(Answer::Time(wall(), is_kept())),
            Ok(Some(Ask::Do(order))) => break order,
            _ => return Err(AgentError::NotAsked),
        }
    };
    let done = obey(*order, command, &mut asked, &tell).await;
    if let Err(error) = &done {
        tell(Answer::Said(error.to_string()));
        tell(Answer::Ended(Some(1)));
    }
    drop(say);
    let _ = timeout(REST, written).await;
    done
}

/// Its commands' end, whoever wants it.
async fn obey(
    order: Order,
    command: impl Fn(&[String]) -> std::process::Command,
    asked: &mut mpsc::UnboundedReceiver<Ask>,
    tell: &impl Fn(Answer),
) -> Result<(), AgentError> {
    let patience = order.patience;
    // The directory goes when the command has ended.
    let (mut child, _unpacked) = start(order, &command)?;
    let mut also: Option<JoinHandle<(Option<i32>, String)>> = None;
    let (Some(out), Some(messages)) = (child.stdout.take(), child.stderr.take()) else {
        return Ok(());
    };
    let (mut out, mut messages) = (BufReader::new(out).lines(), BufReader::new(messages).lines());
    let (mut prints, mut speaks, mut is_wanted) = (true, true, true);
    let mut beat = interval(BEAT);
    let mut end = Instant::now() + patience;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            line = out.next_line(), if prints => match line {
                Ok(Some(line)) if line == READY => tell(Answer::Up),
                Ok(Some(line)) => tell(Answer::Printed(line)),
                _ => prints = false,
            },
            line = messages.next_line(), if speaks => match line {
                Ok(Some(line)) => tell(Answer::Said(line)),
                _ => speaks = false,
            },
            ask = asked.recv(), if is_wanted => match ask {
                Some(Ask::Also(order)) => {
                    let (child, unpacked) = start(*order, &command)?;
                    also = Some(tokio::spawn(async move {
                        let output = child.wait_with_output().await.ok();
                        drop(unpacked);
                        let said = output.as_ref().map_or_else(String::new, |output| String::from_utf8_lossy(&output.stderr).into_owned());
                        (output.and_then(|output| output.status.code()), said)
                    }));
                }
                Some(_) => end = Instant::now() + patience,
                None => {
                    (is_wanted, end) = (false, Instant::now() + PATIENCE);
                    signal(&child, Signal::SIGTERM);
                }
            },
            () = sleep_until(end) => {
                let last = if is_wanted { Signal::SIGTERM } else { Signal::SIGKILL };
                (is_wanted, end) = (false, Instant::now() + PATIENCE);
                signal(&child, last);
            }
            (code, said) = done(&mut also) => {
                also = None;
                if code != Some(0) {
                    said.lines().for_each(|line| tell(Answer::Said(line.to_owned())));
                }
                tell(Answer::Done(code));
            }
            _ = beat.tick() => tell(Answer::Here),
        }
    };
    while let Ok(Ok(Some(line))) = timeout(REST, out.next_line()).await {
        tell(Answer::Printed(line));
    }
    while let Ok(Ok(Some(line))) = timeout(REST, messages.next_line()).await {
        tell(Answer::Said(line));
    }
    tell(Answer::Ended(status.ok().and_then(|status| status.code())));
    Ok(())
}

/// What another command that runs has ended with, and said; never without one.
async fn done(also: &mut Option<JoinHandle<(Option<i32>, String)>>) -> (Option<i32>, String) {
    match also {
        Some(also) => also.await.unwrap_or_default(),
        None => pending().await,
    }
}

/// Starts a command with its profile, which lies where it was unpacked.
fn start(
    order: Order,
    command: &impl Fn(&[String]) -> std::process::Command,
) -> Result<(Child, Option<Unpacked>), AgentError> {
    let unpacked = order.profile.map(|packed| packed.unpack()).transpose();
    let unpacked = unpacked.map_err(AgentError::Profile)?;
    let mut words = order.words;
    words.extend(
        unpacked
            .as_ref()
            .map(|files| files.profile().display().to_string()),
    );
    let mut command = Command::from(command(&words));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok((command.spawn().map_err(AgentError::Start)?, unpacked))
}

fn signal(child: &Child, signal: Signal) {
    // A number only as long as it has not been waited for.
    if let Some(pid) = child.id() {
        let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
    }
}

/// What is read, until standard input ends or is not understood.
fn listener() -> mpsc::UnboundedReceiver<Ask> {
    let (heard, asked) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let ask = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            if ask.is_none_or(|ask: Ask| heard.send(ask).is_err()) {
                return;
            }
        }
    });
    asked
}

/// Writes what it is sent; when it has written all.
fn speaker() -> (mpsc::UnboundedSender<Answer>, oneshot::Receiver<()>) {
    let (say, mut said) = mpsc::unbounded_channel::<Answer>();
    let (done, written) = oneshot::channel();
    thread::spawn(move || {
        while let Some(answer) = said.blocking_recv() {
            let mut out = io::stdout().lock();
            let line = serde_json::to_string(&answer).unwrap_or_default();
            if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
                return;
            }
        }
        let _ = done.send(());
    });
    (say, written)
}
