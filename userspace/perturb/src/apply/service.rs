//! What a process that stays behind has to do with systemd: it says when it is ready, and where its messages go.

use std::{
    env,
    ffi::OsString,
    io::Write as _,
    os::{
        fd::{AsFd as _, OwnedFd},
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram, UnixStream},
        },
    },
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use nix::unistd::dup2_stderr;
use perturb_emulator::registry::Record;

use super::Request;

/// Where a service manager listens for its service's word (`sd_notify`).
pub(super) const NOTIFY: &str = "NOTIFY_SOCKET";

/// The journal takes streams here (`sd_journal_stream_fd`).
const JOURNAL: &str = "/run/systemd/journal/stdout";
/// Where syslog listens.
const SYSLOG: &str = "/dev/log";
/// systemd is the system's first process (`sd_booted`).
const BOOTED: &str = "/run/systemd/system";

/// Tells the service manager, if there is one, that the emulation has begun (`sd_notify`).
pub(super) fn ready() -> anyhow::Result<()> {
    let Some(name) = env::var_os(NOTIFY) else {
        return Ok(());
    };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address))
        .map(drop)
        .with_context(|| {
            format!(
                "telling the service manager at {} that perturb is ready",
                name.display()
            )
        })
}

/// A service manager that listens for this process's word takes its end for the service's, and starts it again: it must not
/// change what another process emulates, and end.
pub(super) fn refuse_to_end(record: &Record, request: &Request) -> anyhow::Result<()> {
    ensure!(
        request.detach || env::var_os(NOTIFY).is_none(),
        "process {} emulates on {} already, and this service can only keep up what it has begun itself; end that with \
         `perturb clear --iface {}`",
        record.process.pid,
        record.place(),
        request.interfaces.first().map_or("", String::as_str)
    );
    Ok(())
}

/// Sends what this process says on standard error from now on to the journal, else to syslog, else nowhere.
pub(super) fn log_to_journal() -> anyhow::Result<()> {
    let log = journal().or_else(syslog);
    let log = match log {
        Some(log) => log,
        None => std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/null")
            .context("opening /dev/null")?
            .into(),
    };
    dup2_stderr(log.as_fd()).context("sending messages to the journal")
}

/// A stream to the journal, if it takes one.
fn journal() -> Option<OwnedFd> {
    let mut stream = UnixStream::connect(JOURNAL).ok()?;
    // Identifier, unit, priority (6: information), whether lines begin with a level, and where else they go.
    stream.write_all(b"perturb\n\n6\n0\n0\n0\n0\n").ok()?;
    Some(stream.into())
}

/// A pipe to `logger`, if there is a syslog.
fn syslog() -> Option<OwnedFd> {
    if !Path::new(SYSLOG).exists() {
        return None;
    }
    let mut logger = Command::new("logger")
        .args(["--tag", "perturb"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    logger.stdin.take().map(Into::into)
}

/// How to begin this program again so that it leaves the cgroup of the session in which it is called: logind ends what is
/// in there with the session (`KillUserProcesses`). `systemd-run --scope` becomes the program: the number of the process
/// stays.
pub(super) fn out_of_session() -> anyhow::Result<(OsString, Vec<OsString>)> {
    let has_runner = || {
        let asked = Command::new("systemd-run")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        asked.is_ok_and(|status| status.success())
    };
    if !Path::new(BOOTED).exists() || !has_runner() {
        return Ok(("/proc/self/exe".into(), Vec::new()));
    }
    let this = env::current_exe().context("finding this executable")?;
    let mut words: Vec<OsString> = ["--scope", "--quiet", "--collect", "--slice=system.slice", "--"]
        .into_iter()
        .map(Into::into)
        .collect();
    words.push(this.into());
    Ok(("systemd-run".into(), words))
}
