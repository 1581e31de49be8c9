//! Who may do what: a command that sudo started belongs to the user who called sudo, and a controller keeps the
//! capabilities that it needs and no others.
//!
//! Inside `perturb run` the user has no capability, but `perturb on` has to enter the network namespaces of other hosts. So the lab
//! has a copy of this executable that root owns and whose set-user-ID bit is set ([`is_door`]). It does that one thing for its
//! caller: any other command gives the privileges up before it reads its arguments ([`shed_borrowed`]).
//!
//! The lab is no security boundary. no_new_privs is set for controllers, and not for the lab's commands, since that door, sudo,
//! and a ping with capabilities would be closed by it.

use std::{
    env,
    ffi::{CString, OsStr, OsString},
    fs, io,
    os::unix::ffi::OsStringExt as _,
};

use anyhow::{Context as _, bail};
use nix::unistd::{Gid, Uid, User, geteuid, getgid, getuid, initgroups, setgroups, setresgid, setresuid};
use perturb_dataplane::machine;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// What a controller needs, from its set-up to its end:
///
/// * BPF and PERFMON: programs and maps, and programs that compare pointers;
/// * `NET_ADMIN`: devices, filters, and TAPs;
/// * `SYS_ADMIN`: entering network namespaces, and finding maps by their kernel's numbers;
/// * `SYS_NICE`: the user pacer's thread is a real-time one.
pub const NEEDED: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_NICE);

/// Variables by which sudo names its caller.
const SUDO: [&str; 3] = ["SUDO_UID", "SUDO_GID", "SUDO_USER"];

/// Gives up every capability of this thread, and of threads and programs that it starts from now on, that is not [`NEEDED`]. No
/// program gives them any (no_new_privs).
pub fn keep_needed() -> io::Result<()> {
    // Where this fails, raising the limit fails, too, and says so.
    let _ = machine::reach();
    let sets = capabilities(None)?;
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        limit_to(NEEDED)?;
    }
    clear_ambient_capability_set()?;
    set_no_new_privs(true)?;
    let kept = sets.permitted.intersection(NEEDED);
    Ok(set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?)
}

/// Leaves programs that this thread starts no capabilities but these.
pub(crate) fn limit_to(kept: CapabilitySet) -> io::Result<()> {
    for unneeded in CapabilitySet::all().difference(kept).iter() {
        match remove_capability_from_bounding_set(unneeded) {
            // This kernel does not have it.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// The capabilities that programs of a process may have at most.
pub(crate) fn limits_of(process: u32) -> io::Result<CapabilitySet> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let bits = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let bits = bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    let bits = bits.ok_or_else(|| io::Error::other("a process without CapBnd"))?;
    Ok(CapabilitySet::from_bits_truncate(bits))
}

/// Whether this thread may look into every process of its PID and user namespaces (`ptrace_may_access`).
pub(crate) fn sees_processes() -> io::Result<bool> {
    Ok(capabilities(None)?.effective.contains(CapabilitySet::SYS_PTRACE))
}

/// Whom a command belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    uid: Uid,
    gid: Gid,
}

impl Owner {
    /// The user who called sudo, if sudo started this process as root.
    pub fn of_sudo() -> anyhow::Result<Option<Self>> {
        if !geteuid().is_root() || !getuid().is_root() {
            return Ok(None);
        }
        let [uid, gid] = ["SUDO_UID", "SUDO_GID"].map(env::var_os);
        let Some(uid) = uid else { return Ok(None) };
        let uid = number("SUDO_UID", &uid)?;
        let gid = gid.map_or(Ok(uid), |gid| number("SUDO_GID", &gid))?;
        Ok((uid != 0).then_some(Self {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
        }))
    }

    /// As the stage's arguments have it.
    #[must_use]
    pub fn words(self) -> String {
        format!("{}:{}", self.uid, self.gid)
    }

    /// What [`Self::words`] wrote.
    pub fn parse(words: &str) -> Result<Self, String> {
        let parsed = words.split_once(':').and_then(|(uid, gid)| {
            Some(Self {
                uid: Uid::from_raw(uid.parse().ok()?),
                gid: Gid::from_raw(gid.parse().ok()?),
            })
        });
        parsed.ok_or_else(|| "must be UID:GID".into())
    }

    /// Makes this process theirs, for ever: groups, user, and the environment.
    pub fn assume(self) -> anyhow::Result<()> {
        let user = User::from_uid(self.uid).with_context(|| format!("looking for user {}", self.uid))?;
        match &user {
            Some(user) => {
                let name = CString::new(user.name.clone()).context("the user's name has a zero byte")?;
                initgroups(&name, self.gid).with_context(|| format!("taking the groups of {}", user.name))?;
            }
            None => setgroups(&[self.gid]).context("giving up the groups of root")?,
        }
        setresgid(self.gid, self.gid, self.gid).with_context(|| format!("becoming group {}", self.gid))?;
        setresuid(self.uid, self.uid, self.uid).with_context(|| format!("becoming user {}", self.uid))?;
        let (name, home) = match user {
            Some(user) => (user.name, user.dir.into_os_string()),
            None => (self.uid.to_string(), "/".into()),
        };
        // SAFETY: callers have one thread.
        unsafe {
            env::set_var("HOME", home);
            env::set_var("USER", &name);
            env::set_var("LOGNAME", &name);
        }
        Ok(())
    }
}

/// A command that stays with root is not sudo's caller's, nor are those that it starts on other hosts.
///
/// # Safety
/// The process must have one thread.
pub unsafe fn forget_sudo() {
    for variable in SUDO {
        // SAFETY: the caller's.
        unsafe { env::remove_var(variable) };
    }
}

fn number(variable: &str, value: &OsStr) -> anyhow::Result<u32> {
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(number) => Ok(number),
        None => bail!("{variable} is {}, not a number", value.display()),
    }
}

/// Whether this process has root's privileges by the set-user-ID bit of the lab's executable.
#[must_use]
pub fn is_door() -> bool {
    geteuid().is_root() && !getuid().is_root()
}

/// Gives up what the set-user-ID bit lent to this process, unless it goes to another host. The first thing that a process does.
pub fn shed_borrowed() -> io::Result<()> {
    let goes = env::args_os()
        .nth(1)
        .is_some_and(|word| word == "on" || word == "agent");
    if is_door() && !goes {
        return_to_caller()?;
    }
    Ok(())
}

/// The caller's variables that the C library has removed from this process's environment because of the set-user-ID bit
/// (`LD_PRELOAD`, `LD_LIBRARY_PATH`, TMPDIR, …: `unsecure_envvars` in glibc). They are for a command that has no privilege.
pub fn withheld_variables() -> io::Result<Vec<(OsString, OsString)>> {
    // As execve(2) got them: removing a variable moves pointers only. Other processes' are closed to this one; its own never.
    let text = fs::read("/proc/self/environ")?;
    let given = text.split(|&byte| byte == 0).filter_map(|word| {
        // The first byte belongs to the name, whatever it is.
        let equals = 1 + word.iter().skip(1).position(|&byte| byte == b'=')?;
        let (name, value) = (word.get(..equals)?, word.get(equals + 1..)?);
        Some((OsString::from_vec(name.into()), OsString::from_vec(value.into())))
    });
    Ok(given.filter(|(name, _)| env::var_os(name).is_none()).collect())
}

/// Gives up what the set-user-ID bit lent to this process.
pub fn return_to_caller() -> io::Result<()> {
    let (uid, gid) = (getuid(), getgid());
    setresgid(gid, gid, gid)?;
    Ok(setresuid(uid, uid, uid)?)
}
