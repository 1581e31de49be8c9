//! Terminals: the host's own, made raw while the command has one, and the pair the guest gives it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    pty::openpty,
    sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr},
    unistd::setsid,
};

use rustix::{
    process::ioctl_tiocsctty,
    stdio::stdin,
    termios::{Winsize, tcgetwinsize, tcsetwinsize},
};

use crate::wire::WindowSize;

/// A terminal in raw mode until dropped.
#[derive(Debug)]
pub(crate) struct Raw<'fd> {
    terminal: BorrowedFd<'fd>,
    before: Termios,
}

impl<'fd> Raw<'fd> {
    pub(crate) fn new(terminal: BorrowedFd<'fd>) -> nix::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(terminal, SetArg::TCSANOW, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(self.terminal, SetArg::TCSANOW, &self.before) {
            eprintln!("the terminal could not be restored ({error}); `stty sane` does it");
        }
    }
}

/// The size of a terminal; `None` if it is not one.
pub(crate) fn size(terminal: &impl AsFd) -> Option<WindowSize> {
    let size = tcgetwinsize(terminal).ok()?;
    Some(WindowSize {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// Gives the terminal another size, which signals its foreground processes.
pub(crate) fn resize(terminal: &impl AsFd, size: WindowSize) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(terminal, size)?)
}

/// A new terminal: our end, and the command's.
pub(crate) fn open_pair(size: WindowSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = openpty(None, None)?;
    resize(&pair.master, size)?;
    // Else the command would inherit our end, and its end would never be the last.
    for end in [&pair.master, &pair.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    Ok((pair.master, pair.slave))
}

/// Makes standard input the controlling terminal of a session of its own; runs between fork and exec.
pub(crate) fn adopt() -> io::Result<()> {
    setsid()?;
    Ok(ioctl_tiocsctty(stdin())?)
}
