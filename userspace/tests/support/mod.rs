//! What tests of times share: they are skipped where they cannot run, and repeated where others disturb them.

use std::{fs::OpenOptions, io::Write as _, time::Duration};

use anyhow::Result;
use perturb_clock::{BUSY, Watch, stolen_share};

/// Says why a test did nothing, to whoever counts.
pub(crate) fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {reason}");
    if let Some(file) = std::env::var_os("PERTURB_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(file, "{}::{test}: {reason}", env!("CARGO_CRATE_NAME")).unwrap();
    }
}

/// Runs a test that returns an error for a figure that moves when others use the processors: such a figure must be wrong
/// three times, and be so while they do not. Whatever else is wrong is a panic, and fails at once, on any machine.
pub(crate) fn fairly(test: &str, body: impl Fn() -> Result<()>) {
    const TRIES: u32 = 3;
    const PROBE: Duration = Duration::from_millis(500);
    let mut busiest = 0.0_f64;
    for attempt in 1..=TRIES {
        let watch = Watch::start();
        let Err(fault) = body() else { return };
        eprintln!("try {attempt} of {TRIES}: {fault:#}");
        busiest = busiest.max(watch.stolen_share()).max(stolen_share(PROBE));
        if attempt == TRIES {
            assert!(busiest > BUSY, "{fault:#}");
            let percent = 100.0 * busiest;
            skip(
                test,
                &format!("this machine is busy: others took {percent:.0} % of a processor; {fault:#}"),
            );
        }
    }
}
