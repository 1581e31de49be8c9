//! The cgroups of this machine: where cgroup2 is mounted, and what ids they have.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Error, ErrorKind},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use perturb_dataplane::programs::tells_cgroups;
use perturb_profile::{Cgroup, Cgroups};

/// `PROC_CGROUP_INIT_INO` of the kernel: the namespace of cgroups that sees all of them.
const INITIAL_NAMESPACE: u64 = 0xefff_fffb;

/// Where cgroup2 is mounted, from its root on.
fn mount() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo")?;
    if let Some(mount) = mount_in(&mounts, |root| root == "/") {
        return Ok(mount.into());
    }
    // A mount from outside of a process's namespace of cgroups has a root above the namespace's.
    Err(Error::other(
        match mount_in(&mounts, |root| root.starts_with("/..")) {
            Some(mount) => format!(
                "cgroup2 at {mount} is of another namespace of cgroups than this process: a container needs `--cgroupns host`, \
             another process `nsenter --cgroup --target 1`"
            ),
            None => {
                "no cgroup2 is mounted here: `mount -t cgroup2 none /sys/fs/cgroup` does so, as systemd does"
                    .into()
            }
        },
    ))
}

/// Where cgroup2 was mounted last from such a root on.
fn mount_in(mounts: &str, from: fn(&str) -> bool) -> Option<&str> {
    // number, parent, device, root, mount point, ... - type, ...
    mounts.lines().rev().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut fields = place.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (from(root) && kind.starts_with("cgroup2 ")).then_some(point)
    })
}

/// The id of a cgroup, by which the programs know it: its inode.
///
/// # Errors
/// If there is none, or no cgroup2.
pub(crate) fn id(cgroup: &str) -> io::Result<u64> {
    match fs::metadata(mount()?.join(cgroup)) {
        Ok(found) if found.is_dir() => Ok(found.ino()),
        Ok(_) => Err(ErrorKind::NotADirectory.into()),
        Err(error) => Err(error),
    }
}

/// Looks up cgroups. Those that are not there have no id; nobody is in them yet.
///
/// # Errors
/// If no cgroup2 is mounted.
pub(crate) fn find(named: BTreeSet<&Cgroup>) -> io::Result<Cgroups> {
    if named.is_empty() {
        return Ok(Cgroups::default());
    }
    let mount = mount()?;
    if tells_cgroups() == Some(false) {
        return Err(Error::other(
            "this kernel does not say whose a packet is (CONFIG_SOCK_CGROUP_DATA is off)",
        ));
    }
    let mut found = Cgroups {
        root_is_below: root_is_below()?,
        ..Cgroups::default()
    };
    for cgroup in named {
        match id(cgroup.as_str()) {
            Ok(id) => drop(found.ids.insert(cgroup.clone(), id)),
            Err(error) => {
                let meant = cgroup.meant(|parent| children(&mount.join(parent)));
                let meant = meant.map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
                log::warn!(
                    "cgroup {cgroup} cannot be found: {error}{meant} (until it is there it has no packets; it is looked up every 10 s)"
                );
            }
        }
    }
    Ok(found)
}

/// Whether the root of cgroup2 that this process sees lies below that of the machine.
pub(crate) fn root_is_below() -> io::Result<bool> {
    Ok(fs::metadata("/proc/self/ns/cgroup")?.ino() != INITIAL_NAMESPACE)
}

/// The names of the cgroups in one.
fn children(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::mount_in;

    #[test]
    fn cgroup2_is_found_beside_the_first_version() {
        let whole = |mounts| mount_in(mounts, |root| root == "/");
        let unified = "31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(whole(unified), Some("/sys/fs/cgroup"));
        let hybrid = "30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
                      31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 30 0:28 /system.slice /mnt rw - cgroup2 cgroup2 rw\n\
                      33 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(whole(hybrid), Some("/sys/fs/cgroup/unified"));
        let first = "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        assert_eq!(whole(first), None);
        // The host's, in a container with a namespace of its own.
        let outside = "31 24 0:27 /../../.. /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(
            (whole(outside), mount_in(outside, |root| root.starts_with("/.."))),
            (None, Some("/sys/fs/cgroup"))
        );
    }
}
