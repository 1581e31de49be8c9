//! `apply --detach`: a process stays behind, an ordinary `perturb apply` in a session of its own, until
//! `perturb clear` ends it. If it is killed instead, traffic passes untouched, as in the foreground;
//! pinned programs would go on without anyone to watch them, and could not keep time without sch_fq.

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::unistd::setsid;

use super::{Request, service};
use crate::registry::{RECORDS, Record, records};

/// Time for the process to set everything up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts it, and returns when it emulates.
pub(super) fn start(request: &Request) -> anyhow::Result<Record> {
    // Its messages until then: inherited streams would keep a caller's pipe open for ever.
    let messages = PathBuf::from(RECORDS).join(format!("starting-{}", std::process::id()));
    let result = File::create(&messages)
        .with_context(|| format!("making {}", messages.display()))
        .and_then(|file| spawn(request, file))
        .and_then(|mut child| wait_until_ready(&mut child, &messages));
    fs::remove_file(&messages).with_context(|| format!("removing {}", messages.display()))?;
    result
}

fn spawn(request: &Request, messages: File) -> anyhow::Result<Child> {
    let (program, words) = service::out_of_session()?;
    let mut command = Command::new(program);
    command.args(words).arg("apply").arg(&request.file).args([
        "--pacer",
        request.pacer.name(),
        "--quiet",
        "--detached",
    ]);
    for interface in &request.interfaces {
        command.args(["--iface", interface]);
    }
    if request.prepared.coarse {
        command.arg("--coarse");
    }
    let times = [
        ("--spin", request.spin.map(|spin| spin.0)),
        ("--lease", request.lease),
        ("--for", request.duration),
        ("--confirm", request.confirm),
    ];
    for (option, time) in times {
        if let Some(time) = time.filter(|time| !time.is_zero()) {
            command.args([option, &format!("{}ns", time.as_nanos())]);
        }
    }
    for (option, given) in [("--follow", request.follow), ("--verbose", request.verbose)] {
        if given {
            command.arg(option);
        }
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(messages);
    // SAFETY: setsid is async-signal-safe.
    unsafe { command.pre_exec(|| setsid().map(drop).map_err(io::Error::from)) };
    command.spawn().context("starting the process that stays behind")
}

fn wait_until_ready(child: &mut Child, messages: &Path) -> anyhow::Result<Record> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            let said = fs::read_to_string(messages).unwrap_or_default();
            bail!("the process that stays behind ended ({status}): {}", said.trim());
        }
        let ours = |record: &Record| record.process.pid == child.id() && record.ready;
        if let Some(record) = records()?.records.into_iter().find(ours) {
            // What it warns of; from now on that goes to the journal.
            eprint!("{}", fs::read_to_string(messages).unwrap_or_default());
            return Ok(record);
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    bail!(
        "the process that stays behind was not ready after {} s",
        PATIENCE.as_secs()
    )
}
