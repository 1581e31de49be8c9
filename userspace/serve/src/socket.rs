//! The socket of the local API, and who may connect to it.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::{
        fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use nix::unistd::{Group, geteuid};
use perturb_emulator::registry::{RECORDS, Record};

/// The socket, in the directory of the emulation's record.
pub(crate) const SOCKET: &str = "api";
/// How the name of a group's directory begins, beside the registry.
const GROUP: &str = "perturb-group-";

/// Whether a directory beside the registry may be a group's.
pub(crate) fn of_group(directory: &str) -> bool {
    directory.starts_with(GROUP)
}

/// Who may use the socket.
#[derive(Debug)]
pub(crate) struct Access(Option<PathBuf>);

impl Access {
    /// Root, and a group's members if one is named: they get a directory beside the registry, which only root may enter.
    ///
    /// # Errors
    /// If there is no such group, or no such directory can be made.
    pub(crate) fn of(group: Option<&str>) -> anyhow::Result<Self> {
        let Some(name) = group else { return Ok(Self(None)) };
        let group = Group::from_name(name).with_context(|| format!("looking for group {name}"))?;
        let group = group.with_context(|| {
            format!("there is no group {name}: give --socket-group one that `getent group` shows")
        })?;
        let directory = Path::new(RECORDS).with_file_name(format!("{GROUP}{name}"));
        let make = || -> io::Result<()> {
            match DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let found = fs::symlink_metadata(&directory)?;
            if !found.is_dir() || found.uid() != geteuid().as_raw() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "it is not this user's directory",
                ));
            }
            chown(&directory, None, Some(group.gid.as_raw()))?;
            // What is made in it is the group's, too (set-group-ID).
            fs::set_permissions(&directory, Permissions::from_mode(0o2750))
        };
        make().with_context(|| format!("making {} for group {name}", directory.display()))?;
        Ok(Self(Some(directory)))
    }
}

/// The socket of an emulation. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    group: Option<PathBuf>,
}

impl Socket {
    /// Makes it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn of(record: &Record, access: &Access) -> anyhow::Result<Self> {
        let (path, mode) = match &access.0 {
            None => (record.directory().join(SOCKET), 0o600),
            Some(directory) => (directory.join(&record.id), 0o660),
        };
        let make = || {
            match fs::remove_file(&path) {
                // A killed emulation of this name left it.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // Nobody else may enter the directory, or its group alone, which may connect once the mode says so.
            let listener = UnixListener::bind(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = make().with_context(|| format!("making the socket {}", path.display()))?;
        let group = access.0.clone();
        Ok(Self {
            listener,
            path,
            group,
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may have gone with the record.
        let _ = fs::remove_file(&self.path);
        // The directory of the record goes with the record.
        if let Some(directory) = &self.group {
            sweep();
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Removes sockets in groups' directories that killed emulations have left, whose records are gone, and the directories that are empty
/// then.
pub fn sweep() {
    let records = Path::new(RECORDS);
    let all = records.parent().map(names).unwrap_or_default();
    for (_, directory) in all.into_iter().filter(|(name, _)| of_group(name)) {
        let mut left = names(&directory);
        left.retain(|(id, _)| !records.join(id).exists());
        for (_, socket) in &left {
            // Another command may do the same.
            let _ = fs::remove_file(socket);
        }
        // One that was empty before waits for its socket.
        if !left.is_empty() {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// What a directory has, as far as this user may know.
pub(crate) fn names(directory: impl AsRef<Path>) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect()
}
