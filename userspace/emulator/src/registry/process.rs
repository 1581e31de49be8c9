//! Which process: a number alone is given to another process later, and means another one in another PID namespace.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    process,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process of this machine, at any time the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number in its PID namespace.
    pub pid: u32,
    /// When it started, clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub started: u64,
    /// Inode of its PID namespace.
    pub pid_namespace: u64,
}

/// A handle of a living process, which never becomes another one's.
#[derive(Debug)]
pub struct Handle(OwnedFd);

/// What can be known of a process here.
#[derive(Debug)]
pub enum Presence {
    /// It lives.
    Alive(Handle),
    /// It has ended, whoever has its number now.
    Gone,
    /// It belongs to another PID namespace, where its number means another process.
    Elsewhere,
}

impl Process {
    /// This process.
    pub fn current() -> io::Result<Self> {
        Ok(Self {
            pid: process::id(),
            started: started("self")?,
            pid_namespace: namespace()?,
        })
    }

    /// Whether it lives, with a handle to signal it.
    ///
    /// The handle comes before the start time is read: as long as the process lives its number is its own, so that the
    /// start time is that of the handle's process or of none.
    pub fn find(&self) -> io::Result<Presence> {
        // A /proc of another PID namespace numbers processes otherwise.
        let own = fs::read_link("/proc/self")?;
        if self.pid_namespace != namespace()? || own.as_os_str() != process::id().to_string().as_str() {
            return Ok(Presence::Elsewhere);
        }
        let Some(pid) = Pid::from_raw(self.pid.cast_signed()) else {
            return Ok(Presence::Gone);
        };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => Handle(handle),
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Ok(Presence::Gone),
            Err(errno) => return Err(errno.into()),
        };
        match started(&self.pid.to_string()) {
            Ok(started) if started == self.started => Ok(Presence::Alive(handle)),
            Ok(_) => Ok(Presence::Gone),
            Err(error) if is_gone(&error) => Ok(Presence::Gone),
            Err(error) => Err(error),
        }
    }
}

impl Handle {
    /// Sends a signal; that the process has ended meanwhile is no error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Inode of this process's PID namespace.
fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// When a process started, clock ticks since boot.
fn started(process: &str) -> io::Result<u64> {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&path)?;
    started_of(&text)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path} has no start time")))
}

/// Field 22; field 2, the name in parentheses, may hold anything.
fn started_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{io, process::Command};

    use super::{Presence, Process, started, started_of};

    #[test]
    fn names_do_not_confuse() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) b (c) S {}", fields.join(" "));
        assert_eq!(started_of(&stat), Some(22));
        assert_eq!(started_of("7 (cut"), None);
    }

    /// A number that another process has now is not the process that had it.
    #[test]
    fn a_reused_number_is_another_process() -> io::Result<()> {
        let mut child = Command::new("sleep").arg("60").spawn()?;
        let own = Process::current()?;
        let same = Process {
            pid: child.id(),
            started: started(&child.id().to_string())?,
            ..own
        };
        assert!(matches!(same.find()?, Presence::Alive(_)));
        let earlier = Process {
            started: same.started - 1,
            ..same
        };
        assert!(matches!(earlier.find()?, Presence::Gone));
        let elsewhere = Process {
            pid_namespace: own.pid_namespace + 1,
            ..same
        };
        assert!(matches!(elsewhere.find()?, Presence::Elsewhere));
        let Presence::Alive(handle) = same.find()? else {
            return Err(io::Error::other("the child is gone"));
        };
        handle.signal(rustix::process::Signal::KILL)?;
        child.wait()?;
        assert!(matches!(same.find()?, Presence::Gone));
        handle.signal(rustix::process::Signal::KILL)
    }
}
