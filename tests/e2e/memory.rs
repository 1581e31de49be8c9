//! `limits.held` bounds memory: that what is charged is what the kernel takes, what becomes of the rest, and that it is given back.

use std::{
    fs,
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    errno::Errno,
    sys::socket::{setsockopt, sockopt},
    unistd::{SysconfVar, sysconf},
};
use perturb_common::memory::{self, BATCH, UNIT};
use perturb_tests::{
    bed::{Bed, Host, INTERFACE},
    product::{Applied, Pacer},
};
use serde_json::Value;

use crate::{
    harness::{Setting, Test, each, figure, once, skip},
    update::{done, update},
};

pub(crate) const TESTS: &[Test] = &[
    once("memory::what_is_charged_is_what_the_kernel_takes", truesize),
    each("memory::the_limit_is_of_bytes", limit).long(),
    each("memory::what_leaves_is_given_back", given_back),
    once("memory::what_devices_drop_is_given_back", dropped),
    each("memory::a_lower_limit_drops_nothing_held", lowered),
];

/// The controller tells what it reads of its devices when it renews its lease.
const OFTEN: [&str; 2] = ["--lease", "5s"];
/// Long enough to fill the hold and look at it.
const DELAY: &str = "58s";
/// The least that a profile may ask for.
const LIMIT: u64 = 1 << 20;

/// Datagrams from one host to the other.
struct Kind {
    name: &'static str,
    /// Bytes that are sent at once.
    send: usize,
    /// Bytes of each datagram that the kernel carries in a super-packet of so many, if it is one.
    segment: Option<i32>,
    /// To where.
    port: u16,
}

const SMALL: Kind = Kind {
    name: "small packets",
    send: 18,
    segment: None,
    port: 9,
};
const FULL: Kind = Kind {
    name: "full frames",
    send: 1472,
    segment: None,
    port: 10,
};
const SUPER: Kind = Kind {
    name: "super-packets",
    send: 44 * 1400,
    segment: Some(1400),
    port: 11,
};

fn profile(direction: &str, limit: u64, delay: &str) -> String {
    format!(
        "horizon: 60s\nlimits: {{ held: {limit}B }}\nservers: {{ far: {{ latency: {delay} }} }}\n\
         classes: [{{ name: all, match: {{ protocol: udp }}, {direction}: [far] }}]\n"
    )
}

/// Sends so many.
fn send(from: &Host, to: &Host, kind: &Kind, count: u64) -> Result<()> {
    let socket = from.enter(|| UdpSocket::bind("0.0.0.0:0"))??;
    if let Some(segment) = kind.segment {
        setsockopt(&socket, sockopt::UdpGsoSegment, &segment)?;
    }
    socket.connect((to.v4, kind.port))?;
    let data = vec![7; kind.send];
    for _ in 0..count {
        while let Err(error) = socket.send(&data) {
            ensure!(
                error.raw_os_error() == Some(Errno::ENOBUFS as i32),
                "sending {}: {error}",
                kind.name
            );
        }
    }
    Ok(())
}

