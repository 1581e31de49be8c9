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
    registry::{
        Handle, Presence, Record, Recorded, Registry, Unreadable,
        followers::{Follower, followers},
    },
};

/// Time for a controller to take its emulation down: held packets may need 2 s.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for a follower to have its controllers do that.
const FOLLOWERS_PATIENCE: Duration = Duration::from_secs(8);

/// What to undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The emulation of an interface of this namespace.
    Interface(String),
    /// Those of containers, and whoever follows these: names, or what was followed (`label=app=db`).
    Containers(Vec<String>),
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
    /// Whoever followed containers, and does no more.
    pub followers: Vec<Follower>,
    /// Those that are to be undone and were not, since their records cannot be read.
    pub unreadable: Vec<Unreadable>,
}

/// Undoes.
pub fn clear(scope: &Scope) -> anyhow::Result<Cleared> {
    let registry = enter()?;
    let here = Namespace::current()?.inode()?;
    let mut done = Cleared::default();
    let Recorded { records, unreadable } = registry.records()?;
    done.followers = end_followers(&registry, scope)?;
    for record in records {
        let chosen = match scope {
            Scope::All => true,
            Scope::Applied => !record.has_private_hosts(),
            Scope::Interface(name) => record
                .interfaces
                .iter()
                .any(|interface| interface.name == *name && interface.namespace == here),
            Scope::Containers(words) => record
                .interfaces
                .iter()
                .filter_map(|interface| interface.container.as_ref())
                .any(|container| words.iter().any(|word| container.is_meant(word))),
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
        Scope::Containers(_) => false,
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

/// Ends those who follow what is to be undone: what they have made, they take down.
fn end_followers(_registry: &Registry, scope: &Scope) -> anyhow::Result<Vec<Follower>> {
    let mut ended = Vec::new();
    for follower in followers()? {
        let (all, any) = match scope {
            Scope::All | Scope::Applied => (true, true),
            Scope::Interface(_) => (false, false),
            Scope::Containers(words) => {
                let is_meant = |follows: &String| words.contains(follows);
                (
                    follower.follows.iter().all(is_meant),
                    // A single container of those that it follows may be cleared alone.
                    follower
                        .follows
                        .iter()
                        .any(|follows| follows.contains('=') && is_meant(follows)),
                )
            }
        };
        let pid = follower.process.pid;
        if all {
            let what = || format!("process {pid}, which follows containers,");
            match follower.presence()? {
                Presence::Alive(process) => {
                    stop(&process, &what, FOLLOWERS_PATIENCE, || Ok(!follower.lives()?))?;
                }
                Presence::Gone => {}
                Presence::Elsewhere => bail!("{} runs in another PID namespace: end it there", what()),
            }
            ended.push(follower);
        } else if any {
            bail!(
                "process {pid} follows {} by one call; name them all to end that",
                follower.follows.join(" and ")
            );
        }
    }
    Ok(ended)
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
    let what = || format!("the controller of {id} (process {pid})");
    stop(&owner, &what, PATIENCE, || Ok(!record.has_owner()?))
}

/// Asks a process to end; kills it if it does not.
fn stop(
    process: &Handle,
    what: &dyn Fn() -> String,
    patience: Duration,
    has_ended: impl Fn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    for signal in [Signal::TERM, Signal::KILL] {
        let send = |signal| {
            process
                .signal(signal)
                .with_context(|| format!("stopping {}", what()))
        };
        // A stopped process does not see a signal other than SIGKILL before it goes on.
        send(Signal::CONT)?;
        send(signal)?;
        let start = Instant::now();
        while start.elapsed() < patience {
            if has_ended()? {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    bail!("{} does not end", what())
}
