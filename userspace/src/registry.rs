//! What is applied on this machine: one record per emulation, written before the first device is
//! made, so that whatever ends its owner, the next command knows what to remove.
//!
//! ```text
//! /run/perturb/lock            held by a command that changes the registry
//! /run/perturb/ID/record.json  what it is
//! /run/perturb/ID/owner        locked by the controller as long as it lives
//! /run/perturb/ID/requests     locked by whoever reads its log of requests
//! ```
//!
//! Nothing is pinned: programs and maps live as long as the controller, and other commands reach the
//! maps by the kernel's numbers. A bpffs would not do: `ip netns exec` gives each command one of its own.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process,
    time::{Duration, Instant},
};

use nix::fcntl::{Flock, FlockArg};
use perturb_dataplane::{loader::Slots, maps::MapIds};
use serde::{Deserialize, Serialize};

/// Where emulations are recorded: gone after a reboot, as they are.
pub const RECORDS: &str = "/run/perturb";

/// Why the registry cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A file.
    #[error("{action} {path}: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another command does not come to its end.
    #[error(
        "process {holder} is changing what is applied and does not finish; if it hangs, kill it: the next command \
         cleans up"
    )]
    Busy {
        /// Its number.
        holder: String,
    },
    /// A record that cannot be read.
    #[error(
        "the record {path} is damaged ({source}); `perturb clear --all` removes what it finds, then delete the file"
    )]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

type Result<T> = std::result::Result<T, RegistryError>;

fn file<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|source| RegistryError::File {
        action,
        path: path.into(),
        source,
    })
}

/// An interface of an emulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceRecord {
    /// Its name when the emulation began.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Inode of its network namespace.
    pub namespace: u64,
    /// Devices that were made for it, by name.
    pub devices: Vec<String>,
    /// Whether its clsact qdisc was made for the emulation.
    pub made_clsact: bool,
}

/// What is known of an emulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name in the registry; its devices carry it as alias.
    pub id: String,
    /// Process that made it.
    pub pid: u32,
    /// `fq` or `user`.
    pub pacer: String,
    /// Whether it emulates already.
    pub ready: bool,
    /// The interfaces.
    pub interfaces: Vec<InterfaceRecord>,
    /// The normalized profile.
    pub profile: String,
    /// Names of the classes, in order.
    pub classes: Vec<String>,
    /// Names of the servers, in order.
    pub servers: Vec<String>,
    /// Where the servers' state and counters are.
    pub slots: Slots,
    /// The maps.
    pub maps: MapIds,
    /// When it began, seconds since 1970.
    pub since: u64,
    /// How many times the profile was changed since.
    pub updates: u32,
}

impl Record {
    /// Its directory of records.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        Path::new(RECORDS).join(&self.id)
    }

    /// The alias of its devices.
    #[must_use]
    pub fn alias(id: &str) -> String {
        format!("perturb {id}")
    }

    /// Writes it, whole or not at all.
    pub fn write(&self) -> Result<()> {
        let directory = self.directory();
        file("making", &directory, fs::create_dir_all(&directory))?;
        let path = directory.join("record.json");
        let fresh = directory.join("record.json.new");
        let text = serde_json::to_vec_pretty(self).map_err(|source| RegistryError::Damaged {
            path: path.clone(),
            source,
        })?;
        let write = || {
            let mut out = File::create(&fresh)?;
            out.write_all(&text)?;
            fs::rename(&fresh, &path)
        };
        file("writing", &path, write())
    }

    /// Removes it.
    pub fn remove(&self) -> Result<()> {
        remove_directory(&self.directory())
    }

    /// Claims it for this process, as long as the lock is kept.
    pub fn own(&self) -> Result<Option<Flock<File>>> {
        let path = self.directory().join("owner");
        lock(&path, FlockArg::LockExclusiveNonblock)
    }

    /// Claims its log of requests, which has one reader at a time; `None` if another process reads it.
    pub fn claim_requests(&self) -> Result<Option<Flock<File>>> {
        let path = self.directory().join("requests");
        lock(&path, FlockArg::LockExclusiveNonblock)
    }

    /// Whether the process that made it still runs.
    pub fn has_owner(&self) -> Result<bool> {
        is_locked(&self.directory().join("owner"))
    }

    /// The record as it is now on disk.
    pub fn read(id: &str) -> Result<Option<Self>> {
        let path = Path::new(RECORDS).join(id).join("record.json");
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|source| RegistryError::Damaged { path, source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => file("reading", &path, Err(error)),
        }
    }
}

/// Removes the directory of a record, which its owner may be removing, too.
pub fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if path.exists() => file("removing", path, Err(error)),
        _ => Ok(()),
    }
}

/// Locks a file, made if need be; `None` if it is taken and the request does not wait.
fn lock(path: &Path, how: FlockArg) -> Result<Option<Flock<File>>> {
    let open = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path);
    claim(path, file("opening", path, open)?, how)
}

/// Whether a process has locked a file. It is not made here: its owner may be removing it, and its directory, at this moment.
fn is_locked(path: &Path) -> Result<bool> {
    match OpenOptions::new().write(true).open(path) {
        Ok(opened) => Ok(claim(path, opened, FlockArg::LockExclusiveNonblock)?.is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => file("opening", path, Err(error)),
    }
}

fn claim(path: &Path, opened: File, how: FlockArg) -> Result<Option<Flock<File>>> {
    match Flock::lock(opened, how) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => file("locking", path, Err(errno.into())),
    }
}

/// The registry, locked against other commands.
#[derive(Debug)]
pub struct Registry {
    _lock: Flock<File>,
}

impl Registry {
    /// Waits for other commands to finish, at most `patience`.
    pub fn open(patience: Duration) -> Result<Self> {
        file("making", Path::new(RECORDS), fs::create_dir_all(RECORDS))?;
        let path = Path::new(RECORDS).join("lock");
        let start = Instant::now();
        loop {
            if let Some(mut lock) = lock(&path, FlockArg::LockExclusiveNonblock)? {
                // For the message below.
                let note = lock.set_len(0).and_then(|()| write!(lock, "{}", process::id()));
                file("writing", &path, note)?;
                return Ok(Self { _lock: lock });
            }
            if start.elapsed() >= patience {
                let holder = fs::read_to_string(&path).unwrap_or_default();
                return Err(RegistryError::Busy { holder });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// All records. A directory without a record is a command that was killed before it made anything:
    /// it is removed.
    pub fn records(&self) -> Result<Vec<Record>> {
        records()
    }
}

/// All records, without the lock: for reports.
pub fn records() -> Result<Vec<Record>> {
    let directory = Path::new(RECORDS);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return file("reading", directory, Err(error)),
    };
    let mut records = Vec::new();
    for entry in entries {
        let entry = file("reading", directory, entry)?;
        if entry.path().is_dir()
            && let Some(record) = Record::read(&entry.file_name().to_string_lossy())?
        {
            records.push(record);
        }
    }
    records.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(records)
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use nix::fcntl::FlockArg;

    use super::{Result, is_locked, lock, remove_directory};

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
                        && let Ok(_lock) = lock(&owner, FlockArg::LockExclusiveNonblock)
                    {
                        remove_directory(&place)?;
                    }
                }
                Ok(())
            });
            while !owns.is_finished() {
                if !is_locked(&owner)? {
                    remove_directory(&place)?;
                }
            }
            owns.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        remove_directory(&place)
    }
}
