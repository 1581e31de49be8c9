//! What is applied on this machine: one record per emulation, written before its first device, so that the next command can clear it.
//!
//! ```text
//! /run/perturb/changes         locked by a command that changes the registry
//! /run/perturb/ID/record.json  what it is
//! /run/perturb/ID/owner        locked by the controller as long as it lives
//! /run/perturb/ID/api          the socket of its API (perturb-serve)
//! /run/perturb/ID/requests     locked by whoever reads its log of requests
//! /run/perturb/ID/sightings    locked by whoever captures its packets
//! /run/perturb/follower-PID    locked by who follows containers, with what it follows beside it
//! /run/perturb/NAME            a setting of the machine as it was before the first emulation raised it
//! /run/perturb/raised.lock     locked by who raises one or puts it back
//! ```
//!
//! Only the user who makes it (root, or one with a [place] of their own) may enter it: whoever could open a lock could keep every
//! other command waiting. Nothing is pinned: maps live as long as the controller, and other commands reach them by the kernel's
//! numbers. A bpffs would not do: `ip netns exec` gives each command its own.

pub mod followers;
mod lock;
mod place;
mod process;
pub mod raised;
mod recorded;
pub mod terms;

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

pub use followers::Contained;
pub use lock::Lock;
use perturb_dataplane::{loopback::Setting, maps::MapIds};
pub use place::{believed, is_in_own_namespace, place};
pub use process::{Handle, Presence, Process};
pub use recorded::{Recorded, Unreadable, records};
use serde::{Deserialize, Serialize};

use self::terms::Terms;
pub use crate::tables::InForce;

/// Where emulations are recorded: gone after a reboot, as they are.
pub const RECORDS: &str = "/run/perturb";
/// Locked by the process that keeps an emulation up, in the directory of its record.
const OWNER: &str = "owner";
/// A record, in its directory.
const RECORD_FILE: &str = "record.json";

/// How the names of emulations of private hosts begin.
const PRIVATE: &str = "run-";

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
    #[error("{}", busy(path, holders))]
    Busy {
        /// The lock.
        path: PathBuf,
        /// The processes that hold it, as far as this one can see them: `PID (command)`.
        holders: Vec<String>,
    },
    /// A process.
    #[error("looking for process {pid}: {source}")]
    Process {
        /// Its number.
        pid: u32,
        /// Why it cannot be looked for.
        source: io::Error,
    },
    /// A record that cannot be read.
    #[error("{}", unreadable(directory, holders, &format!("is damaged ({source})")))]
    Damaged {
        /// Its directory.
        directory: PathBuf,
        /// The processes that keep its emulation up.
        holders: Vec<String>,
        /// Why.
        source: serde_json::Error,
    },
    /// A record that another perturb has written.
    #[error("{}", unreadable(directory, holders, "is of another version of perturb"))]
    OtherVersion {
        /// Its directory.
        directory: PathBuf,
        /// The processes that keep its emulation up.
        holders: Vec<String>,
    },
    /// A record that cannot be written as text.
    #[error("writing the record {path}: {source}")]
    Unwritable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

/// What to do about a record that cannot be read, whose emulation some processes keep up.
fn unreadable(directory: &Path, holders: &[String], what: &str) -> String {
    let id = directory.file_name().unwrap_or_default().display();
    let directory = directory.display();
    if holders.is_empty() {
        return format!(
            "the record {directory}/{RECORD_FILE} {what}, and no process that this one can see keeps its emulation up: \
             delete {directory}, and the devices that `ip link` shows with the alias \"perturb {id}\""
        );
    }
    format!(
        "the record {directory}/{RECORD_FILE} {what}, and process {} keeps its emulation up: end that process with SIGTERM, \
         and it cleans up",
        holders.join(", ")
    )
}

type Result<T> = std::result::Result<T, RegistryError>;

fn busy(path: &Path, holders: &[String]) -> String {
    let path = path.display();
    if holders.is_empty() {
        return format!(
            "a process that this one cannot see holds {path}, the lock of those who change what is applied, and does \
             not let go; it may run in another container: look for it there"
        );
    }
    format!(
        "process {} holds {path}, the lock of those who change what is applied, and does not let go; if it hangs, end \
         it: the next command cleans up",
        holders.join(", ")
    )
}

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
    /// The private host that has it: h1, h2, …
    #[serde(default)]
    pub host: Option<String>,
    /// The container that has it.
    #[serde(default)]
    pub container: Option<Contained>,
    /// Inode of its network namespace.
    pub namespace: u64,
    /// Devices that were made for it, by name.
    pub devices: Vec<String>,
    /// Whether its clsact qdisc was made for the emulation.
    pub made_clsact: bool,
    /// Settings of lo that are changed for the emulation, as they were before.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// Whether it is gone, and waited for.
    #[serde(default)]
    pub lost: bool,
}

