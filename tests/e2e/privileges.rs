//! Who may do what: capabilities of a controller, and the user of a command that sudo started.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use perturb_tests::bed::INTERFACE;

use crate::{
    harness::{Setting, Test, each, once},
    runs::said,
};

pub(crate) const TESTS: &[Test] = &[
    each("privileges::apply_needs_five_capabilities", five),
    each("privileges::a_controller_keeps_what_it_needs", kept),
    each("privileges::so_does_that_of_a_run", kept_by_run),
    once("privileges::what_may_not_be_seen_is_not_taken_for_gone", hidden),
    once("privileges::a_run_under_sudo_belongs_to_its_user", under_sudo),
    once("privileges::the_way_to_other_hosts_leads_nowhere_else", door),
    once("privileges::as_root_is_root", as_root),
];

/// `CAP_NET_ADMIN`, `CAP_SYS_ADMIN`, `CAP_SYS_NICE`, `CAP_PERFMON`, `CAP_BPF`, by number.
const NEEDED: [u32; 5] = [12, 21, 23, 38, 39];
/// The user and group that own nothing.
const NOBODY: &str = "65534";

fn mask() -> u64 {
    NEEDED.iter().fold(0, |mask, number| mask | 1 << number)
}

/// A line of a process's status that has a mask of capabilities.
fn capabilities(status: &str, key: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let text = line.with_context(|| format!("no {key} in {status}"))?;
    Ok(u64::from_str_radix(text.trim(), 16)?)
}

/// Without CAP_SYS_PTRACE a namespace that has no name cannot be found: what a killed emulation left there keeps its record until
/// somebody comes who sees it.
fn hidden(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
    applied.signal(Signal::SIGKILL)?;
    let (status, _) = applied.ended()?;
    ensure!(!status.success(), "{status} after SIGKILL");
    let product = &setting.product.path;
    let clear = ["clear", "--all"];
    let blind = Command::new("setpriv")
        .args(["--bounding-set=-sys_ptrace", "--"])
        .arg(product)
        .args(clear)
        .output()?;
    let stays = "this user may not look into all processes";
    let text = String::from_utf8_lossy(&blind.stderr);
    ensure!(!blind.status.success() && text.contains(stays), "clear: {text}");
    let seeing = Command::new(product).args(clear).output()?;
    let text = String::from_utf8_lossy(&seeing.stderr);
    ensure!(seeing.status.success() && !text.contains(stays), "clear: {text}");
    before.must_be_that_of(&bed.left)
}

/// Without any other capability it emulates, and leaves nothing.
fn five(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let mut bounding = "-all".to_owned();
    for number in NEEDED {
        bounding += &format!(",+cap_{number}");
    }
    let mut child = bed
        .left
        .command("setpriv")
        .arg(format!("--bounding-set={bounding}"))
        .arg(&setting.product.path)
        .arg("apply")
        .arg(setting.product.profile("latency: 1ms")?)
        .args(["--iface", INTERFACE, "--quiet", "--pacer", setting.pacer.name()])
        .stderr(Stdio::inherit())
        .spawn()?;
    let own = |report: &serde_json::Value| report["pid"].as_u64() == Some(u64::from(child.id()));
    let start = Instant::now();
    while !setting.product.status(&bed.left)?.iter().any(own) {
        ensure!(
            start.elapsed() < Duration::from_secs(60) && fs::exists(format!("/proc/{}/status", child.id()))?,
            "it does not begin"
        );
        thread::sleep(Duration::from_millis(50));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
    let status = child.wait()?;
    ensure!(status.success(), "{status}");
    before.must_be_that_of(&bed.left)
}

/// Fails unless every thread of a process has the capabilities that a controller needs, and no others.
fn must_keep_what_is_needed(pid: u32) -> Result<()> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let name = status.lines().next().unwrap_or_default();
        for key in ["CapPrm:", "CapEff:", "CapBnd:"] {
            let found = capabilities(&status, key)?;
            ensure!(found == mask(), "{name}: {key} {found:x}, not {:x}", mask());
        }
        ensure!(capabilities(&status, "CapInh:")? == 0, "{status}");
        ensure!(
            status.contains("NoNewPrivs:\t1"),
            "{name}: a program may give it more: {status}"
        );
    }
    Ok(())
}

