//! Enter on the terminal keeps what `--confirm` would undo.
//!
//! A thread waits for it, and reads only while this process is in the terminal's foreground: in a background job (`&`) what
//! is typed is for others, and reading would stop the process (SIGTTIN), with the renewal of its lease.

use std::{
    io::IsTerminal as _,
    os::fd::{AsFd as _, BorrowedFd},
    sync::{Arc, Weak},
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
    registry::{Record, terms::Due},
    session::Handle,
};

/// How often it is looked whether anyone still waits for Enter, and whether this process is in the foreground.
const LOOK: Duration = Duration::from_millis(250);

/// Whoever waits for Enter. Dropping it ends the wait.
#[derive(Default)]
pub(super) struct Enter(Option<Arc<()>>);

impl Enter {
    /// Listens, if something is to be confirmed and somebody sits at a terminal.
    pub(super) fn listen(&mut self, record: &Record, session: Handle) -> anyhow::Result<()> {
        let Some((left, Due::Confirm)) = record.terms.due() else {
            return Ok(());
        };
        if !std::io::stdin().is_terminal() || record.detached {
            return Ok(());
        }
        log::info!(
            "press Enter within {:.0} s, or give `perturb confirm`, to keep it",
            left.as_secs_f64()
        );
        let listener = Arc::new(());
        let is_wanted = Arc::downgrade(&listener);
        thread::Builder::new()
            .name("perturb-enter".into())
            .spawn(move || wait(&is_wanted, &session))
            .context("starting the thread that waits for Enter")?;
        self.0 = Some(listener);
        Ok(())
    }

    /// Stops listening once nothing waits for Enter any more: whatever is typed from then on is for others.
    pub(super) fn look(&mut self, record: &Record) {
        if !record.terms.waits_here() {
            self.0 = None;
        }
    }
}

/// Confirms at each line of the terminal, until nobody listens any more.
fn wait(is_wanted: &Weak<()>, session: &Handle) {
    let mut tty_in = SigSet::empty();
    tty_in.add(Signal::SIGTTIN);
    // A terminal whose foreground changes between look and read answers EIO then (`__tty_check_change`).
    if tty_in.thread_block().is_err() {
        return;
    }
    let stdin = std::io::stdin();
    while is_wanted.strong_count() > 0 {
        match line(stdin.as_fd()) {
            Ok(Heard::Line) => session.confirm(),
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
