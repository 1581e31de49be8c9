//! Where a run's program keeps temporary files.
//!
//! A program that is killed at its time limit removes nothing, so what it made must lie where the sweep finds it: in one
//! directory per run, which the program has as TMPDIR. A link in the sweep's directory leads there, so that a sweep that
//! was killed itself leaves nothing once it goes on.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tempfile::TempDir;

/// Name of the link.
const LINK: &str = "scratch";
/// How the directories' names begin.
const PREFIX: &str = "perturb-run-";
/// How long killed processes may take to end.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// A run's directory; removed with what is in it.
pub(super) struct Scratch {
    directory: TempDir,
    link: PathBuf,
}

impl Scratch {
    /// Makes one for the next run of the sweep in `sweep`, and removes what an earlier one may have left.
    pub(super) fn make(sweep: &Path) -> anyhow::Result<Self> {
        let link = sweep.join(LINK);
        remove_earlier(&link).with_context(|| format!("removing what {} leads to", link.display()))?;
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir()
            .context("making a directory for temporary files")?;
        symlink(directory.path(), &link).with_context(|| format!("making {}", link.display()))?;
        Ok(Self { directory, link })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes it; all that used it ends.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        let path = self.path();
        let begun = Instant::now();
        loop {
            let gone = match fs::remove_dir_all(path) {
                // The program has removed it itself.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            };
            match gone.and_then(|()| fs::remove_file(&self.link)) {
                Ok(()) => return Ok(()),
                // The last of the killed processes may still be at work.
                Err(error)
                    if error.kind() == io::ErrorKind::DirectoryNotEmpty && begun.elapsed() < PATIENCE =>
                {
                    thread::sleep(PAUSE);
                }
                Err(error) => return Err(error).with_context(|| format!("removing {}", path.display())),
            }
        }
    }
}

fn remove_earlier(link: &Path) -> io::Result<()> {
    let Ok(target) = fs::read_link(link) else {
        return Ok(());
    };
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned());
    // Whatever else the link leads to is not ours.
    if name.is_some_and(|name| name.starts_with(PREFIX)) && target.is_dir() {
        fs::remove_dir_all(&target)?;
    }
    fs::remove_file(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_sweep_left_is_removed() {
        let sweep = tempfile::tempdir().unwrap();
        let first = Scratch::make(sweep.path()).unwrap();
        let left = first.path().to_owned();
        fs::write(left.join("file"), "").unwrap();
        // As if it had been killed.
        std::mem::forget(first);
        let second = Scratch::make(sweep.path()).unwrap();
        assert!(!left.exists());
        let path = second.path().to_owned();
        assert_eq!(fs::read_link(sweep.path().join(LINK)).unwrap(), path);
        second.remove().unwrap();
        assert!(!path.exists() && !sweep.path().join(LINK).is_symlink());
        // A program may remove its own.
        let third = Scratch::make(sweep.path()).unwrap();
        fs::remove_dir_all(third.path()).unwrap();
        third.remove().unwrap();
        assert!(!sweep.path().join(LINK).is_symlink());
        // A directory that it did not make stays.
        let other = tempfile::tempdir().unwrap();
        symlink(other.path(), sweep.path().join(LINK)).unwrap();
        Scratch::make(sweep.path()).unwrap().remove().unwrap();
        assert!(other.path().exists());
    }
}
