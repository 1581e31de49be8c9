//! What shells do to commands: nohup, closed pipes, a PATH without perturb, options that make no sense.

use std::{
    fs::{self, File},
    io::Read as _,
    net::TcpStream,
    os::{fd::OwnedFd, unix::fs::PermissionsExt as _},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    pty::{OpenptyResult, openpty},
    sys::signal::{Signal, kill},
    unistd::{Pid, pipe},
};
use perturb_tests::bed::{Bed, INTERFACE};

use crate::{
    harness::{Setting, Test, each, once},
    update::wait,
};

pub(crate) const TESTS: &[Test] = &[
    once("shell::nohup_holds", nohup),
    once("shell::a_hangup_ends_and_cleans_up", hangup),
    once("shell::nohup_holds_for_the_command_of_a_run", nohup_run),
    once("shell::a_closed_pipe_is_a_quiet_end", closed_pipe),
    each("shell::a_controller_outlives_its_messages", closed_messages),
    once("shell::a_watch_says_a_thing_once", watch),
    once("shell::progress_is_for_terminals", progress),
    once("shell::times_have_ranges", times),
    once("shell::perturb_is_on_the_path_of_a_run", path),
];

/// How long a command may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The arguments that put the bed's interface under emulation.
fn apply(setting: &Setting) -> Result<Vec<String>> {
    let profile = setting.product.profile("latency: 1ms")?;
    let words = ["--iface", INTERFACE, "--pacer", setting.pacer.name()];
    let mut arguments = vec!["apply".to_owned(), profile.to_string_lossy().into_owned()];
    arguments.extend(words.map(str::to_owned));
    Ok(arguments)
}

/// Whether a process emulates, by `status`.
fn emulates(setting: &Setting, bed: &Bed, child: &Child) -> Result<bool> {
    let own = |report: &serde_json::Value| report["pid"].as_u64() == Some(u64::from(child.id()));
    Ok(setting.product.status(&bed.left)?.iter().any(own))
}

fn begun(setting: &Setting, bed: &Bed, child: &mut Child) -> Result<()> {
    let start = Instant::now();
    while !emulates(setting, bed, child)? {
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("perturb apply ended before it began: {status}");
        }
        ensure!(start.elapsed() < PATIENCE, "perturb apply does not begin");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn send(child: &Child, signal: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(child.id().cast_signed()), signal)?)
}

fn nohup(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let mut child = bed
        .left
        .command("nohup")
        .arg(&setting.product.path)
        .args(apply(setting)?)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    begun(setting, &bed, &mut child)?;
    send(&child, Signal::SIGHUP)?;
    thread::sleep(Duration::from_secs(1));
    ensure!(
        child.try_wait()?.is_none() && emulates(setting, &bed, &child)?,
        "SIGHUP ended `nohup perturb apply`"
    );
    send(&child, Signal::SIGTERM)?;
    let status = child.wait()?;
    ensure!(status.success(), "{status}");
    before.must_be_that_of(&bed.left)
}

fn hangup(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
    applied.signal(Signal::SIGHUP)?;
    let (status, said) = applied.ended()?;
    ensure!(status.success(), "{status}: {said}");
    before.must_be_that_of(&bed.left)
}

fn nohup_run(setting: &Setting) -> Result<()> {
    for (program, ignores) in [("nohup", true), ("env", false)] {
        let output = Command::new(program)
            .arg(&setting.product.path)
            .args(["run", "--pacer", setting.pacer.name()])
            .arg(setting.product.profile("latency: 1ms")?)
            .args(["--", "grep", "SigIgn", "/proc/self/status"])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let ignored = text.trim().rsplit_once('\t').context("no signals")?.1;
        let ignored = u64::from_str_radix(ignored, 16).with_context(|| format!("{output:?}"))?;
        ensure!(
            (ignored & 1 == 1) == ignores,
            "under {program} the command ignores signals {ignored:x}"
        );
    }
    Ok(())
}

/// The writing end of a pipe that nobody reads.
fn closed() -> Result<OwnedFd> {
    let (reader, writer) = pipe()?;
    drop(reader);
    Ok(writer)
}

fn closed_pipe(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let profile = setting.product.profile("latency: 1ms")?;
    let profile = profile.to_string_lossy();
    let commands: [&[&str]; 8] = [
        &["schema"],
        &["check", &profile],
        &["check", "--json", &profile],
        &["completions", "bash"],
        &["status"],
        &["status", "--json"],
        &["apply", "--dry-run", "--iface", INTERFACE, &profile],
        &["--help"],
    ];
    for arguments in commands {
        let output = setting
            .product
            .on(&bed.left)
            .args(arguments)
            .stdout(closed()?)
            .stderr(Stdio::piped())
            .spawn()?
            .wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            matches!(output.status.code(), Some(0 | 1)) && !said.contains("panic") && !said.contains("pipe"),
            "{arguments:?}: {}: {said}",
            output.status
        );
    }
    Ok(())
}

