//! `perturb clear`: undoes emulations, whoever made them.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use perturb_dataplane::namespace::Namespace;
use rustix::process::Signal;

use crate::{
    enter, recover,
    registry::{Presence, Record, Recorded, Registry, Unreadable},
};

/// Time for a controller to take its emulation down: held packets may need 2 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The emulation of an interface of this namespace.
    Interface(String),
    /// Every one on this machine that `apply` made.
    Applied,
    /// Every one on this machine, those of other people's private hosts (`run` and commands that measure) included.
    All,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Cleared {
    /// The emulations that there were. None is no error.
    pub cleared: Vec<Record>,
    /// Those of private hosts, which were left alone.
    pub spared: Vec<Record>,
    /// Processes that emulate an interface of the same name in another network namespace, if there is none here.
    pub elsewhere: Vec<u32>,
    /// Those that are to be undone and were not, since their records cannot be read.
    pub unreadable: Vec<Unreadable>,
}

/// Undoes.
pub fn clear(scope: &Scope) -> anyhow::Result<Cleared> {
    let registry = enter()?;
    let here = Namespace::current()?.inode()?;
    let mut done = Cleared::default();
    let Recorded { records, unreadable } = registry.records()?;
    for record in records {
        let chosen = match scope {
            Scope::All => true,
            Scope::Applied => !record.has_private_hosts(),
            Scope::Interface(name) => record
                .interfaces
                .iter()
                .any(|interface| interface.name == *name && interface.namespace == here),
        };
        if chosen {
            end(&registry, &record)?;
            done.cleared.push(record);
        } else if *scope == Scope::Applied {
            done.spared.push(record);
        } else if !record.has_private_hosts()
            && has_namesake(scope, &record)
            && let Presence::Alive(_) = record.owner()?
        {
            done.elsewhere.push(record.process.pid);
        }
    }
    if !done.cleared.is_empty() {
        done.elsewhere.clear();
    }
    let is_left = |record: &Unreadable| match scope {
        Scope::All => true,
        Scope::Applied => !record.has_private_hosts(),
        // An interface has one emulation.
        Scope::Interface(name) => done.cleared.is_empty() && record.may_have(here, |other, _| other == name),
    };
    let left = unreadable.into_iter().filter(is_left).collect();
    done.unreadable = left;
    Ok(done)
}

/// Whether it emulates an interface that is called as the one to be cleared.
fn has_namesake(scope: &Scope, record: &Record) -> bool {
    let Scope::Interface(name) = scope else {
        return false;
    };
    record.interfaces.iter().any(|interface| interface.name == *name)
}

fn end(_registry: &Registry, record: &Record) -> anyhow::Result<()> {
    if record.has_owner()? {
        stop_owner(record)?;
    }
    recover::remove(record)
}

/// Asks the controller to end; kills it if it does not.
fn stop_owner(record: &Record) -> anyhow::Result<()> {
    let (id, pid) = (&record.id, record.process.pid);
    let owner = match record.owner()? {
        Presence::Alive(owner) => owner,
        Presence::Gone => return Ok(()),
        Presence::Elsewhere => bail!(
            "the controller of {id} runs in another PID namespace, where it is process {pid}; clear it there, or outside \
             of `perturb run` and containers"
        ),
    };
    for signal in [Signal::TERM, Signal::KILL] {
        let send = |signal| {
            owner
                .signal(signal)
                .with_context(|| format!("stopping the controller of {id} (process {pid})"))
        };
        // A stopped process does not see a signal other than SIGKILL before it goes on.
        send(Signal::CONT)?;
        send(signal)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if !record.has_owner()? {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    bail!("the controller of {id} (process {pid}) does not end")
}
