//! Ctrl-C and SIGTERM stop a load, which then cleans up; a second one ends the process at once.

use anyhow::Context as _;
use perturb_workloads::nfs::Stop;
use tokio::signal::unix::{SignalKind, signal};

/// Exit code of a process that was interrupted twice.
const INTERRUPTED: i32 = 130;

/// Sets `stop` at the first signal.
pub(super) fn stop_on_signal(stop: Stop) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime for signals")?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).context("handling SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("handling SIGTERM")?;
    drop(guard);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async {
                for again in [false, true] {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    if again {
                        eprintln!("perturb: ended at once; the data set may be left behind");
                        std::process::exit(INTERRUPTED);
                    }
                    eprintln!("perturb: stopping, and removing the data set (again: at once)");
                    stop.set();
                }
            });
        })
        .context("starting the thread for signals")?;
    Ok(())
}
