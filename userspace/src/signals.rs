//! SIGHUP ends a command, unless its caller had it ignored, as `nohup` has for what it starts: a handler of ours would undo
//! that.

use std::io;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// The end of the terminal; it never comes to a process that was started with SIGHUP ignored.
#[derive(Debug)]
pub(crate) struct Hangup(Option<tokio::signal::unix::Signal>);

impl Hangup {
    /// From now on it is noticed here.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = is_ignored(Signal::SIGHUP)?;
        Ok(Self(
            (!ignored).then(|| signal(SignalKind::hangup())).transpose()?,
        ))
    }

    /// Waits for it.
    pub(crate) async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Whether a signal is ignored now.
pub(crate) fn is_ignored(signal: Signal) -> io::Result<bool> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call only writes the present one, which is read if it has.
    let action = unsafe {
        if libc::sigaction(signal as libc::c_int, std::ptr::null(), action.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        action.assume_init()
    };
    Ok(action.sa_sigaction == libc::SIG_IGN)
}
