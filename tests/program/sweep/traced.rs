//! The traced run: once per workload, no sample, resumed like others, and what it says of programs whose messages are
//! known.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use perturb_tests::product::executable;
use perturb_verdict::or_end;
use serde_json::Value;

use super::{alone, json, perturb, possible};

const TRACED: &str = r#"
version: 1
name: traced
repetitions: 1
time_limit: 20s
lateness: 1s
trace: true
base: { latency: 200us }
knobs: { latency: [400us] }
workloads:
  - { name: reads, command: '"$PERTURB" pattern blocking-reads --reads 100', metric: { json: run_time_s } }
  - { name: writes, command: '"$PERTURB" pattern pipelined-writes --writes 400', metric: { json: run_time_s } }
  - { name: silent, command: echo t=1, metric: { regex: 't=(.*)' } }
  - { name: untraced, trace: false, command: echo t=1, metric: { regex: 't=(.*)' } }
"#;

/// The records of a directory.
fn records(directory: &str) -> Vec<Value> {
    let text = fs::read_to_string(Path::new(directory).join("runs.jsonl")).unwrap_or_default();
    // The last line may not be whole yet.
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn write(directory: &Path, text: &str) -> (String, String) {
    let file = directory.join("e.yaml");
    fs::write(&file, text).unwrap();
    (
        file.display().to_string(),
        directory.join("out").display().to_string(),
    )
}

#[test]
fn the_plan_has_one_traced_run_of_a_workload() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = write(directory.path(), TRACED);
    let plan = json(&["sweep", &file, "--dry-run", "--json"]);
    let runs = plan["runs"].as_array().unwrap();
    let traced: Vec<&Value> = runs.iter().filter(|run| run["traced"] == true).collect();
    let workloads: Vec<&str> = traced
        .iter()
        .map(|run| run["workload"].as_str().unwrap())
        .collect();
    assert_eq!(workloads, ["reads", "writes", "silent"]);
    assert!(
        traced
            .iter()
            .all(|run| run["setting"] == serde_json::json!({}) && run["block"] == 0)
    );
    // Four workloads with a baseline and a level each.
    assert_eq!(runs.len(), 8 + 3);
    let said = perturb(&["sweep", &file, "--dry-run"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(said.matches("baseline, traced").count(), 3, "{said}");
}

#[test]
fn a_trace_tells_reads_from_writes_and_is_no_sample() {
    let _alone = alone();
    or_end!(possible());
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = write(directory.path(), TRACED);
    // Killed after its first runs, and gone on with.
    let mut child = Command::new(executable())
        .args(["sweep", &file, "--out", &out])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while records(&out).len() < 3 && begun.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let sweep = perturb(&["sweep", &file, "--out", &out, "--resume"]);
    let said = String::from_utf8_lossy(&sweep.stderr);
    assert!(sweep.status.success(), "{said}");
    let records = records(&out);
    let traced: Vec<&Value> = records
        .iter()
        .filter(|record| record["traced"] == true && record["status"] != "invalid")
        .collect();
    assert_eq!(traced.len(), 3);
    assert!(traced.iter().all(|record| record["value"].is_null()));
    let events = format!("{out}/{}.trace.jsonl", traced[0]["output"].as_str().unwrap());
    assert!(fs::read_to_string(events).unwrap().contains("\"time_us\""));
    assert!(!Path::new(&out).join("scratch").is_symlink());

    let report = json(&["report", &out, "--json"]);
    let workloads = report["workloads"].as_array().unwrap();
    // One baseline run, and not the traced one.
    assert!(workloads.iter().all(|workload| workload["baseline"]["runs"] == 1));
    let program = |index: usize| &workloads[index]["baseline"]["communication"]["program"];
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    // 100 reads of its own, as many replies, three barriers.
    let reads = program(0);
    assert_eq!(reads["processes"].as_array().unwrap().len(), 2, "{reads}");
    let round_trips = number(&reads["round_trips"]);
    assert!((100.0..=103.0).contains(&round_trips), "{reads}");
    assert!((200.0..=206.0).contains(&number(&reads["messages"])), "{reads}");
    assert!(number(&reads["reads_percent"]) > 95.0, "{reads}");
    let matrix = &reads["matrix"];
    assert!(number(&matrix[0][1]) >= 200.0 && number(&matrix[1][0]) >= 200.0 && matrix[0][0] == 0);
    // The latency model takes them: 2t us for each us.
    let model = &workloads[0]["knobs"]["latency"]["models"]["loggp"];
    assert!(
        (number(&model["coefficient"]) - 2.0 * round_trips).abs() < 1e-6,
        "{model}"
    );
    // One fence, and the barriers, are waited for; the writes are not.
    let writes = program(1);
    assert!(number(&writes["messages"]) >= 400.0, "{writes}");
    assert!(
        number(&writes["round_trips"]) < 0.1 * number(&writes["messages"]),
        "{writes}"
    );
    assert!(number(&writes["bytes"]) >= 400.0 * (32.0 + 9.0), "{writes}");
    // What sends nothing by itself is no reason to stop.
    let silent = workloads[2]["baseline"]["trace_failure"].as_str().unwrap();
    assert!(silent.contains("no message was traced"), "{silent}");
    assert!(workloads[3]["baseline"]["trace_failure"].is_null());
}

#[test]
fn a_program_that_is_killed_leaves_no_temporary_files() {
    let _alone = alone();
    or_end!(possible());
    let directory = tempfile::tempdir().unwrap();
    let text = "version: 1\nname: killed\nrepetitions: 1\ntime_limit: 1s\nlateness: 1s\nbase: { latency: 50us }\n\
                knobs: { latency: [100us] }\nworkloads:\n\
                \x20 - { name: hangs, trace: true, command: mktemp -d >> $EXPERIMENT/made; sleep 60 }\n";
    let (file, out) = write(directory.path(), text);
    let sweep = perturb(&["sweep", &file, "--out", &out]);
    let said = String::from_utf8_lossy(&sweep.stderr);
    assert!(sweep.status.success(), "{said}");
    let made = fs::read_to_string(directory.path().join("made")).unwrap();
    assert_eq!(made.lines().count(), 3);
    for line in made.lines() {
        // With all that lay beside it, such as what the traced processes wrote.
        assert!(!Path::new(line).parent().unwrap().exists(), "{line}");
    }
}
