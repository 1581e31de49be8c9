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

use std::{fmt, thread, time::Duration};

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

pub(crate) const TESTS: &[Test] = &[
    each("queues::beside_the_kernels_with_cubic", |setting| {
        beside(setting, "cubic")
    })
    .long(),
    each("queues::beside_the_kernels_with_bbr", |setting| {
        beside(setting, "bbr")
    })
    .long(),
];

/// A law: as `tc` has it, and as a profile.
struct Law {
    kind: &'static str,
    tc: &'static str,
    profile: &'static str,
}

/// Pie of the kernel counts its updates in ticks of 4 ms, and derandomizes; red has thresholds of 10 and 30 ms.
const LAWS: [Law; 3] = [
    Law {
        kind: "codel",
        tc: "limit 1000",
        profile: "",
    },
    Law {
        kind: "pie",
        tc: "limit 1000",
        profile: ", t_update: 16ms, derandomize: true",
    },
    Law {
        kind: "red",
        tc: "limit 400000 min 12500 max 37500 avpkt 1000 burst 21 probability 0.1 bandwidth 10Mbit",
        profile: ", min: 12.5kB, max: 37.5kB, avpkt: 1kB, burst: 21, probability: 10%",
    },
];

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
const FLOWS: [usize; 3] = [1, 8, 32];
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

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            mean,
            most,
            dropped,
            carried,
        } = self;
        write!(f, "{mean:.1} | {most:.1} | {dropped:.2} | {carried:.2}")
    }
}

fn beside(setting: &Setting, control: &'static str) -> Result<()> {
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
        .apply_to(router, port, &LAWS[0].profile(), setting.pacer, &[])?;
    println!("    figure: whose, flows | mean sojourn, ms | 95 %, ms | dropped, % | carried, Mbit/s");
    for (law, flows) in LAWS.iter().flat_map(|law| FLOWS.map(|flows| (law, flows))) {
        let transfer = Transfer {
            flows,
            warm_up: WARM_UP,
            window: WINDOW,
            congestion_control: control,
        };
        let Law { kind, tc, .. } = law;
        kernels.tc(&format!("qdisc add dev {port} parent 1:1 {kind} {tc}"))?;
        let kernel = kernels.measure(&transfer, || kernels.counts(kind))?;
        kernels.tc(&format!("qdisc del dev {port} parent 1:1"))?;
        let profile = setting.product.profile(&law.profile())?;
        let change = ["apply", &*profile.to_string_lossy(), "--iface", port];
        let changed = setting.product.call(router, &change)?;
        ensure!(changed.code() == 0, "{changed:?}");
        let perturb = ours.measure(&transfer, || of_server(&applied))?;
        figure!("{kind}, {flows} {control}: the kernel's {kernel}; perturb's {perturb}");
        // One flow of BBR may leave a queue alone.
        ensure!(
            flows == 1 || perturb.dropped > 0.0,
            "the queue drops nothing: {perturb}"
        );
        let rate = perturb.carried / MBITS;
        ensure!(
            (0.5..1.02).contains(&rate),
            "{MBITS} Mbit/s are not kept: {perturb}"
        );
    }
    applied.nothing_unintended()?;
    applied.stop()
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
    Ok(Counts {
        at: clock::now(),
        sent: count(&server["packets"])?,
        bytes: count(&server["bytes"])?,
        dropped: count(&server["queue"]["drops"])? + count(&server["tail_drops"])?,
    })
}