/// The form of [`Record`]s. Another version of perturb that may still emulate has another one.
pub const FORMAT: u32 = 2;

/// What is known of an emulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// Its name in the registry; its devices carry it as alias.
    pub id: String,
    /// Process that made it.
    pub process: Process,
    /// `fq` or `user`.
    pub pacer: String,
    /// Whether it emulates already.
    pub ready: bool,
    /// The interfaces.
    pub interfaces: Vec<InterfaceRecord>,
    /// What its profile determines.
    #[serde(flatten)]
    pub in_force: InForce,
    /// The maps.
    pub maps: MapIds,
    /// When it began, seconds since 1970.
    pub since: u64,
    /// How many times the profile was changed since.
    pub updates: u32,
    /// How long before a departure the user pacer polls, ns.
    #[serde(default)]
    pub spin: u64,
    /// Whether no terminal and no session waits for its process.
    #[serde(default)]
    pub detached: bool,
    /// What its controller goes by.
    #[serde(default)]
    pub terms: Terms,
    /// Where it is recorded: [`RECORDS`].
    #[serde(skip, default = "of_this_machine")]
    pub(crate) root: PathBuf,
}

fn of_this_machine() -> PathBuf {
    place().into()
}

impl Record {
    /// Its interfaces, for people.
    #[must_use]
    pub fn place(&self) -> String {
        let names = self.interfaces.iter().map(|interface| {
            let container = interface.container.as_ref().map(|container| &container.name);
            match interface.host.as_ref().or(container) {
                Some(host) => format!("{host}:{}", interface.name),
                None => interface.name.clone(),
            }
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// Its directory of records.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.root.join(&self.id)
    }

    /// The name of the emulation of this process's private hosts.
    #[must_use]
    pub fn of_private_hosts() -> String {
        format!("{PRIVATE}{}", std::process::id())
    }

    /// Whether it is one of private hosts, which nobody else's traffic crosses; otherwise `apply` made it.
    #[must_use]
    pub fn has_private_hosts(&self) -> bool {
        self.id.starts_with(PRIVATE)
    }

    /// The alias of its devices.
    #[must_use]
    pub fn alias(id: &str) -> String {
        format!("perturb {id}")
    }

    /// Writes it, whole or not at all.
    pub fn write(&self) -> Result<()> {
        let directory = self.directory();
        lock::private_directory(&self.root)?;
        lock::private_directory(&directory)?;
        let path = directory.join(RECORD_FILE);
        let fresh = directory.join("record.json.new");
        let text = serde_json::to_vec_pretty(self).map_err(|source| RegistryError::Unwritable {
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

    /// Writes it for the first time, and claims it for this process.
    pub fn begin(&self) -> Result<Claim> {
        let directory = self.directory();
        lock::private_directory(&self.root)?;
        lock::private_directory(&directory)?;
        let path = directory.join(OWNER);
        let Some(owner) = lock::take(&path)? else {
            let holders = lock::holders(&path);
            return Err(RegistryError::Busy { path, holders });
        };
        let claim = Claim {
            root: self.root.clone(),
            directory: Some(directory),
            _owner: owner,
        };
        self.write()?;
        Ok(claim)
    }

    /// Removes it; with the last one, what all emulations of this machine share is put back.
    pub fn remove(&self) -> Result<()> {
        remove(&self.root, &self.directory())
    }

    /// Claims its log of requests, which has one reader at a time; `None` if another process reads it.
    pub fn claim_requests(&self) -> Result<Option<Lock>> {
        lock::take(&self.directory().join("requests"))
    }

    /// Claims what is seen of its packets, in the same way.
    pub fn claim_sightings(&self) -> Result<Option<Lock>> {
        lock::take(&self.directory().join("sightings"))
    }

    /// Whether the process that made it still runs: it holds the lock as long as it lives. Who else holds it is not the
    /// owner.
    pub fn has_owner(&self) -> Result<bool> {
        Ok(lock::is_taken(&self.directory().join(OWNER))? && !matches!(self.owner()?, Presence::Gone))
    }

    /// The process that made it.
    pub fn owner(&self) -> Result<Presence> {
        self.process.find().map_err(|source| RegistryError::Process {
            pid: self.process.pid,
            source,
        })
    }

    /// The record as it is now on disk.
    pub fn again(&self) -> Result<Option<Self>> {
        let read = Self::read_at(&self.directory())?;
        Ok(read.map(|read| Self {
            root: self.root.clone(),
            ..read
        }))
    }

    /// The record of a directory, if it has one.
    fn read_at(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(RECORD_FILE);
        match fs::read(&path) {
            Ok(text) => Self::parse(&text, directory).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => file("reading", &path, Err(error)),
        }
    }

    /// The record that was found in a directory.
    fn parse(text: &[u8], directory: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Form {
            #[serde(default)]
            format: u32,
        }
        // Other versions have other kinds of locks.
        let holders = || lock::openers(&directory.join(OWNER));
        let damaged = |source| RegistryError::Damaged {
            directory: directory.into(),
            holders: holders(),
            source,
        };
        let Form { format } = serde_json::from_slice(text).map_err(damaged)?;
        if format != FORMAT {
            return Err(RegistryError::OtherVersion {
                directory: directory.into(),
                holders: holders(),
            });
        }
        serde_json::from_slice(text).map_err(damaged)
    }
}

/// The record of an emulation that this process keeps up, and the lock that says so. Dropping it removes the record.
#[derive(Debug)]
pub struct Claim {
    root: PathBuf,
    directory: Option<PathBuf>,
    _owner: Lock,
}

impl Claim {
    /// Removes the record.
    pub fn end(mut self) -> Result<()> {
        self.directory
            .take()
            .map_or(Ok(()), |directory| remove(&self.root, &directory))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(directory) = self.directory.take()
            && let Err(error) = remove(&self.root, &directory)
        {
            log::error!("{error}; the next command that needs root tries again");
        }
    }
}

fn remove(root: &Path, directory: &Path) -> Result<()> {
    remove_directory(directory)?;
    raised::restore(root)
}

/// Removes the directory of a record, which its owner may be removing, too, or making again.
pub fn remove_directory(path: &Path) -> Result<()> {
    const TURNS: u32 = 100;
    let meets_another = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
        )
    };
    for _ in 1..TURNS {
        match fs::remove_dir_all(path) {
            Err(error) if meets_another(&error) => {
                if !path.exists() {
                    return Ok(());
                }
            }
            done => return file("removing", path, done),
        }
    }
    file("removing", path, fs::remove_dir_all(path))
}

/// The registry, locked against other commands.
#[derive(Debug)]
pub struct Registry {
    root: PathBuf,
    _lock: Lock,
}

impl Registry {
    /// Waits for other commands to finish, at most `patience`.
    pub fn open(patience: Duration) -> Result<Self> {
        Self::at(place(), patience)
    }

    /// The registry of a directory.
    pub(crate) fn at(root: &Path, patience: Duration) -> Result<Self> {
        lock::private_directory(root)?;
        Ok(Self {
            root: root.into(),
            _lock: lock::wait(&root.join("changes"), patience)?,
        })
    }

    /// Its directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// All records.
    pub fn records(&self) -> Result<Recorded> {
        records()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::{OWNER, Record};

    /// What an older perturb wrote, and what nobody wrote: each is told from the other, and who keeps it up is named.
    #[test]
    fn records_that_cannot_be_read() -> Result<(), Box<dyn std::error::Error>> {
        let place = tempfile::tempdir()?;
        let owner = place.path().join(OWNER);
        fs::write(&owner, "")?;
        let older = r#"{ "id": "4026531840-2", "pid": 4711, "pacer": "fq" }"#;
        let newer = r#"{ "format": 99, "id": "4026531840-2" }"#;
        let broken = r#"{ "format": 2, "id": "4026"#;
        let lacking = r#"{ "format": 2, "id": "4026531840-2" }"#;
        for (text, word) in [
            (older, "another version"),
            (newer, "another version"),
            (broken, "damaged"),
            (lacking, "damaged"),
        ] {
            let said = || match Record::parse(text.as_bytes(), place.path()) {
                Ok(record) => format!("{record:?}"),
                Err(error) => error.to_string(),
            };
            let gone = said();
            assert!(gone.contains(word) && gone.contains("delete"), "{text}: {gone}");
            let _open = File::open(&owner)?;
            let alive = said();
            let process = format!("process {} (", std::process::id());
            assert!(
                alive.contains(&process) && alive.contains("SIGTERM"),
                "{text}: {alive}"
            );
        }
        Ok(())
    }
}
