//! `perturb clear`: undoes emulations, whoever made them.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_dataplane::namespace::Namespace;

use crate::{
    controller::{enter, recover},
    registry::{Record, Registry},
};

/// Time for a controller to take its emulation down: held packets may need 2 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The emulation of an interface of this namespace.
    Interface(String),
    /// Every one on this machine.
    All,
}

/// Undoes; says which emulations there were. None is no error.
pub fn clear(scope: &Scope) -> anyhow::Result<Vec<Record>> {
    let registry = enter()?;
    let here = Namespace::current()?.inode()?;
    let mut cleared = Vec::new();
    for record in registry.records()? {
        let chosen = match scope {
            Scope::All => true,
            Scope::Interface(name) => record
                .interfaces
                .iter()
                .any(|interface| interface.name == *name && interface.namespace == here),
        };
        if chosen {
            end(&registry, &record)?;
            cleared.push(record);
        }
    }
    Ok(cleared)
}

fn end(_registry: &Registry, record: &Record) -> anyhow::Result<()> {
    if record.has_owner()? {
        stop_owner(record)?;
    }
    recover::remove(record)
}

/// Asks the controller to end; kills it if it does not.
fn stop_owner(record: &Record) -> anyhow::Result<()> {
    let pid = Pid::from_raw(record.pid.cast_signed());
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        // A stopped process does not see a signal other than SIGKILL before it goes on.
        if signal == Signal::SIGTERM {
            let _ = kill(pid, Signal::SIGCONT);
        }
        match kill(pid, signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(errno) => bail!(
                "stopping the controller of {} (pid {}): {errno}",
                record.id,
                record.pid
            ),
        }
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if !record.has_owner()? {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    bail!(
        "the controller of {} (pid {}) does not end",
        record.id,
        record.pid
    )
}
