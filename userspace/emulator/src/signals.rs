//! SIGHUP ends a command, unless its caller had it ignored, as `nohup` has for what it starts: a handler of ours would undo
//! that.

use std::{io, thread};

use anyhow::Context as _;
use nix::{
    sys::{prctl::set_pdeathsig, signal::Signal},
    unistd::{Pid, getppid},
};
use tokio::signal::unix::{SignalKind, signal};

/// The signals that ask a process, or the command that it runs, to end. They wait until somebody asks for the [`next`].
///
/// [`next`]: Self::next
#[derive(Debug)]
pub struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: Hangup,
    quit: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    /// From now on they are noticed here: those that end this process.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = || {
            Ok::<_, io::Error>(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
                hangup: Hangup::listen()?,
                quit: None,
            })
        };
        listen().context("listening for signals")
    }

    /// From now on they are noticed here: those that a command gets, SIGQUIT among them.
    pub fn listen_for_command() -> anyhow::Result<Self> {
        let quit = signal(SignalKind::quit()).context("listening for signals")?;
        Ok(Self {
            quit: Some(quit),
            ..Self::listen()?
        })
    }

    /// Waits for one of them.
    pub async fn next(&mut self) -> Signal {
        let quit = async {
            match &mut self.quit {
                Some(quit) => quit.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.terminate.recv() => Signal::SIGTERM,
            () = self.hangup.recv() => Signal::SIGHUP,
            _ = quit => Signal::SIGQUIT,
        }
    }
}

/// For commands that do not wait for signals: a thread does what `each` says at each of them.
pub fn at_each_signal(mut each: impl FnMut(Signal) + Send + 'static) -> anyhow::Result<()> {
    let runtime = crate::runtime()?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals::listen()?
    };
    let wait = move || {
        loop {
            each(runtime.block_on(signals.next()));
        }
    };
    thread::Builder::new()
        .name("perturb-signals".into())
        .spawn(wait)
        .context("starting the thread that waits for signals")?;
    Ok(())
}

/// The end of the terminal; it never comes to a process that was started with SIGHUP ignored.
#[derive(Debug)]
struct Hangup(Option<tokio::signal::unix::Signal>);

impl Hangup {
    /// From now on it is noticed here.
    fn listen() -> io::Result<Self> {
        let ignored = is_ignored(Signal::SIGHUP)?;
        Ok(Self(
            (!ignored).then(|| signal(SignalKind::hangup())).transpose()?,
        ))
    }

    /// Waits for it.
    async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Whether a signal is ignored now.
pub fn is_ignored(signal: Signal) -> io::Result<bool> {
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

/// Asks the kernel to end this process with its parent, which may have ended already. Async-signal-safe.
pub fn end_with(parent: Pid) -> io::Result<()> {
    set_pdeathsig(Signal::SIGTERM)?;
    if getppid() == parent {
        Ok(())
    } else {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}
