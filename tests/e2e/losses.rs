//! A loss is provoked at each place, and found there by its name, with the balance whole.

mod sch_fq;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    os::fd::AsRawFd as _,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::sys::{
    signal::Signal,
    socket::{MsgFlags, SockType, send},
};
use perturb_common::abi::SLOTS;
use perturb_tests::{
    bed::Bed,
    datagrams::{self, Plan, Trace},
    order::packet_socket,
    product::{Applied, Pacer},
};
use serde_json::Value;

use crate::{
    accounting::{Flood, at_rest},
    harness::{Setting, Test, each, figure, skip},
    update::wait,
};

pub(crate) const TESTS: &[Test] = &[
    each("losses::horizon", horizon),
    each("losses::limit_of_what_is_held", limit),
    each("losses::no_room_for_an_instance", no_instance),
    each("losses::hold_device_is_gone", hold_full),
    each("losses::packets_of_others", foreign),
    each("losses::packets_of_others_take_no_room", foreign_beside_full),
    each("losses::sch_fq_is_full", sch_fq::full),
    each("losses::horizon_of_sch_fq", sch_fq::beyond),
    each("losses::ring_of_the_tap", ring),
    each("losses::no_slot", no_slot),
    each("losses::slot_reused", slot_reused),
    each("losses::measuring_commands_say_so", measuring),
];

/// A limit of the whole machine is lowered meanwhile.
pub(crate) const ALONE: &[Test] = &[each("losses::backlog_is_full", sch_fq::backlog)];

/// The controller may be stopped, or wait for a processor, for as long as a test takes.
const LONG: [&str; 2] = ["--lease", "600s"];
/// A port whose packets are a class of their own.
const PORT: u16 = 7000;

fn counted(report: &Value, pointer: &str) -> u64 {
    report
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or_default()
}

fn burst(bed: &Bed, count: usize, plan: &Plan) -> Result<Trace> {
    let plan = Plan {
        count,
        burst: count,
        ..plan.clone()
    };
    datagrams::send(&bed.left, &bed.right, &plan)
}

/// What is lost has that name, and nothing is missing.
fn must_name(report: &Value, place: &str, trace: &Trace) -> Result<()> {
    let (named, lost) = (counted(report, place), trace.lost().len() as u64);
    figure!("{place}: {named} of {}; {}", trace.sent.len(), report["balance"]);
    ensure!(
        named > 0 && named == lost,
        "{lost} were lost, {place} says {named}: {} {}",
        report["unintended"],
        report["balance"]
    );
    ensure!(
        report["balance"]["unintended"] == named,
        "other places are named, too: {}",
        report["unintended"]
    );
    Ok(())
}

/// The report once no packet is between two devices, though some may be held; at most 10 s later.
fn quiet(applied: &Applied<'_>) -> Result<Value> {
    let start = Instant::now();
    loop {
        let report = applied.counters()?;
        if report["balance"]["unaccounted"] == 0 {
            return Ok(report);
        }
        ensure!(
            start.elapsed() < Duration::from_secs(10),
            "not at rest: {}",
            report["balance"]
        );
        thread::sleep(Duration::from_millis(50));
    }
}

/// Skips where a test could not do in time what it needs done while packets wait.
fn within(what: &str, took: Duration, least: Duration) -> Result<()> {
    if took < least {
        return Ok(());
    }
    Err(skip(format!(
        "{what} took {took:?} here, and must take less than {least:?}"
    )))
}

/// Emulates on the left host under a lease that outlasts what these tests do to its controller.
fn apply<'a>(setting: &'a Setting, bed: &'a Bed, profile: &str) -> Result<Applied<'a>> {
    setting
        .product
        .apply_with(&bed.left, profile, setting.pacer, &LONG)
}

/// The hold device of the left host.
fn hold_device(bed: &Bed) -> Result<String> {
    let links = bed.left.run("ip -brief link show")?;
    let mut words = links.split_whitespace();
    let name = words.find(|word| word.starts_with("pthold"));
    let name = name.and_then(|word| word.split('@').next());
    name.map(Into::into)
        .with_context(|| format!("no hold device among:\n{links}"))
}

