//! `--confirm`: what nobody confirms is undone, and only that.
//!
//! What is undone after a time must be seen before: that time is made to fit the machine, whose commands may take seconds.

use std::{
    fs::{self, File},
    io::Write as _,
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    pty::{OpenptyResult, openpty},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_tests::bed::{Bed, INTERFACE};
use serde_json::Value;

use crate::{
    harness::{Setting, Test, each},
    neighbors::lock,
    update::{PATIENCE, delay, done, update, wait, wait_for},
};

pub(crate) const TESTS: &[Test] = &[
    each("confirm::or_go_back", go_back),
    each("confirm::or_undo", undo),
    each("confirm::by_enter", enter),
    each("confirm::enter_keeps_no_change", change),
    each("confirm::in_the_background", background),
];

/// A time in which this machine gives some commands: twice that of an `apply`, from its start to its end, which is the slowest.
fn pace(setting: &Setting, bed: &Bed) -> Result<Duration> {
    let start = Instant::now();
    let applied = setting.product.apply(&bed.left, "latency: 40ms", setting.pacer)?;
    ensure!(delay(bed)? > 30.0, "nothing is emulated");
    applied.stop()?;
    Ok(Duration::from_secs(3) + 2 * start.elapsed())
}

fn option(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

fn go_back(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let pace = pace(setting, &bed)?;
    let undone = PATIENCE + pace;
    let pace = option(pace);
    let lease = ["--lease", "100s"];
    let applied = setting
        .product
        .apply_with(&bed.left, "latency: 40ms", setting.pacer, &lease)?;
    let terms = ["--for", "3000s", "--lease", "7s", "--follow"];
    let changed = update(
        setting,
        &bed,
        "latency: 10ms",
        &[&["--confirm", &*pace][..], &terms].concat(),
    )?;
    done(&changed)?;
    ensure!(delay(&bed)? < 30.0, "the change had no effect");
    let report = applied.counters()?;
    ensure!(
        report["confirm_left_ms"].is_u64() && report["ends_in_ms"].is_u64(),
        "status does not say that it waits, or ends: {report}"
    );
    let again = update(setting, &bed, "latency: 20ms", &[])?;
    ensure!(
        again.code() == 1 && again.stderr.contains("perturb confirm"),
        "{again:?}"
    );
    wait_for(undone, "undone", || {
        Ok(applied.counters()?["confirm_left_ms"].is_null())
    })?;
    ensure!(delay(&bed)? > 30.0, "the profile before is not in force again");
    let report = applied.counters()?;
    ensure!(
        report["ends_in_ms"].is_null() && report["updates"] == 2,
        "--for outlives the change: {report}"
    );
    wait("the lease before", || {
        Ok(applied.counters()?["lease_left_ms"].as_u64() > Some(50_000))
    })?;
    // It ends if the interface goes, as before.
    let follows = record(&applied.counters()?)?["terms"]["follow"].clone();
    ensure!(follows == false, "--follow outlives the change");

    done(&update(setting, &bed, "latency: 10ms", &["--confirm", &pace])?)?;
    let left = applied.counters()?["confirm_left_ms"]
        .as_u64()
        .context("it does not wait")?;
    done(
        &setting
            .product
            .call(&bed.left, &["confirm", "--iface", INTERFACE])?,
    )?;
    ensure!(applied.counters()?["confirm_left_ms"].is_null(), "it still waits");
    thread::sleep(Duration::from_millis(left) + Duration::from_secs(1));
    ensure!(delay(&bed)? < 30.0, "it went back though it was confirmed");
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// The record of an emulation.
fn record(report: &Value) -> Result<Value> {
    let id = report["id"].as_str().context("no id")?;
    Ok(serde_json::from_slice(&fs::read(format!(
        "/run/perturb/{id}/record.json"
    ))?)?)
}

fn undo(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let pace = pace(setting, &bed)?;
    let start = || {
        setting.product.apply_with(
            &bed.left,
            "latency: 40ms",
            setting.pacer,
            &["--confirm", &option(pace)],
        )
    };
    let applied = start()?;
    ensure!(delay(&bed)? > 30.0, "nothing is emulated");
    let (status, said) = applied.ended()?;
    ensure!(
        status.code() == Some(1) && said.contains("confirmed"),
        "{status}: {said}"
    );
    before.must_be_that_of(&bed.left)?;
    let applied = start()?;
    done(&setting.product.call(&bed.left, &["confirm"])?)?;
    ensure!(applied.counters()?["confirm_left_ms"].is_null(), "it still waits");
    thread::sleep(pace);
    ensure!(delay(&bed)? > 30.0, "it was undone though it was confirmed");
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// `perturb apply --confirm` with the other end of a terminal.
struct Terminal {
    child: Child,
    keyboard: File,
    _slave: OwnedFd,
}

impl Terminal {
    /// `wrap` starts the words it is given.
    fn start(setting: &Setting, bed: &Bed, confirm: &str, wrap: &[&str]) -> Result<Self> {
        let OpenptyResult { master, slave } = openpty(None, None)?;
        let profile = setting.product.profile("latency: 40ms")?;
        let perturb = setting.product.path.to_string_lossy();
        let profile = profile.to_string_lossy();
        let words = [
            wrap,
            &[
                &*perturb,
                "apply",
                &*profile,
                "--iface",
                INTERFACE,
                "--confirm",
                confirm,
                "--pacer",
                setting.pacer.name(),
                "--quiet",
            ],
        ]
        .concat();
        let [program, arguments @ ..] = words.as_slice() else {
            anyhow::bail!("no words")
        };
        let mut command: Command = bed.left.command(program);
        let child = command
            .args(arguments)
            .stdin(slave.try_clone()?)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            child,
            keyboard: master.into(),
            _slave: slave,
        })
    }

    fn end(mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }

    fn press_enter(&mut self) -> Result<()> {
        Ok(self.keyboard.write_all(b"\n")?)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // After `end` there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What status says of the only emulation of a bed's host, once there is one.
fn report(setting: &Setting, bed: &Bed) -> Result<Value> {
    let mut found = Value::Null;
    wait("emulated", || {
        let reports = setting.product.status(&bed.left)?;
        let own = reports.into_iter().find(|report| {
            report["host"].is_null() && report["interfaces"] == serde_json::json!([INTERFACE])
        });
        found = own.unwrap_or_default();
        Ok(!found.is_null())
    })?;
    Ok(found)
}

fn enter(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let mut terminal = Terminal::start(setting, &bed, "3000s", &[])?;
    ensure!(
        report(setting, &bed)?["confirm_left_ms"].is_u64(),
        "it does not wait to be confirmed"
    );
    // Another command is busy when Enter is pressed.
    let busy = lock(Path::new("/run/perturb/changes"))?;
    terminal.press_enter()?;
    thread::sleep(Duration::from_secs(2));
    ensure!(
        report(setting, &bed)?["confirm_left_ms"].is_u64(),
        "it changed its record while another command had the lock"
    );
    drop(busy);
    wait("confirmed", || {
        Ok(report(setting, &bed)?["confirm_left_ms"].is_null())
    })?;
    ensure!(delay(&bed)? > 30.0, "nothing is emulated");
    kill(Pid::from_raw(terminal.child.id().cast_signed()), Signal::SIGTERM)?;
    let status = terminal.end()?;
    ensure!(status.success(), "{status}");
    before.must_be_that_of(&bed.left)
}

/// A change that somebody gives elsewhere is not kept by who presses Enter where the emulation began.
fn change(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let mut terminal = Terminal::start(setting, &bed, "3000s", &[])?;
    let waits = || Ok::<_, anyhow::Error>(report(setting, &bed)?["confirm_left_ms"].is_u64());
    ensure!(waits()?, "it does not wait to be confirmed");
    let confirm = || {
        done(
            &setting
                .product
                .call(&bed.left, &["confirm", "--iface", INTERFACE])?,
        )
    };
    confirm()?;
    ensure!(!waits()?, "it still waits");
    done(&update(setting, &bed, "latency: 10ms", &["--confirm", "3000s"])?)?;
    terminal.press_enter()?;
    thread::sleep(Duration::from_secs(2));
    ensure!(waits()?, "Enter has kept somebody else's change");
    confirm()?;
    ensure!(!waits()?, "`perturb confirm` has not kept it");
    kill(Pid::from_raw(terminal.child.id().cast_signed()), Signal::SIGTERM)?;
    let status = terminal.end()?;
    ensure!(status.success(), "{status}");
    before.must_be_that_of(&bed.left)
}

/// In the background of a terminal's shell: what is typed is the shell's, until it puts perturb in the foreground.
fn background(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let script = "\"$@\" & read line; fg %1";
    let wrap = [
        "setsid", "--ctty", "--wait", "bash", "--norc", "-i", "-c", script, "bash",
    ];
    let mut terminal = Terminal::start(setting, &bed, "3000s", &wrap)?;
    let pid = report(setting, &bed)?["pid"].as_u64().context("no pid")?;
    thread::sleep(Duration::from_secs(2));
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    ensure!(
        !status.contains("State:\tT"),
        "it is stopped in the background: {status}"
    );
    ensure!(delay(&bed)? > 30.0, "nothing is emulated");
    // To the shell.
    terminal.press_enter()?;
    thread::sleep(Duration::from_secs(2));
    ensure!(
        report(setting, &bed)?["confirm_left_ms"].is_u64(),
        "it took what was typed for the shell"
    );
    // The shell has put it in the foreground.
    terminal.press_enter()?;
    wait("confirmed", || {
        Ok(report(setting, &bed)?["confirm_left_ms"].is_null())
    })?;
    kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM)?;
    let status = terminal.end()?;
    ensure!(status.success(), "{status}");
    before.must_be_that_of(&bed.left)
}
