//! `perturb nfs` as a program: what it prints, what it writes, how it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use nix::{
    sched::{CpuSet, sched_getaffinity},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_tests::{processors, product::executable};
use perturb_verdict::{conclude, root, skip};
use serde_json::Value;

fn perturb() -> Command {
    let mut command = Command::new(executable());
    command.arg("nfs");
    command
}

/// A server that ends with the test.
struct Served {
    child: Child,
    stdout: BufReader<ChildStdout>,
    port: String,
}

impl Served {
    fn start(options: &[&str]) -> Self {
        let mut child = perturb()
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--for", "120s"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let port = said["listen"]
            .as_str()
            .unwrap()
            .rsplit_once(':')
            .unwrap()
            .1
            .to_owned();
        Self { child, stdout, port }
    }

    fn load(&self) -> Command {
        let mut command = perturb();
        command.args(["load", "--server", "127.0.0.1:/export", "--nfs-port", &self.port]);
        command.args(["--scale", "0.001", "--rate", "400", "--warmup", "500ms"]);
        command
    }

    /// What it was asked, once it has been told to end.
    fn tally(mut self) -> Value {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn succeeded(output: &Output) -> &Output {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[test]
fn a_load_prints_the_keys_of_the_contract() {
    let served = Served::start(&[]);
    let output = served
        .load()
        .args(["--duration", "2s", "--json", "--arrivals", "open"])
        .output()
        .unwrap();
    let record: Value = serde_json::from_slice(&succeeded(&output).stdout).unwrap();
    for (key, value) in [("mix", "sfs2-v3"), ("arrivals", "open")] {
        assert_eq!(record[key], value);
    }
    assert_eq!(record["requested_op_s"], 400.0);
    for key in ["delivered_op_s", "mean_ms", "p50_ms", "p99_ms"] {
        assert!(record[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert_eq!(record["errors"], 0);
    let lookup = &record["operations"]["lookup"];
    assert!(lookup["count"].as_u64().unwrap() > 100);
    for key in ["percent", "mean_ms", "p99_ms"] {
        assert!(lookup[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert!(served.tally()["calls"]["lookup"].as_u64().unwrap() > 100);
}

#[test]
fn a_load_prints_a_table() {
    let served = Served::start(&[]);
    let output = served.load().args(["--duration", "2s"]).output().unwrap();
    let text = String::from_utf8(succeeded(&output).stdout.clone()).unwrap();
    assert!(
        text.contains("op/s asked") && text.contains("99 % below") && text.contains("readdirplus"),
        "{text}"
    );
}

#[test]
fn invalid_input_ends_with_2_and_says_what() {
    for (arguments, says) in [
        (&["--mix", "sfs3"][..], "no mix is called `sfs3`"),
        (&["--rate", "0"], "operations per second"),
        (&["--duration", "5"], "has no unit"),
        (&["--scale", "0"], "scale is 0; it must be greater than 0"),
    ] {
        let output = perturb()
            .args(["load", "--server", "127.0.0.1:/export", "--nfs-port", "9"])
            .args(arguments)
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn a_server_that_is_not_there_ends_with_1() {
    let output = perturb()
        .args([
            "load",
            "--server",
            "127.0.0.1:/export",
            "--nfs-port",
            "9",
            "--timeout",
            "1s",
        ])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert_eq!(message.matches("127.0.0.1:9").count(), 1, "said once: {message}");
}

#[test]
fn an_interrupted_load_cleans_up_and_prints_what_it_has() {
    let served = Served::start(&[]);
    let child = served
        .load()
        .args(["--duration", "600s", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_secs(4));
    let begun = Instant::now();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(1));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["cut_short"], "stopped");
    assert!(record["duration_s"].as_f64().unwrap() < 20.0);
    // The directory is gone: another load does not find it.
    succeeded(&served.load().args(["--duration", "1s"]).output().unwrap());
}

#[test]
fn a_directory_that_a_killed_load_left_is_reused_if_that_is_asked_for() {
    let served = Served::start(&[]);
    let mut killed = served
        .load()
        .args(["--duration", "600s", "--directory", "mine"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_secs(3));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let load = |options: &[&str]| {
        served
            .load()
            .args(["--duration", "200ms"])
            .args(options)
            .output()
            .unwrap()
    };
    let refused = load(&["--directory", "mine"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("--reuse"),
        "{refused:?}"
    );
    succeeded(&load(&["--directory", "other"]));
    // A curve on a server elsewhere takes the same options.
    let (server, port) = (["curve", "--server", "127.0.0.1:/export"], served.port.as_str());
    let directory = tempfile::tempdir().unwrap();
    let output = perturb()
        .args(server)
        .args([
            "--nfs-port",
            port,
            "--mount-port",
            port,
            "--directory",
            "mine",
            "--reuse",
            "--rates",
            "20",
        ])
        .args([
            "--scale",
            "0.001",
            "--warmup",
            "100ms",
            "--duration",
            "200ms",
            "--out",
        ])
        .arg(directory.path())
        .output()
        .unwrap();
    succeeded(&output);
    succeeded(&load(&["--directory", "mine"]));
}

#[test]
fn a_server_that_is_read_only_takes_no_files() {
    let served = Served::start(&["--read-only"]);
    let refused = served.load().args(["--duration", "200ms"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let directory = tempfile::tempdir().unwrap();
    let refused = curve(directory.path())
        .args(["--rates", "20", "--read-only"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}

fn curve(out: &Path) -> Command {
    let mut command = perturb();
    command.args([
        "curve",
        "--quiet",
        "--json",
        "--arrivals",
        "open",
        "--warmup",
        "500ms",
        "--duration",
        "2s",
    ]);
    command
        .args(["--scale", "0.0001", "--cpu-service", "2ms", "--model", "--out"])
        .arg(out);
    command
}

#[test]
fn a_curve_is_written_level_by_level_and_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("results");
    succeeded(&curve(&out).args(["--rates", "100,200"]).output().unwrap());
    let first = fs::read_to_string(out.join("curve.jsonl")).unwrap();
    assert_eq!(first.lines().count(), 3, "the settings, and two levels");

    let again = curve(&out).args(["--rates", "100,200"]).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--resume"));

    let other = curve(&out)
        .args(["--rates", "300", "--resume", "--seed", "2"])
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&other.stderr).contains("seed = 1, not 2"));

    let output = curve(&out)
        .args(["--rates", "100,200,300", "--resume"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&succeeded(&output).stdout).unwrap();
    let curve = &report["curves"][0];
    assert_eq!(curve["levels"].as_array().unwrap().len(), 3);
    assert_eq!(curve["model"]["response_ms"].as_array().unwrap().len(), 3);
    assert!(curve["signature"]["base_ms"].as_f64().unwrap() > 2.0);
    let all = fs::read_to_string(out.join("curve.jsonl")).unwrap();
    assert!(all.starts_with(&first), "what was measured stays");
    let csv = fs::read_to_string(out.join("curve.csv")).unwrap();
    assert!(
        csv.starts_with("curve,requested_op_s,") && csv.lines().count() == 4,
        "{csv}"
    );
    assert!(
        fs::read_to_string(out.join("curve.svg"))
            .unwrap()
            .contains("mean response time (ms)")
    );
}

/// The processors that `perturb nfs part SIDE SETTINGS` may use, once it serves or loads.
fn processors_of(side: &str, settings: &Path) -> Option<Vec<usize>> {
    let words = format!("nfs\0part\0{side}\0{}\0", settings.display());
    let of = |process: fs::DirEntry| {
        let command = fs::read_to_string(process.path().join("cmdline")).ok()?;
        // What starts it has the same words behind its own.
        let own = command.split('\0').nth(1) == Some("nfs");
        let number = process.file_name().to_str()?.parse().ok()?;
        (own && command.contains(&words)).then_some(Pid::from_raw(number))
    };
    let process = fs::read_dir("/proc").unwrap().flatten().find_map(of)?;
    let set = sched_getaffinity(process).ok()?;
    Some(
        (0..CpuSet::count())
            .filter(|&number| set.is_set(number).unwrap())
            .collect(),
    )
}

/// Client and server share no processor, else one pays both hosts' overhead.
#[test]
fn who_burns_has_processors_of_its_own() {
    conclude(parted());
}

fn parted() -> Result<()> {
    root()?;
    let usable = processors::usable()?;
    if usable.len() < 2 {
        return Err(skip("one processor cannot be parted"));
    }
    let directory = tempfile::tempdir().unwrap();
    let mut child = curve(directory.path())
        .args([
            "--rates",
            "100",
            "--vary",
            "overhead=10us",
            "--burn",
            "--pacer",
            "user",
        ])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let settings = directory.path().join("overhead-10us.settings.json");
    let mut seen = [Vec::new(), Vec::new()];
    while child.try_wait().unwrap().is_none() {
        for (seen, side) in seen.iter_mut().zip(["client", "server"]) {
            let now = processors_of(side, &settings);
            // What it has before it keeps to its own does not count.
            if let Some(now) = now.filter(|now| now.len() < usable.len()) {
                *seen = now;
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().unwrap().success());
    let (client, server) = usable.split_at(usable.len() / 2);
    assert_eq!(seen, [client, server]);
    Ok(())
}

/// 2 ms of processor time: no more than 500 op/s.
#[test]
#[ignore = "long: cargo xtask test --full"]
fn saturation_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let output = curve(directory.path())
        .args(["--auto", "--levels", "3"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&succeeded(&output).stdout).unwrap();
    let signature = &report["curves"][0]["signature"];
    let peak = signature["peak_op_s"].as_f64().unwrap();
    assert!((350.0..=600.0).contains(&peak), "{peak}");
}
