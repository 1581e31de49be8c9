//! Private hosts that perturb joins itself, as an ordinary user: without root, and without a program in the kernel.

use std::{
    os::unix::process::CommandExt as _,
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{
    harness::{Setting, Test, figure, switch},
    join::PINGS,
    runs::said,
};

pub(crate) const TESTS: &[Test] = &[
    switch("switch::is_chosen_by_itself", chosen),
    switch("switch::says_what_it_cannot_do", refusals),
    switch("switch::says_what_is_missing", missing),
    switch("switch::drops_what_the_profile_says", drops),
    switch("switch::says_what_it_did_not_read", unread),
    switch("switch::cut_packets_are_whole_again", cut),
    switch("switch::profiles_change_while_it_runs", changes),
    switch("switch::the_kernel_gets_no_program", no_program),
];

/// A shell's script on the first of two hosts.
fn shell(setting: &Setting, pacer: &[&str], profile: &str, script: &str) -> Result<Output> {
    let profile = setting.product.profile(profile)?;
    setting
        .perturb()?
        .arg("run")
        .args(pacer)
        .arg(profile)
        .args(["--", "sh", "-c", script])
        .stdin(Stdio::null())
        .output()
        .context("starting perturb run")
}

/// The report of its own hosts that a script prints last by `status --json`, more than a second after the last packet, as what is held is
/// told once a second. Those of other tests are this user's, too.
fn report(output: &Output) -> Result<Value> {
    let text = said(output);
    let start = text.rfind("\n[").map_or(0, |at| at + 1);
    let reports: Value = serde_json::from_str(&text[start..]).with_context(|| format!("{output:?}"))?;
    let own = reports
        .as_array()
        .into_iter()
        .flatten()
        .find(|report| report["host"] == "h1");
    own.cloned().context("no report of these hosts")
}

/// A user without privileges asks for nothing.
fn chosen(setting: &Setting) -> Result<()> {
    let script = "id -u; grep CapBnd /proc/1/status; ping -4 -q -c 3 -i 0.05 h2 >/dev/null || exit 9; sleep 1.5; perturb status --json";
    let output = shell(setting, &[], PINGS, script)?;
    ensure!(output.status.success(), "{output:?}");
    let report = report(&output)?;
    ensure!(report["pacer"] == "switch", "{report}");
    ensure!(
        report["balance"]["captured"] == 6 && report["balance"]["unaccounted"] == 0,
        "{report}"
    );
    Ok(())
}

/// A TAP without room for what the switch has yet to read.
fn unread(setting: &Setting) -> Result<()> {
    let script = "ip link set eth0 txqueuelen 0; ping -4 -q -c 3 -i 0.05 -W 1 h2 >/dev/null; \
                  ip link set eth0 txqueuelen 1000; ping -4 -q -c 3 -i 0.05 -W 1 h2 >/dev/null || exit 9; \
                  sleep 1.5; perturb status --json";
    let output = shell(setting, &["--pacer", "switch"], PINGS, script)?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && words.contains("sent faster than the switch reads"),
        "{output:?}"
    );
    let report = report(&output)?;
    ensure!(
        report["unintended"]["splitter"].as_u64() >= Some(3) && report["balance"]["unaccounted"] == 0,
        "{report}"
    );
    Ok(())
}

/// Input that is refused, with the reason.
fn refusals(setting: &Setting) -> Result<()> {
    for (profile, word) in [
        ("overhead: { send: 5us }", "processor time"),
        (
            "servers: { s: { latency: 1ms } }\nclasses: [{ name: a, match: { fwmark: 7 }, egress: [s], ingress: [s] }]",
            "mark",
        ),
    ] {
        let output = shell(setting, &["--pacer", "switch"], profile, "true")?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(2) && words.contains("switch cannot") && words.contains(word),
            "{profile}: {output:?}"
        );
        let mut check = setting.perturb()?;
        let output = check
            .arg("check")
            .arg(setting.product.profile(profile)?)
            .output()?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && words.contains("without root it is refused") && words.contains(word),
            "{profile}: {output:?}"
        );
    }
    let profile = setting.product.profile("latency: 1ms")?;
    let mut apply = Command::new(&setting.product.path);
    let output = apply
        .args(["apply", "--pacer", "switch", "--iface", "lo"])
        .arg(profile)
        .output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(2) && words.contains("private hosts"),
        "{output:?}"
    );
    Ok(())
}