/// A server whose queue is longer than a packet may be held. If somebody then ends the emulation, its last words count that, too.
fn horizon(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let profile = "horizon: 1s\nservers: { slow: { gap: 200ms } }\n\
                   classes: [{ name: all, match: { protocol: udp }, egress: [slow] }]";
    let applied = apply(setting, &bed, profile)?;
    let plan = Plan {
        patience: Duration::from_secs(3),
        ..Plan::default()
    };
    // All of them come within the horizon.
    let trace = burst(&bed, 40, &plan)?;
    let report = at_rest(&applied)?;
    bed.left.run(&format!("ip link del {}", hold_device(&bed)?))?;
    let (status, said) = applied.ended()?;
    must_name(&report, "/unintended/horizon", &trace)?;
    let words = format!("; {} packets were lost", trace.lost().len());
    ensure!(
        status.code() == Some(1) && said.contains(&words),
        "{status}, and not {words:?}: {said}"
    );
    before.must_be_that_of(&bed.left)
}

/// More than `limits.held` is held.
fn limit(setting: &Setting) -> Result<()> {
    /// They are all sent before the first of them leaves.
    const LATENCY: Duration = Duration::from_secs(5);
    let (bed, before) = setting.bed()?;
    let profile = "latency: 5s
limits: { held: 1MiB }";
    let applied = apply(setting, &bed, profile)?;
    let plan = Plan {
        size: 1400,
        patience: LATENCY + Duration::from_secs(5),
        ..Plan::default()
    };
    let trace = burst(&bed, 2_000, &plan)?;
    let report = at_rest(&applied)?;
    applied.stop()?;
    if let [first, .., last] = trace.sent[..] {
        within("sending", Duration::from_nanos(last - first), LATENCY)?;
    }
    must_name(&report, "/unintended/pacer", &trace)?;
    before.must_be_that_of(&bed.left)
}

/// More hosts are busy than there are places for: the packets of the others pass the server, which is said, and is no loss.
fn no_instance(setting: &Setting) -> Result<()> {
    const HOSTS: u16 = 4096;
    /// Twice as many as `limits.flows` says.
    const PLACES: u64 = 2048;
    /// What a packet of 1428 bytes takes, and a little less.
    const BUSY: Duration = Duration::from_secs(11);
    let (bed, before) = setting.bed()?;
    // Each is busy for longer than sending to all of them takes.
    let profile = "horizon: 60s\nlimits: { flows: 1024, held: 64MiB }\n\
                   servers: { own: { bandwidth: 1kbit/s, scope: host } }\n\
                   classes: [{ name: all, match: { protocol: udp }, egress: [own] }]";
    let applied = apply(setting, &bed, profile)?;
    bed.left
        .run(&format!("ip route add 10.99.0.0/16 via {}", bed.right.v4))?;
    let socket = bed.left.enter(|| UdpSocket::bind("0.0.0.0:0"))??;
    let start = Instant::now();
    for host in 0..HOSTS {
        let [high, low] = host.to_be_bytes();
        socket.send_to(&[0; 1400], (Ipv4Addr::new(10, 99, high, low), PORT))?;
    }
    let report = quiet(&applied)?;
    let took = start.elapsed();
    applied.stop()?;
    bed.left.run("ip route del 10.99.0.0/16")?;
    within("sending to all hosts", took, BUSY)?;
    let balance = &report["balance"];
    let passed = counted(&report, "/unintended/no_instance");
    figure!("{passed} passed the server; {balance}");
    ensure!(balance["captured"] == HOSTS, "{balance}");
    ensure!(
        passed >= u64::from(HOSTS) - PLACES && balance["released"] == passed,
        "{passed} passed: {balance}"
    );
    ensure!(balance["unintended"] == 0, "{}", report["unintended"]);
    before.must_be_that_of(&bed.left)
}

/// The hold device is deleted while the controller is stopped: no packet gets there.
fn hold_full(setting: &Setting) -> Result<()> {
    const COUNT: usize = 20;
    let (bed, before) = setting.bed()?;
    let applied = apply(setting, &bed, "latency: 1ms")?;
    applied.signal(Signal::SIGSTOP)?;
    bed.left.run(&format!("ip link del {}", hold_device(&bed)?))?;
    let trace = burst(&bed, COUNT, &Plan::default())?;
    let report = applied.counters()?;
    applied.signal(Signal::SIGCONT)?;
    let (status, said) = applied.ended()?;
    ensure!(status.code() == Some(1), "{status}: {said}");
    must_name(&report, "/unintended/hold_full", &trace)?;
    ensure!(report["balance"]["unaccounted"] == 0, "{}", report["balance"]);
    before.must_be_that_of(&bed.left)
}

