//! Every end of a command that emulates leaves nothing behind: errors after the set-up, and signals to commands that measure.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_tests::{bed::INTERFACE, remains};

use crate::harness::{Setting, Test, each};

pub(crate) const TESTS: &[Test] = &[
    each("ends::an_error_after_the_set_up", error),
    each("ends::signals_to_commands_that_measure", signals),
];

const PATIENCE: Duration = Duration::from_secs(60);
/// Exit code of a command that was interrupted, and of a sweep, which can be resumed.
const INTERRUPTED: i32 = 130;
const TO_BE_RESUMED: i32 = 1;

/// Nobody hears that perturb is ready: it cannot go on, and undoes what it has done.
fn error(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let backlog = remains::backlog()?;
    let profile = setting.product.profile("latency: 1ms")?;
    let output = setting
        .product
        .on(&bed.left)
        .env("NOTIFY_SOCKET", "/nowhere/notify")
        .arg("apply")
        .arg(&profile)
        .args(["--iface", INTERFACE, "--quiet", "--pacer", setting.pacer.name()])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && said.contains("/nowhere/notify"),
        "{output:?}"
    );
    before.must_be_that_of(&bed.left)?;
    ensure!(remains::backlog()? == backlog, "the backlog stays raised");
    Ok(())
}

/// A command that makes private hosts and goes on for a while.
fn commands(setting: &Setting, place: &Path) -> Result<Vec<(&'static str, Command)>> {
    let profile = setting.product.profile("latency: 1ms\nbandwidth: 100Mbit/s")?;
    let pacer = setting.pacer.name();
    let experiment = place.join("experiment.yaml");
    let text = format!(
        "version: 1\nname: sleeper\npacer: {pacer}\nbase: {{ latency: 1ms, bandwidth: 10MB/s }}\n\
         knobs: {{ latency: [2ms] }}\n\
         workloads:\n  - {{ name: sleep, command: sleep 50, metric: wall_time }}\n"
    );
    fs::write(&experiment, text)?;
    let mut commands = Vec::new();
    for (name, arguments) in [
        ("calibrate", &["calibrate", "--quiet", "--pacer", pacer][..]),
        ("calibrate PROFILE", &["calibrate", "--quiet", "--pacer", pacer]),
        (
            "rto",
            &[
                "rto",
                "--pacer",
                pacer,
                "--message",
                "64KiB",
                "--rounds",
                "100000",
                "--hosts",
                "2",
            ],
        ),
        ("sweep", &["sweep", "--quiet", "--out"]),
    ] {
        let mut command = Command::new(&setting.product.path);
        command.args(arguments);
        match name {
            "calibrate" => {}
            "sweep" => {
                command.arg(place.join("out")).arg(&experiment);
            }
            _ => {
                command.arg(&profile);
            }
        }
        commands.push((name, command));
    }
    Ok(commands)
}

/// The record of the emulation of a process's private hosts.
fn record(child: &Child) -> String {
    format!("/run/perturb/run-{}/record.json", child.id())
}

/// Waits until a command emulates.
fn begun(child: &mut Child) -> Result<()> {
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(record(child)).unwrap_or_default();
        let ready = serde_json::from_str(&text)
            .ok()
            .and_then(|record: serde_json::Value| record["ready"].as_bool());
        if ready == Some(true) {
            return Ok(());
        }
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("it ended before it emulated: {status}");
        }
        ensure!(start.elapsed() < PATIENCE, "it does not begin to emulate");
        thread::sleep(Duration::from_millis(5));
    }
}

fn signals(setting: &Setting) -> Result<()> {
    let place = tempfile::tempdir()?;
    let backlog = remains::backlog()?;
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        for (name, mut command) in commands(setting, place.path())? {
            let what = || format!("{signal} to {name}");
            // A sweep goes on where it was.
            let _ = fs::remove_dir_all(place.path().join("out"));
            let mut child = command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .with_context(what)?;
            begun(&mut child).with_context(what)?;
            kill(Pid::from_raw(child.id().cast_signed()), signal)?;
            let status = child.wait()?;
            let code = if name == "sweep" {
                TO_BE_RESUMED
            } else {
                INTERRUPTED
            };
            ensure!(status.code() == Some(code), "{}: {status}", what());
            ensure!(!fs::exists(record(&child))?, "{}: its record is left", what());
            ensure!(
                remains::backlog()? == backlog,
                "{}: the backlog stays raised",
                what()
            );
        }
    }
    Ok(())
}