/// The reader of its messages has gone: it emulates on, ends when it is told to, and leaves nothing.
fn closed_messages(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let mut child = setting
        .product
        .on(&bed.left)
        .args(apply(setting)?)
        .stdout(closed()?)
        .stderr(closed()?)
        .spawn()?;
    begun(setting, &bed, &mut child)?;
    thread::sleep(Duration::from_secs(2));
    ensure!(emulates(setting, &bed, &child)?, "it does not emulate any more");
    send(&child, Signal::SIGINT)?;
    let status = child.wait()?;
    ensure!(status.success(), "{status}");
    before.must_be_that_of(&bed.left)
}

/// A record that cannot be read: whoever looks again and again is told of it once. In a registry of its own.
fn watch(setting: &Setting) -> Result<()> {
    const SCRIPT: &str = r#"
        mkdir -p /run/perturb && mount -t tmpfs -o mode=700 none /run/perturb && mkdir -m 700 /run/perturb/7-7 || exit
        echo '{ "format": 99 }' > /run/perturb/7-7/record.json
        "$P" status --json --watch 20ms | head -n 5
    "#;
    let (bed, _) = setting.bed()?;
    let output = bed
        .left
        .command("unshare")
        .args(["--mount", "sh", "-c", SCRIPT])
        .env("P", &setting.product.path)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.stdout == "[]\n".repeat(5).as_bytes() && said.matches("another version").count() == 1,
        "{output:?}"
    );
    Ok(())
}

fn times(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let profile = setting.product.profile("latency: 1ms")?;
    let profile = profile.to_string_lossy();
    for (option, values) in [
        ("--lease", ["3ns", "99ms", "0s", "100000s"]),
        ("--for", ["3ns", "0s", "999us", "99999999s"]),
        ("--spin", ["3ns", "0s", "11ms", "60s"]),
    ] {
        for value in values {
            let arguments = ["apply", &*profile, "--iface", INTERFACE, option, value];
            let refused = setting.product.call(&bed.left, &arguments)?;
            let said = &refused.stderr;
            ensure!(
                refused.code() == 2 && said.contains("allowed is") && said.contains(option),
                "{option} {value}: {refused:?}"
            );
        }
    }
    for value in ["3ns", "0s", "100000s"] {
        let refused = setting.product.call(&bed.left, &["status", "--watch", value])?;
        ensure!(
            refused.code() == 2 && refused.stderr.contains("allowed is 10ms to 3600s"),
            "--watch {value}: {refused:?}"
        );
    }
    // The shortest lease that is allowed works.
    let least = ["--lease", "100ms"];
    let applied = setting
        .product
        .apply_with(&bed.left, "latency: 1ms", setting.pacer, &least)?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// Whatever PATH the caller has, sudo's `secure_path` for one, and even if another `perturb` is there.
fn path(setting: &Setting) -> Result<()> {
    let other = tempfile::tempdir()?;
    let program = other.path().join("perturb");
    fs::write(&program, "#!/bin/sh\necho another\n")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let places = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", other.path().display());
    let output = Command::new(&setting.product.path)
        .env("PATH", places)
        .args(["run", "--pacer", setting.pacer.name()])
        .arg(setting.product.profile("latency: 1ms")?)
        .args([
            "--",
            "sh",
            "-c",
            "perturb on h2 -- sh -c 'hostname; perturb on h1 -- hostname'",
        ])
        .output()?;
    ensure!(
        output.status.success() && output.stdout == b"h2\nh1\n",
        "{output:?}"
    );
    Ok(())
}

/// On a terminal, parts that are done, all of them, and the time left; elsewhere nothing.
fn progress(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let mut serve = setting
        .product
        .on(&bed.right)
        .args(["measure", "serve"])
        .stderr(Stdio::null())
        .spawn()?;
    let measure = || {
        let mut command = setting.product.on(&bed.left);
        command
            .args(["measure", "--quick", "--json", "--peer"])
            .arg(bed.right.v4.to_string());
        command.stdout(Stdio::null());
        command
    };
    let told = || -> Result<(String, String)> {
        wait("it serves", || {
            let connected = bed.left.enter(|| TcpStream::connect((bed.right.v4, 4798)))?;
            Ok(connected.is_ok())
        })?;
        let piped = measure().output()?;
        ensure!(piped.status.success(), "{piped:?}");
        let OpenptyResult { master, slave } = openpty(None, None)?;
        let mut child = measure().stderr(slave).spawn()?;
        let reader = thread::spawn(move || {
            let (mut said, mut master) = (Vec::new(), File::from(master));
            // It ends with an error once nobody has the other end.
            let _ = master.read_to_end(&mut said);
            said
        });
        ensure!(child.wait()?.success(), "it failed on a terminal");
        let said = reader
            .join()
            .map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        let quiet = String::from_utf8_lossy(&piped.stderr).into_owned();
        Ok((quiet, String::from_utf8_lossy(&said).into_owned()))
    };
    let told = told();
    serve.kill()?;
    serve.wait()?;
    let (quiet, said) = told?;
    ensure!(quiet.is_empty(), "{quiet}");
    // A size is a part: seven each way, the buffers, the round trips, and both ways at once.
    for part in [
        "0/18 · round trips",
        "the way there: 64 bytes",
        "the way back: 1472 bytes",
        "left · both ways at once",
    ] {
        ensure!(said.contains(part), "no {part}: {said:?}");
    }
    ensure!(
        said.ends_with("\r\x1b[K"),
        "something is left in the line: {said:?}"
    );
    Ok(())
}
