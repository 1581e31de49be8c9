//! Who follows containers: a process that emulates nothing itself, and has one emulation per container made by others.
//!
//! ```text
//! /run/perturb/follower-PID        locked as long as it lives
//! /run/perturb/follower-PID.json   what it follows
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use perturb_containers::is_called;
use serde::{Deserialize, Serialize};

use super::{Presence, Process, Registry, RegistryError, Result, file, lock, place};

/// How its files begin.
const FOLLOWER: &str = "follower-";

/// The container that an interface belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contained {
    /// Its name.
    pub name: String,
    /// The engine's number for it.
    pub id: String,
    /// What was said on the command line that means it: `db`, `label=app=db`, `compose=shop`.
    pub chosen_by: Vec<String>,
}

impl Contained {
    /// Whether a word of the command line means it.
    #[must_use]
    pub fn is_meant(&self, word: &str) -> bool {
        is_called(word, &self.name, &self.id) || self.chosen_by.iter().any(|chosen| chosen == word)
    }
}

/// A process that follows containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follower {
    /// Which.
    pub process: Process,
    /// What it follows, as [`Contained::chosen_by`].
    pub follows: Vec<String>,
    /// Whether all that ran when it began is emulated.
    pub ready: bool,
}

/// A follower's lock and record. Dropping it removes both.
#[derive(Debug)]
pub struct Following {
    path: PathBuf,
    follower: Follower,
    _lock: lock::Lock,
}

impl Following {
    /// This process follows containers from now on.
    pub fn begin(registry: &Registry, follows: Vec<String>) -> Result<Self> {
        let process = Process::current().map_err(|source| RegistryError::Process {
            pid: std::process::id(),
            source,
        })?;
        let path = registry.root().join(format!("{FOLLOWER}{}", process.pid));
        let Some(lock) = lock::take(&path)? else {
            let holders = lock::holders(&path);
            return Err(RegistryError::Busy { path, holders });
        };
        let follower = Follower {
            process,
            follows,
            ready: false,
        };
        let following = Self {
            path,
            follower,
            _lock: lock,
        };
        following.write()?;
        Ok(following)
    }

    /// All that runs is emulated.
    pub fn ready(&mut self) -> Result<()> {
        self.follower.ready = true;
        self.write()
    }

    fn write(&self) -> Result<()> {
        let path = record(&self.path);
        let text = serde_json::to_vec_pretty(&self.follower).map_err(|source| RegistryError::Unwritable {
            path: path.clone(),
            source,
        })?;
        file("writing", &path, lock::replace(&path, &text))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // What stays is removed by the next command.
        let _ = fs::remove_file(record(&self.path));
        let _ = fs::remove_file(&self.path);
    }
}

fn record(lock: &Path) -> PathBuf {
    lock.with_extension("json")
}

impl Follower {
    fn lock(&self, root: &Path) -> PathBuf {
        root.join(format!("{FOLLOWER}{}", self.process.pid))
    }

    /// Whether it still lives.
    pub fn lives(&self) -> Result<bool> {
        let taken = lock::is_taken(&self.lock(place()))?;
        Ok(taken && !matches!(self.presence()?, Presence::Gone))
    }

    /// Its process.
    pub fn presence(&self) -> Result<Presence> {
        self.process.find().map_err(|source| RegistryError::Process {
            pid: self.process.pid,
            source,
        })
    }
}

/// All followers that live; without the registry's lock: for reports.
pub fn followers() -> Result<Vec<Follower>> {
    below(place())
}

/// Removes what those have left that live no more.
pub(crate) fn sweep(registry: &Registry) -> Result<()> {
    let root = registry.root();
    for path in files(root)? {
        let lock = path.with_extension("");
        if !lock::is_taken(&lock)? {
            for path in [&path, &lock] {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return file("removing", path, Err(error));
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

fn files(root: &Path) -> Result<Vec<PathBuf>> {
    file("reading", root, lock::admit_directory(root))?;
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return file("reading", root, Err(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = file("reading", root, entry)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(FOLLOWER) && path.extension().is_some_and(|end| end == "json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn below(root: &Path) -> Result<Vec<Follower>> {
    let mut found = Vec::new();
    for path in files(root)? {
        if !lock::is_taken(&path.with_extension(""))? {
            continue;
        }
        match fs::read(&path) {
            // One of another version is its own affair.
            Ok(text) => found.extend(serde_json::from_slice::<Follower>(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return file("reading", &path, Err(error)),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::{Contained, Following, Registry, below, sweep};

    type Tested = Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn who_lives_is_known_and_who_was_killed_is_swept() -> Tested {
        let place = tempfile::tempdir()?;
        let registry = Registry::at(place.path(), Duration::ZERO)?;
        let mut following = Following::begin(&registry, vec!["label=app".into()])?;
        assert!(!below(place.path())?[0].ready);
        following.ready()?;
        sweep(&registry)?;
        let found = below(place.path())?;
        assert!(found[0].ready && found[0].follows == ["label=app"]);
        // The files of a process that was killed.
        for name in ["follower-1", "follower-1.json"] {
            fs::write(place.path().join(name), "{}")?;
        }
        assert_eq!(below(place.path())?.len(), 1);
        sweep(&registry)?;
        assert!(!place.path().join("follower-1").exists() && !place.path().join("follower-1.json").exists());
        drop(following);
        let left: Vec<_> = fs::read_dir(place.path())?.collect::<Result<_, _>>()?;
        assert_eq!(left.len(), 1, "{left:?}");
        Ok(())
    }

    #[test]
    fn which_container_is_meant() {
        let db = Contained {
            name: "db".into(),
            id: "0123456789abcdef".into(),
            chosen_by: vec!["label=app=db".into()],
        };
        assert!(db.is_meant("db") && db.is_meant("label=app=db") && !db.is_meant("label=app"));
        assert!(db.is_meant("0123456789ab") && !db.is_meant("0123456789"));
    }
}
