//! Where the registry is.
//!
//! Root's is one for the machine. A user without privileges has one of their own: emulations of private hosts, made in user
//! namespaces, in which this user is called root.

use std::{
    env, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use nix::unistd::{AccessFlags, access, geteuid};

use super::{PRIVATE, RECORDS, lock};

/// The registry that this process uses: [`RECORDS`], or that of a user who has nothing to say there.
#[must_use]
pub fn place() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let shared = PathBuf::from(RECORDS);
        let Ok(user) = outer_user() else { return shared };
        let is_given = fs::metadata(&shared).is_ok_and(|found| found.uid() == geteuid().as_raw());
        // A container may have no /run, or may not write there.
        let may_make = || {
            !is_in_own_namespace()
                || shared
                    .parent()
                    .is_some_and(|run| access(run, AccessFlags::W_OK).is_ok())
        };
        if is_given || user == 0 && may_make() {
            return shared;
        }
        let own = own(user);
        // Whoever has nothing there may be allowed to look at what is root's.
        if is_in_own_namespace() || has_any(&own) {
            own
        } else {
            shared
        }
    })
}

/// The same, if what is there may be believed: not if somebody else has made it.
#[must_use]
pub fn believed() -> Option<&'static Path> {
    Some(place()).filter(|place| lock::admit_directory(place).is_ok())
}

/// The directory of a user's own registry. If somebody else has made it, it is refused when it is opened or read.
fn own(user: u32) -> PathBuf {
    let given = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let is_theirs = |path: &PathBuf| {
        let found = fs::metadata(path);
        found.is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw())
    };
    match given.filter(is_theirs) {
        Some(directory) => directory.join("perturb"),
        None => env::temp_dir().join(format!("perturb-{user}")),
    }
}

/// Whether it has a record, and is this user's.
fn has_any(registry: &Path) -> bool {
    if lock::admit_directory(registry).is_err() {
        return false;
    }
    let entries = fs::read_dir(registry).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with(PRIVATE))
}

/// Whether this process is in a user namespace that is not the machine's: it may load no programs there, whatever it is called.
#[must_use]
pub fn is_in_own_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // Of the first one: all users there are, as they are.
    !map.is_empty() && map.split_whitespace().ne(["0", "0", "4294967295"])
}

/// This process's user, as the user namespace around its own knows it.
fn outer_user() -> io::Result<u32> {
    let own = geteuid().as_raw();
    let map = fs::read_to_string("/proc/self/uid_map")?;
    let outer = |line: &str| {
        let numbers: Vec<u32> = line
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let [inner, outer, count] = numbers[..] else {
            return None;
        };
        let offset = own.checked_sub(inner)?;
        (offset < count).then_some(outer + offset)
    };
    map.lines()
        .find_map(outer)
        .ok_or_else(|| io::Error::other("this user has no number in the user namespace around it"))
}
