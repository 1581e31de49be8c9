//! Who may do what: capabilities of a controller, and the user of a command that sudo started.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
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

use crate::harness::{Setting, Test, each, once};

pub(crate) const TESTS: &[Test] = &[
    each("privileges::apply_needs_five_capabilities", five),
    each("privileges::a_controller_keeps_what_it_needs", kept),
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

/// Every thread of a controller that root started.
fn kept(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
    for thread in fs::read_dir(format!("/proc/{}/task", applied.pid()))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        for key in ["CapPrm:", "CapEff:", "CapBnd:"] {
            let found = capabilities(&status, key)?;
            ensure!(found == mask(), "{key} {found:x}, not {:x}", mask());
        }
        ensure!(capabilities(&status, "CapInh:")? == 0, "{status}");
    }
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

/// `perturb run`, as sudo starts it for nobody.
fn sudo(setting: &Setting, options: &[&str], script: &str) -> Result<Output> {
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    let profile = setting.product.profile("latency: 1ms")?;
    Command::new(&setting.product.path)
        .args(["run", "--pacer", setting.pacer.name()])
        .args(options)
        .arg(&profile)
        .args(["--", "sh", "-c", script])
        .env("PROFILE", &profile)
        .env("SUDO_UID", NOBODY)
        .env("SUDO_GID", NOBODY)
        .env("SUDO_USER", "nobody")
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .output()
        .context("starting perturb run")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
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
    // Without a capability: those of the program's file are not inherited.
    let ping = sudo(setting, &[], "setpriv --no-new-privs ping -c 3 -i 0.2 h2")?;
    ensure!(said(&ping).contains(" 0% packet loss"), "{ping:?}");
    Ok(())
}

/// The lab's executable lends root's privileges to `on` alone, and to hosts of the lab alone.
fn door(setting: &Setting) -> Result<()> {
    for attempt in [
        "perturb on ../../proc/1/ns/net -- id -u",
        "perturb on /proc/1/ns/net -- id -u",
        "perturb apply \"$PROFILE\" --iface lo --for 1s",
        "perturb clear --all",
        "perturb status",
        "perturb man /etc",
        "perturb stage --namespaces 0 -- id -u",
    ] {
        let output = sudo(setting, &[], attempt)?;
        ensure!(
            !output.status.success() && said(&output).is_empty(),
            "{attempt}: {output:?}"
        );
    }
    Ok(())
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
