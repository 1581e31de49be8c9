//! Options of `apply` on an interface that is under emulation: each is heeded or refused. The ssh session, and a terminal
//! that is blocked.

use std::{
    fs::{self, File},
    os::fd::AsFd as _,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    pty::openpty,
    sys::{
        signal::{Signal, kill},
        termios::{FlowArg, tcflow},
    },
    unistd::Pid,
};
use perturb_tests::{
    bed::{Bed, INTERFACE},
    datagrams::{self, Plan},
    product::{Called, Pacer},
};

use crate::{
    accounting::at_rest,
    harness::{Setting, Test, each, figure, skip, slow},
};

pub(crate) const TESTS: &[Test] = &[
    each("update::refused_options", refused),
    each("update::times_are_heeded", times),
    each("update::follow_is_heeded", follow),
    each("update::detach_of_a_detached_one", detached),
    each("update::horizon_follows_the_tables", horizon),
    each("update::a_change_between_two_servers", between),
    each("update::ssh_session_is_warned", ssh),
    each("update::blocked_terminal", blocked),
    each("update::held_packets_stay_out_of_the_stack", stack).long(),
];

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Another profile, with options.
pub(crate) fn update(setting: &Setting, bed: &Bed, profile: &str, options: &[&str]) -> Result<Called> {
    let profile = setting.product.profile(profile)?;
    let arguments = ["apply", &*profile.to_string_lossy(), "--iface", INTERFACE];
    setting
        .product
        .call(&bed.left, &[&arguments[..], options].concat())
}

pub(crate) fn done(called: &Called) -> Result<()> {
    ensure!(called.code() == 0, "{called:?}");
    Ok(())
}

/// Mean delay of some datagrams, milliseconds; none may be lost.
pub(crate) fn delay(bed: &Bed) -> Result<f64> {
    let plan = Plan {
        count: 5,
        patience: Duration::from_secs(2),
        ..Plan::default()
    };
    let delays = datagrams::send(&bed.left, &bed.right, &plan)?.delays_us()?;
    Ok(delays.min() / 1e3)
}

pub(crate) fn wait(what: &str, condition: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for(PATIENCE, what, condition)
}

