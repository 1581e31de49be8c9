//! What a lab's processes see of the machine: the hosts' names, this executable, /sys.

use std::{
    ffi::OsString,
    fs, io,
    os::{
        fd::{AsRawFd as _, BorrowedFd, RawFd},
        unix::fs::{PermissionsExt as _, symlink},
    },
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, fcntl},
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns},
};

use super::inside::Stage;
use crate::{privileges::Owner, registry::is_in_own_namespace};

/// Where `ip netns` looks for names.
pub(crate) const NAMES: &str = "/run/netns";
/// Where a lab finds this executable under its own name, whatever PATH its caller has, and keeps its hosts file.
pub(super) const PROGRAMS: &str = "/run/perturb-lab";
/// This executable there.
pub(super) const EXECUTABLE: &str = "/run/perturb-lab/perturb";

/// Names of all hosts, there.
const LIST: &str = "/run/perturb-lab/hosts";
/// This machine's network namespace, there.
const MACHINE: &str = "/run/perturb-lab/machine";

/// A view of the machine that shows the private hosts: names for `ip netns`, a hosts file, /sys.
pub(super) fn furnish(stage: &Stage) -> anyhow::Result<()> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("making mounts private")?;
    match fs::create_dir_all(NAMES) {
        // A user's: what is made there is for the lab alone.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_in_own_namespace() => {
            shadow(Path::new("/run")).context("making /run writable for the lab")?;
            fs::create_dir_all(NAMES)
        }
        made => made,
    }
    .with_context(|| format!("making {NAMES}"))?;
    mount(
        Some("perturb"),
        NAMES,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=0755"),
    )
    .with_context(|| format!("mounting {NAMES}"))?;
    for (number, fd) in &stage.namespaces {
        let name = Path::new(NAMES).join(super::name(*number));
        bind(*fd, &name).with_context(|| format!("naming host {number}"))?;
    }
    place_executable(stage.owner).context("putting perturb on the hosts' PATH")?;
    let names: Vec<String> = (1..=stage.hosts).map(super::name).collect();
    fs::write(LIST, names.join(" "))?;
    if let Some(fd) = stage.elsewhere.machine {
        bind(fd, Path::new(MACHINE)).context("naming this machine")?;
    }
    for (number, words) in &stage.elsewhere.commands {
        fs::write(
            Path::new(PROGRAMS).join(super::name(*number)),
            serde_json::to_string(words)?,
        )?;
    }
    let hosts = Path::new("/etc/hosts");
    if hosts.exists() {
        // It stays: private hosts inside of these have theirs bound over it.
        let file = Path::new(PROGRAMS).join("etc-hosts");
        let text = fs::read_to_string(hosts).unwrap_or_default() + &super::hosts_file(stage.hosts);
        fs::write(&file, text)?;
        mount(Some(&file), hosts, none, MsFlags::MS_BIND, none).context("binding /etc/hosts")?;
    }
    // /sys shows the devices of the network namespace in which it was mounted.
    let cgroups = Path::new("/sys/fs/cgroup");
    let kept = fs::File::open(cgroups);
    match mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none) {
        // In a container that hides parts of it, the kernel shows no other one; /sys/class/net shows another host's devices then.
        Err(Errno::EPERM) if is_in_own_namespace() => return Ok(()),
        mounted => mounted.context("mounting /sys")?,
    }
    if let Ok(kept) = kept
        && cgroups.is_dir()
    {
        let source = PathBuf::from(format!("/proc/self/fd/{}", kept.as_raw_fd()));
        // Only job managers miss it.
        let _ = mount(
            Some(&source),
            cgroups,
            none,
            MsFlags::MS_BIND | MsFlags::MS_REC,
            none,
        );
    }
    Ok(())
}

/// Gives a namespace that `perturb run` has opened for this process a name. Processes to come have the name; they need no handle.
fn bind(fd: RawFd, name: &Path) -> anyhow::Result<()> {
    let none: Option<&str> = None;
    fs::write(name, "")?;
    let source = PathBuf::from(format!("/proc/self/fd/{fd}"));
    mount(Some(&source), name, none, MsFlags::MS_BIND, none)?;
    // SAFETY: `perturb run` opened the handle for this process.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(())
}

/// The names of the private hosts around this process, in order.
pub(super) fn names() -> Vec<String> {
    let list = fs::read_to_string(LIST).unwrap_or_default();
    list.split_whitespace().map(str::to_owned).collect()
}

/// What runs a command on a host, if that is on another machine: this process is in the namespace then from where it is reached.
pub(super) fn elsewhere(host: &str) -> anyhow::Result<Option<Vec<String>>> {
    if !names().iter().any(|name| name == host) {
        return Ok(None);
    }
    let text = match fs::read_to_string(Path::new(PROGRAMS).join(host)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("reading the way to {host}"))?,
    };
    let machine = fs::File::open(MACHINE).context("opening this machine's network namespace")?;
    setns(machine, CloneFlags::CLONE_NEWNET).context("entering this machine's network namespace")?;
    serde_json::from_str(&text).with_context(|| format!("the way to {host}"))
}

/// Lays a directory that can be written over another, with what is in that.
fn shadow(directory: &Path) -> anyhow::Result<()> {
    let none: Option<&str> = None;
    let names: Vec<OsString> = fs::read_dir(directory)?
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect();
    let opened = fs::File::open(directory)?;
    let below = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    mount(
        Some("perturb"),
        directory,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=0755"),
    )?;
    for name in names {
        let (source, target) = (below.join(&name), directory.join(&name));
        let show = || -> io::Result<()> {
            let kind = fs::symlink_metadata(&source)?.file_type();
            if kind.is_symlink() {
                return symlink(fs::read_link(&source)?, &target);
            }
            if kind.is_dir() {
                fs::create_dir(&target)?;
            } else {
                fs::write(&target, "")?;
            }
            Ok(mount(
                Some(&source),
                &target,
                none,
                MsFlags::MS_BIND | MsFlags::MS_REC,
                none,
            )?)
        };
        if let Err(error) = show() {
            log::debug!(
                "{} is not to be seen on the private hosts: {error}",
                target.display()
            );
        }
    }
    Ok(())
}

/// `perturb on` is for commands that know perturb by its name only: sudo's `secure_path` has no directory of a build, and
/// other users may not enter it. For a command that is not root's it opens the way to the other hosts: see [`privileges`].
fn place_executable(owner: Option<Owner>) -> anyhow::Result<()> {
    let none: Option<&str> = None;
    fs::create_dir_all(PROGRAMS).with_context(|| format!("making {PROGRAMS}"))?;
    mount(
        Some("perturb"),
        PROGRAMS,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=0755"),
    )
    .with_context(|| format!("mounting {PROGRAMS}"))?;
    let path = Path::new(EXECUTABLE);
    fs::write(path, "")?;
    let executable = std::env::current_exe()?;
    let bound = owner.is_none() && mount(Some(&executable), path, none, MsFlags::MS_BIND, none).is_ok();
    if !bound {
        // The bit must not be set on the file itself; or that has been replaced since it started, e.g. by an update.
        fs::copy("/proc/self/exe", path).with_context(|| format!("copying this executable to {PROGRAMS}"))?;
        let mode = if owner.is_some() { 0o4755 } else { 0o755 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}
