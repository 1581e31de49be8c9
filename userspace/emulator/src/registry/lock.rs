//! Locks of the registry: on open file descriptions (fcntl(2), F_OFD_SETLK), which can be asked for without being taken,
//! and which `flock` does not touch.
//!
//! Their files are made here, for this user only, in a directory for this user only: no other user can open them, hence
//! none can lock them.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    unistd::geteuid,
};

use super::{RECORDS, RegistryError, Result, file, is_in_own_namespace};

/// Permissions of the directories.
const DIRECTORY: u32 = 0o700;
/// Permissions of the locks.
const FILE: u32 = 0o600;
/// Permissions of anyone else.
const OTHERS: u32 = 0o077;

/// A lock that this process holds until it is dropped.
#[derive(Debug)]
pub struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A child that is about to start another program has the open file, too: closing it is not enough. If it cannot be
        // unlocked, closing it is all that is left.
        let _ = fcntl(&self.0, FcntlArg::F_OFD_SETLK(&whole(libc::F_UNLCK)));
    }
}

fn whole(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Takes a lock, whose file is made if need be; `None` if it is taken.
pub(super) fn take(path: &Path) -> Result<Option<Lock>> {
    let open = || {
        let opened = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(FILE)
            .open(path)?;
        if opened.metadata()?.mode() & OTHERS != 0 {
            opened.set_permissions(Permissions::from_mode(FILE))?;
        }
        Ok(opened)
    };
    let opened = file("opening", path, open())?;
    match fcntl(&opened, FcntlArg::F_OFD_SETLK(&whole(libc::F_WRLCK))) {
        Ok(_) => Ok(Some(Lock(opened))),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
        Err(errno) => file("locking", path, Err(errno.into())),
    }
}

/// Takes a lock, waiting for its holder at most `patience`.
pub(super) fn wait(path: &Path, patience: Duration) -> Result<Lock> {
    let start = Instant::now();
    loop {
        if let Some(lock) = take(path)? {
            return Ok(lock);
        }
        if start.elapsed() >= patience {
            return Err(RegistryError::Busy {
                path: path.into(),
                holders: holders(path),
            });
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether anyone holds a lock. Its file is not made here: its owner may be removing it, and its directory, at this moment.
pub(super) fn is_taken(path: &Path) -> Result<bool> {
    let opened = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => file("opening", path, opened)?,
    };
    let mut lock = whole(libc::F_WRLCK);
    match fcntl(&opened, FcntlArg::F_OFD_GETLK(&mut lock)) {
        Ok(_) => Ok(lock.l_type != libc::F_UNLCK as libc::c_short),
        Err(errno) => file("asking for the lock of", path, Err(errno.into())),
    }
}

/// Writes a file that no other user may read, whole or not at all.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE)
        .open(&fresh)?
        .write_all(bytes)?;
    fs::rename(&fresh, path)
}

/// Makes a directory that no other user may enter, or closes one that was made otherwise.
pub(super) fn private_directory(path: &Path) -> Result<()> {
    let make = || {
        match DirBuilder::new().mode(DIRECTORY).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let found = fs::symlink_metadata(path)?;
        if !is_own(&found) {
            // The machine's own is root's, as it should be.
            if path.starts_with(RECORDS) {
                return Err(Errno::EACCES.into());
            }
            return Err(foreign());
        }
        let wide = found.mode() & OTHERS != 0;
        if wide {
            fs::set_permissions(path, Permissions::from_mode(DIRECTORY))?;
        }
        Ok(())
    };
    file("making", path, make())
}

/// Whether a directory is this user's: what is in another one may be anything. Root may look everywhere.
fn is_own(found: &fs::Metadata) -> bool {
    let is_everybodys = geteuid().is_root() && !is_in_own_namespace();
    found.is_dir() && (found.uid() == geteuid().as_raw() || is_everybodys)
}

fn foreign() -> io::Error {
    let why = "it is not this user's directory; remove it, or set XDG_RUNTIME_DIR to one that is";
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// What is read from a registry that is not the machine's must be this user's: anybody can make a directory in /tmp, with records
/// of their own, and maps that lie.
pub(super) fn admit_directory(path: &Path) -> io::Result<()> {
    if path.starts_with(RECORDS) {
        return Ok(());
    }
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if is_own(&found) => Ok(()),
        Ok(_) => Err(foreign()),
    }
}

/// The processes that hold a lock, as the kernel says: `PID (command)`. Those that this process cannot see are missing.
pub(super) fn holders(path: &Path) -> Vec<String> {
    processes(path, |descriptor| descriptor.lines().any(blocks))
}

/// The processes that have a file open.
pub(super) fn openers(path: &Path) -> Vec<String> {
    processes(path, |_| true)
}

/// The processes that have a file open, with such a line in `/proc/PID/fdinfo/FD`: `PID (command)`.
fn processes(path: &Path, chosen: impl Fn(&str) -> bool) -> Vec<String> {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    let Ok(lock) = identity(path) else {
        return Vec::new();
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| {
            let pid: u32 = process.file_name().to_str()?.parse().ok()?;
            let opened = fs::read_dir(process.path().join("fd")).ok()?;
            let holds = opened.flatten().any(|descriptor| {
                identity(&descriptor.path()).is_ok_and(|opened| opened == lock)
                    && fs::read_to_string(process.path().join("fdinfo").join(descriptor.file_name()))
                        .is_ok_and(|text| chosen(&text))
            });
            let command = || fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            holds.then(|| format!("{pid} ({})", command().trim_end()))
        })
        .collect()
}

/// Whether a line of `/proc/PID/fdinfo/FD` is a lock that excludes ours: `lock: 1: OFDLCK ADVISORY WRITE -1 00:1a:7 0 EOF`.
fn blocks(line: &str) -> bool {
    line.starts_with("lock:") && (line.contains("OFDLCK") || line.contains("POSIX"))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, Permissions},
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
        thread,
    };

    use nix::fcntl::{Flock, FlockArg};

    use super::{admit_directory, holders, is_taken, private_directory, take};
    use crate::registry::{Result, remove_directory};

    type Tested = std::result::Result<(), Box<dyn std::error::Error>>;

    /// An owner makes and removes its directory while another command looks at it, and removes it, too.
    #[test]
    fn two_may_remove_a_directory() -> Result<()> {
        const TURNS: u32 = 5_000;
        let place = std::env::temp_dir().join(format!("perturb-registry-{}", std::process::id()));
        let owner = place.join("owner");
        thread::scope(|scope| {
            let owns = scope.spawn(|| -> Result<()> {
                for _ in 0..TURNS {
                    // The other one may take it away before the lock is made.
                    if fs::create_dir_all(&place).is_ok()
                        && let Ok(_lock) = take(&owner)
                    {
                        remove_directory(&place)?;
                    }
                }
                Ok(())
            });
            while !owns.is_finished() {
                if !is_taken(&owner)? {
                    remove_directory(&place)?;
                }
            }
            owns.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        remove_directory(&place)
    }

    /// Who asks for a lock does not hold it meanwhile, and who uses `flock` holds nothing of ours.
    #[test]
    fn asking_takes_nothing() -> Tested {
        let place = tempfile::tempdir()?;
        let path = place.path().join("lock");
        assert!(!is_taken(&path)?);
        fs::write(&path, "")?;
        let foreign =
            Flock::lock(File::open(&path)?, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
        assert!(!is_taken(&path)?);
        let lock = take(&path)?.ok_or("flock blocks the lock")?;
        drop(foreign);
        assert_eq!(fs::metadata(&path)?.mode() & 0o777, 0o600);
        assert!(is_taken(&path)? && take(&path)?.is_none());
        let holder = holders(&path);
        assert_eq!(holder.len(), 1, "{holder:?}");
        assert!(
            holder[0].starts_with(&format!("{} (", std::process::id())),
            "{holder:?}"
        );
        drop(lock);
        assert!(!is_taken(&path)? && holders(&path).is_empty());
        Ok(())
    }

    /// Anybody may have made a directory in /tmp, and put records there, or a link to some.
    #[test]
    fn what_others_have_made_is_not_believed() -> Tested {
        let place = tempfile::tempdir()?;
        admit_directory(&place.path().join("none"))?;
        admit_directory(place.path())?;
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link)?;
        assert!(admit_directory(&link).is_err());
        // Root may look everywhere.
        let user = nix::unistd::geteuid();
        if !user.is_root() {
            assert!(admit_directory(std::path::Path::new("/proc/1")).is_err());
        }
        Ok(())
    }

    /// An older perturb, or an administrator, may have left the directory open.
    #[test]
    fn an_open_directory_is_closed() -> Tested {
        let place = tempfile::tempdir()?;
        let path = place.path().join("registry");
        for mode in [None, Some(0o755), Some(0o1777)] {
            if let Some(mode) = mode {
                fs::set_permissions(&path, Permissions::from_mode(mode))?;
            }
            private_directory(&path)?;
            assert_eq!(fs::metadata(&path)?.mode() & 0o7777, 0o700);
        }
        Ok(())
    }
}
