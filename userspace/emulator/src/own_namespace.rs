//! A user namespace of a process's own, in which it may make network namespaces and TAPs without being root.

use std::{fs, io};

use nix::{
    errno::Errno,
    sched::{CloneFlags, unshare},
    unistd::{getegid, geteuid},
};
use perturb_dataplane::namespace::Namespace;
use rustix::thread::{CapabilitySet, capabilities};

use crate::{
    conduct::{Pacer, PacerChoice},
    registry::is_in_own_namespace,
};

/// Why private hosts cannot be made without root here, and what helps.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The kernel makes no user namespaces for this user.
    #[error(
        "private hosts without root need a user namespace, and this machine refuses one ({source}): {way}"
    )]
    Namespace {
        /// The kernel's answer.
        source: io::Error,
        /// What helps.
        way: &'static str,
    },
    /// No TAPs.
    #[error("private hosts without root need /dev/net/tun, and it cannot be opened ({source}): {way}")]
    Tun {
        /// Why.
        source: io::Error,
        /// What helps.
        way: &'static str,
    },
}

/// The commands that help.
const APPARMOR: &str = "AppArmor does; `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` allows them, or run perturb as root";
const SWITCHED_OFF: &str =
    "`sudo sysctl -w kernel.unprivileged_userns_clone=1` allows them, or run perturb as root";
const NONE_LEFT: &str = "`sudo sysctl -w user.max_user_namespaces=10000` allows them, or run perturb as root";
const FORBIDDEN: &str = "a container's filter of system calls may do so: start it with `--security-opt seccomp=unconfined`, or run perturb as root";
const NO_TUN: &str = "`sudo modprobe tun`, or in a container its option `--device /dev/net/tun`, brings it";
const CLOSED_TUN: &str = "`sudo chmod 666 /dev/net/tun` opens it to all users, which is the usual mode";

fn is_set(sysctl: &str, wanted: &str) -> bool {
    fs::read_to_string(sysctl).is_ok_and(|value| value.trim() == wanted)
}

fn refused(errno: Errno) -> Unavailable {
    let way = if is_set("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        APPARMOR
    } else if is_set("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        SWITCHED_OFF
    } else if errno == Errno::ENOSPC || is_set("/proc/sys/user/max_user_namespaces", "0") {
        NONE_LEFT
    } else {
        FORBIDDEN
    };
    Unavailable::Namespace {
        source: errno.into(),
        way,
    }
}

/// Whether this process may load programs into the kernel and make network namespaces: root, or who has their capabilities.
#[must_use]
pub fn may_load_programs() -> bool {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    let has = capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
    has && !is_in_own_namespace()
}

/// Whether this process may make network namespaces, wherever it is.
pub(crate) fn may_make_hosts() -> bool {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Readies a process of one thread for private hosts, if a switch is to join them: see [`enter`].
///
/// # Errors
/// What is missing, and the command that helps.
pub fn ready(choice: PacerChoice) -> Result<(), Unavailable> {
    let is_switch = match choice {
        PacerChoice::Only(pacer) => pacer == Pacer::Switch,
        PacerChoice::Auto => !may_load_programs(),
    };
    if is_switch { enter() } else { Ok(()) }
}

/// Readies a process of one thread for hosts that a switch joins: it enters a user namespace of its own, as that one's root, unless
/// it may make hosts already.
///
/// # Errors
/// What is missing, and the command that helps.
pub fn enter() -> Result<(), Unavailable> {
    let tun = |source: io::Error| {
        let way = match source.kind() {
            io::ErrorKind::PermissionDenied => CLOSED_TUN,
            _ => NO_TUN,
        };
        Unavailable::Tun { source, way }
    };
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .map_err(tun)?;
    if may_make_hosts() {
        return Ok(());
    }
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(refused)?;
    let map = || -> io::Result<()> {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {group} 1"))
    };
    // AppArmor lets a program have the namespace, and no capability in it.
    let usable = map().and_then(|()| Namespace::create().map(drop));
    usable.map_err(|error| refused(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EPERM))))
}
