//! Nothing is lost, and nothing goes astray, without a word.

use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use perturb_common::abi::SLOTS;
use perturb_tests::{
    bed::{Bed, Host, INTERFACE},
    datagrams::{self, Plan},
    product::{Applied, Pacer},
};
use serde_json::Value;

use crate::harness::{Setting, Test, each, figure, once, skip};

pub(crate) const TESTS: &[Test] = &[
    once(
        "accounting::held_packets_keep_their_neighbor",
        held_packets_keep_their_neighbor,
    ),
    each("accounting::fates_balance", fates_balance),
    each("accounting::losses_are_named", losses_are_named),
];

/// The controller tells what it reads of its devices when it renews its lease.
const OFTEN: [&str; 2] = ["--lease", "8s"];

/// The balance, once no packet is on its way; at most 10 s later.
pub(crate) fn at_rest(applied: &Applied<'_>) -> Result<Value> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let start = Instant::now();
    loop {
        let report = applied.counters()?;
        let balance = &report["balance"];
        if balance["unaccounted"] == 0 && balance["held"] == 0 {
            return Ok(report);
        }
        ensure!(start.elapsed() < PATIENCE, "not at rest: {balance}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Packets that are lost, copied, damaged, refused and held twice on their way.
fn fates_balance(setting: &Setting) -> Result<()> {
    const COUNT: usize = 2_000;
    let profile = "
servers:
  first: { latency: 2ms, loss: { random: 10% }, duplicate: 10%, corrupt: 5% }
  side: { latency: 1ms }
  second: { bandwidth: 2Mbit/s, buffer: 3000B, duplicate: 5% }
classes:
  - { name: side, match: { port: 9 }, egress: [side, second] }
  - { name: all, match: {}, egress: [first, second] }
";
    let (bed, before) = setting.bed()?;
    let applied = setting
        .product
        .apply_with(&bed.left, profile, setting.pacer, &OFTEN)?;
    let plan = Plan {
        count: COUNT,
        burst: 20,
        size: 400,
        ..Plan::default()
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    let report = at_rest(&applied)?;
    applied.stop()?;
    let balance = &report["balance"];
    figure!("{balance}; {} arrived", trace.received.len());
    ensure!(balance["captured"] == COUNT, "{balance}");
    ensure!(balance["unintended"] == 0, "{}", report["unintended"]);
    for kind in ["tail_drop", "loss"] {
        ensure!(report["drops"][kind] != 0, "no {kind}: {}", report["drops"]);
    }
    ensure!(balance["duplicated"] != 0, "{balance}");
    before.must_be_that_of(&bed.left)
}

/// A queue that takes nothing, at each device in turn: the loss has that device's name.
fn losses_are_named(setting: &Setting) -> Result<()> {
    const COUNT: usize = 50;
    // A profile that damages packets sends all of them through the splitter.
    let profile = "servers: { slow: { latency: 2ms, corrupt: 0.0001% } }
classes: [{ name: all, match: {}, egress: [slow] }]
";
    for (device, place) in [
        ("pthold", "/unintended/hold_device"),
        ("ptsplit", "/unintended/splitter"),
        (INTERFACE, "/balance/interface_drops"),
    ] {
        let (bed, before) = setting.bed()?;
        let applied = setting
            .product
            .apply_with(&bed.left, profile, setting.pacer, &OFTEN)?;
        let links = bed.left.run("ip -brief link show")?;
        let name = links
            .split_whitespace()
            .find(|word| word.starts_with(device))
            .and_then(|word| word.split('@').next())
            .with_context(|| format!("no device {device} among:\n{links}"))?;
        // What others do to sch_fq ends the emulation; a far end that takes small packets only drops as a full backlog does.
        let narrow = device == "pthold" && setting.pacer == Pacer::Fq;
        bed.left.run(&if narrow {
            format!("ip link set dev {} mtu 100", name.replace("hold", "out"))
        } else {
            format!("tc qdisc replace dev {name} root bfifo limit 100")
        })?;
        let plan = Plan {
            count: COUNT,
            size: 400,
            ..Plan::default()
        };
        let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
        thread::sleep(Duration::from_secs(1));
        let report = at_rest(&applied)?;
        if !narrow {
            bed.left.run(&format!("tc qdisc del dev {name} root"))?;
        }
        applied.stop()?;
        figure!("{name}: {}", report["balance"]);
        ensure!(
            trace.received.is_empty(),
            "{name}: {} arrived",
            trace.received.len()
        );
        ensure!(
            report.pointer(place).is_some_and(|count| *count == COUNT),
            "{name}: {} {}",
            report["unintended"],
            report["balance"]
        );
        before.must_be_that_of(&bed.left)?;
    }
    Ok(())
}

/// An address whose hardware address is nobody's.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 99);

/// Small datagrams to nobody, as fast as they go.
pub(crate) struct Flood {
    pub(crate) sent: AtomicU64,
    enough: AtomicBool,
}

impl Flood {
    pub(crate) fn new(bed: &Bed) -> Result<Self> {
        bed.left.run(&format!(
            "ip neighbor replace {NOBODY} lladdr 02:74:65:00:00:63 dev {INTERFACE}"
        ))?;
        Ok(Self {
            sent: AtomicU64::new(0),
            enough: AtomicBool::new(false),
        })
    }

    /// So many, from a host.
    pub(crate) fn pass(&self, from: &Host, packets: u64) -> Result<()> {
        thread::scope(|scope| {
            let flooding = scope.spawn(|| self.run(from));
            while self.sent.load(Ordering::Relaxed) < packets && !flooding.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            self.enough.store(true, Ordering::Relaxed);
            flooding
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn run(&self, from: &Host) -> Result<()> {
        let socket = from.enter(|| UdpSocket::bind("0.0.0.0:0"))??;
        socket.connect((NOBODY, 9))?;
        while !self.enough.load(Ordering::Relaxed) {
            for _ in 0..64 {
                if socket.send(&[0; 18]).is_ok() {
                    self.sent.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Packets per second that go.
    fn rate(bed: &Bed) -> Result<f64> {
        const TIME: Duration = Duration::from_millis(500);
        let flood = Self::new(bed)?;
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(TIME);
                flood.enough.store(true, Ordering::Relaxed);
            });
            flood.run(&bed.left)
        })?;
        Ok(flood.sent.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
    }
}

/// More packets of another class go by than there are slots, to another neighbor.
fn held_packets_keep_their_neighbor(setting: &Setting) -> Result<()> {
    const PACKETS: usize = 20;
    const ROUND: u64 = SLOTS as u64 + SLOTS as u64 / 8;
    if !setting.kernel.tun {
        return Err(skip("this kernel has no TUN"));
    }
    if !setting.kernel.jit {
        return Err(skip(
            "the sandbox passes a thousand packets per second: too few to go round the slots",
        ));
    }
    let (bed, before) = setting.bed()?;
    // Emulation and what else this machine does cost as much again, and more.
    let seconds = (12.0 * ROUND as f64 / Flood::rate(&bed)?).ceil().max(4.0) as u64;
    let profile = format!(
        "
horizon: {}s
servers: {{ far: {{ latency: {seconds}s }}, near: {{ latency: 1ms }} }}
classes:
  - {{ name: held, match: {{ port: 7000 }}, egress: [far] }}
  - {{ name: flood, match: {{}}, egress: [near] }}
",
        seconds + 1
    );
    let applied = setting.product.apply(&bed.left, &profile, Pacer::User)?;
    let flood = Flood::new(&bed)?;
    let plan = Plan {
        count: PACKETS,
        port: 7000,
        patience: Duration::from_secs(seconds + 1),
        ..Plan::default()
    };
    let (trace, time) = thread::scope(|scope| -> Result<_> {
        let held = scope.spawn(|| datagrams::send(&bed.left, &bed.right, &plan));
        // They are held by now.
        thread::sleep(Duration::from_millis(200));
        let start = Instant::now();
        let flooding = scope.spawn(|| flood.run(&bed.left));
        while flood.sent.load(Ordering::Relaxed) < ROUND && !held.is_finished() {
            thread::sleep(Duration::from_millis(10));
        }
        let time = start.elapsed();
        flood.enough.store(true, Ordering::Relaxed);
        flooding
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let trace = held
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((trace, time))
    })?;
    let sent = flood.sent.load(Ordering::Relaxed);
    let report = applied.counters()?;
    applied.stop()?;
    figure!(
        "{PACKETS} packets held for {seconds} s beside {sent} others in {:.1} s: {} lost",
        time.as_secs_f64(),
        trace.lost().len()
    );
    ensure!(
        time < Duration::from_secs(seconds) && sent >= ROUND,
        "only {sent} packets of {ROUND} in {seconds} s: this machine is too slow for the test"
    );
    ensure!(
        trace.lost().is_empty(),
        "{} of {PACKETS} did not come to their neighbor",
        trace.lost().len()
    );
    for place in ["no_slot", "slot_reused"] {
        ensure!(
            report["unintended"][place] == 0,
            "{place}: {}",
            report["unintended"]
        );
    }
    before.must_be_that_of(&bed.left)
}
