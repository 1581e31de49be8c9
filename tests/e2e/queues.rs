//! This kernel's queues under HTB, and perturb's servers with the same laws: on the same router, with the same senders, in turn.
//!
//! ```text
//! left ═══ right, the router ═══ beyond, whose answers netem holds for 40 ms
//!          HTB and a queue, or perturb
//! ```
//!
//! TCP flows keep the router's queue filled; small datagrams go through it, too, and say how long it is: each one's delay less the
//! median of those that went before there was traffic. Packets are counted by the queue itself. HTB has a burst of two packets, which
//! makes up for its timer. There are no super-packets, which HTB would let go at once.

use std::{env, fmt, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use perturb_stats::Sample;
use perturb_tests::{
    bed::{Bed, Host, SECOND_INTERFACE},
    clock,
    datagrams::{self, Plan},
    product::Applied,
    streams::{self, Transfer},
};
use serde_json::Value;

use crate::harness::{Setting, Test, each, figure, skip};

/// One test for each number of flows beside each law, by their congestion control.
macro_rules! tests {
    ($($name:literal: $law:expr, $flows:literal, $control:literal;)*) => {
        pub(crate) const TESTS: &[Test] =
            &[$(each(concat!("queues::", $name), |setting| beside(setting, &$law, $flows, $control)).long()),*];
    };
}

tests! {
    "codel_1_cubic": CODEL, 1, "cubic";
    "codel_8_cubic": CODEL, 8, "cubic";
    "codel_32_cubic": CODEL, 32, "cubic";
    "pie_1_cubic": PIE, 1, "cubic";
    "pie_8_cubic": PIE, 8, "cubic";
    "pie_32_cubic": PIE, 32, "cubic";
    "red_1_cubic": RED, 1, "cubic";
    "red_8_cubic": RED, 8, "cubic";
    "red_32_cubic": RED, 32, "cubic";
    "codel_1_bbr": CODEL, 1, "bbr";
    "codel_8_bbr": CODEL, 8, "bbr";
    "codel_32_bbr": CODEL, 32, "bbr";
    "pie_1_bbr": PIE, 1, "bbr";
    "pie_8_bbr": PIE, 8, "bbr";
    "pie_32_bbr": PIE, 32, "bbr";
    "red_1_bbr": RED, 1, "bbr";
    "red_8_bbr": RED, 8, "bbr";
    "red_32_bbr": RED, 32, "bbr";
    "adaptive_red_8_cubic": ADAPTIVE, 8, "cubic";
    "adaptive_red_32_cubic": ADAPTIVE, 32, "cubic";
}

/// A law: as `tc` has it, once or more, and as a profile.
struct Law {
    kind: &'static str,
    tc: &'static [&'static str],
    profile: &'static str,
    /// How long it takes to find its way.
    warm_up: Duration,
}

const CODEL: Law = Law {
    kind: "codel",
    tc: &["limit 1000"],
    profile: "",
    warm_up: WARM_UP,
};

/// The kernel's derandomizes, and updates every 20 ms: 15 are four of its ticks of 4 ms, and its timer adds one (`timer_expire_entry` of
/// `pie_timer` says so). It goes by the wait of the packet that left last, or by the rate at which packets leave, as RFC 8033 has it.
const PIE: Law = Law {
    kind: "pie",
    tc: &["limit 1000", "limit 1000 dq_rate_estimator"],
    profile: ", t_update: 20ms, derandomize: true",
    warm_up: WARM_UP,
};

/// Thresholds of 10 and 30 ms.
const RED: Law = Law {
    kind: "red",
    tc: &["limit 400000 min 12500 max 37500 avpkt 1000 burst 21 probability 0.1 bandwidth 10Mbit"],
    profile: ", min: 12.5kB, max: 37.5kB, avpkt: 1kB, burst: 21, probability: 10%",
    warm_up: WARM_UP,
};

/// The same whose max_p moves, by a hundredth each half second at most.
const ADAPTIVE: Law = Law {
    kind: "red",
    tc: &["limit 400000 min 12500 max 37500 avpkt 1000 burst 21 probability 0.1 bandwidth 10Mbit adaptive"],
    profile: ", min: 12.5kB, max: 37.5kB, avpkt: 1kB, burst: 21, probability: 10%, adaptive: true",
    warm_up: Duration::from_secs(15),
};

