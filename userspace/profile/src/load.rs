//! Reads a profile and the jitter tables it names from files, or by its name. The only module that touches a file.

use std::collections::hash_map::Entry;
use std::io;
use std::path::{Path, PathBuf};

use crate::compile::{Files, MAX_TABLE_ENTRIES};
use crate::diagnostic::Diagnostics;
use crate::groups::Matrix;
use crate::model::{Between, Distribution, Name, Profile, Server, Slot};
use crate::own;
use crate::read::groups::Reading;
use crate::read::profile::parse_with;
use crate::recording::{self, RecordingError};
use crate::regions::{self, Regions};
use crate::timeline::Trace;

/// A profile with the tables it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The profile.
    pub profile: Profile,
    /// Its jitter tables.
    pub files: Files,
}

/// Why a profile could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file could not be read.
    #[error("{}: cannot be read: {error}; name an existing file, in UTF-8", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Neither a file nor one of perturb's own.
    #[error(
        "there is no file `{name}`, nor has perturb a profile of that name{}; it has {}",
        perturb_quantity::closest(.name, own::names()).map_or(String::new(), |meant| format!(" (did you mean `{meant}`?)")),
        own::names().collect::<Vec<_>>().join(", ")
    )]
    Unknown {
        /// The name.
        name: String,
    },
    /// Neither a file nor a matrix of perturb's own.
    #[error(
        "there is no file `{name}`, nor has perturb a matrix of that name{}; it has {}",
        perturb_quantity::closest(.name, own::matrices()).map_or(String::new(), |meant| format!(" (did you mean `{meant}`?)")),
        own::matrices().collect::<Vec<_>>().join(", ")
    )]
    NoMatrix {
        /// The name.
        name: String,
    },
    /// The profile or a matrix has errors.
    #[error(transparent)]
    Invalid(#[from] Diagnostics),
    /// A jitter table has an entry that is no 16-bit integer.
    #[error(
        "{}:{line}: `{text}` is not a whole number from -32768 to 32767, which the jitter table of server `{server}` \
         consists of; 8192 stands for one scale", .path.display()
    )]
    BadEntry {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The entry.
        text: String,
        /// The server whose jitter it is.
        server: Name,
    },
    /// A trace has a mistake.
    #[error("{}:{error}", .path.display())]
    BadTrace {
        /// The file.
        path: PathBuf,
        /// The mistake, with its place.
        error: RecordingError,
    },
    /// A jitter table of a wrong length.
    #[error("{}: has {count} entries; the jitter table of server `{server}` needs 1 to {max}", .path.display())]
    TableLength {
        /// The file.
        path: PathBuf,
        /// Its entries.
        count: usize,
        /// The most there may be.
        max: usize,
        /// The server whose jitter it is.
        server: Name,
    },
}

/// Loads the profile at `path`; the tables it names are relative to it. A word that is no file is the name of one of perturb's own:
/// `mobile-lte`.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    load_for(path, Whose::Machine)
}

/// Who has a profile in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// This machine, and perhaps others.
    Machine,
    /// All hosts: none emulates for another one.
    Everyone,
}

/// The same, for a machine or for all hosts.
pub fn load_for(path: &Path, whose: Whose) -> Result<Loaded, LoadError> {
    let name = name_of_own(path).filter(|_| !path.exists());
    let text = match name {
        Some(name) => own::profile(name)
            .ok_or_else(|| LoadError::Unknown {
                name: name.to_owned(),
            })?
            .to_owned(),
        None => text_of(path)?,
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let beside = name.is_none().then_some(directory);
    let profile = of_text(&text, &path.display().to_string(), beside, whose)?;
    let files = match name {
        Some(_) => files_by(&profile, |file| {
            let text = own::file(file).map(str::to_owned);
            (file.into(), text.map_or_else(|| text_of(Path::new(file)), Ok))
        }),
        None => files(&profile, directory),
    }?;
    Ok(Loaded { profile, files })
}

/// The profile of a text; a matrix is beside it, or one of perturb's own as the profile is.
fn of_text(text: &str, source: &str, directory: Option<&Path>, whose: Whose) -> Result<Profile, LoadError> {
    let mut failed = None;
    let mut table = |matrix: &Matrix| match regions_of(matrix, directory) {
        Ok(regions) => Some(regions),
        Err(error) => {
            failed = Some(error);
            None
        }
    };
    let profile = parse_with(
        text,
        &mut Reading {
            tables: &mut table,
            everyone: whose == Whose::Everyone,
        },
    );
    let profile = profile.map_err(|errors| errors.of_source(source))?;
    failed.map_or(Ok(profile), Err)
}

/// The table of a matrix; a word that is no file is the name of one of perturb's own.
fn regions_of(matrix: &Matrix, directory: Option<&Path>) -> Result<Regions, LoadError> {
    let path = directory.unwrap_or(Path::new("")).join(&matrix.file);
    let of_own = directory.is_none().then(|| own::file(&matrix.file)).flatten();
    let word = name_of_own(Path::new(&matrix.file)).filter(|_| directory.is_none() || !path.exists());
    let text = match (of_own, word) {
        (Some(text), _) => text.to_owned(),
        (None, Some(name)) => own::matrix(name)
            .ok_or_else(|| LoadError::NoMatrix {
                name: name.to_owned(),
            })?
            .to_owned(),
        (None, None) => text_of(&path)?,
    };
    let regions = regions::read(&text).map_err(|errors| errors.of_source(path.display().to_string()))?;
    Ok(if matrix.round_trip {
        regions.halved()
    } else {
        regions
    })
}

/// What may be the name of one of perturb's own: a word.
fn name_of_own(path: &Path) -> Option<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    path.to_str()
        .filter(|name| !name.is_empty() && name.chars().all(is_part))
}

