//! Counts the signals that mean "stop", so that they can be passed on instead of ending this process.
//!
//! Model: a handler that adds one to a counter. Whoever waits looks at the counter at least every tick, so that
//! no self-pipe is needed, and any number of sandboxes in one process see the same signal.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicI32, AtomicU32, Ordering},
};

use nix::{
    libc,
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
};

const STOPPING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

static SEEN: AtomicU32 = AtomicU32::new(0);
static LATEST: AtomicI32 = AtomicI32::new(0);
static INSTALLED: Mutex<Installed> = Mutex::new(Installed {
    users: 0,
    before: Vec::new(),
});

struct Installed {
    users: usize,
    before: Vec<(Signal, SigAction)>,
}

extern "C" fn count(signal: libc::c_int) {
    LATEST.store(signal, Ordering::Relaxed);
    SEEN.fetch_add(1, Ordering::Release);
}

/// Counting is on while one of these lives; the last one restores what was there before.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: u32,
}

impl Watch {
    pub(crate) fn new() -> nix::Result<Self> {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if installed.users == 0 {
            // No SA_RESTART: a read or write that blocks is to notice.
            let action = SigAction::new(SigHandler::Handler(count), SaFlags::empty(), SigSet::empty());
            for signal in STOPPING {
                // SAFETY: the handler touches two atomics and nothing else.
                let before = unsafe { sigaction(signal, &action) }?;
                if matches!(before.handler(), SigHandler::SigIgn) {
                    // Who ignores a signal (nohup) has a reason.
                    // SAFETY: this puts back the action that was just taken out.
                    unsafe { sigaction(signal, &before) }?;
                } else {
                    installed.before.push((signal, before));
                }
            }
        }
        installed.users += 1;
        Ok(Self {
            seen: SEEN.load(Ordering::Acquire),
        })
    }

    /// The latest signal, if one came since the last call.
    pub(crate) fn take(&mut self) -> Option<i32> {
        let seen = SEEN.load(Ordering::Acquire);
        (std::mem::replace(&mut self.seen, seen) != seen).then(|| LATEST.load(Ordering::Relaxed))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        installed.users -= 1;
        if installed.users == 0 {
            for (signal, action) in std::mem::take(&mut installed.before) {
                // SAFETY: this puts back the action that `new` found.
                if let Err(error) = unsafe { sigaction(signal, &action) } {
                    eprintln!("the handling of {signal} could not be restored: {error}");
                }
            }
        }
    }
}
