//! Enter on the terminal keeps what `--confirm` would undo.
//!
//! A thread waits for it, and reads only while this process is in the terminal's foreground: in a background job (`&`) what
//! is typed is for others, and reading would stop the process (SIGTTIN), with the renewal of its lease.

use std::{
    io::IsTerminal as _,
    os::fd::{AsFd as _, BorrowedFd},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{SigSet, Signal},
    unistd::{getpgrp, read, tcgetpgrp},
};
use perturb_emulator::{
    registry::{
        Record,
        terms::{Due, Terms},
    },
    running::Running,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How often it is looked whether anyone still waits for Enter, and whether this process is in the foreground.
const LOOK: Duration = Duration::from_millis(250);

/// Whether Enter was pressed.
pub(super) struct Enter {
    heard: UnboundedReceiver<()>,
    /// It was, and that could not be noted in the record yet.
    pressed: bool,
}

impl Enter {
    /// Listens, if something is to be confirmed and somebody sits at a terminal.
    pub(super) fn listen(record: &Record) -> anyhow::Result<Self> {
        let (say, heard) = unbounded_channel();
        let enter = Self {
            heard,
            pressed: false,
        };
        let Some((left, Due::Confirm)) = record.terms.due() else {
            return Ok(enter);
        };
        if !std::io::stdin().is_terminal() || record.detached {
            return Ok(enter);
        }
        log::info!(
            "press Enter within {:.0} s, or give `perturb confirm`, to keep it",
            left.as_secs_f64()
        );
        thread::Builder::new()
            .name("perturb-enter".into())
            .spawn(move || wait(&say))
            .context("starting the thread that waits for Enter")?;
        Ok(enter)
    }

    /// Waits until it is pressed.
    pub(super) async fn pressed(&mut self) {
        match self.heard.recv().await {
            Some(()) => self.pressed = true,
            None => std::future::pending().await,
        }
    }

    /// Whether it was pressed, and nothing came of it yet.
    pub(super) fn was_pressed(&mut self) -> bool {
        self.pressed |= self.heard.try_recv().is_ok();
        self.pressed
    }

    /// Keeps what waits to be confirmed. If another command changes the registry at this moment, it is to be tried again.
    pub(super) fn confirm(&mut self, running: &mut Running) -> anyhow::Result<()> {
        let mut waited = false;
        self.pressed = !running.amend(|record| {
            waited = is_for_enter(&record.terms);
            if waited {
                record.terms.confirm = None;
            }
        })?;
        if waited {
            log::info!("confirmed");
        }
        self.look(&running.record);
        Ok(())
    }

    /// Stops listening once nothing waits for Enter any more: whatever is typed from then on is for others.
    pub(super) fn look(&mut self, record: &Record) {
        if !is_for_enter(&record.terms) {
            self.heard.close();
        }
    }
}

/// Whether Enter keeps what waits to be confirmed. A change of an emulation that runs already was given elsewhere: whoever
/// presses Enter here may know nothing of it.
fn is_for_enter(terms: &Terms) -> bool {
    terms
        .confirm
        .as_ref()
        .is_some_and(|confirm| confirm.before.is_none())
}

/// Says each line of the terminal, until nobody listens any more.
fn wait(say: &UnboundedSender<()>) {
    let mut tty_in = SigSet::empty();
    tty_in.add(Signal::SIGTTIN);
    // A terminal whose foreground changes between look and read answers EIO then (`__tty_check_change`).
    if tty_in.thread_block().is_err() {
        return;
    }
    let stdin = std::io::stdin();
    while !say.is_closed() {
        match line(stdin.as_fd()) {
            Ok(Heard::Line) => {
                if say.send(()).is_err() {
                    return;
                }
            }
            Ok(Heard::Nothing) | Err(Errno::EINTR) => {}
            Ok(Heard::Others) | Err(Errno::EIO) => thread::sleep(LOOK),
            Ok(Heard::End) | Err(_) => return,
        }
    }
}

enum Heard {
    Line,
    Nothing,
    /// The terminal is somebody else's now.
    Others,
    End,
}

fn line(terminal: BorrowedFd<'_>) -> nix::Result<Heard> {
    // A terminal that is not this session's asks nobody.
    if tcgetpgrp(terminal).is_ok_and(|foreground| foreground != getpgrp()) {
        return Ok(Heard::Others);
    }
    let mut ready = [PollFd::new(terminal, PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::MAX);
    if poll(&mut ready, timeout)? == 0 {
        return Ok(Heard::Nothing);
    }
    let mut text = [0; 4096];
    match read(terminal, &mut text)? {
        0 => Ok(Heard::End),
        _ => Ok(Heard::Line),
    }
}
