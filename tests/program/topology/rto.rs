//! `perturb rto` as a program.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::PoisonError,
};

use anyhow::Result;
use perturb_tests::product::executable;
use perturb_verdict::{bound, complete, conclude, thrice};
use serde_json::Value;

use crate::{TURN, possible};

fn rto(profile: &str, arguments: &[&str]) -> Result<Value> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    possible()?;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("profile.yaml");
    std::fs::write(&path, format!("version: 1\n{profile}")).unwrap();
    let output = Command::new(executable())
        .arg("rto")
        .arg(&path)
        .arg("--json")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    complete(&said)?;
    assert!(output.status.success(), "{said}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// TCP as it was loses its tails in small buffers and waits for time-outs; in large ones it does not.
#[test]
fn rto_says_what_tcp_did_and_why() {
    conclude(thrice(lossy_and_ample));
}

fn lossy_and_ample() -> Result<Option<String>> {
    let profile = |buffer: &str| {
        format!(
            "servers: {{ nic: {{ bandwidth: 20Mbit/s }} }}
topology:
  kind: tree
  egress: [nic]
  levels: [ {{ bandwidth: 20Mbit/s, buffer: {buffer} }}, {{ bandwidth: 20Mbit/s, buffer: {buffer} }} ]
tcp: {{ congestion_control: reno, sack: false, rto_min: 200ms, offloads: false, no_metrics_save: true }}
"
        )
    };
    let arguments = [
        "--hosts",
        "4",
        "--message",
        "100kB",
        "--rounds",
        "4",
        "--algorithm",
        "incast",
    ];
    let lossy = rto(&profile("5kB"), &arguments)?;
    let ample = rto(&profile("1MB"), &arguments)?;
    for report in [&lossy, &ample] {
        assert_eq!(report["algorithm"], "incast");
        assert_eq!(report["hosts"], 4);
        assert_eq!(report["message_bytes"], 100_000);
        assert_eq!(report["rounds_ms"].as_array().unwrap().len(), 4);
        for key in ["timeouts", "tail_loss_probes", "retransmits"] {
            assert!(report["tcp"][key].is_u64(), "{report}");
        }
        assert!(report["near_rto_multiple"].is_u64());
        // Three messages of 100 kB share the last link.
        let ideal = report["ideal_ms"].as_f64().unwrap();
        assert!((120.0..135.0).contains(&ideal), "{ideal}");
        for key in ["plogpt", "plogp"] {
            assert!(report["predicted_ms"][key].as_f64().unwrap() >= 120.0, "{report}");
        }
        for round in report["rounds_ms"].as_array().unwrap() {
            assert!(
                round.as_f64().unwrap() > 0.95 * 120.0,
                "faster than the wire: {report}"
            );
        }
    }
    assert!(lossy["drops"].as_u64().unwrap() > 0);
    assert!(
        lossy["drops_by_server"]["h1-down"].as_u64().unwrap() > 0,
        "{lossy}"
    );
    assert!(lossy["tcp"]["timeouts"].as_u64().unwrap() > 0, "{lossy}");
    assert_eq!(ample["drops"], 0);
    let longest = |report: &Value| -> f64 {
        let rounds = report["rounds_ms"].as_array().unwrap();
        rounds.iter().filter_map(Value::as_f64).fold(0.0, f64::max)
    };
    // Hosts that do not get the processor time out as well.
    bound!(ample["tcp"]["retransmits"] == 0, "retransmissions: {ample}");
    bound!(
        ample["near_rto_multiple"] == 0,
        "rounds delayed by time-outs: {ample}"
    );
    bound!(
        longest(&lossy) > longest(&ample),
        "longest rounds: {lossy} {ample}"
    );
    Ok(None)
}

/// A program whose messages follow one another takes the sum of their times; nothing in it waits for the clock.
#[test]
fn a_program_runs_as_it_is_predicted() {
    conclude(thrice(ping_pong));
}

fn ping_pong() -> Result<Option<String>> {
    const TREE: &str = "servers: { nic: { bandwidth: 20Mbit/s } }
topology:
  kind: tree
  egress: [nic]
  levels: [ { bandwidth: 20Mbit/s, latency: 2ms, buffer: 1MB } ]
tcp: { congestion_control: reno, offloads: false, no_metrics_save: true }
";
    const PROGRAM: &str = "program:
  ranks:
    - [isend: { to: 1, size: 100kB }, wait: 0, irecv: { from: 1 }, wait: 2]
    - [irecv: { from: 0 }, wait: 0, compute: 30ms, isend: { to: 0, size: 100kB }, wait: 3]
";
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program.yaml");
    std::fs::write(&program, PROGRAM).unwrap();
    let report = rto(
        TREE,
        &[
            "--program",
            program.to_str().unwrap(),
            "--rounds",
            "5",
            "--warmup",
            "4",
        ],
    )?;
    assert_eq!(report["algorithm"], "program");
    assert_eq!(
        (&report["hosts"], &report["message_bytes"]),
        (&2.into(), &100_000.into())
    );
    let ranks: Vec<f64> = serde_json::from_value(report["ranks_ms"].clone()).unwrap();
    // Twice 40 ms on the wire, without headers, and what is computed between them.
    assert!(ranks[0] > 110.0, "faster than the wire: {report}");
    // The answer has left before it has come.
    assert!((70.0..ranks[0]).contains(&ranks[1]), "{report}");
    let predicted = report["predicted_ms"]["plogpt"].as_f64().unwrap();
    // Within a tenth, of the median of 5 rounds.
    bound!(
        (ranks[0] / predicted - 1.0).abs() < 0.1,
        "{ranks:?} and {predicted} ms"
    );
    bound!(report["tcp"]["timeouts"] == 0, "time-outs: {report}");
    Ok(None)
}

/// Many servers that answer at once overflow a port: with time-outs of 200 ms goodput collapses, with short ones less so.
#[test]
fn incast_collapses_and_short_time_outs_cure_it() {
    conclude(thrice(incast));
}

fn incast() -> Result<Option<String>> {
    const STAR: &str = "servers: { nic: { bandwidth: 50Mbit/s } }
topology: { kind: star, egress: [nic], link: { bandwidth: 50Mbit/s, buffer: 64KiB } }
tcp: { congestion_control: reno, sack: false, offloads: false, no_metrics_save: true }
";
    let report = rto(
        STAR,
        &[
            "--algorithm",
            "incast",
            "--senders",
            "1,16",
            "--message",
            "16KiB",
            "--rto-min",
            "200ms,1ms",
            "--rounds",
            "8",
        ],
    )?;
    let point = |curve: usize, place: usize| &report["curves"][curve]["points"][place];
    let goodput = |curve, place| point(curve, place)["goodput_mbit_s"].as_f64().unwrap();
    for curve in 0..2 {
        assert_eq!(report["curves"][curve]["congestion_control"], "reno");
        // One piece fits into the port's buffer, sixteen do not.
        assert_eq!(point(curve, 0)["drops"], 0, "{report}");
        let drops = &point(curve, 1)["drops_by_server"];
        assert!(drops["h1-down"].as_u64().unwrap() > 0, "{report}");
        assert_eq!(drops.as_object().unwrap().len(), 1, "{report}");
        assert_eq!(point(curve, 1)["block_bytes"], 16 * 16_384);
        for place in 0..2 {
            assert!(
                goodput(curve, place) < 50.0 * 1448.0 / 1514.0,
                "faster than the wire: {report}"
            );
            assert_eq!(point(curve, place)["blocks_ms"].as_array().unwrap().len(), 8);
        }
        let predicted = |key: &str| point(curve, 1)[key].as_f64().unwrap();
        assert!(
            predicted("predicted_goodput_mbit_s") < predicted("predicted_without_timeouts_mbit_s"),
            "{report}"
        );
    }
    assert!(point(0, 1)["tcp"]["timeouts"].as_u64().unwrap() > 0, "{report}");
    // Of 8 blocks. A block takes 44 ms without time-outs, and at least 200 ms more with one.
    bound!(goodput(0, 1) < 0.4 * 50.0, "no collapse: {report}");
    let ratio = goodput(1, 1) / goodput(0, 1);
    bound!(ratio > 1.8, "1 ms is {ratio} times as fast as 200 ms: {report}");
    Ok(None)
}

/// What the profile says of TCP's timers is what a host's kernel has, or the message names the key that it lacks.
#[test]
fn the_kernel_has_the_profile_s_timers() {
    conclude(timers());
}

fn timers() -> Result<()> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    possible()?;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("profile.yaml");
    let run = |tcp: &str, command: &[&str]| -> Result<(String, String)> {
        std::fs::write(&path, format!("version: 1\nlatency: 1ms\ntcp: {{ {tcp} }}\n")).unwrap();
        let output = Command::new(executable())
            .arg("run")
            .arg(&path)
            .arg("--")
            .args(command)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let [printed, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        complete(&said)?;
        Ok((printed, said))
    };
    for (tcp, name, value) in [
        ("rto_min: 1500us", "tcp_rto_min_us", "1500"),
        ("rto_max: 30s", "tcp_rto_max_ms", "30000"),
        ("thin_linear_timeouts: true", "tcp_thin_linear_timeouts", "1"),
        ("slow_start_after_idle: false", "tcp_slow_start_after_idle", "0"),
        ("ecn: true", "tcp_ecn", "1"),
        ("early_retrans: 0", "tcp_early_retrans", "0"),
        ("recovery: 0", "tcp_recovery", "0"),
    ] {
        let file = format!("/proc/sys/net/ipv4/{name}");
        let (printed, said) = run(tcp, &["cat", &file])?;
        if Path::new(&file).exists() {
            assert_eq!(printed.trim(), value, "{tcp}: {said}");
        } else {
            let (key, _) = tcp.split_once(':').unwrap();
            assert!(
                said.contains(&format!("tcp: {key}: ")) && said.contains("this kernel"),
                "{said}"
            );
        }
    }
    let (routes, said) = run("rto_min: 5ms, delayed_acks: false", &["ip", "route"])?;
    assert!(
        routes.contains("rto_min lock 5ms") && routes.contains("quickack 1"),
        "{routes} {said}"
    );
    let (routes, said) = run("rto_min: 5ms", &["ip", "route"])?;
    assert!(
        routes.contains("rto_min lock 5ms") && !routes.contains("quickack"),
        "{routes} {said}"
    );
    Ok(())
}
