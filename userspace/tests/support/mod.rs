//! What tests of times share: they are skipped where they cannot run, and repeated where others disturb them.

use std::{
    fs::OpenOptions,
    io::Write as _,
    panic::{catch_unwind, resume_unwind},
    time::Duration,
};

/// Says why a test did nothing, to whoever counts.
pub(crate) fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {reason}");
    if let Some(file) = std::env::var_os("PERTURB_SKIPS") {
        let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
        writeln!(file, "{}::{test}: {reason}", env!("CARGO_CRATE_NAME")).unwrap();
    }
}

/// Runs a test whose figures move when others use the processors: what it finds wrong must be wrong three times, and be so
/// while they do not.
pub(crate) fn fairly(test: &str, body: fn()) {
    const TRIES: u32 = 3;
    const PROBE: Duration = Duration::from_millis(500);
    const SHARE: f64 = 0.05;
    for attempt in 1.. {
        let Err(fault) = catch_unwind(body) else { return };
        let stolen = perturb_clock::stolen_share(PROBE);
        if stolen > SHARE {
            let percent = 100.0 * stolen;
            return skip(
                test,
                &format!("this machine is busy: others took {percent:.0} % of a processor"),
            );
        }
        if attempt == TRIES {
            resume_unwind(fault);
        }
        eprintln!("try {attempt} of {TRIES} failed");
    }
}