/// What others send to the hold device is counted, dropped, and no part of the balance.
fn foreign(setting: &Setting) -> Result<()> {
    const COUNT: usize = 30;
    let (bed, before) = setting.bed()?;
    let applied = apply(setting, &bed, "latency: 1ms")?;
    send_foreign(&bed, &applied, COUNT)?;
    let trace = burst(&bed, COUNT, &Plan::default())?;
    let at_end = at_rest(&applied)?;
    applied.stop()?;
    ensure!(trace.lost().is_empty(), "{} were lost", trace.lost().len());
    ensure!(at_end["events"]["foreign"] == COUNT, "{}", at_end["events"]);
    ensure!(at_end["balance"]["unintended"] == 0, "{}", at_end["unintended"]);
    before.must_be_that_of(&bed.left)
}

/// Sends to the hold device of the left host, and waits until that is counted.
fn send_foreign(bed: &Bed, applied: &Applied<'_>, count: usize) -> Result<()> {
    let socket = packet_socket(&bed.left, &hold_device(bed)?, SockType::Raw, 0)?;
    let addresses = [bed.right.hardware, bed.left.hardware].concat();
    let frame = [&addresses[..], &[0x88, 0xb5], &[7; 46]].concat();
    for _ in 0..count {
        send(socket.as_raw_fd(), &frame, MsgFlags::empty())?;
    }
    wait("what others send is counted", || {
        Ok(applied.counters()?["events"]["foreign"] == count)
    })
}

/// The user pacer holds all that it may: what others send to its TAP is none of its losses.
fn foreign_beside_full(setting: &Setting) -> Result<()> {
    const COUNT: usize = 30;
    const LATENCY: Duration = Duration::from_secs(30);
    needs_tap(setting)?;
    let (bed, before) = setting.bed()?;
    let applied = apply(setting, &bed, "latency: 30s\nlimits: { held: 1MiB }")?;
    let flood = Flood::new(&bed)?;
    let start = Instant::now();
    flood.pass(&bed.left, 20_000)?;
    let full = quiet(&applied)?;
    let sent = send_foreign(&bed, &applied, COUNT);
    let took = start.elapsed();
    let report = quiet(&applied)?;
    applied.stop()?;
    within("filling the pacer", took, LATENCY)?;
    sent?;
    figure!("{} {}", report["unintended"], report["balance"]);
    ensure!(counted(&full, "/unintended/pacer") > 0, "{}", full["balance"]);
    ensure!(
        report["unintended"] == full["unintended"],
        "before: {}, then: {}",
        full["unintended"],
        report["unintended"]
    );
    before.must_be_that_of(&bed.left)
}

/// Only where a TAP is what holds packets, and where enough of them can be sent.
fn needs_tap(setting: &Setting) -> Result<()> {
    match setting.pacer {
        Pacer::User if setting.kernel.jit => Ok(()),
        Pacer::User => Err(skip("the sandbox passes a thousand packets per second: too few")),
        Pacer::Fq | Pacer::Switch => Err(skip("only the user pacer has a TAP, and a slot for every packet")),
    }
}

/// The pacer is stopped, and its TAP's ring fills.
fn ring(setting: &Setting) -> Result<()> {
    const RING: u64 = 16_384;
    needs_tap(setting)?;
    let (bed, before) = setting.bed()?;
    let applied = apply(setting, &bed, "latency: 1ms")?;
    let flood = Flood::new(&bed)?;
    applied.signal(Signal::SIGSTOP)?;
    flood.pass(&bed.left, 2 * RING)?;
    applied.signal(Signal::SIGCONT)?;
    let report = at_rest(&applied)?;
    applied.stop()?;
    let balance = &report["balance"];
    let (captured, named) = (
        counted(balance, "/captured"),
        counted(&report, "/unintended/hold_device"),
    );
    figure!("{balance}");
    ensure!(
        named >= captured - RING,
        "{named} of {captured}: {}",
        report["unintended"]
    );
    ensure!(balance["unintended"] == named, "{}", report["unintended"]);
    before.must_be_that_of(&bed.left)
}

/// More packets than there are slots are on their way; that the pacer drops most of them frees none.
fn no_slot(setting: &Setting) -> Result<()> {
    needs_tap(setting)?;
    let (bed, before) = setting.bed()?;
    let profile = "latency: 50s\nlimits: { held: 1MiB }";
    let applied = apply(setting, &bed, profile)?;
    let flood = Flood::new(&bed)?;
    let start = Instant::now();
    flood.pass(&bed.left, u64::from(SLOTS) + u64::from(SLOTS) / 8)?;
    let took = start.elapsed();
    let report = quiet(&applied)?;
    applied.stop()?;
    within("the flood", took, Duration::from_secs(45))?;
    let balance = &report["balance"];
    let named = counted(&report, "/unintended/no_slot");
    figure!("{} {balance}", report["unintended"]);
    ensure!(
        named >= counted(balance, "/captured").saturating_sub(SLOTS.into()) && named > 0,
        "{named} found no slot: {} {balance}",
        report["unintended"]
    );
    before.must_be_that_of(&bed.left)
}

