//! `perturb measure` as a program: a network is captured here and replayed there.
//!
//! A known profile joins two private hosts; what is measured there, written as a profile, joins two others; what is
//! measured there must be what was measured first, within 5 %.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Result;
use perturb_quantity::{Duration, Probability, Rate};
use perturb_tests::product::executable;
use perturb_verdict::{bound, complete, conclude, or_end, root, thrice};
use serde_json::Value;

const KNOWN: &str = "\
version: 1
name: known
servers:
  out: { gap: 400us, bandwidth: 4Mbit/s, latency: 15ms, buffer: 60ms }
  in:  { gap: 600us, bandwidth: 8Mbit/s, latency: 15ms, buffer: 40ms }
classes:
  - { name: all, match: { protocol: udp }, egress: [out], ingress: [in] }
";

const SCRIPT: &str = r#"#!/bin/bash
"$PERTURB" on h2 -- "$PERTURB" measure serve 2>/dev/null &
for attempt in $(seq 100); do
    "$PERTURB" measure --peer h2 --quick --json --profile "$OUT/profile.yaml" --network "$OUT/network.yaml" \
        > "$OUT/measured.json" 2> "$OUT/said" && exit 0
    grep -q 'Connection refused' "$OUT/said" || break
    sleep 0.1
done
cat "$OUT/said" >&2
exit 1
"#;

/// Measures between two private hosts; `None` where the machine is too busy for it.
fn measure(profile: &Path, out: &Path) -> Result<Option<Value>> {
    fs::create_dir_all(out).unwrap();
    let script = out.join("script");
    let perturb = Path::new(executable());
    fs::write(&script, SCRIPT).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(perturb)
        .args(["run", "--pacer", "user"])
        .arg(profile)
        .arg("--")
        .arg(&script)
        .env("PERTURB", perturb)
        .env("OUT", out)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    complete(&said)?;
    if said.contains("repeat the measurement") {
        return Ok(None);
    }
    assert!(output.status.success(), "{said}");
    let measured = fs::read_to_string(out.join("measured.json")).unwrap();
    Ok(Some(serde_json::from_str(&measured).unwrap()))
}

/// The numbers of a path, by name.
fn numbers(measured: &Value) -> Vec<(String, f64)> {
    let mut numbers = vec![("latency_us".to_owned(), measured["latency_us"].as_f64().unwrap())];
    for direction in ["out", "in"] {
        for parameter in ["gap_us", "gap_per_byte_ns", "buffer_us"] {
            let value = &measured[direction][parameter];
            let value = value
                .as_f64()
                .unwrap_or_else(|| panic!("{direction} {parameter}: {measured}"));
            numbers.push((format!("{direction} {parameter}"), value));
        }
    }
    numbers
}

#[test]
fn captured_here_and_replayed_there() {
    or_end!(root());
    conclude(thrice(there_and_back));
}

