//! Nothing is lost, and nothing goes astray, without a word.

use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use perturb_common::abi::SLOTS;
use perturb_tests::{
    bed::{Bed, Host, INTERFACE},
    datagrams::{self, Plan},
    product::Pacer,
};

use crate::harness::{Setting, Test, figure, once, skip};

pub(crate) const TESTS: &[Test] = &[once(
    "accounting::held_packets_keep_their_neighbor",
    held_packets_keep_their_neighbor,
)];

/// An address whose hardware address is nobody's.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 99);

/// Small datagrams to nobody, as fast as they go.
struct Flood {
    sent: AtomicU64,
    enough: AtomicBool,
}

impl Flood {
    fn new(bed: &Bed) -> Result<Self> {
        bed.left.run(&format!(
            "ip neighbor replace {NOBODY} lladdr 02:74:65:00:00:63 dev {INTERFACE}"
        ))?;
        Ok(Self {
            sent: AtomicU64::new(0),
            enough: AtomicBool::new(false),
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
    let (bed, before) = setting.bed()?;
    // Emulation and what else this machine does cost as much again, and more.
    let seconds = (6.0 * ROUND as f64 / Flood::rate(&bed)?).ceil().max(4.0) as u64;
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
