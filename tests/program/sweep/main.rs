//! Sweeps: the order of runs is the seed's; what is wrong is said; programs that fail or do not end are results.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod collective;
mod known;
mod npb;
mod rules;
mod traced;

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Result, ensure};
use perturb_tests::product::executable;
use perturb_verdict::{complete, or_end, root};
use serde_json::Value;

const BROKEN: &str = r#"
version: 1
name: broken
repetitions: 1
time_limit: 2s
lateness: 200ms
base: { latency: 50us }
knobs: { latency: [100us] }
workloads:
  - { name: fails, command: exit 3 }
  - { name: hangs, command: sleep 60 }
  - { name: works, command: [sh, -c, "echo t=1.5 t=2.5"], metric: { regex: "t=([0-9.]+)", unit: s } }
"#;

fn perturb(arguments: &[&str]) -> Output {
    let output = Command::new(executable())
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    output.unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = perturb(arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Programs that are measured must not disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this machine can sweep.
fn possible() -> Result<()> {
    root()?;
    let directory = tempfile::tempdir().unwrap();
    let profile = directory.path().join("p.yaml");
    fs::write(&profile, "version: 1\nlatency: 50us\n").unwrap();
    let output = perturb(&["run", profile.to_str().unwrap(), "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr);
    complete(&said)?;
    ensure!(output.status.success(), "perturb run: {said}");
    Ok(())
}

#[test]
fn the_order_is_the_seeds() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("e.yaml");
    fs::write(&file, known::SYNTHETIC).unwrap();
    let file = file.to_str().unwrap();
    let plan = |seed: &str| json(&["sweep", file, "--dry-run", "--json", "--seed", seed])["runs"].clone();
    assert_eq!(plan("1"), plan("1"));
    assert_ne!(plan("1"), plan("2"));
    // 15 settings, and the baselines before and between.
    assert_eq!(plan("1").as_array().unwrap().len(), 15 + 3);
    let part = |index: &str| {
        let arguments = [
            "sweep",
            file,
            "--dry-run",
            "--json",
            "--tasks",
            "2",
            "--array-index",
            index,
        ];
        json(&arguments)["runs"].as_array().unwrap().len()
    };
    // Each part has baselines of its own.
    assert_eq!(part("0") + part("1"), 15 + 2 * 3);
    let script = perturb(&["sweep", file, "--tasks", "2", "--slurm", "--dry-run"]);
    assert!(String::from_utf8_lossy(&script.stdout).contains("#SBATCH --array=0-1"));
}

#[test]
fn what_is_wrong_is_said_with_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("e.yaml");
    fs::write(&file, "version: 1\nbase: { gap: 5 }\nworkload: []\n").unwrap();
    let output = perturb(&["sweep", file.to_str().unwrap(), "--dry-run"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for expected in [
        "e.yaml:2:14: base.gap",
        "did you mean `workloads`?",
        "lacks the key `name`",
    ] {
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
    let none = perturb(&["report", directory.path().to_str().unwrap()]);
    assert_eq!(none.status.code(), Some(2));
}

#[test]
fn the_shipped_experiments_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/experiments");
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if fs::read_to_string(&path).unwrap().contains("\nworkloads:") {
            let plan = json(&["sweep", path.to_str().unwrap(), "--dry-run", "--json"]);
            assert!(!plan["runs"].as_array().unwrap().is_empty(), "{}", path.display());
            count += 1;
        }
    }
    assert!(count >= 2);
}

#[test]
fn programs_that_fail_or_hang_are_results() {
    let _alone = alone();
    or_end!(possible());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("e.yaml");
    fs::write(&file, BROKEN).unwrap();
    let out = directory.path().join("out");
    let out = out.to_str().unwrap();
    let sweep = perturb(&["sweep", file.to_str().unwrap(), "--out", out]);
    assert!(
        sweep.status.success(),
        "{}",
        String::from_utf8_lossy(&sweep.stderr)
    );
    let report = json(&["report", out, "--json"]);
    assert_eq!(report["runs"]["failed"], 2);
    assert_eq!(report["runs"]["timed_out"], 2);
    let [fails, hangs, works] = report["workloads"].as_array().unwrap().as_slice() else {
        panic!("{report}")
    };
    assert_eq!(fails["baseline"]["value"], Value::Null);
    assert_eq!(fails["knobs"]["latency"]["failed"], serde_json::json!([1]));
    assert_eq!(hangs["knobs"]["latency"]["timed_out"], serde_json::json!([1]));
    assert_eq!(hangs["knobs"]["latency"]["regions"][0]["kind"], "failing");
    assert_eq!(works["baseline"]["value"], 2.0);
    assert_eq!(works["knobs"]["latency"]["slowdown"], serde_json::json!([1.0]));
    let table = fs::read_to_string(Path::new(out).join("runs.csv")).unwrap();
    assert!(table.contains("did not end within 2s") && table.contains("ended with exit code 3"));
    // A directory that holds a sweep is not written over.
    let again = perturb(&["sweep", file.to_str().unwrap(), "--out", out]);
    assert_eq!(again.status.code(), Some(2));
}