impl Law {
    fn profile(&self) -> String {
        let Self { kind, profile, .. } = self;
        format!(
            "version: 1
servers: {{ {kind}: {{ bandwidth: {MBITS}Mbit/s, buffer: 1500kB, queue: {{ kind: {kind}{profile} }} }} }}
classes: [{{ name: all, match: {{}}, egress: [{kind}] }}]
"
        )
    }
}

const MBITS: f64 = 10.0;
const ROUND_TRIP: Duration = Duration::from_millis(40);
/// How long a queue is looked at, its warm-up aside: BBR looks for the shortest round trip every 10 s.
const WINDOW: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_secs(3);
/// From one datagram to the next: not in step with the flows' packets.
const EVERY: Duration = Duration::from_micros(9_700);

/// What a queue says of itself.
#[derive(Clone, Copy)]
struct Counts {
    /// When, ns.
    at: u64,
    sent: f64,
    bytes: f64,
    dropped: f64,
}

/// What was found of a queue.
#[derive(Clone, Copy)]
struct Found {
    /// How long packets waited, ms, in the mean.
    mean: f64,
    /// 95 % of them.
    most: f64,
    /// Of 100 packets.
    dropped: f64,
    /// Mbit/s.
    carried: f64,
}

type Figure = fn(&Found) -> f64;

/// Means over runs, with the standard deviation of one if there are several.
struct Runs<'a>(&'a [Found]);

impl fmt::Display for Runs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures: [(Figure, usize); 4] = [
            (|found| found.mean, 1),
            (|found| found.most, 1),
            (|found| found.dropped, 2),
            (|found| found.carried, 2),
        ];
        for (index, (figure, digits)) in figures.into_iter().enumerate() {
            let between = if index == 0 { "" } else { " | " };
            match self.0 {
                [found] => write!(f, "{between}{:.digits$}", figure(found))?,
                found => {
                    let sample = Sample::new(found.iter().map(figure).collect()).map_err(|_| fmt::Error)?;
                    let (mean, deviation) = (sample.mean(), sample.standard_deviation());
                    write!(f, "{between}{mean:.digits$} ± {deviation:.digits$}")?;
                }
            }
        }
        Ok(())
    }
}

fn beside(setting: &Setting, law: &Law, flows: usize, control: &'static str) -> Result<()> {
    let (kernels, ours) = (Router::new()?, Router::new()?);
    let port = SECOND_INTERFACE;
    for line in [
        "qdisc add dev {} root handle 1: htb default 1".to_owned(),
        format!("class add dev {{}} parent 1: classid 1:1 htb rate {MBITS}mbit burst 3200 cburst 3200"),
    ] {
        kernels.tc(&line.replace("{}", port))?;
    }
    let router = &ours.bed.right;
    let applied = setting
        .product
        .apply_to(router, port, &law.profile(), setting.pacer, &[])?;
    let transfer = Transfer {
        flows,
        warm_up: law.warm_up,
        window: WINDOW,
        congestion_control: control,
    };
    let Law { kind, tc, .. } = law;
    let (mut theirs, mut perturbs) = (vec![Vec::new(); tc.len()], Vec::new());
    for _ in 0..runs()? {
        for (line, found) in tc.iter().zip(&mut theirs) {
            kernels.tc(&format!("qdisc add dev {port} parent 1:1 {kind} {line}"))?;
            found.push(kernels.measure(&transfer, || kernels.counts(kind))?);
            kernels.tc(&format!("qdisc del dev {port} parent 1:1"))?;
        }
        let perturb = ours.measure(&transfer, || of_server(&applied))?;
        perturbs.push(perturb);
        // One flow of BBR may leave a queue alone.
        ensure!(
            flows == 1 || perturb.dropped > 0.0,
            "the queue drops nothing: {}",
            Runs(&[perturb])
        );
        let rate = perturb.carried / MBITS;
        ensure!(
            (0.5..1.02).contains(&rate),
            "{MBITS} Mbit/s are not kept: {}",
            Runs(&[perturb])
        );
    }
    figure!("{kind}, {flows} {control}: whose | mean sojourn, ms | 95 %, ms | dropped, % | carried, Mbit/s");
    for (line, found) in tc.iter().zip(&theirs) {
        figure!("  {kind} {line}: {}", Runs(found));
    }
    figure!("  perturb: {}", Runs(&perturbs));
    applied.nothing_unintended()?;
    applied.stop()
}

