//! All that is recorded on this machine. A record that this perturb cannot read, say one that was written before an upgrade,
//! stands in the way of those commands only that its emulation concerns.

use std::{fs, io, path::Path};

use serde::Deserialize;

use super::{PRIVATE, RECORD_FILE, Record, RegistryError, Result, file, lock::admit_directory, place};
use crate::told::Told;

/// All records.
#[derive(Debug, Default)]
pub struct Recorded {
    /// Those that can be read.
    pub records: Vec<Record>,
    /// The others, whose emulations may be in force.
    pub unreadable: Vec<Unreadable>,
}

impl Recorded {
    /// Those that can be read; of the others is warned, unless that was done before.
    #[must_use]
    pub fn or_warn(self, told: &mut Told) -> Vec<Record> {
        for Unreadable { error, .. } in &self.unreadable {
            if told.is_news(&error.to_string()) {
                log::warn!("{error}");
            }
        }
        self.records
    }

    fn below(directory: &Path) -> Result<Self> {
        let mut found = Self::default();
        file("reading", directory, admit_directory(directory))?;
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return file("reading", directory, Err(error)),
        };
        for entry in entries {
            let path = file("reading", directory, entry)?.path();
            if !path.is_dir() {
                continue;
            }
            match Record::read_at(&path) {
                Ok(record) => found.records.extend(record),
                Err(error @ (RegistryError::Damaged { .. } | RegistryError::OtherVersion { .. })) => {
                    found.unreadable.push(Unreadable::new(&path, error));
                }
                Err(error) => return Err(error),
            }
        }
        found.records.sort_by(|a, b| a.id.cmp(&b.id));
        found.unreadable.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }
}

/// A record of another version of perturb, or a damaged one.
#[derive(Debug)]
pub struct Unreadable {
    /// Its name in the registry.
    pub id: String,
    /// What to do about it.
    pub error: RegistryError,
    /// What it emulates, if it says so.
    interfaces: Option<Vec<Interface>>,
}

/// What every version says of an interface.
#[derive(Debug, Deserialize)]
struct Interface {
    name: String,
    index: u32,
    namespace: u64,
}

impl Unreadable {
    fn new(directory: &Path, error: RegistryError) -> Self {
        #[derive(Deserialize)]
        struct Form {
            interfaces: Vec<Interface>,
        }
        let text = fs::read(directory.join(RECORD_FILE)).unwrap_or_default();
        Self {
            id: directory
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            error,
            interfaces: serde_json::from_slice(&text)
                .ok()
                .map(|Form { interfaces }| interfaces),
        }
    }

    /// Whether it is one of private hosts.
    #[must_use]
    pub fn has_private_hosts(&self) -> bool {
        self.id.starts_with(PRIVATE)
    }

    /// Whether it may emulate such an interface of a namespace, by name and index.
    #[must_use]
    pub fn may_have(&self, namespace: u64, chosen: impl Fn(&str, u32) -> bool) -> bool {
        let is_chosen = |interface: &Interface| {
            interface.namespace == namespace && chosen(&interface.name, interface.index)
        };
        let has = |interfaces: &Vec<Interface>| interfaces.iter().any(is_chosen);
        !self.has_private_hosts() && self.interfaces.as_ref().is_none_or(has)
    }
}

/// All records; without the registry's lock: for reports.
pub fn records() -> Result<Recorded> {
    Recorded::below(place())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{RECORD_FILE, Recorded};

    /// Each stands in the way of its own interfaces; one that does not say which, of all.
    #[test]
    fn records_of_others_concern_their_interfaces() -> Result<(), Box<dyn std::error::Error>> {
        let place = tempfile::tempdir()?;
        let older =
            r#"{ "format": 1, "interfaces": [{ "name": "eth1", "index": 3, "namespace": 7, "more": [] }] }"#;
        for (id, text) in [
            ("7-3", older),
            ("7-4", r#"{ "format": 2, "id": "7"#),
            ("run-5", r#"{ "format": 99, "id": "run-5" }"#),
        ] {
            let own = place.path().join(id);
            fs::create_dir(&own)?;
            fs::write(own.join(RECORD_FILE), text)?;
        }
        // A command that was killed before it made anything.
        fs::create_dir(place.path().join("7-9"))?;
        let found = Recorded::below(place.path())?;
        assert!(found.records.is_empty());
        let may_have = |namespace: u64, wanted: &str| -> Vec<String> {
            let has = |name: &str, _| name == wanted;
            let found = found.unreadable.iter();
            found
                .filter(|record| record.may_have(namespace, has))
                .map(|record| record.id.clone())
                .collect()
        };
        assert_eq!(may_have(7, "eth1"), ["7-3", "7-4"]);
        assert_eq!(may_have(7, "eth0"), ["7-4"]);
        assert_eq!(may_have(8, "eth1"), ["7-4"]);
        assert_eq!(found.unreadable.len(), 3);
        assert!(Recorded::below(&place.path().join("none"))?.unreadable.is_empty());
        Ok(())
    }
}
