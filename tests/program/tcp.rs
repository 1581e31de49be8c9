//! TCP between private hosts: a profile's `tcp:` section, and `perturb tcp`.

use std::{
    fs,
    process::{Command, Output},
};

use anyhow::{Context as _, Result, ensure};
use perturb_tests::product::executable;
use perturb_verdict::{bound, complete, conclude, or_end, root, thrice};
use serde_json::Value;

/// perturb with a profile in a file; its words follow the command.
fn perturb(command: &str, profile: &str, words: &str) -> Result<Output> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("p.yaml");
    fs::write(&path, format!("version: 1\n{profile}"))?;
    let mut call = Command::new(executable());
    call.arg(command).arg(&path).args(words.split_whitespace());
    let output = call.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    complete(&said)?;
    ensure!(output.status.success(), "{said}");
    Ok(output)
}

/// Linux takes a route's `rto_min` only if it is locked; `ip` says so.
#[test]
fn the_least_time_out_is_locked() {
    or_end!(root());
    let profile = "latency: 1ms\ntcp: { rto_min: 5ms }\n";
    let routes = perturb("run", profile, "-- ip route show 10.77.0.0/24");
    conclude(routes.and_then(|routes| {
        let routes = String::from_utf8_lossy(&routes.stdout);
        ensure!(routes.contains("rto_min lock 5ms"), "{routes}");
        Ok(())
    }));
}

/// Of full segments, with Ethernet's, IPv4's and TCP's headers.
const PAYLOAD: f64 = 1448.0 / 1514.0;
/// Phases of the bandwidth: how long, s, and how much, bit/s.
const PHASES: [(f64, f64); 3] = [(3.0, 10e6), (3.0, 2e6), (3.0, 8e6)];
const CHANGING: &str = "
servers:
  up: { bandwidth: 10Mbit/s, latency: 10ms }
  down: { bandwidth: 10Mbit/s, latency: 10ms, buffer: 300ms }
classes: [{ name: all, egress: [up], ingress: [down] }]
timeline: { steps: [ { at: 3s, server: down, bandwidth: 2Mbit/s }, { at: 6s, server: down, bandwidth: 8Mbit/s } ] }
";

/// Bytes that may have passed by an instant.
fn integral(at: f64) -> f64 {
    let mut left = at;
    let phases = PHASES.map(|(length, bits)| {
        let part = left.clamp(0.0, length);
        left -= part;
        part * bits / 8.0
    });
    phases.iter().sum()
}

#[test]
#[ignore = "long: cargo xtask test --full"]
fn flows_deliver_the_integral_of_the_bandwidth() {
    or_end!(root());
    conclude(thrice(delivered));
}

fn delivered() -> Result<Option<String>> {
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    let controls = if available.split_whitespace().any(|name| name == "bbr") {
        "cubic,bbr"
    } else {
        "cubic"
    };
    let words = format!("--json --for 9s --every 100ms --congestion {controls}");
    let found: Value = serde_json::from_slice(&perturb("tcp", CHANGING, &words)?.stdout)?;
    ensure!(found["faults"] == Value::Array(Vec::new()), "{}", found["faults"]);
    let number = |value: &Value, key: &str| {
        let number = value[key].as_f64();
        number.with_context(|| format!("{key} of {value}"))
    };
    let flows = found["flows"].as_array().context("no flows")?;
    ensure!(
        flows.len() == controls.split(',').count(),
        "{} flows",
        flows.len()
    );
    for flow in flows {
        let name = &flow["congestion_control"];
        let samples = flow["samples"].as_array().context("no samples")?;
        ensure!(samples.len() == 90, "{} samples", samples.len());
        let capacity = number(flow, "capacity_bytes")?;
        bound!(
            (capacity / integral(9.0) - 1.0).abs() < 0.01,
            "{name}: {capacity} bytes could pass"
        );
        // The timeline has begun a little before the flow: at the first sample it is at most this far ahead.
        const AHEAD: f64 = 0.5;
        for sample in samples {
            let (at, bytes) = (number(sample, "at_s")?, number(sample, "delivered_bytes")?);
            let most = integral(at + AHEAD) * PAYLOAD;
            ensure!(
                bytes <= most,
                "{name}: {bytes} bytes at {at} s, {most} could pass"
            );
        }
        // Two round trips and a full buffer after the beginning of each phase.
        for [from, to] in [[1.0, 2.9], [3.8, 5.8], [7.0, 8.9]] {
            let at = |at: f64| &samples[(at * 10.0) as usize - 1];
            let between = |key| -> Result<f64> { Ok(number(at(to), key)? - number(at(from), key)?) };
            let (bytes, time) = (between("delivered_bytes")?, between("at_s")?);
            let middle = (from + to) / 2.0;
            let could = (integral(middle + 0.1) - integral(middle)) * 10.0 * time * PAYLOAD;
            bound!(
                (0.9..1.03).contains(&(bytes / could)),
                "{name}: {bytes} of {could} bytes from {from} to {to} s"
            );
        }
    }
    let waits = |flow: &Value, key| number(&flow["queueing_ms"], key);
    let most = waits(&flows[0], "max")?;
    bound!(
        (240.0..310.0).contains(&most),
        "cubic waits for {most} ms, the buffer has 300"
    );
    if let Some(bbr) = flows.get(1) {
        let (cubic, bbr) = (waits(&flows[0], "median")?, waits(bbr, "median")?);
        bound!(
            bbr < cubic / 2.0,
            "half of the time cubic waits for {cubic} ms, BBR for {bbr}"
        );
    }
    Ok(None)
}
