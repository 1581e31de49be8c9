//! `perturb on --run`: commands on private hosts from outside of them.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    process::{Child, ChildStdin, Command, Output, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    harness::{Setting, Test, hosts},
    runs::said,
    update::wait,
};

pub(crate) const TESTS: &[Test] = &[
    hosts("join::a_command_comes_from_outside", comes),
    hosts("join::it_ends_with_its_caller_and_with_the_hosts", ends),
];

/// Pings, and not what IPv6 says of its groups when it likes.
pub(crate) const PINGS: &str = "servers: { out: { latency: 20ms }, in: { latency: 20ms } }\n\
                     classes: [{ name: echo, match: { protocol: icmp }, egress: [out], ingress: [in] }]";

/// Private hosts that last as long as this has their standard input.
struct Kept {
    run: Child,
    input: Option<ChildStdin>,
    report: TempDir,
}

impl Kept {
    fn new(setting: &Setting) -> Result<Self> {
        let report = TempDir::with_prefix("perturb-join-")?;
        fs::set_permissions(report.path(), fs::Permissions::from_mode(0o777))?;
        let mut run = setting
            .perturb()?
            .args(["run", "--pacer", setting.pacer.name(), "--hosts", "3", "--report"])
            .arg(report.path().join("report.json"))
            .arg(setting.product.profile(PINGS)?)
            .args(["--", "sh", "-c", "echo up; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(run.stdout.take().context("no output")?).read_line(&mut line)?;
        ensure!(line == "up\n", "it says {line:?}");
        let input = run.stdin.take();
        Ok(Self { run, input, report })
    }

    fn on(&self, setting: &Setting, host: &str, command: &[&str]) -> Result<Command> {
        let mut on = setting.perturb()?;
        on.args(["on", "--run", &format!("run-{}", self.run.id()), host, "--"])
            .args(command);
        Ok(on)
    }

    /// Ends them; what was counted.
    fn end(&mut self) -> Result<Value> {
        drop(self.input.take());
        let status = self.run.wait()?;
        ensure!(status.success(), "{status}");
        Ok(serde_json::from_slice(&fs::read(
            self.report.path().join("report.json"),
        )?)?)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Its input's end ends it.
        let _ = self.end();
    }
}

/// It is on the host that was named, in the caller's directory, and crosses the emulated network; its end is the caller's.
fn comes(setting: &Setting) -> Result<()> {
    let mut kept = Kept::new(setting)?;
    let shell = |host: &str, script: &str| -> Result<Output> {
        Ok(kept.on(setting, host, &["sh", "-c", script])?.output()?)
    };
    let output = shell(
        "h3",
        "hostname; pwd; echo $PERTURB_HOSTS $PERTURB_PEER; perturb on h2 -- hostname",
    )?;
    let here = env::current_dir()?;
    let expected = format!("h3\n{}\nh1 h2 h3 h2\nh2", here.display());
    ensure!(said(&output) == expected, "{output:?}");
    let ping = shell("h3", "ping -4 -c 2 -i 0.2 -q h2")?;
    let mean = said(&ping).rsplit('/').nth(2).unwrap_or_default().parse::<f64>();
    ensure!(
        mean.as_ref().is_ok_and(|mean| (39.9..60.0).contains(mean)),
        "{ping:?}"
    );
    for (script, code) in [("exit 7", 7), ("kill -TERM $$", 143)] {
        let output = shell("h2", script)?;
        ensure!(output.status.code() == Some(code), "`{script}`: {output:?}");
    }
    let missing = kept.on(setting, "h2", &["/no/such/program"])?.output()?;
    ensure!(missing.status.code() == Some(127), "{missing:?}");
    let nowhere = kept.on(setting, "h4", &["true"])?.output()?;
    let words = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    ensure!(
        nowhere.status.code() == Some(1) && words.contains("there are h1, h2, h3"),
        "{nowhere:?}"
    );
    let mut no_run = setting.perturb()?;
    let no_run = no_run
        .args(["on", "--run", "run-0", "h1", "--", "true"])
        .output()?;
    let words = String::from_utf8_lossy(&no_run.stderr).into_owned();
    let own = format!("run-{}", kept.run.id());
    ensure!(
        no_run.status.code() == Some(1) && words.contains(&own),
        "{no_run:?}"
    );
    let report = kept.end()?;
    // Two requests and two answers, each sent by one host.
    ensure!(
        report["id"] == own && report["balance"]["captured"] == 4 && report["faults"] == json!([]),
        "{report}"
    );
    Ok(())
}

/// A signal to the caller reaches the command; one that cannot be passed on ends both, and so does the end of the hosts.
fn ends(setting: &Setting) -> Result<()> {
    let mut kept = Kept::new(setting)?;
    let begin = || -> Result<(Child, BufReader<std::process::ChildStdout>)> {
        let script = "trap 'exit 9' INT; echo up; while :; do sleep 0.05; done";
        let mut child = kept
            .on(setting, "h2", &["sh", "-c", script])?
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        ensure!(line == "up\n", "{line:?}");
        Ok((child, output))
    };
    let (mut interrupted, _output) = begin()?;
    kill(Pid::from_raw(interrupted.id().cast_signed()), Signal::SIGINT)?;
    let status = interrupted.wait()?;
    ensure!(status.code() == Some(9), "{status}");

    let (mut killed, mut output) = begin()?;
    killed.kill()?;
    ensure!(killed.wait()?.signal() == Some(9));
    let mut rest = String::new();
    // The command had the output open.
    output.read_line(&mut rest)?;
    ensure!(rest.is_empty(), "{rest:?}");

    let (mut outlived, _output) = begin()?;
    kept.end()?;
    let mut status = None;
    wait("it ends", || {
        status = outlived.try_wait()?;
        Ok(status.is_some())
    })?;
    ensure!(status.and_then(|status| status.code()) == Some(137), "{status:?}");
    Ok(())
}
