//! The limit of the processors' backlogs (`net.core.netdev_max_backlog`), which all emulations of this machine share: it is
//! raised as long as there are records.
//!
//! An emulation writes its record before it raises the limit, and removes it before it puts the limit back. Both look at
//! records and limit under a lock of their own: the registry's does not do, since `clear` holds it while it waits for an
//! emulation to end.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use perturb_dataplane::backlog::{self, LEAST};

use super::{RECORD_FILE, RECORDS, Result, file, lock};

/// What the limit was before the first emulation raised it.
const BEFORE: &str = "backlog";
/// Locked by who raises the limit or puts it back.
const LOCK: &str = "backlog.lock";
/// How long another process may take for that.
const PATIENCE: Duration = Duration::from_secs(5);

/// Raises the limit: without room there, packets are dropped on their way out of the hold device. A machine that does not
/// allow it is as good as before, and counts what it drops.
pub fn raise() -> Result<()> {
    Shared::of_this_machine().raise()
}

/// Puts the limit back if no record is left, unless somebody else has changed it meanwhile. What cannot be put back stays
/// noted for the next command.
pub(super) fn restore() -> Result<()> {
    Shared::of_this_machine().restore()
}

/// A limit that can be read and set.
trait Limit {
    fn read(&self) -> io::Result<u32>;
    fn write(&self, packets: u32) -> io::Result<()>;
}

struct Kernel;

impl Limit for Kernel {
    fn read(&self) -> io::Result<u32> {
        backlog::read()
    }

    fn write(&self, packets: u32) -> io::Result<()> {
        backlog::write(packets)
    }
}

/// A limit, and the directory of those who share it.
struct Shared<'a, L> {
    records: PathBuf,
    limit: &'a L,
}

impl Shared<'static, Kernel> {
    fn of_this_machine() -> Self {
        Self {
            records: RECORDS.into(),
            limit: &Kernel,
        }
    }
}

impl<L: Limit> Shared<'_, L> {
    fn raise(&self) -> Result<()> {
        let note = self.records.join(BEFORE);
        let _lock = self.lock()?;
        let raise = || {
            let before = self.limit.read()?;
            if before < LEAST {
                // Noted first: whoever is killed in between leaves a note too many, not one too few.
                if noted(&note)?.is_none() {
                    lock::replace(&note, before.to_string().as_bytes())?;
                }
                self.limit.write(LEAST)?;
            }
            Ok::<_, io::Error>(())
        };
        if let Err(error) = raise() {
            eprintln!(
                "perturb: net.core.netdev_max_backlog cannot be raised to {LEAST}: {error}; bursts may be dropped, and \
                 are counted as unintended drops"
            );
        }
        Ok(())
    }

    fn restore(&self) -> Result<()> {
        let note = self.records.join(BEFORE);
        let _lock = self.lock()?;
        let Some(before) = file("reading", &note, noted(&note))? else {
            return Ok(());
        };
        if self.is_in_use()? {
            return Ok(());
        }
        let restore = || {
            if self.limit.read()? == LEAST {
                self.limit.write(before)?;
            }
            Ok::<_, io::Error>(())
        };
        if let Err(error) = restore() {
            eprintln!(
                "perturb: net.core.netdev_max_backlog stays {LEAST} instead of {before}: {error}; the next emulation \
                 that ends tries again"
            );
            return Ok(());
        }
        file("removing", &note, fs::remove_file(&note))
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

/// What is noted of the limit as it was before.
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

    use super::{LEAST, Limit, RECORD_FILE, Shared};
    use crate::registry::remove_directory;

    type Tested = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    const BEFORE: u32 = 1_000;

    /// A limit whose reader and writer are as slow as the kernel's.
    struct Slow(AtomicU32);

    impl Limit for Slow {
        fn read(&self) -> io::Result<u32> {
            let packets = self.0.load(Ordering::SeqCst);
            thread::yield_now();
            Ok(packets)
        }

        fn write(&self, packets: u32) -> io::Result<()> {
            thread::yield_now();
            self.0.store(packets, Ordering::SeqCst);
            Ok(())
        }
    }

    /// Emulations that begin while others end: none finds the limit lowered, and the last one puts it back.
    #[test]
    fn who_ends_lowers_it_under_nobody() -> Tested {
        const TURNS: usize = 300;
        let place = tempfile::tempdir()?;
        let limit = Slow(BEFORE.into());
        let shared = Shared {
            records: place.path().into(),
            limit: &limit,
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
                limit: &limit,
            };
            shared.raise()?;
            limit.write(meanwhile)?;
            shared.restore()?;
            assert_eq!(limit.read()?, after);
        }
        Ok(())
    }
}