fn there_and_back() -> Result<Option<String>> {
    let undecided = || Ok(Some("a measurement that is to be repeated".to_owned()));
    let directory = tempfile::tempdir().unwrap();
    let known = directory.path().join("known.yaml");
    fs::write(&known, KNOWN).unwrap();
    let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
    let Some(here) = measure(&known, &first)? else {
        return undecided();
    };
    let Some(there) = measure(&first.join("profile.yaml"), &second)? else {
        return undecided();
    };
    let network = fs::read_to_string(first.join("network.yaml")).unwrap();
    let input = format!("groups: [[1], [2]]\n{network}events: none.jsonl\n");
    let file = first.join("whatif.yaml");
    fs::write(&file, input).unwrap();
    fs::write(first.join("none.jsonl"), "{\"process\": 1, \"type\": \"exit\", \"cpu_us\": 1.0}\n{\"process\": 2, \"type\": \"exit\", \"cpu_us\": 1.0}\n").unwrap();
    let predicted = Command::new(executable())
        .args(["predict", "whatif"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        predicted.status.success(),
        "{}",
        String::from_utf8_lossy(&predicted.stderr)
    );
    // The known profile was found at all: ns per byte at 4 and 8 Mbit/s.
    let asked = [15_000.0, 400.0, 2_000.0, 60_000.0, 600.0, 1_000.0, 40_000.0];
    for (((name, here), (_, there)), asked) in numbers(&here).into_iter().zip(numbers(&there)).zip(asked) {
        println!("{name}: asked {asked}, measured {here:.1}, replayed {there:.1}");
        let off = |value: f64, reference: f64| (value / reference - 1.0).abs();
        bound!(off(there, here) < 0.05, "{name}: {here} here, {there} there");
        bound!(off(here, asked) < 0.10, "{name}: {here} of {asked}");
    }
    Ok(None)
}

/// What a recording of it must say; the way back loses, too, and is not what is recorded.
const CONSTANT: &str = "\
version: 1
name: constant
servers:
  out: { bandwidth: 10Mbit/s, latency: 20ms, loss: 5% }
  in:  { bandwidth: 10Mbit/s, latency: 20ms, loss: 2% }
classes:
  - { name: all, match: { protocol: udp }, egress: [out], ingress: [in] }
";

/// A recording, one that is interrupted, one that does not fit its disk.
const RECORD: &str = r#"
"$PERTURB" on h2 -- "$PERTURB" measure serve 2>/dev/null &
for attempt in $(seq 100); do
    "$PERTURB" measure --peer h2 --for 20s --every 100ms --json --trace path.csv > recorded.json 2> said && break
    grep -q 'Connection refused' said || { cat said >&2; exit 1; }
    sleep 0.1
done
timeout --preserve-status -s INT 5 "$PERTURB" measure --peer h2 --for 1min --every 50ms --trace cut.csv > cut 2>&1
echo $? > cut.code
"$PERTURB" measure --peer h2 --for 1s --trace /dev/full > full 2>&1
echo $? > full.code
exit 0
"#;

#[test]
fn a_path_is_recorded() {
    or_end!(root());
    conclude(thrice(recorded));
}

/// Time, latency, bandwidth, loss.
type Row = (Duration, Duration, Rate, Probability);

/// The rows of a recording; panics if a line is not whole.
fn rows(text: &str) -> Vec<Row> {
    let body = text.strip_prefix("time,latency,bandwidth,loss\n").unwrap();
    assert!(body.ends_with('\n'), "{text}");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let [time, latency, bandwidth, loss] = cells[..] else {
            panic!("{line}");
        };
        (
            time.parse().unwrap(),
            latency.parse().unwrap(),
            bandwidth.parse().unwrap(),
            loss.parse().unwrap(),
        )
    };
    body.lines().map(row).collect()
}

fn recorded() -> Result<Option<String>> {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let said = |name: &str| fs::read_to_string(file(name)).unwrap();
    fs::write(file("constant.yaml"), CONSTANT).unwrap();
    let output = Command::new(executable())
        .args([
            "run",
            "--pacer",
            "user",
            "constant.yaml",
            "--",
            "bash",
            "-c",
            RECORD,
        ])
        .current_dir(directory.path())
        .env("PERTURB", executable())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    complete(&errors)?;
    assert!(output.status.success(), "{errors}");

    let rows_of = rows(&said("path.csv"));
    assert!(
        rows_of
            .iter()
            .map(|row| row.0)
            .is_sorted_by(|one, next| one < next)
    );
    assert_eq!(rows_of[0].0, Duration::ZERO);
    let count = rows_of.len() as f64;
    bound!(count >= 190.0, "{count} rows in 20 s");
    let share = |of: &dyn Fn(&Row) -> bool| rows_of.iter().filter(|row| of(row)).count() as f64 / count;
    let latency = share(&|row| (row.1.nanos() as f64 - 20e6).abs() < 1e6);
    let rate = share(&|row| (row.2.bits_per_second() as f64 - 10e6).abs() < 1e6);
    let loss = rows_of
        .iter()
        .map(|row| row.3.billionths() as f64 / 1e7)
        .sum::<f64>()
        / count;
    println!("{count} rows, {latency} within 1 ms, {rate} within 10 %, {loss} % lost");
    bound!(latency > 0.95, "the latency of {latency} of the rows is 20 ms");
    bound!(rate > 0.95, "the bandwidth of {rate} of the rows is 10 Mbit/s");
    // About 1700 requests: four standard deviations are 2.1 %.
    bound!((loss - 5.0).abs() < 2.1, "{loss} % lost, 5 % asked");
    let summary: Value = serde_json::from_str(&said("recorded.json")).unwrap();
    assert_eq!(summary["rows"], rows_of.len());
    bound!(summary["probes_percent"].as_f64().unwrap() < 11.0, "{summary}");

    assert_eq!(said("cut.code").trim(), "130", "{}", said("cut"));
    let cut = rows(&said("cut.csv"));
    assert!(cut.len() > 5 && cut.len() < 120, "{} rows", cut.len());
    assert_eq!(said("full.code").trim(), "1", "{}", said("full"));
    assert!(
        said("full").contains("writing /dev/full: No space left"),
        "{}",
        said("full")
    );
    Ok(None)
}