/// The report when the controller has seen that so many packets are held or were refused.
fn settled(applied: &Applied<'_>, count: u64) -> Result<Value> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let start = Instant::now();
    loop {
        let report = applied.counters()?;
        let held = report["balance"]["held"].as_u64().unwrap_or_default();
        let refused = report["unintended"]["pacer"].as_u64().unwrap_or_default();
        if held + refused == count && report["balance"]["unaccounted"] == 0 {
            return Ok(report);
        }
        ensure!(
            start.elapsed() < PATIENCE,
            "{count} packets were sent: {} {}",
            report["balance"],
            report["unintended"]
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// Sender and receiver of packets that perturb on the left host holds in a direction.
fn ends<'a>(bed: &'a Bed, direction: &str) -> [&'a Host; 2] {
    if direction == "egress" {
        [&bed.left, &bed.right]
    } else {
        [&bed.right, &bed.left]
    }
}

/// Bytes of memory that the kernel charges a receiver's socket for a packet that has come over a wire: `skb->truesize`.
fn taken(bed: &Bed, kind: &Kind) -> Result<u64> {
    let received = || -> Result<u64> {
        let text = fs::read_to_string("/proc/thread-self/net/udp")?;
        // sl, local address, remote address, state, queues to be sent and received.
        let row = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|row| {
                row.get(1)
                    .is_some_and(|local| local.ends_with(&format!(":{:04X}", kind.port)))
            })
            .context("no socket of the test in /proc/net/udp")?;
        let queues = row.get(4).and_then(|queues| queues.split_once(':'));
        let (_, received) = queues.context("a row of /proc/net/udp has no queues")?;
        Ok(u64::from_str_radix(received, 16)?)
    };
    let socket = bed.right.enter(|| UdpSocket::bind((bed.right.v4, kind.port)))??;
    setsockopt(&socket, sockopt::RcvBufForce, &(1 << 22))?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
    send(&bed.left, &bed.right, kind, 1)?;
    let start = Instant::now();
    loop {
        let bytes = bed.right.enter(received)??;
        if bytes != 0 {
            return Ok(bytes);
        }
        ensure!(
            start.elapsed() < Duration::from_secs(20),
            "{} did not come",
            kind.name
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// The charge for a packet is not below the kernel's own figure, and not twice as much.
fn truesize(setting: &Setting) -> Result<()> {
    const HEADERS: usize = 14 + 20 + 8;
    let (bed, before) = setting.bed()?;
    for host in [&bed.left, &bed.right] {
        host.run(&format!("ip link set {INTERFACE} mtu 9000"))?;
    }
    let one = |send| Kind {
        send,
        segment: None,
        ..SMALL
    };
    let several = |count: usize, segment: i32| Kind {
        send: count * segment as usize,
        segment: Some(segment),
        ..SUPER
    };
    let kinds = (1..8900)
        .step_by(127)
        .map(one)
        .chain([18, 1472, 8972].map(one))
        .chain(
            [(2, 1400), (12, 1400), (44, 1400), (40, 100), (7, 8900)]
                .map(|(count, size)| several(count, size)),
        );
    let (mut least, mut most) = (f64::MAX, 0f64);
    for kind in kinds {
        let truesize = taken(&bed, &kind)?;
        let length = (HEADERS + kind.send) as u32;
        let size = kind.segment.map_or(0, i32::cast_unsigned);
        let [sent, received] =
            [false, true].map(|received| u64::from(memory::of(length, size, received)) * UNIT);
        ensure!(
            (truesize..2 * truesize).contains(&sent) && received >= truesize,
            "{} of {length} B take {truesize} B; {sent} B are charged, {received} B if they come from outside",
            kind.name
        );
        let share = sent as f64 / truesize as f64;
        (least, most) = (least.min(share), most.max(share));
    }
    figure!("{least:.2} to {most:.2} times what packets take is charged");
    bed.left.run(&format!("ip link set {INTERFACE} mtu 1500"))?;
    before.must_be_that_of(&bed.left)
}

/// Packets are held until they take as much memory as they may, whatever their size.
fn limit(setting: &Setting) -> Result<()> {
    // Processors tell each other of so much at once.
    let processors = sysconf(SysconfVar::_NPROCESSORS_ONLN)?.context("the kernel counts no processors")?;
    let batches = processors.cast_unsigned() * u64::from(BATCH.cast_unsigned()) * UNIT;
    let kinds: &[Kind] = match setting.pacer {
        Pacer::Fq => &[SMALL, FULL, SUPER],
        // Of super-packets the TAP may hold the datagrams one by one.
        Pacer::User | Pacer::Switch => &[SMALL, FULL],
    };
    for kind in kinds {
        for direction in ["egress", "ingress"] {
            let (bed, before) = setting.bed()?;
            let [from, to] = ends(&bed, direction);
            let profile = profile(direction, LIMIT, DELAY);
            let applied = setting
                .product
                .apply_with(&bed.left, &profile, setting.pacer, &OFTEN)?;
            // What one takes says how many fit.
            send(from, to, kind, 1)?;
            let report = settled(&applied, 1)?;
            let bytes = report["balance"]["held_bytes"].as_u64();
            let each = bytes.filter(|&bytes| bytes > 0).context("it takes no memory")?;
            let count = (LIMIT + batches) / each * 5 / 4 + 1;
            send(from, to, kind, count)?;
            let report = settled(&applied, 1 + count)?;
            let balance = &report["balance"];
            figure!("{direction}, {}, {each} B each: {balance}", kind.name);
            let (held, bytes) = (balance["held"].as_u64(), balance["held_bytes"].as_u64());
            let (held, bytes) = (held.unwrap_or_default(), bytes.unwrap_or_default());
            ensure!(balance["released"] == 0, "some were released already: {balance}");
            ensure!(
                bytes == held * each,
                "{held} packets of {each} B are said to take {bytes} B"
            );
            ensure!(
                bytes <= LIMIT + batches && bytes + each + batches > LIMIT,
                "{bytes} B are held, of {LIMIT} B"
            );
            ensure!(report["unintended"]["pacer"] != 0, "none was refused: {balance}");
            applied.stop()?;
            before.must_be_that_of(&bed.left)?;
        }
    }
    Ok(())
}

/// The report when nothing is held any more, nor any memory said to be; at most 20 s later.
fn empty(applied: &Applied<'_>) -> Result<Value> {
    let start = Instant::now();
    loop {
        let report = applied.counters()?;
        let balance = &report["balance"];
        if ["held", "held_bytes", "unaccounted"].map(|key| &balance[key]) == [&Value::from(0); 3] {
            return Ok(report);
        }
        ensure!(
            start.elapsed() < Duration::from_secs(20),
            "not at rest: {balance}"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// Packets of all sizes take memory while they are held, and none once they have left. The largest super-packets are more than a
/// device takes whole.
fn given_back(setting: &Setting) -> Result<()> {
    const LARGEST: Kind = Kind {
        name: "the largest super-packets",
        send: 50 * 1310,
        segment: Some(1310),
        ..SUPER
    };
    let (bed, before) = setting.bed()?;
    for direction in ["egress", "ingress"] {
        let [from, to] = ends(&bed, direction);
        let profile = profile(direction, 64 << 20, "2s");
        let applied = setting
            .product
            .apply_with(&bed.left, &profile, setting.pacer, &OFTEN)?;
        // Fewer than a processor's backlog has room for (`net.core.netdev_max_backlog`): they all leave at once.
        for kind in [SMALL, FULL, SUPER, LARGEST] {
            send(from, to, &kind, 4)?;
        }
        let report = empty(&applied)?;
        applied.stop()?;
        let balance = &report["balance"];
        figure!("{direction}: {balance}");
        ensure!(
            balance["captured"].as_u64() >= Some(16) && balance["released"] == balance["captured"],
            "{balance}"
        );
    }
    before.must_be_that_of(&bed.left)
}

/// Of packets of several sizes a device drops some while others wait: the programs do not hear of it, and no memory is missed.
fn dropped(setting: &Setting) -> Result<()> {
    const COUNT: u64 = 20;
    if !setting.kernel.fq {
        return Err(skip("this kernel has no sch_fq"));
    }
    let (bed, before) = setting.bed()?;
    for (soon, late) in [("1s", "5s"), ("5s", "1s")] {
        let profile = format!(
            "horizon: 60s\nservers: {{ small: {{ latency: {soon} }}, large: {{ latency: {late} }} }}\nclasses:\n\
             - {{ name: small, match: {{ protocol: udp, port: {} }}, egress: [small] }}\n\
             - {{ name: large, match: {{ protocol: udp }}, egress: [large] }}\n",
            SMALL.port
        );
        let applied = setting
            .product
            .apply_with(&bed.left, &profile, Pacer::Fq, &OFTEN)?;
        let links = bed.left.run("ip -brief link show")?;
        let far = links
            .split_whitespace()
            .find(|word| word.starts_with("ptout"))
            .and_then(|word| word.split('@').next())
            .with_context(|| format!("no far end of the hold device among:\n{links}"))?;
        // It refuses what is larger, as a full backlog does.
        bed.left.run(&format!("ip link set dev {far} mtu 100"))?;
        send(&bed.left, &bed.right, &FULL, COUNT)?;
        send(&bed.left, &bed.right, &SMALL, COUNT)?;
        let report = empty(&applied)?;
        applied.stop()?;
        figure!("{} {}", report["balance"], report["unintended"]);
        ensure!(
            report["unintended"]["hold_device"] == COUNT && report["balance"]["released"] == COUNT,
            "{} {}",
            report["balance"],
            report["unintended"]
        );
    }
    before.must_be_that_of(&bed.left)
}

/// A live update lowers the limit below what is held: that stays, and leaves at its time; new packets are refused, and counted.
fn lowered(setting: &Setting) -> Result<()> {
    const HELD: u64 = 40;
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply_with(
        &bed.left,
        &profile("egress", 16 << 20, DELAY),
        setting.pacer,
        &OFTEN,
    )?;
    let kind = Kind {
        segment: None,
        ..SUPER
    };
    // Each is cut into 42 fragments by the IP layer.
    bed.left.run(&format!("ip link set {INTERFACE} mtu 1500"))?;
    let fragments = (kind.send + 8).div_ceil(1480) as u64;
    send(&bed.left, &bed.right, &kind, HELD)?;
    settled(&applied, HELD * fragments)?;
    done(&update(setting, &bed, &profile("egress", 1 << 20, DELAY), &[])?)?;
    // The user pacer has the new limit when its controller has read what the other command has written.
    let mut sent = HELD;
    let report = loop {
        ensure!(sent < 8 * HELD, "nothing is refused");
        send(&bed.left, &bed.right, &kind, 1)?;
        sent += 1;
        let report = settled(&applied, sent * fragments)?;
        if report["unintended"]["pacer"] != 0 {
            break report;
        }
        thread::sleep(Duration::from_millis(100));
    };
    figure!("{} {}", report["balance"], report["unintended"]);
    ensure!(
        report["balance"]["held"].as_u64() >= Some(HELD * fragments)
            && report["unintended"]["hold_device"] == 0,
        "{} {}",
        report["balance"],
        report["unintended"]
    );
    applied.stop()?;
    before.must_be_that_of(&bed.left)
}
