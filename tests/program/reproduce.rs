//! Figures that are measured, in their short form: they run, and say what they compare.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use perturb_tests::product::executable;
use perturb_verdict::{complete, installed, or_end, root};
use serde_json::Value;

/// Draws a figure; its rows.
fn rows(figure: &str) -> Result<Vec<Value>, String> {
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(executable())
        .args(["reproduce", figure, "--quick", "--json", "--out"])
        .arg(out.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(said);
    }
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results[0]["quick"], true);
    assert!(out.path().join(format!("{figure}.html")).is_file());
    Ok(results[0]["rows"].as_array().unwrap().clone())
}

fn ours(rows: &[Value], case: &str) -> f64 {
    let row = rows
        .iter()
        .find(|row| row["case"].as_str().unwrap().starts_with(case));
    row.unwrap()["ours"].as_f64().unwrap()
}

#[test]
#[ignore = "long: cargo xtask test --full"]
fn the_remap_on_a_mesh() {
    or_end!(root());
    let found = rows("moritz-frank-table-4-live");
    or_end!(found.as_ref().map_or_else(|said| complete(said), |_| Ok(())));
    let found = found.unwrap();
    // An iteration takes both overheads twice, whatever else; contention is there, and not all of it.
    let iteration = ours(&found, "synchronous, an iteration");
    assert!(iteration > 2.0 * (15.0 + 122.0), "{iteration}");
    let contention = ours(&found, "synchronous, C_n");
    assert!((0.5..iteration / 4.0).contains(&contention), "{contention}");
}

#[test]
#[ignore = "long: cargo xtask test --full"]
fn the_cost_of_tracing_is_drawn() {
    or_end!(installed(&["mpirun", "mpicc"]));
    or_end!(root());
    let found = rows("eom-fig-8-live");
    or_end!(found.as_ref().map_or_else(|said| complete(said), |_| Ok(())));
    let found = found.unwrap();
    assert_eq!(found.len(), 4);
    for row in &found {
        // Percent of the run time; a run of a second varies too much for a bound.
        assert!(row["ours"].is_number(), "{row}");
    }
}

/// Whoever ends the figure ends its measurement, and that takes its emulation down first.
#[test]
fn a_signal_ends_the_measurement_first() {
    or_end!(root());
    let out = tempfile::tempdir().unwrap();
    let mut reproduce = Command::new(executable())
        .args(["reproduce", "martin-fig-5.5-measured", "--quick", "--out"])
        .arg(out.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let id = reproduce.id();
    let children = format!("/proc/{id}/task/{id}/children");
    let measuring = loop {
        assert_eq!(reproduce.try_wait().unwrap(), None);
        if let Some(child) = fs::read_to_string(&children).unwrap().split_whitespace().next() {
            break Path::new("/proc").join(child);
        }
        thread::sleep(Duration::from_millis(10));
    };
    // Private hosts are there, or not: it has to end either way.
    thread::sleep(Duration::from_secs(2));
    let id = nix::unistd::Pid::from_raw(id.cast_signed());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(reproduce.wait().unwrap().code(), Some(130));
    assert!(!measuring.exists());
}