/// A controller that root started.
fn kept(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
    must_keep_what_is_needed(applied.pid().as_raw().cast_unsigned())?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// The threads of a run that keep its emulation alive were started before its command, which needs all of root's.
fn kept_by_run(setting: &Setting) -> Result<()> {
    let mut run = Command::new(&setting.product.path)
        .args(["run", "--pacer", setting.pacer.name()])
        .arg(setting.product.profile("latency: 1ms")?)
        .args([
            "--",
            "sh",
            "-c",
            "echo up; read line; grep CapBnd /proc/self/status",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(run.stdout.take().context("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    // The first thread gives up what it does not need when the command has been started, which may be later than its output.
    let start = Instant::now();
    let kept = loop {
        let kept = must_keep_what_is_needed(run.id());
        if kept.is_ok() || start.elapsed() > Duration::from_secs(20) {
            break kept;
        }
        thread::sleep(Duration::from_millis(20));
    };
    drop(run.stdin.take());
    line.clear();
    output.read_line(&mut line)?;
    let status = run.wait()?;
    kept?;
    ensure!(status.success(), "{status}");
    let of_command = capabilities(&line, "CapBnd:")?;
    ensure!(
        of_command & !mask() != 0,
        "the command has lost capabilities of root's: {line}"
    );
    Ok(())
}

/// `perturb run`, as sudo starts it for nobody.
fn sudo(setting: &Setting, options: &[&str], script: &str) -> Result<Output> {
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    let profile = setting.product.profile("latency: 1ms")?;
    command(setting, options, script, &profile)
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .output()
        .context("starting perturb run")
}

fn command(setting: &Setting, options: &[&str], script: &str, profile: &Path) -> Command {
    let mut command = Command::new(&setting.product.path);
    command
        .args(["run", "--pacer", setting.pacer.name()])
        .args(options)
        .arg(profile)
        .args(["--", "sh", "-c", script])
        .env("PROFILE", profile)
        .env("SUDO_UID", NOBODY)
        .env("SUDO_GID", NOBODY)
        .env("SUDO_USER", "nobody");
    command
}

fn under_sudo(setting: &Setting) -> Result<()> {
    let script = "id -u; id -G; echo $USER $LOGNAME; [ -n \"$HOME\" ] && [ \"$HOME\" != /root ] && echo home; \
                  grep CapEff /proc/self/status; \
                  perturb on h2 -- sh -c 'hostname; id -u; grep CapEff /proc/self/status'";
    let output = sudo(setting, &[], script)?;
    let text = said(&output);
    let nothing = "CapEff:\t0000000000000000";
    let expected = format!("{NOBODY}\n{NOBODY}\nnobody nobody\nhome\n{nothing}\nh2\n{NOBODY}\n{nothing}");
    ensure!(output.status.success() && text == expected, "{text}: {output:?}");
    // The C library takes these from a program with the set-user-ID bit, which the way to other hosts is.
    let script = "export LD_LIBRARY_PATH=/lib:/usr/lib TMPDIR=/tmp/mine; \
                  perturb on h2 -- sh -c 'echo $LD_LIBRARY_PATH $TMPDIR; id -u'";
    let kept = sudo(setting, &[], script)?;
    ensure!(
        said(&kept) == format!("/lib:/usr/lib /tmp/mine\n{NOBODY}"),
        "{kept:?}"
    );
    // Without a capability: those of the program's file are not inherited.
    let ping = sudo(setting, &[], "setpriv --no-new-privs ping -c 3 -i 0.2 h2")?;
    ensure!(said(&ping).contains(" 0% packet loss"), "{ping:?}");
    Ok(())
}

/// The lab's executable lends root's privileges to `on` alone, and to hosts of the lab alone.
fn door(setting: &Setting) -> Result<()> {
    const CLOSED: &str = "Permission denied";
    for (attempt, why) in [
        ("perturb on ../../proc/1/ns/net -- id -u", "not the name"),
        ("perturb on /proc/1/ns/net -- id -u", "not the name"),
        ("perturb apply \"$PROFILE\" --iface lo --for 1s", CLOSED),
        ("perturb confirm", CLOSED),
        ("perturb status", CLOSED),
        ("perturb man /etc", CLOSED),
        (
            "perturb stage --namespaces 1:0 --hosts 1 -- id -u",
            "Operation not permitted",
        ),
    ] {
        let output = sudo(setting, &[], attempt)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && said(&output).is_empty() && stderr.contains(why),
            "{attempt}: {output:?}"
        );
    }
    clears_nothing(setting)
}

/// `clear --all` of a user who may clear nothing, while there is something that root's would clear: the remains of a
/// controller that was killed.
fn clears_nothing(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
    let id = applied.counters()?["id"].as_str().context("no id")?.to_owned();
    let record = format!("/run/perturb/{id}/record.json");
    let profile = setting.product.profile("latency: 1ms")?;
    let mut run = command(setting, &[], "echo up; read line; perturb clear --all", &profile)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(run.stdout.take().context("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    applied.signal(Signal::SIGKILL)?;
    applied.ended()?;
    drop(run.stdin.take());
    let output = run.wait_with_output()?;
    let is_left = fs::exists(&record)?;
    setting.product.clear(&bed.left)?;
    ensure!(line == "up\n" && !output.status.success(), "{line:?} {output:?}");
    ensure!(
        String::from_utf8_lossy(&output.stderr).contains("Permission denied"),
        "{output:?}"
    );
    ensure!(is_left, "a user has cleared what belongs to root");
    before.must_be_that_of(&bed.left)
}

fn as_root(setting: &Setting) -> Result<()> {
    let output = sudo(
        setting,
        &["--as-root"],
        "id -u; perturb on h2 -- id -u; ip netns exec h2 id -u",
    )?;
    ensure!(said(&output) == "0\n0\n0", "{output:?}");
    Ok(())
}
