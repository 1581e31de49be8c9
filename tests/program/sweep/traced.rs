//! The traced run: once per workload, no sample, resumed like others, and what it says of programs whose messages are
//! known.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
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
  - { name: reads, command: READS, metric: { regex: 't=(.*)' } }
  - { name: writes, command: '"$PERTURB" pattern pipelined-writes --writes 400', metric: { json: run_time_s } }
  - { name: silent, command: echo t=1, metric: { regex: 't=(.*)' } }
  - { name: untraced, trace: false, command: echo t=1, metric: { regex: 't=(.*)' } }
  - { name: at-once, command: '"$PERTURB" pattern blocking-reads --reads 100', metric: { json: run_time_s } }
"#;

/// Set in a traced program, which is a test of this file that otherwise does nothing.
const ROLE: &str = "PERTURB_TRACED_TEST_ROLE";

/// A process on either host: they ask each other a hundred questions, first the one, then the other.
#[test]
fn traced_program() {
    let Ok(role) = env::var(ROLE) else { return };
    let ask = |stream: &mut TcpStream| {
        for _ in 0..100 {
            stream.write_all(&[1; 16]).unwrap();
            stream.read_exact(&mut [0; 32]).unwrap();
        }
    };
    let answer = |stream: &mut TcpStream| {
        for _ in 0..100 {
            stream.read_exact(&mut [0; 16]).unwrap();
            stream.write_all(&[2; 32]).unwrap();
        }
    };
    if let Ok(port) = role.parse::<u16>() {
        let mut stream = TcpStream::connect(("h1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        answer(&mut stream);
        ask(&mut stream);
        return;
    }
    let listener = TcpListener::bind("[::]:0").unwrap();
    let mut other = Command::new(env::var("PERTURB").unwrap());
    other.args(["on", "h2", "--"]).arg(env::current_exe().unwrap());
    other
        .args(["--exact", "traced::traced_program"])
        .stdout(Stdio::null());
    other.env(ROLE, listener.local_addr().unwrap().port().to_string());
    let mut other = other.spawn().unwrap();
    let mut stream = listener.accept().unwrap().0;
    stream.set_nodelay(true).unwrap();
    let begun = Instant::now();
    ask(&mut stream);
    answer(&mut stream);
    assert!(other.wait().unwrap().success());
    println!("t={}", begun.elapsed().as_secs_f64());
}

/// The experiment, whose first workload is [`traced_program`].
fn experiment() -> String {
    let program = env::current_exe().unwrap();
    let command = format!(
        "{ROLE}=first {} --exact traced::traced_program --nocapture",
        program.display()
    );
    TRACED.replace("READS", &command)
}

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
    let (file, _) = write(directory.path(), &experiment());
    let plan = json(&["sweep", &file, "--dry-run", "--json"]);
    let runs = plan["runs"].as_array().unwrap();
    let traced: Vec<&Value> = runs.iter().filter(|run| run["traced"] == true).collect();
    let workloads: Vec<&str> = traced
        .iter()
        .map(|run| run["workload"].as_str().unwrap())
        .collect();
    assert_eq!(workloads, ["reads", "writes", "silent", "at-once"]);
    assert!(
        traced
            .iter()
            .all(|run| run["setting"] == serde_json::json!({}) && run["block"] == 0)
    );
    // Five workloads with a baseline and a level each.
    assert_eq!(runs.len(), 10 + 4);
    let said = perturb(&["sweep", &file, "--dry-run"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(said.matches("baseline, traced").count(), 4, "{said}");
}

#[test]
fn a_trace_tells_reads_from_writes_and_is_no_sample() {
    let _alone = alone();
    or_end!(possible());
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = write(directory.path(), &experiment());
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
    assert_eq!(traced.len(), 4);
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
    // 100 questions of its own, as many answers; and who answers waits for the next question, so that 200 follow one another.
    let reads = program(0);
    assert_eq!(reads["processes"].as_array().unwrap().len(), 2, "{reads}");
    let round_trips = number(&reads["round_trips"]);
    assert!((199.0..=200.0).contains(&round_trips), "{reads}");
    assert_eq!(number(&reads["messages"]), 200.0, "{reads}");
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
    // Either process asks 100 questions, and answers while it waits; then three barriers. Where one is late, a round trip more
    // may have fitted in.
    let at_once = program(4);
    assert!(
        (100.0..=110.0).contains(&number(&at_once["round_trips"])),
        "{at_once}"
    );
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