pub(crate) fn wait_for(
    patience: Duration,
    what: &str,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let start = Instant::now();
    while !condition()? {
        ensure!(start.elapsed() < patience, "{what}: not after {patience:?}");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn refused(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied =
        setting
            .product
            .apply_with(&bed.left, "latency: 40ms", setting.pacer, &["--spin", "3us"])?;
    let other = match setting.pacer {
        Pacer::Fq => "user",
        Pacer::User | Pacer::Switch => "fq",
    };
    for (options, word) in [
        (&["--pacer", other][..], "pacer"),
        (&["--spin", "77us"], "--spin"),
        (&["--detach"], "--detach"),
        (&["--verbose"], "--verbose"),
        (&["--metrics", "127.0.0.1:9464"], "--metrics"),
        (&["--socket-group", "nogroup"], "--socket-group"),
    ] {
        let called = update(setting, &bed, "latency: 10ms", options)?;
        ensure!(called.code() == 1, "{options:?}: {called:?}");
        ensure!(called.stderr.contains(word), "{options:?}: {}", called.stderr);
        ensure!(called.stderr.contains("clear"), "{options:?}: {}", called.stderr);
    }
    ensure!(delay(&bed)? > 30.0, "a refused change took effect");
    ensure!(applied.counters()?["updates"] == 0, "a refused change is counted");
    // What is so already may be said.
    for options in [
        &["--pacer", setting.pacer.name()][..],
        &["--spin", "3us"],
        &["--quiet"],
        &["--coarse"],
    ] {
        done(&update(setting, &bed, "latency: 10ms", options)?)?;
    }
    ensure!(delay(&bed)? < 30.0, "the change had no effect");
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

fn times(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 10ms", setting.pacer)?;
    done(&update(setting, &bed, "latency: 10ms", &["--lease", "90s"])?)?;
    wait("a longer lease", || {
        Ok(applied.counters()?["lease_left_ms"].as_u64() > Some(60_000))
    })?;
    // Nothing is said about it: it stays.
    done(&update(setting, &bed, "latency: 11ms", &[])?)?;
    thread::sleep(Duration::from_secs(2));
    ensure!(
        applied.counters()?["lease_left_ms"].as_u64() > Some(60_000),
        "the lease changed unasked"
    );
    done(&update(setting, &bed, "latency: 10ms", &["--for", "6s"])?)?;
    ensure!(
        applied.counters()?["ends_in_ms"]
            .as_u64()
            .is_some_and(|left| left <= 6_000),
        "status does not say when it ends"
    );
    let start = Instant::now();
    let (status, said) = applied.ended()?;
    ensure!(status.success(), "{status}: {said}");
    ensure!(start.elapsed() < PATIENCE, "it ended after {:?}", start.elapsed());
    before.must_be_that_of(&bed.left)
}

fn follow(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 40ms", setting.pacer)?;
    done(&update(setting, &bed, "latency: 40ms", &["--follow"])?)?;
    // The controller looks at its record twice a second.
    thread::sleep(Duration::from_secs(2));
    bed.left.run(&format!("ip link del {INTERFACE}"))?;
    bed.wire()?;
    wait("emulated again", || Ok(delay(&bed)? > 30.0))?;
    applied.stop()
}

fn detached(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let options = ["--detach", "--pacer", setting.pacer.name(), "--lease", "20s"];
    done(&update(setting, &bed, "latency: 10ms", &options)?)?;
    done(&update(setting, &bed, "latency: 40ms", &["--detach"])?)?;
    ensure!(delay(&bed)? > 30.0, "the change had no effect");
    let reports = setting.product.status(&bed.left)?;
    let own = reports.iter().find(|report| report["updates"] == 1);
    let own = own.context("status does not know the emulation")?;
    ensure!(
        own["lease_left_ms"].as_u64() > Some(11_000),
        "--detach forgot the lease: {}",
        own["lease_left_ms"]
    );
    // Its messages must not fill a file that is deleted.
    let pid = own["pid"].as_u64().context("no process")?;
    let stderr = fs::read_link(format!("/proc/{pid}/fd/2"))?;
    ensure!(
        !stderr.to_string_lossy().contains("deleted"),
        "its messages go to {}",
        stderr.display()
    );
    setting.product.clear(&bed.left)?;
    before.must_be_that_of(&bed.left)
}

fn horizon(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 1ms", setting.pacer)?;
    let horizon = || -> Result<Option<String>> {
        let qdiscs = bed.left.run("tc qdisc show")?;
        let word = qdiscs
            .split_whitespace()
            .skip_while(|word| *word != "horizon")
            .nth(1);
        Ok(word.map(Into::into))
    };
    let first = horizon()?;
    for latency in ["latency: 20s", "latency: 1ms"] {
        let old = horizon()?;
        done(&update(setting, &bed, latency, &[])?)?;
        if setting.pacer == Pacer::Fq {
            ensure!(old != horizon()?, "{latency}: the horizon of fq stayed {old:?}");
        }
    }
    ensure!(first == horizon()?, "the horizon is {:?}", horizon()?);
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}

fn ssh(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let connection = format!("{} 50022 {} 22", bed.right.v4, bed.left.v4);
    let said = |profile: &str, connection: &str| -> Result<String> {
        let profile = setting.product.profile(profile)?;
        let mut command = setting.product.on(&bed.left);
        command
            .env("SSH_CONNECTION", connection)
            .arg("apply")
            .arg(&profile);
        let output = command.args(["--iface", INTERFACE, "--dry-run"]).output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let shaped = "servers: { slow: { bandwidth: 8kbit/s } }\nclasses:\n  \
                  - { name: all, match: {}, egress: [slow], ingress: [slow] }\n";
    let warned = said(shaped, &connection)?;
    for word in ["ssh session", "class all", "slow", "bypass", "--confirm"] {
        ensure!(warned.contains(word), "the warning does not say {word}: {warned}");
    }
    let bypass = shaped.replace(
        "  - { name: all",
        "  - { name: ssh, match: { port: 22 }, bypass: true }\n  - { name: all",
    );
    for (profile, connection) in [(&*bypass, &*connection), (shaped, "127.0.0.1 50022 127.0.0.1 22")] {
        let warned = said(profile, connection)?;
        ensure!(!warned.contains("ssh session"), "warned for nothing: {warned}");
    }
    Ok(())
}

/// A terminal that takes nothing more (Ctrl-S) while the live line is to be shown.
fn blocked(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let terminal = openpty(None, None)?;
    let profile = setting.product.profile("latency: 40ms")?;
    let mut child = setting
        .product
        .on(&bed.left)
        .arg("apply")
        .arg(&profile)
        .args([
            "--iface",
            INTERFACE,
            "--lease",
            "2s",
            "--pacer",
            setting.pacer.name(),
        ])
        .stdout(Stdio::null())
        .stderr(File::from(terminal.slave.try_clone()?))
        .spawn()?;
    wait("emulated", || Ok(delay(&bed)? > 30.0))?;
    tcflow(terminal.slave.as_fd(), FlowArg::TCOOFF)?;
    thread::sleep(Duration::from_secs(6));
    let meanwhile = delay(&bed)?;
    // It must hear a signal all the same, and clean up.
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
    let gone = wait("cleaned up", || Ok(before.must_be_that_of(&bed.left).is_ok()));
    tcflow(terminal.slave.as_fd(), FlowArg::TCOON)?;
    child.wait()?;
    ensure!(
        meanwhile > 30.0,
        "the lease ran out because nobody read the terminal: {meanwhile} ms"
    );
    gone
}

/// Packets wait between two servers while the profile is changed: a server that stands at the place of the second now is not
/// theirs to cross, and the second is, whatever it does now.
fn between(setting: &Setting) -> Result<()> {
    exchange(setting, "second", 20)?;
    exchange(setting, "third", 0)
}

/// Packets wait before a second server; then `server` is there, and delays them by 2 s. So many of 20 cross it.
fn exchange(setting: &Setting, server: &str, cross: usize) -> Result<()> {
    const COUNT: usize = 20;
    /// What the second server adds.
    const SECOND: Duration = Duration::from_secs(2);
    // How long changing a profile may take.
    let first = Duration::from_secs(if slow() { 15 } else { 3 });
    let (bed, before) = setting.bed()?;
    // It is reached another way, too: that is where a path is cut.
    let profile = |second: &str, latency: &str| {
        format!(
            "horizon: 30s\nservers: {{ first: {{ latency: {first:?} }}, {second}: {{ latency: {latency} }} }}\n\
             classes:\n  - {{ name: all, match: {{ protocol: udp }}, egress: [first, {second}], ingress: [{second}] }}\n"
        )
    };
    let applied = setting
        .product
        .apply(&bed.left, &profile("second", "0ms"), setting.pacer)?;
    let plan = Plan {
        count: COUNT,
        burst: COUNT,
        patience: first + 2 * SECOND,
        ..Plan::default()
    };
    let (trace, changed) = thread::scope(|scope| -> Result<_> {
        let start = Instant::now();
        let sending = scope.spawn(|| datagrams::send(&bed.left, &bed.right, &plan));
        wait("they are held", || {
            Ok(applied.counters()?["balance"]["captured"] == COUNT)
        })?;
        done(&update(setting, &bed, &profile(server, "2s"), &[])?)?;
        let changed = start.elapsed();
        let trace = sending
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((trace, changed))
    })?;
    let report = at_rest(&applied)?;
    applied.stop()?;
    if changed >= first {
        return Err(skip("this machine took too long to change the profile"));
    }
    let (delays, outdated) = (trace.delays_us()?, COUNT - cross);
    figure!(
        "{server}: {:.0} to {:.0} ms, {}",
        delays.min() / 1e3,
        delays.max() / 1e3,
        report["events"]["outdated"]
    );
    let expected = first.as_micros() as f64 + if cross > 0 { SECOND.as_micros() as f64 } else { 0.0 };
    ensure!(
        delays.min() >= expected - 1e3 && delays.max() < expected + 1.5e6,
        "they took {} to {} us, and not {expected}",
        delays.min(),
        delays.max()
    );
    let class = &report["classes"][0]["egress"];
    ensure!(
        report["events"]["outdated"] == outdated && class["packets"] == COUNT,
        "{} {class}",
        report["events"]
    );
    before.must_be_that_of(&bed.left)
}

/// Broadcasts that are held when the controller is killed: the stack must get none from perturb's own devices.
fn stack(setting: &Setting) -> Result<()> {
    const COUNT: usize = 20;
    const PORT: u16 = 7_333;
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 8s", setting.pacer)?;
    let receiver = bed
        .left
        .enter(|| std::net::UdpSocket::bind(("0.0.0.0", PORT)))??;
    receiver.set_nonblocking(true)?;
    nix::sys::socket::setsockopt(&receiver, nix::sys::socket::sockopt::Ipv4PacketInfo, &true)?;
    let sender = bed
        .right
        .enter(|| std::net::UdpSocket::bind((bed.right.v4, 0)))??;
    sender.set_broadcast(true)?;
    let sent = Instant::now();
    for _ in 0..COUNT {
        sender.send_to(b"held", ("255.255.255.255", PORT))?;
    }
    thread::sleep(Duration::from_millis(300));
    ensure!(
        applied.counters()?["classes"][0]["ingress"]["packets"].as_u64() >= Some(COUNT as u64),
        "the broadcasts were not captured"
    );
    applied.signal(Signal::SIGKILL)?;
    if sent.elapsed() > Duration::from_secs(7) {
        return Err(skip(
            "this machine took as long to kill perturb as packets are held",
        ));
    }
    thread::sleep(Duration::from_secs(10));
    let own: u32 = bed
        .left
        .run(&format!("ip -oneline link show dev {INTERFACE}"))?
        .split(':')
        .next()
        .context("no index")?
        .parse()?;
    let mut strangers = 0;
    while let Some(interface) = arrived_at(&receiver)? {
        strangers += usize::from(interface != own);
    }
    applied.ended()?;
    setting.product.clear(&bed.left)?;
    ensure!(
        strangers == 0,
        "{strangers} of {COUNT} packets that were held came out of perturb's own devices"
    );
    before.must_be_that_of(&bed.left)
}

/// The interface at which the next datagram arrived.
fn arrived_at(socket: &std::net::UdpSocket) -> Result<Option<u32>> {
    use std::os::fd::AsRawFd as _;

    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    let mut data = [0; 64];
    let mut buffers = [std::io::IoSliceMut::new(&mut data)];
    let mut space = nix::cmsg_space!(libc::in_pktinfo);
    let message = recvmsg::<nix::sys::socket::SockaddrIn>(
        socket.as_raw_fd(),
        &mut buffers,
        Some(&mut space),
        MsgFlags::empty(),
    );
    let message = match message {
        Err(nix::errno::Errno::EAGAIN) => return Ok(None),
        other => other?,
    };
    for control in message.cmsgs()? {
        if let ControlMessageOwned::Ipv4PacketInfo(info) = control {
            return Ok(Some(info.ipi_ifindex.cast_unsigned()));
        }
    }
    Ok(Some(0))
}