/// What this machine lacks, by exit code 3 and the command that helps.
fn missing(setting: &Setting) -> Result<()> {
    let profile = setting.product.profile("latency: 1ms")?;
    let run = |mut command: Command| -> Result<Output> {
        command.args(["run", "--pacer", "switch"]).arg(&profile);
        Ok(command.args(["--", "true"]).stdin(Stdio::null()).output()?)
    };
    // The kernel counts user namespaces for each one around them.
    let mut none_left = Command::new("unshare");
    none_left.args(["--user", "--map-root-user", "sh", "-c"]);
    none_left.arg(
        "echo 0 > /proc/sys/user/max_user_namespaces; \
         exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"",
    );
    none_left.arg("sh").arg(&setting.product.path);
    let mut no_tun = setting.perturb()?;
    // SAFETY: the closure makes one system call.
    unsafe {
        no_tun.pre_exec(|| {
            let none: Option<&str> = None;
            let flags = nix::mount::MsFlags::empty();
            Ok(nix::mount::mount(
                Some("none"),
                "/dev/net",
                Some("tmpfs"),
                flags,
                none,
            )?)
        });
    }
    for (command, words) in [
        (none_left, "sysctl -w user.max_user_namespaces"),
        (no_tun, "modprobe tun"),
    ] {
        let output = run(command)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(3) && said.contains(words) && !said.contains("needs root"),
            "{output:?}"
        );
    }
    Ok(())
}

/// The packets of these numbers, and no others.
fn drops(setting: &Setting) -> Result<()> {
    let profile = "servers: { s: { latency: 1ms, loss: { nth: [2, 5, 6] } }, r: { latency: 1ms } }\n\
                   classes: [{ name: echo, match: { protocol: icmp, source: 10.77.0.1 }, egress: [s], ingress: [s] }, \
                   { name: rest, match: {}, egress: [r], ingress: [r] }]";
    let script = "ping -4 -c 10 -i 0.05 -W 1 h2 | sed -n 's/.*icmp_seq=\\([0-9]*\\).*/\\1/p' | tr '\\n' ' '";
    let output = shell(setting, &[], profile, script)?;
    ensure!(said(&output) == "1 3 4 7 8 9 10", "{output:?}");
    Ok(())
}

/// A stream of TCP arrives whole where its super-packets are cut, and where they are not.
fn cut(setting: &Setting) -> Result<()> {
    let receive = "socket(my $l, PF_INET, SOCK_STREAM, 0); setsockopt($l, SOL_SOCKET, SO_REUSEADDR, 1); \
                   bind($l, pack_sockaddr_in(7000, INADDR_ANY)) or die; listen($l, 1); print STDERR qq(up\\n); \
                   accept(my $c, $l); binmode STDOUT; print while sysread($c, $_, 65536)";
    let send = "socket(my $s, PF_INET, SOCK_STREAM, 0); connect($s, pack_sockaddr_in(7000, inet_aton(q(10.77.0.2)))) or die; \
                print {$s} $_ while sysread(STDIN, $_, 65536); close $s";
    let script = format!(
        "cd $(mktemp -d); head -c 20000000 /dev/urandom > sent; \
         perturb on h2 -- perl -MSocket -e '{receive}' > received 2> ready & \
         while ! grep -q up ready; do sleep 0.05; done; \
         perl -MSocket -e '{send}' < sent; wait; cmp sent received && sleep 1.5 && perturb status --json"
    );
    for (segmentation, split) in [("exact", true), ("whole", false)] {
        let profile = format!("segmentation: {segmentation}\nlatency: 2ms\nbandwidth: 1Gbit/s\nbuffer: 1MiB");
        let output = shell(setting, &[], &profile, &script)?;
        ensure!(output.status.success(), "{segmentation}: {output:?}");
        let report = report(&output)?;
        let packets = &report["classes"][0]["egress"]["packets"];
        figure!("20 MB, segmentation {segmentation}: {packets} packets");
        // Full frames carry 1448 bytes.
        let many = packets
            .as_u64()
            .is_some_and(|packets| packets >= 20_000_000 / 1448);
        ensure!(many == split, "{report}");
        ensure!(report["balance"]["unaccounted"] == 0, "{report}");
    }
    Ok(())
}

/// Another profile takes the place of the first one, by the API that `perturb run` serves.
fn changes(setting: &Setting) -> Result<()> {
    let ping = "ping -q -c 5 -i 0.05 h2 | sed -n 's|.*= [^/]*/\\([0-9]*\\)\\..*|\\1|p'";
    let profile = "latency: 2ms\ntimeline: { steps: [{ at: 2s, latency: 30ms }] }";
    let output = shell(setting, &[], profile, &format!("{ping}; sleep 2; {ping}"))?;
    let times: Vec<u64> = said(&output)
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    ensure!(
        matches!(times[..], [before, after] if (4..20).contains(&before) && (60..80).contains(&after)),
        "{output:?}"
    );
    Ok(())
}

/// The kernel has as many programs as before, and no qdisc or filter on the hosts but its own.
fn no_program(setting: &Setting) -> Result<()> {
    let output = shell(
        setting,
        &[],
        "latency: 1ms",
        "tc qdisc show dev eth0; tc filter show dev eth0 egress",
    )?;
    let text = said(&output);
    ensure!(
        output.status.success() && !text.contains("clsact") && !text.contains("bpf") && !text.contains("fq"),
        "{output:?}"
    );
    Ok(())
}