impl Server {
    /// Names its files, which are relative to `directory`, so that they are found from anywhere.
    ///
    /// # Errors
    /// When the current directory is not known.
    pub fn anchor(&mut self, directory: &Path) -> io::Result<()> {
        let directory = std::path::absolute(directory)?;
        for file in self.files_mut() {
            *file = directory.join(&*file).to_string_lossy().into_owned();
        }
        Ok(())
    }

    /// The names of its files.
    pub(crate) fn files_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let jitter = self.jitter.as_mut().map(|jitter| &mut jitter.distribution);
        let slot = self.slot.as_mut().and_then(|slot| match &mut slot.between {
            Between::Drawn { distribution, .. } => Some(distribution),
            Between::Range(..) => None,
        });
        let table = jitter
            .into_iter()
            .chain(slot)
            .filter_map(|distribution| match distribution {
                Distribution::Table(file) => Some(file),
                _ => None,
            });
        table.chain(self.trace.as_mut().map(|trace| &mut trace.file))
    }
}

/// Reads the jitter tables and traces that `profile` names, relative to `directory`.
pub fn files(profile: &Profile, directory: &Path) -> Result<Files, LoadError> {
    let files = files_by(profile, |file| {
        let path = directory.join(file);
        let text = text_of(&path);
        (path, text)
    })?;
    Ok(Files {
        directory: std::path::absolute(directory).ok(),
        ..files
    })
}

/// The same; `text` has a file's path, for messages, and its text.
fn files_by(
    profile: &Profile,
    text: impl Fn(&str) -> (PathBuf, Result<String, LoadError>),
) -> Result<Files, LoadError> {
    let mut files = Files::default();
    for (server, spec) in &profile.servers {
        let jitter = spec.jitter.as_ref().map(|jitter| &jitter.distribution);
        let slot = spec.slot.as_ref().and_then(Slot::distribution);
        for distribution in jitter.into_iter().chain(slot) {
            if let Distribution::Table(file) = distribution
                && !files.jitter.contains_key(file)
            {
                let (path, text) = text(file);
                files.jitter.insert(file.clone(), table(server, &path, &text?)?);
            }
        }
        if let Some(Trace { file, format, .. }) = &spec.trace {
            let key = (file.clone(), *format);
            if let Entry::Vacant(vacant) = files.traces.entry(key) {
                let (path, text) = text(file);
                let recording =
                    recording::read(&text?, *format).map_err(|error| LoadError::BadTrace { path, error })?;
                vacant.insert(recording.into());
            }
        }
    }
    Ok(files)
}

pub(crate) fn text_of(path: &Path) -> Result<String, LoadError> {
    std::fs::read_to_string(path).map_err(|error| LoadError::Unreadable {
        path: path.to_owned(),
        error,
    })
}

/// iproute2's .dist format: integers between white space, `#` to the end of a line is a comment.
fn table(server: &Name, path: &Path, text: &str) -> Result<Vec<i16>, LoadError> {
    let mut values = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        for word in text.split('#').next().unwrap_or("").split_whitespace() {
            let value = word.parse().map_err(|_| LoadError::BadEntry {
                path: path.to_owned(),
                line,
                text: word.chars().take(40).collect(),
                server: server.clone(),
            })?;
            values.push(value);
        }
    }
    let count = values.len();
    if count == 0 || count > MAX_TABLE_ENTRIES {
        let (path, server) = (path.to_owned(), server.clone());
        return Err(LoadError::TableLength {
            path,
            count,
            max: MAX_TABLE_ENTRIES,
            server,
        });
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_table(table: &str) -> Result<Loaded, LoadError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("profile.yaml");
        std::fs::write(directory.path().join("a.dist"), table).unwrap();
        let text = "version: 1\nlatency: 5ms\njitter: { distribution: table, scale: 1ms, table: a.dist }\n";
        std::fs::write(&path, text).unwrap();
        load(&path)
    }

    #[test]
    fn tables_are_found_beside_the_profile() {
        let loaded = with_table("# comment\n -8192 0 # more\n8192\n").unwrap();
        assert_eq!(loaded.files.jitter["a.dist"], [-8192, 0, 8192]);
    }

    #[test]
    fn bad_tables_are_refused_with_their_place() {
        let message = |table: &str| with_table(table).unwrap_err().to_string();
        assert!(message("1 2\n3 40000\n").contains("a.dist:2: `40000`"));
        assert!(message("# nothing\n").contains("has 0 entries"));
        assert!(message(&"1 ".repeat(16_385)).contains("has 16385 entries"));
        let missing = load(Path::new("/nowhere/profile.yaml")).unwrap_err().to_string();
        assert!(
            missing.starts_with("/nowhere/profile.yaml: cannot be read"),
            "{missing}"
        );
    }

    #[test]
    fn a_word_is_the_name_of_a_profile() {
        for name in own::names() {
            let loaded = load(Path::new(name)).unwrap();
            assert_eq!(
                loaded.profile.name.map(|name| name.to_string()).as_deref(),
                Some(name)
            );
        }
        let unknown = load(Path::new("mobile-lt")).unwrap_err().to_string();
        assert!(
            unknown.contains("no file `mobile-lt`") && unknown.contains("did you mean `mobile-lte`?"),
            "{unknown}"
        );
        let path = load(Path::new("./mobile-lte")).unwrap_err().to_string();
        assert!(path.starts_with("./mobile-lte: cannot be read"), "{path}");
    }
}
