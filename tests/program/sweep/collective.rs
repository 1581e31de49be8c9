//! A collective whose messages are known, beside PlogPT and PlogP.

use std::fs;

use anyhow::Result;
use perturb_verdict::{bound, conclude, or_end, thrice};
use serde_json::Value;

use super::{alone, json, perturb, possible};

/// Messages of eight kilobytes are six frames of 1448 bytes; three go out from each of four hosts in a round.
const EXPERIMENT: &str = r#"
version: 1
name: collective
repetitions: 2
statistic: median
time_limit: 20s
lateness: 200ms
base: { gap: 100us, latency: 200us, bandwidth: 125MB/s }
knobs: { gap: [200us, 400us] }
workloads:
  - name: all-to-all
    command: '"$PERTURB" pattern all-to-all --algorithm alltoall-b --rounds 10 --message 8KiB'
    hosts: 4
    metric: { json: run_time_s }
    collective: { algorithm: alltoall-b, message: 8KiB, times: 10 }
"#;

#[test]
fn an_all_to_all_follows_plogpt() {
    let _alone = alone();
    or_end!(possible());
    conclude(thrice(all_to_all));
}

fn all_to_all() -> Result<Option<String>> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("e.yaml");
    fs::write(&file, EXPERIMENT).unwrap();
    let out = directory.path().join("out").display().to_string();
    let sweep = perturb(&["sweep", file.to_str().unwrap(), "--out", &out]);
    let said = String::from_utf8_lossy(&sweep.stderr);
    assert!(sweep.status.success(), "{said}");
    let report = json(&["report", &out, "--json"]);
    let workload = &report["workloads"][0];
    let gap = &workload["knobs"]["gap"];
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let run_time_us = 1e6 * number(&workload["baseline"]["run_time_s"]);
    let added = |model: &str| {
        let slowdown = &gap["models"][model]["slowdown"];
        (number(&slowdown[1]) - number(&slowdown[0])) * run_time_us
    };
    // Ten rounds of three messages of six frames, each 200 us later; nobody meets anybody.
    for model in ["plogpt", "plogp"] {
        assert!(
            (added(model) / (10.0 * 3.0 * 6.0 * 200.0) - 1.0).abs() < 1e-6,
            "{gap}"
        );
    }
    // Acknowledgments that go alone have a gap of their own, up to one for two frames.
    let measured = (number(&gap["slowdown"][1]) - number(&gap["slowdown"][0])) * run_time_us;
    let ratio = measured / added("plogpt");
    bound!(
        (0.7..1.9).contains(&ratio),
        "measured {measured} us, {ratio} times the model's: {gap}"
    );
    Ok(None)
}

#[test]
fn a_collective_that_nobody_knows_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("e.yaml");
    let text = EXPERIMENT.replace(
        "algorithm: alltoall-b, message: 8KiB, times",
        "algorithm: alltoall-c, times",
    );
    fs::write(&file, text).unwrap();
    let output = perturb(&["sweep", file.to_str().unwrap(), "--dry-run"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for expected in ["collective.algorithm", "alltoall-b", "lacks the key `message`"] {
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
}