/// The pacer is stopped for so long that the slots of what waits are others'.
fn slot_reused(setting: &Setting) -> Result<()> {
    const COUNT: usize = 20;
    /// The time after a departure in which a slot is nobody else's, and more.
    const GRACE: Duration = Duration::from_millis(2_200);
    needs_tap(setting)?;
    let (bed, before) = setting.bed()?;
    let applied = apply(setting, &bed, "latency: 1ms")?;
    let flood = Flood::new(&bed)?;
    applied.signal(Signal::SIGSTOP)?;
    let trace = burst(&bed, COUNT, &Plan::default())?;
    thread::sleep(GRACE);
    flood.pass(&bed.left, u64::from(SLOTS) + u64::from(SLOTS) / 8)?;
    applied.signal(Signal::SIGCONT)?;
    let report = at_rest(&applied)?;
    applied.stop()?;
    figure!("{} {}", report["unintended"], report["balance"]);
    ensure!(
        trace.received.is_empty(),
        "{} arrived while the pacer stood",
        trace.received.len()
    );
    ensure!(
        counted(&report, "/unintended/slot_reused") >= COUNT as u64,
        "{}",
        report["unintended"]
    );
    before.must_be_that_of(&bed.left)
}

/// A command that measures beside an emulation says what that loses unasked, and only that.
fn measuring(setting: &Setting) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let profile = format!(
        "horizon: 1s\nservers: {{ slow: {{ gap: 900ms }}, good: {{ latency: 1ms }} }}\n\
         classes:\n  - {{ name: bad, match: {{ port: {PORT} }}, egress: [slow] }}\n  \
         - {{ name: all, match: {{}}, egress: [good] }}\n"
    );
    let applied: Applied<'_> = apply(setting, &bed, &profile)?;
    let mut server = setting.product.on(&bed.right);
    server
        .args(["nfs", "serve", "--listen", "10.78.0.2:2049"])
        .stdout(Stdio::null());
    let mut server = server
        .stderr(Stdio::null())
        .spawn()
        .context("starting the server")?;
    let measured = measure_twice(setting, &bed);
    server.kill()?;
    server.wait()?;
    applied.stop()?;
    measured
}

fn measure_twice(setting: &Setting, bed: &Bed) -> Result<()> {
    let address = SocketAddr::from((bed.right.v4, 2049));
    let start = Instant::now();
    while bed.left.enter(|| TcpStream::connect(address))?.is_err() {
        ensure!(
            start.elapsed() < Duration::from_secs(60),
            "the server does not listen"
        );
        thread::sleep(Duration::from_millis(20));
    }
    let command = [
        "nfs",
        "load",
        "--server",
        "10.78.0.2:/export",
        "--nfs-port",
        "2049",
        "--rate",
        "20",
        "--scale",
        "0.01",
        "--warmup",
        "1s",
        "--duration",
        "3s",
        "--quiet",
        "--json",
    ];
    for (disturbed, code) in [(false, 0), (true, 1)] {
        let called = thread::scope(|scope| -> Result<_> {
            let measuring = scope.spawn(|| setting.product.call(&bed.left, &command));
            while disturbed && !measuring.is_finished() {
                let plan = Plan {
                    port: PORT,
                    ..Plan::default()
                };
                burst(bed, 10, &plan)?;
            }
            measuring
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        ensure!(called.code() == code, "disturbed {disturbed}: {called:?}");
        let result: Value = serde_json::from_str(&called.stdout).context("reading its JSON")?;
        let faults = result["faults"]
            .as_array()
            .context("it does not say what it found")?;
        let horizon = faults.iter().find(|fault| fault["place"] == "horizon");
        figure!("disturbed {disturbed}: {faults:?}");
        let named = horizon.is_some_and(|fault| counted(fault, "/packets") > 0);
        ensure!(
            named == disturbed && faults.len() == usize::from(disturbed),
            "{faults:?}"
        );
        let said = called.stderr.contains("do not trust the result");
        ensure!(said == disturbed, "{}", called.stderr);
    }
    Ok(())
}
