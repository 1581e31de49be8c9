//! Settings of this machine ([`machine::Setting`]), which all emulations share: they are raised as long as there are records.
//!
//! An emulation writes its record before it raises a setting, and removes it before it puts the settings back. Both look at
//! records and setting under a lock of their own: the registry's does not do, since `clear` holds it while it waits for an
//! emulation to end.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use perturb_dataplane::machine::{self, Setting};

use super::{RECORD_FILE, Result, file, lock, place};

/// Locked by who raises a setting or puts it back.
const LOCK: &str = "raised.lock";
/// How long another process may take for that.
const PATIENCE: Duration = Duration::from_secs(5);

/// Raises a setting. A machine that does not allow it is told what follows.
pub fn raise(setting: &Setting) -> Result<()> {
    Shared::at(place(), setting).raise()
}

/// Puts all settings back if no record is left, unless somebody else has changed them meanwhile. What cannot be put back
/// stays noted for the next command, and keeps none of the others from being put back.
pub(super) fn restore(records: &Path) -> Result<()> {
    // Each is tried before the first failure is told.
    machine::ALL
        .map(|setting| Shared::at(records, setting).restore())
        .into_iter()
        .collect()
}

/// A number that can be read and set.
trait Number {
    fn read(&self) -> io::Result<u32>;
    fn write(&self, value: u32) -> io::Result<()>;
}

impl Number for Setting {
    fn read(&self) -> io::Result<u32> {
        Self::read(self)
    }

    fn write(&self, value: u32) -> io::Result<()> {
        Self::write(self, value)
    }
}

/// A setting, and the directory of those who share it.
struct Shared<'a, N> {
    records: PathBuf,
    setting: &'a Setting,
    number: &'a N,
}

impl<'a> Shared<'a, Setting> {
    fn at(records: &Path, setting: &'a Setting) -> Self {
        Self {
            records: records.into(),
            setting,
            number: setting,
        }
    }
}

impl<N: Number> Shared<'_, N> {
    fn raise(&self) -> Result<()> {
        let note = self.note();
        let Setting { name, least, lack } = *self.setting;
        let _lock = self.lock()?;
        let before = match self.number.read() {
            Ok(before) => before,
            Err(error) => {
                log::info!(
                    "net.core.{name} cannot be read: {error}; if it is below {least}, {lack}. Look it up in the \
                     machine's first network namespace"
                );
                return Ok(());
            }
        };
        if before >= least {
            return Ok(());
        }
        let raise = || {
            // Noted first: whoever is killed in between leaves a note too many, not one too few.
            if noted(&note)?.is_none() {
                lock::replace(&note, before.to_string().as_bytes())?;
            }
            self.number.write(least)
        };
        if let Err(error) = raise() {
            log::info!(
                "net.core.{name} is {before} and cannot be raised to {least}: {error}; {lack}. Give `sysctl -w \
                 net.core.{name}={least}` in the machine's first network namespace"
            );
        }
        Ok(())
    }

    fn restore(&self) -> Result<()> {
        let note = self.note();
        let Setting { name, least, .. } = *self.setting;
        let _lock = self.lock()?;
        let Some(before) = file("reading", &note, noted(&note))? else {
            return Ok(());
        };
        if self.is_in_use()? {
            return Ok(());
        }
        let restore = || {
            if self.number.read()? == least {
                self.number.write(before)?;
            }
            Ok::<_, io::Error>(())
        };
        if let Err(error) = restore() {
            log::info!(
                "net.core.{name} stays {least} instead of {before}: {error}; the next emulation that ends tries again"
            );
            return Ok(());
        }
        file("removing", &note, fs::remove_file(&note))
    }

    /// Where it is noted what the setting was before the first emulation raised it.
    fn note(&self) -> PathBuf {
        self.records.join(self.setting.name)
    }

    fn lock(&self) -> Result<lock::Lock> {
        lock::wait(&self.records.join(LOCK), PATIENCE)
    }

    /// Whether there is a record, be it one that this perturb cannot read.
    fn is_in_use(&self) -> Result<bool> {
        for entry in file("reading", &self.records, fs::read_dir(&self.records))? {
            let entry = file("reading", &self.records, entry)?;
            if entry.path().join(RECORD_FILE).exists() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What is noted of a setting as it was before.
fn noted(path: &Path) -> io::Result<Option<u32>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs, io,
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

    use super::{Number, RECORD_FILE, Shared};
    use perturb_dataplane::machine::BACKLOG;

    use crate::registry::remove_directory;

    type Tested = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    const BEFORE: u32 = 1_000;
    const LEAST: u32 = BACKLOG.least;

    /// A setting whose reader and writer are as slow as the kernel's.
    struct Slow(AtomicU32);

    impl Number for Slow {
        fn read(&self) -> io::Result<u32> {
            let value = self.0.load(Ordering::SeqCst);
            thread::yield_now();
            Ok(value)
        }

        fn write(&self, value: u32) -> io::Result<()> {
            thread::yield_now();
            self.0.store(value, Ordering::SeqCst);
            Ok(())
        }
    }

    /// Emulations that begin while others end: none finds the setting lowered, and the last one puts it back.
    #[test]
    fn who_ends_lowers_it_under_nobody() -> Tested {
        const TURNS: usize = 300;
        let place = tempfile::tempdir()?;
        let limit = Slow(BEFORE.into());
        let shared = Shared {
            records: place.path().into(),
            setting: &BACKLOG,
            number: &limit,
        };
        let live = |name: &str| -> Tested {
            let own = place.path().join(name);
            for _ in 0..TURNS {
                fs::create_dir(&own)?;
                fs::write(own.join(RECORD_FILE), "")?;
                shared.raise()?;
                for _ in 0..3 {
                    assert_eq!(limit.read()?, LEAST, "lowered under a living emulation");
                }
                remove_directory(&own)?;
                shared.restore()?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let lives: Vec<_> = ["a", "b", "c"]
                .map(|name| scope.spawn(move || live(name)))
                .into_iter()
                .collect();
            lives.into_iter().try_for_each(|life| {
                life.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        assert_eq!(limit.read()?, BEFORE, "it stays raised");
        Ok(())
    }

    /// Somebody else's setting stays.
    #[test]
    fn another_setting_stays() -> Tested {
        let place = tempfile::tempdir()?;
        for (meanwhile, after) in [(LEAST, BEFORE), (300_000, 300_000), (17, 17)] {
            let limit = Slow(BEFORE.into());
            let shared = Shared {
                records: place.path().into(),
                setting: &BACKLOG,
                number: &limit,
            };
            shared.raise()?;
            limit.write(meanwhile)?;
            shared.restore()?;
            assert_eq!(limit.read()?, after);
        }
        Ok(())
    }
}
