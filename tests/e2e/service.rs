//! What stays behind without a terminal: beside systemd, the journal, syslog, a service manager. Stand-ins play them here;
//! docs/server.md says what was tried with the real ones.

use std::{
    fs,
    io::{BufRead as _, BufReader, ErrorKind},
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixDatagram, UnixListener},
    },
    path::Path,
    process::Output,
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_tests::{
    bed::{Bed, INTERFACE},
    bystander::{self, Bystander},
};

use crate::{
    harness::{Setting, Test, each},
    update::{PATIENCE, delay, wait},
};

pub(crate) const TESTS: &[Test] = &[
    each("service::detach_says_what_it_sees", detach_says),
    each("service::detach_says_it_to_syslog", syslog),
    each("service::detach_leaves_the_session", leaves_session),
    each("service::manager_is_told", told),
    each("service::keeps_its_own_emulation_only", own_only),
];

/// Applies 40 ms where /run/systemd shows `systemd`, in whose programs PATH begins: in a mount namespace of its own.
fn apply_beside(systemd: &Path, bed: &Bed, setting: &Setting, options: &[&str]) -> Result<Output> {
    let script = "mkdir -p /run/systemd && mount --bind \"$1\" /run/systemd && PATH=$1:$PATH";
    apply_where(script, systemd, bed, setting, options)
}

/// Applies 40 ms in a mount namespace of its own, after a script whose first argument is `place`.
fn apply_where(script: &str, place: &Path, bed: &Bed, setting: &Setting, options: &[&str]) -> Result<Output> {
    let script = format!("{script} && shift && exec \"$@\"");
    bed.left
        .command("unshare")
        .args(["--mount", "sh", "-c", &script, "sh"])
        .arg(place)
        .arg(&setting.product.path)
        .arg("apply")
        .arg(setting.product.profile("latency: 40ms")?)
        .args(["--iface", INTERFACE, "--pacer", setting.pacer.name()])
        .args(options)
        .output()
        .context("starting perturb apply")
}

/// Where systemd runs, the process that stays behind is a scope of its own: the end of the session in which it was called does
/// not end it. A script stands for `systemd-run`, which needs systemd.
fn leaves_session(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let systemd = tempfile::TempDir::with_prefix("perturb-systemd-")?;
    fs::create_dir(systemd.path().join("system"))?;
    let runner = systemd.path().join("systemd-run");
    let asked = systemd.path().join("asked");
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exit\nwhile [ \"$1\" != -- ]; do echo \"$1\" >> {}; shift; done\nshift\n\
         exec \"$@\"\n",
        asked.display()
    );
    fs::write(&runner, text)?;
    fs::set_permissions(&runner, fs::Permissions::from_mode(0o755))?;
    let output = apply_beside(systemd.path(), &bed, setting, &["--detach"])?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(delay(&bed)? > 30.0, "nothing is emulated");
    let asked = fs::read_to_string(&asked).context("systemd-run was not asked")?;
    for word in ["--scope", "--collect", "--slice=system.slice"] {
        ensure!(
            asked.lines().any(|line| line == word),
            "{word} is not among {asked}"
        );
    }
    setting.product.clear(&bed.left)?;
    before.must_be_that_of(&bed.left)
}

