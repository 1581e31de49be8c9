//! The programs' own messages (`--verbose`).

use anyhow::Context as _;
use log::{Log, Metadata, Record};
use perturb_dataplane::programs::Programs;
use tokio::{io::unix::AsyncFd, task::JoinHandle};

/// Passes the programs' messages on until the handle is dropped.
pub(crate) fn follow_logs(programs: &mut Programs) -> anyhow::Result<LogFollower> {
    let logger = programs
        .log_reader(&KERNEL)
        .context("reading the programs' messages")?;
    let task = tokio::task::spawn(async move {
        // SAFETY: the reader owns its descriptor, and is not dropped before the registration.
        let Ok(mut ready) = (unsafe { AsyncFd::register(logger) }) else {
            return;
        };
        loop {
            let Ok(mut guard) = ready.readable_mut().await else {
                return;
            };
            guard.get_inner_mut().flush();
            guard.clear_ready();
        }
    });
    Ok(LogFollower(task))
}

/// Reads the programs' messages as long as it lives.
pub(crate) struct LogFollower(JoinHandle<()>);

impl Drop for LogFollower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Says whose messages they are. Whoever asked for them sees all, whatever their level.
struct Kernel;

static KERNEL: Kernel = Kernel;

impl Log for Kernel {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        log::info!("kernel: {}", record.args());
    }

    fn flush(&self) {}
}
