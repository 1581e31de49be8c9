//! The command on the published example and on streams.

use std::io::Write as _;
use std::os::unix::net::UnixListener;

use clap::Parser;
use serde_json::{Value, json};

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: WhatifArgs,
}

fn data(name: &str) -> String {
    format!(
        "{}/../models/tests/data/whatif/{name}",
        env!("CARGO_MANIFEST_DIR")
    )
}

fn output(arguments: &[&str]) -> anyhow::Result<String> {
    let command = Command::try_parse_from(["whatif"].iter().chain(arguments))?;
    let mut out = Vec::new();
    run(&command.args, &mut out)?;
    Ok(String::from_utf8(out)?)
}

fn json_of(arguments: &[&str]) -> Value {
    serde_json::from_str(&output(arguments).unwrap()).unwrap()
}

#[test]
fn the_keys_of_the_contract() {
    let found = json_of(&[&data("fig3.yaml"), "--json"]);
    assert_eq!(found["program_time_us"], 7.0);
    assert_eq!(found["group_time_us"], json!([7.0, 6.0]));
    assert_eq!(found.get("rows"), None);
}

#[test]
fn rows_are_those_of_the_figure() {
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(data("expected.json")).unwrap()).unwrap();
    let expected = expected["fig3.yaml"]["rows"].as_array().unwrap();
    let found = json_of(&[&data("fig3.yaml"), "--json", "--rows"]);
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), expected.len());
    for (ours, paper) in rows.iter().zip(expected) {
        assert_eq!(
            (&ours["row"], &ours["group_time"]),
            (&paper["row"], &paper["group_time"])
        );
        assert_eq!(ours["arriving"].is_null(), paper["arriving"].is_null());
        assert_eq!(ours["reported"].is_null(), paper["reported"].is_null());
        assert_eq!(
            ours["events"].as_array().unwrap().len(),
            paper["events"].as_object().unwrap().len()
        );
    }
}

#[test]
fn suggestions_are_ranked() {
    let found = json_of(&[&data("four-switch.yaml"), "--suggest", "2", "--json"]);
    assert_eq!((&found["exhaustive"], &found["tried"]), (&json!(true), &json!(8)));
    let times: Vec<f64> = found["suggestions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ranked| ranked["program_time_us"].as_f64().unwrap())
        .collect();
    assert!(times.is_sorted() && times.len() == 8, "{times:?}");
    let error = output(&[&data("four-switch.yaml"), "--suggest", "2", "--speeds", "1"]).unwrap_err();
    assert!(
        format!("{error:#}").contains("--speeds: 1 given for 2 processors"),
        "{error:#}"
    );
}

#[test]
fn a_growing_file_is_followed_until_all_have_exited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events");
    let events = std::fs::read_to_string(data("fig3.jsonl")).unwrap();
    let mut file = std::fs::File::create(&path).unwrap();
    let source = path.display().to_string();
    let writer = std::thread::spawn(move || {
        // Pieces that do not end with lines.
        for piece in events.as_bytes().chunks(50) {
            file.write_all(piece).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let text = output(&[
        &data("fig3.yaml"),
        "--events",
        &source,
        "--follow",
        "--every",
        "0",
        "--json",
    ])
    .unwrap();
    writer.join().unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["final"], &last["program_time_us"]),
        (&json!(true), &json!(7.0))
    );
    assert!(lines.len() > 1 && lines[..lines.len() - 1].iter().all(|line| line["final"] == false));
    let times: Vec<f64> = lines
        .iter()
        .map(|line| line["program_time_us"].as_f64().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn sockets_are_read_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", tcp.local_addr().unwrap());
    let events = std::fs::read(data("four.jsonl")).unwrap();
    let writer = std::thread::spawn(move || {
        listener.accept().unwrap().0.write_all(&events).unwrap();
        tcp.accept().unwrap().0.write_all(&events).unwrap();
    });
    let whole = json_of(&[&data("four-switch.yaml"), "--json"]);
    for source in [path.display().to_string(), address] {
        assert_eq!(
            json_of(&[&data("four-switch.yaml"), "--events", &source, "--json"]),
            whole
        );
    }
    writer.join().unwrap();
}

#[test]
fn what_is_wrong_is_said_and_is_the_input_s_fault() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = std::fs::read_to_string(data("fig3.yaml")).unwrap();
    let events = std::fs::read_to_string(data("fig3.jsonl")).unwrap();
    let cases = [
        (
            "groups: [[1, 2], [3]]",
            "groups: [[1, 2], [2]]",
            "process 2 is placed twice",
        ),
        ("groups: [[1, 2], [3]]", "groups: []", "no process is placed"),
        (
            "groups: [[1, 2], [3]]",
            "groups: [[1, 2]]",
            "process 3 is in no group",
        ),
        (
            "groups: [[1, 2], [3]]",
            "groups: [{processes: [1, 2], speed: 0}, [3]]",
            "speed 0 of group 1",
        ),
        (
            "groups: [[1, 2], [3]]",
            "groups: [[1, 2], [3]]\nspeeds: [1]",
            "1 given for 2 groups",
        ),
        (
            "network:",
            "bus: {bandwidth: 0bit/s}\nnetwork:",
            "bus.bandwidth is 0",
        ),
        ("network:", "bus: {bandwith: 1bit/s}\nnetwork:", "bandwith"),
        ("network:", "bus: {scope: flow}\nnetwork:", "shared"),
        (
            "network:",
            "bus: {scope: host, collisions: {slot: 5us, attempts: 16, seed: 7}}\nnetwork:",
            "bus.collisions: nobody collides",
        ),
        (
            "network:",
            "scheduler: {quantum: 0ms}\nnetwork:",
            "scheduler.quantum: 0 us; allowed: 1us and up",
        ),
        ("network:", "scheduler: {tick: 4ms}\nnetwork:", "quantum"),
        (
            "network:",
            "scheduler: {quantum: 4ms, wakeup: jump}\nnetwork:",
            "preempt",
        ),
        ("events: fig3.jsonl", "", "`events` is missing"),
        ("events: fig3.jsonl", "events: none", "No such file"),
        ("{size: 0B, time: 0us}", "{size: 0B, time: 0}", "`0` has no unit"),
        (
            "\"message\": \"m1\", \"bytes\"",
            "\"message\": \"m2\", \"bytes\"",
            "line 3: process 1 waits for a message",
        ),
        ("\"cpu_us\": 5.0", "\"cpu_us\": -5.0", "line 4, column"),
        (
            "{\"process\": 2, \"type\": \"exit\"",
            "{\"process\": 2, \"type\": \"exit\", \"exit\"",
            "line 5, column",
        ),
    ];
    for (from, to, expected) in cases {
        let scenario_file = folder.path().join("scenario.yaml");
        std::fs::write(&scenario_file, scenario.replace(from, to)).unwrap();
        std::fs::write(folder.path().join("fig3.jsonl"), events.replace(from, to)).unwrap();
        let error = output(&[&scenario_file.display().to_string()]).unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{to}: {error:#}");
        assert!(error.is::<InputError>(), "{error:#}");
    }
}