/// What `apply --detach` finds at the interface is said to whoever gave it, once; what happens later, to the journal.
fn detach_says(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let _bystander = Bystander::at(&bed.left, bystander::PREF)?;
    let systemd = tempfile::TempDir::with_prefix("perturb-journal-")?;
    fs::create_dir(systemd.path().join("journal"))?;
    let journal = UnixListener::bind(systemd.path().join("journal/stdout"))?;
    let output = apply_beside(systemd.path(), &bed, setting, &["--detach", "--follow"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && said.matches(", too: perturb comes first").count() == 2,
        "egress and ingress have another program each: {output:?}"
    );
    bed.left.run(&format!("ip link del {INTERFACE}"))?;
    journal.set_nonblocking(true)?;
    let mut accepted = None;
    wait("perturb connects to the journal", || match journal.accept() {
        Ok((stream, _)) => {
            accepted = Some(stream);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    })?;
    let stream = accepted.context("the journal has no connection")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream).lines();
    let waits = |line: &std::io::Result<String>| match line {
        Ok(line) => line.contains("waiting until there is an interface"),
        Err(_) => true,
    };
    lines
        .find(waits)
        .context("the stream to the journal has ended")?
        .context("the journal does not hear that the interface is gone")?;
    setting.product.clear(&bed.left)?;
    Ok(())
}

/// Without a journal, syslog hears it.
fn syslog(setting: &Setting) -> Result<()> {
    // A /dev with the machine's devices, and a socket where syslog listens.
    const SCRIPT: &str = "mkdir -p /run/systemd && mount -t tmpfs none /run/systemd \
                          && mount --rbind /dev \"$1/dev\" && mount -t tmpfs none /dev \
                          && for file in \"$1\"/dev/*; do ln -s \"$file\" /dev/; done \
                          && ln -sfn \"$1/log\" /dev/log";
    let (bed, _) = setting.bed()?;
    let place = tempfile::TempDir::with_prefix("perturb-syslog-")?;
    fs::create_dir(place.path().join("dev"))?;
    let daemon = UnixDatagram::bind(place.path().join("log"))?;
    daemon.set_read_timeout(Some(PATIENCE))?;
    let output = apply_where(SCRIPT, place.path(), &bed, setting, &["--detach", "--follow"])?;
    ensure!(output.status.success(), "{output:?}");
    bed.left.run(&format!("ip link del {INTERFACE}"))?;
    loop {
        let mut heard = [0; 4096];
        let length = daemon
            .recv(&mut heard)
            .context("syslog does not hear that the interface is gone")?;
        let line = String::from_utf8_lossy(heard.get(..length).unwrap_or_default());
        ensure!(line.contains("perturb"), "not under perturb's name: {line}");
        if line.contains("waiting until there is an interface") {
            break;
        }
    }
    setting.product.clear(&bed.left)
}

/// Whoever started it is told when it emulates.
fn told(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let place = tempfile::TempDir::with_prefix("perturb-notify-")?;
    let path = place.path().join("notify");
    let socket = UnixDatagram::bind(&path)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let profile = setting.product.profile("latency: 40ms")?;
    let mut child = setting
        .product
        .on(&bed.left)
        .env("NOTIFY_SOCKET", &path)
        .arg("apply")
        .arg(&profile)
        .args(["--iface", INTERFACE, "--quiet", "--pacer", setting.pacer.name()])
        .spawn()?;
    let mut told = [0; 64];
    let length = socket
        .recv(&mut told)
        .context("it is not said that it is ready")?;
    ensure!(told.get(..length) == Some(b"READY=1"), "{told:?}");
    ensure!(delay(&bed)? > 30.0, "ready, but nothing is emulated");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
    ensure!(child.wait()?.success(), "it did not end well");
    before.must_be_that_of(&bed.left)
}

/// A service cannot keep up what another process emulates: it refuses, and changes nothing, rather than end at once and be
/// started again and again.
fn own_only(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 40ms", setting.pacer)?;
    let place = tempfile::TempDir::with_prefix("perturb-notify-")?;
    let path = place.path().join("notify");
    let socket = UnixDatagram::bind(&path)?;
    socket.set_nonblocking(true)?;
    let output = setting
        .product
        .on(&bed.left)
        .env("NOTIFY_SOCKET", &path)
        .arg("apply")
        .arg(setting.product.profile("latency: 1ms")?)
        .args(["--iface", INTERFACE, "--quiet"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let process = format!("process {} ", applied.pid());
    ensure!(
        output.status.code() == Some(1) && said.contains(&process) && said.contains("perturb clear"),
        "{output:?}"
    );
    ensure!(socket.recv(&mut [0; 64]).is_err(), "it says that it is ready");
    ensure!(
        applied.counters()?["updates"] == 0 && delay(&bed)? > 30.0,
        "the profile was changed"
    );
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}
