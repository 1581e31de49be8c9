//! Signals while a traced command runs.

use std::process::Child;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// The number of a signal that this process got and its command did not.
static PENDING: AtomicI32 = AtomicI32::new(0);

/// While the command runs: a terminal's signals reach it anyway, others are passed on.
pub(super) struct Signals {
    before: Vec<(Signal, SigAction)>,
}

impl Signals {
    pub(super) fn install() -> Self {
        extern "C" fn ignore(_: libc::c_int) {}
        extern "C" fn keep(signal: libc::c_int) {
            PENDING.store(signal, Ordering::Relaxed);
        }
        let handlers: [(Signal, extern "C" fn(libc::c_int)); 4] = [
            (Signal::SIGINT, ignore),
            (Signal::SIGQUIT, ignore),
            (Signal::SIGTERM, keep),
            (Signal::SIGHUP, keep),
        ];
        let before = handlers.into_iter().filter_map(|(signal, handler)| {
            let action = SigAction::new(SigHandler::Handler(handler), SaFlags::SA_RESTART, SigSet::empty());
            // SAFETY: the handlers store to an atomic at most.
            let old = unsafe { sigaction(signal, &action) }.ok()?;
            if matches!(old.handler(), SigHandler::SigIgn) {
                // A command that was started under `nohup` must not hear SIGHUP either.
                // SAFETY: what was there before.
                let _ = unsafe { sigaction(signal, &old) };
                return None;
            }
            Some((signal, old))
        });
        Self {
            before: before.collect(),
        }
    }

    pub(super) fn pass_on(&self, child: &Child) {
        let signal = PENDING.swap(0, Ordering::Relaxed);
        if signal != 0 {
            // SAFETY: the child has not been waited for, or its number is not in use yet.
            unsafe { libc::kill(child.id().cast_signed(), signal) };
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, action) in &self.before {
            // SAFETY: what was there before.
            let _ = unsafe { sigaction(*signal, action) };
        }
    }
}