/// How often each is measured.
fn runs() -> Result<usize> {
    match env::var("PERTURB_QUEUE_RUNS") {
        Ok(runs) => runs.parse().context("PERTURB_QUEUE_RUNS"),
        Err(_) => Ok(1),
    }
}

/// Three hosts, of which the one in the middle is the router.
struct Router {
    bed: Bed,
    beyond: Host,
}

impl Router {
    fn new() -> Result<Self> {
        let bed = Bed::new()?;
        let beyond = bed.beyond()?;
        let millis = ROUND_TRIP.as_millis();
        let netem = beyond.run(&format!(
            "tc qdisc add dev {SECOND_INTERFACE} root netem limit 100000 delay {millis}ms"
        ));
        netem.map_err(|error| skip(format!("this kernel has no netem: {error:#}")))?;
        Ok(Self { bed, beyond })
    }

    fn tc(&self, line: &str) -> Result<()> {
        let done = self.bed.right.run(&format!("tc {line}"));
        done.map_err(|error| skip(format!("this kernel has no HTB, or not the queue: {error:#}")))?;
        Ok(())
    }

    /// What the kernel's queue says.
    fn counts(&self, kind: &str) -> Result<Counts> {
        let said = self
            .bed
            .right
            .run(&format!("tc -s -j qdisc show dev {SECOND_INTERFACE}"))?;
        let qdiscs: Vec<Value> = serde_json::from_str(&said)?;
        let own = qdiscs.iter().find(|qdisc| qdisc["kind"] == *kind);
        let own = own.context("the queue is gone")?;
        let count = |key: &str| own[key].as_f64().with_context(|| format!("no {key}: {own}"));
        Ok(Counts {
            at: clock::now(),
            sent: count("packets")?,
            bytes: count("bytes")?,
            dropped: count("drops")?,
        })
    }

    /// Sends datagrams, without and with traffic beside them, and asks the queue about the latter.
    fn measure(&self, transfer: &Transfer, counts: impl Fn() -> Result<Counts> + Sync) -> Result<Found> {
        let Self { bed, beyond } = self;
        let delays_us = |count| -> Result<Sample> {
            let plan = Plan {
                count,
                interval: EVERY,
                patience: Duration::from_millis(400),
                ..Plan::default()
            };
            datagrams::send(&bed.left, beyond, &plan)?.delays_us()
        };
        // What flows before these have left behind drains.
        thread::sleep(Duration::from_millis(500));
        let idle = delays_us(100)?.median();
        let count = (transfer.window.as_nanos() / EVERY.as_nanos()) as usize;
        let (before, delays, after) = thread::scope(|scope| {
            let probe = scope.spawn(|| {
                thread::sleep(transfer.warm_up);
                anyhow::Ok((counts()?, delays_us(count)?, counts()?))
            });
            // The flows go on a little longer than the probe.
            let transfer = Transfer {
                window: transfer.window + Duration::from_secs(1),
                ..transfer.clone()
            };
            streams::goodput(&bed.left, beyond, &transfer)?;
            probe.join().ok().context("the probe has panicked")?
        })?;
        let (sent, dropped) = (after.sent - before.sent, after.dropped - before.dropped);
        ensure!(sent > 0.0, "the queue has let nothing go");
        Ok(Found {
            mean: (delays.mean() - idle) / 1e3,
            most: (delays.quantile(0.95)? - idle) / 1e3,
            dropped: 100.0 * dropped / (sent + dropped),
            carried: (after.bytes - before.bytes) * 8e3 / (after.at - before.at) as f64,
        })
    }
}

fn of_server(applied: &Applied<'_>) -> Result<Counts> {
    let report = applied.counters()?;
    let server = &report["servers"][0];
    let count = |value: &Value| value.as_f64().with_context(|| format!("not a number: {server}"));
    // Bits per microsecond, in bytes. perturb counts packets as they come, the kernel as they leave.
    let waiting = count(&server["backlog_us"])? * MBITS / 8.0;
    Ok(Counts {
        at: clock::now(),
        sent: count(&server["packets"])?,
        bytes: count(&server["bytes"])? - waiting,
        dropped: count(&server["queue"]["drops"])? + count(&server["tail_drops"])?,
    })
}
