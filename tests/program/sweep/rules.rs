//! How often a setting is measured, on which processors, and in which of several directories: sweeps over programs that
//! print a number and send nothing.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use perturb_verdict::or_end;
use serde_json::{Value, json};

use super::{alone, json as report, perturb, possible};

const HEAD: &str = "version: 1\nname: rules\nlateness: 1s\nbase: { latency: 50us }\n";

/// An experiment in a directory of its own, and what it prints.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new(experiment: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("e.yaml"), format!("{HEAD}{experiment}")).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn sweep(&self) {
        let output = perturb(&["sweep", &self.path("e.yaml"), "--out", &self.path("out")]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}

/// The records of a directory.
fn records(directory: &str) -> Vec<Value> {
    let text = fs::read_to_string(Path::new(directory).join("runs.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Values of a workload where a knob is turned, in their order.
fn turned(records: &[Value], workload: &str) -> Vec<f64> {
    let of_it = |record: &&Value| record["workload"] == workload && record["setting"] != json!({});
    let values = records.iter().filter(of_it);
    values.map(|record| record["value"].as_f64().unwrap()).collect()
}

#[test]
#[ignore = "long: cargo xtask test --full"]
fn a_setting_is_repeated_until_its_interval_is_narrow_or_the_limit_is_reached() {
    let _alone = alone();
    or_end!(possible());
    // Every second run of `restless` is a baseline, so that its level's values are 2, 1, 2, 1, …
    let place = Place::new(
        "repetitions: 2\nstop: { interval: 10%, at_most: 4 }\nbaseline_every: 100\nknobs: { latency: [100us] }\n\
         workloads:\n\
         \x20 - { name: steady, command: echo t=2, metric: { regex: 't=(.*)' } }\n\
         \x20 - name: restless\n\
         \x20   command: echo >> $EXPERIMENT/r; echo t=$((1 + $(wc -l < $EXPERIMENT/r) / 2 % 2))\n\
         \x20   metric: { regex: 't=(.*)' }\n",
    );
    place.sweep();
    let records = records(&place.path("out"));
    assert_eq!(turned(&records, "steady"), [2.0, 2.0]);
    assert_eq!(turned(&records, "restless"), [2.0, 1.0, 2.0, 1.0]);
}

#[test]
fn a_command_is_pinned() {
    let _alone = alone();
    or_end!(possible());
    let place = Place::new(
        "repetitions: 1\nknobs: { latency: [100us] }\nworkloads:\n\
         \x20 - { name: pinned, pin: 0, command: nproc, metric: { regex: '[0-9]+', unit: processors, better: higher } }\n\
         \x20 - { name: free, command: nproc, metric: { regex: '[0-9]+', unit: processors, better: higher } }\n",
    );
    place.sweep();
    let records = records(&place.path("out"));
    let processors = std::thread::available_parallelism().unwrap().get() as f64;
    assert_eq!(turned(&records, "pinned"), [1.0]);
    assert_eq!(turned(&records, "free"), [processors]);
}

#[test]
fn scenarios_are_compared_with_a_base_that_changes() {
    let _alone = alone();
    or_end!(possible());
    // 20 reads take 0.4 s on the base, whose own key says 0.04 s.
    let place = Place::new(
        "repetitions: 2\nknobs: { scenario: [flat.yaml, stepped.yaml] }\nworkloads:\n\
         \x20 - { name: reads, command: '\"$PERTURB\" pattern reads --reads 20', metric: { json: run_time_s } }\n",
    );
    let put = |name: &str, text: &str| fs::write(place.path(name), text).unwrap();
    let text = fs::read_to_string(place.path("e.yaml")).unwrap();
    put(
        "e.yaml",
        &text.replace("base: { latency: 50us }", "profile: base.yaml"),
    );
    put("flat.yaml", "version: 1\nlatency: 30ms\n");
    let steps = |latency: &str| {
        format!("version: 1\nlatency: 1ms\ntimeline: {{ steps: [{{ at: 0s, latency: {latency} }}] }}\n")
    };
    put("base.yaml", &steps("10ms"));
    put("stepped.yaml", &steps("20ms"));
    place.sweep();
    let report = report(&["report", &place.path("out"), "--json"]);
    let workload = &report["workloads"][0];
    assert_eq!(workload["baseline"]["changing"], true);
    for (index, (name, expected)) in [("flat", 3.0), ("stepped", 2.0)].into_iter().enumerate() {
        let scenario = &workload["scenarios"][index];
        assert_eq!((&scenario["name"], &scenario["runs"]), (&json!(name), &json!(2)));
        let slowdown = scenario["slowdown"].as_f64().unwrap();
        assert!((slowdown / expected - 1.0).abs() < 0.25, "{workload}");
    }
}

#[test]
fn tasks_write_directories_of_their_own_and_a_report_joins_them() {
    let _alone = alone();
    or_end!(possible());
    // The machine of the second task takes three times as long.
    let place = Place::new(
        "repetitions: 1\nknobs: { latency: [100us, 200us, 300us] }\nworkloads:\n\
         \x20 - { name: a, command: 'echo t=$((1 + 2 * ${SLURM_ARRAY_TASK_ID:-0}))', metric: { regex: 't=(.*)' } }\n",
    );
    let (file, out) = (place.path("e.yaml"), place.path("out"));
    let first = perturb(&[
        "sweep",
        &file,
        "--out",
        &out,
        "--tasks",
        "2",
        "--array-index",
        "0",
    ]);
    assert!(
        first.status.success(),
        "{}",
        String::from_utf8_lossy(&first.stderr)
    );
    let part = report(&["report", &out, "--json"]);
    let slowdown = |report: &Value| report["workloads"][0]["knobs"]["latency"]["slowdown"].clone();
    assert_eq!(slowdown(&part), json!([1.0, null, 1.0]), "{part}");

    // The second one as Slurm would start it, twice: the second time nothing is left to do.
    let script = perturb(&[
        "sweep",
        &file,
        "--out",
        &out,
        "--tasks",
        "2",
        "--slurm",
        "--dry-run",
    ]);
    let script = String::from_utf8(script.stdout).unwrap();
    let path = place.path("job");
    fs::write(&path, script).unwrap();
    for _ in 0..2 {
        let job = Command::new("sh")
            .arg(&path)
            .env("SLURM_ARRAY_TASK_ID", "1")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(job.status.success(), "{}", String::from_utf8_lossy(&job.stderr));
        assert_eq!(
            records(&place.path("out/task-1")).len(),
            2,
            "a baseline and a level"
        );
    }
    let joined = report(&["report", &out, "--json"]);
    assert_eq!(slowdown(&joined), json!([1.0, 1.0, 1.0]), "{joined}");
    assert_eq!(records(&place.path("out/task-0")).len(), 3);
    // One part alone lacks what the other has.
    let alone = report(&["report", &place.path("out/task-1"), "--json"]);
    assert_eq!(slowdown(&alone), json!([null, 1.0, null]));
}
