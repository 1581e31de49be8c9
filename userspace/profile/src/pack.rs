//! A profile with the files that it names, as one message to another machine.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::load::{LoadError, Loaded, text_of};
use crate::{own, parse, timeline::Start};

/// A profile and its files, by the names that it has for them. A matrix is gone: its pairs are in the profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packed {
    profile: String,
    files: BTreeMap<String, String>,
}

/// Where a packed profile lies; it goes when this is dropped.
#[derive(Debug)]
pub struct Unpacked(TempDir);

impl Loaded {
    /// Packs it.
    ///
    /// # Errors
    /// When a file cannot be read any more.
    pub fn packed(&self) -> Result<Packed, LoadError> {
        let mut profile = self.profile.clone();
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        let mut files = BTreeMap::new();
        for (_, server) in &mut profile.servers {
            for file in server.files_mut() {
                if let Some(name) = names.get(file) {
                    file.clone_from(name);
                    continue;
                }
                let text = match &self.files.directory {
                    Some(directory) => text_of(&directory.join(&*file))?,
                    None => match own::file(file) {
                        Some(text) => text.to_owned(),
                        None => text_of(Path::new(&*file))?,
                    },
                };
                // Its ending says what it is.
                let ending = Path::new(&*file).extension().unwrap_or_default();
                let name = format!("file-{}.{}", names.len() + 1, ending.to_string_lossy());
                names.insert(file.clone(), name.clone());
                files.insert(name.clone(), text);
                *file = name;
            }
        }
        Ok(Packed {
            profile: profile.to_string(),
            files,
        })
    }
}

impl Packed {
    /// The same, with timelines that begin at this instant, ns since 1970.
    #[must_use]
    pub fn starting(&self, start: u64) -> Self {
        let mut packed = self.clone();
        // It is a profile that was printed.
        if let Ok(mut profile) = parse(&self.profile) {
            profile.timeline.start = Start::At(start);
            packed.profile = profile.to_string();
        }
        packed
    }

    /// Writes it into a temporary directory.
    ///
    /// # Errors
    /// When that cannot be written, or a file would lie elsewhere.
    pub fn unpack(&self) -> io::Result<Unpacked> {
        let directory = tempfile::Builder::new().prefix("perturb-profile-").tempdir()?;
        for (name, text) in &self.files {
            if name.contains('/') {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, name.clone()));
            }
            fs::write(directory.path().join(name), text)?;
        }
        let unpacked = Unpacked(directory);
        fs::write(unpacked.profile(), &self.profile)?;
        Ok(unpacked)
    }
}

impl Unpacked {
    /// The profile.
    #[must_use]
    pub fn profile(&self) -> PathBuf {
        self.0.path().join("profile.yaml")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::load;

    /// What it says, whatever its files are called.
    fn meaning(loaded: &Loaded) -> String {
        crate::explain(&loaded.profile, &loaded.files).to_string()
    }

    #[test]
    fn what_is_unpacked_means_the_same() {
        let here = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(here.path().join(name), text).unwrap();
        fs::create_dir(here.path().join("sub")).unwrap();
        write("sub/a.dist", "-8192 0 8192");
        write("t.csv", "time [s],latency [ms]\n0,1\n1,5\n");
        write("regions.csv", "from,to,latency [ms]\na,b,30\nb,a,50\n");
        write(
            "traced.yaml",
            "version: 1\nservers:\n  up: { trace: { file: t.csv }, jitter: { distribution: table, scale: 1ms, table: sub/a.dist } }\n  \
             down: { trace: { file: t.csv } }\nclasses: [{ match: {}, egress: [up], ingress: [down] }]\n",
        );
        write(
            "matrix.yaml",
            "version: 1\ngroups: { a: { prefix: 10.0.0.0/24 }, b: { prefix: 10.0.1.0/24 } }\nmatrix: regions.csv\n",
        );
        let paths = ["traced.yaml", "matrix.yaml"].map(|name| here.path().join(name));
        let own = ["branch-offices", "recorded", "three-regions", "mobile-lte"].map(PathBuf::from);
        for path in paths.iter().chain(&own) {
            let loaded = load(path).unwrap();
            let unpacked = loaded.packed().unwrap().unpack().unwrap();
            let again = load(&unpacked.profile()).unwrap();
            assert_eq!(meaning(&again), meaning(&loaded), "{}", path.display());
            let tables = |loaded: &Loaded| crate::compile(&loaded.profile, &loaded.files).ok();
            assert_eq!(tables(&again), tables(&loaded), "{}", path.display());
        }
        assert_eq!(load(&paths[0]).unwrap().packed().unwrap().files.len(), 2);
    }

    #[test]
    fn no_file_is_written_elsewhere() {
        let packed = Packed {
            profile: String::new(),
            files: BTreeMap::from([("../x".into(), String::new())]),
        };
        assert!(packed.unpack().is_err());
    }
}
