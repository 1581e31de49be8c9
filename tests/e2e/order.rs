//! Flows keep their order, and nothing gets lost unseen, however many processors send at once.
//!
//! Four flows of numbered datagrams, or of frames that are not IP, share one server of 5 ms. One, two and four threads send
//! them, each on a processor of its own, as many as there are. No datagram may arrive after a later one of its flow, or twice, or changed; and what
//! does not arrive must stand in `perturb status`. netem on the same bed is the control: it reorders where several
//! processors send.

use std::{env, time::Duration};

use anyhow::{Context as _, Result, ensure};
use perturb_tests::{
    bed::{Bed, Host},
    emulation::{Emulation, Emulator, Link},
    order::{self, Arrivals, Carrier, Plan},
};
use serde_json::Value;

use crate::harness::{Setting, Test, each, figure, once, skip};

pub(crate) const TESTS: &[Test] = &[
    each("order::egress_plain", |setting| {
        kept(setting, Side::Egress, PLAIN)
    }),
    each("order::egress_super_packets", |setting| {
        kept(setting, Side::Egress, WHOLE)
    }),
    each("order::egress_split_super_packets", |setting| {
        kept(setting, Side::Egress, SPLIT)
    }),
    each("order::egress_frames", |setting| {
        kept(setting, Side::Egress, FRAMES)
    }),
    each("order::ingress_plain", |setting| {
        kept(setting, Side::Ingress, PLAIN)
    }),
    each("order::ingress_super_packets", |setting| {
        kept(setting, Side::Ingress, WHOLE)
    }),
    each("order::ingress_split_super_packets", |setting| {
        kept(setting, Side::Ingress, SPLIT)
    }),
    each("order::ingress_frames", |setting| {
        kept(setting, Side::Ingress, FRAMES)
    }),
    once("order::control", control),
];

/// How many datagrams each test sends with each number of senders, unless [`COUNT`] says so.
const DATAGRAMS: usize = 4_000;
/// Says how many.
const COUNT: &str = "PERTURB_ORDER_DATAGRAMS";
/// Numbers of sending processors.
const SENDERS: [usize; 3] = [1, 2, 4];

/// At which host perturb is: packets of the flows leave it or come to it.
#[derive(Clone, Copy, Debug)]
enum Side {
    Egress,
    Ingress,
}

/// What carries datagrams, and how perturb treats super-packets.
#[derive(Clone, Copy, Debug)]
struct Shape {
    carrier: Carrier,
    segmentation: &'static str,
}

const PLAIN: Shape = Shape {
    carrier: Carrier::Udp,
    segmentation: "whole",
};
const WHOLE: Shape = Shape {
    carrier: Carrier::SuperPackets,
    segmentation: "whole",
};
/// They cross a further pair of devices, which cuts them.
const SPLIT: Shape = Shape {
    carrier: Carrier::SuperPackets,
    segmentation: "exact",
};
const FRAMES: Shape = Shape {
    carrier: Carrier::Frames,
    segmentation: "whole",
};

/// How many datagrams a test sends: what [`COUNT`] says, or else as many as usual.
pub(crate) fn datagrams(usual: usize) -> Result<usize> {
    match env::var(COUNT) {
        Ok(count) => count
            .parse()
            .with_context(|| format!("{COUNT} is not a number: {count}")),
        Err(_) => Ok(usual),
    }
}

fn plan(senders: usize, carrier: Carrier) -> Result<Plan> {
    Ok(Plan {
        datagrams: datagrams(DATAGRAMS)?,
        flows: 4,
        senders,
        burst: 10,
        size: match carrier {
            Carrier::SuperPackets => 1_000,
            Carrier::Udp | Carrier::Frames => 68,
        },
        pause: Duration::from_millis(2),
        carrier,
    })
}

/// As many senders as this machine has processors for.
fn senders() -> impl Iterator<Item = usize> {
    SENDERS
        .into_iter()
        .filter(|&senders| senders <= order::processors())
}

fn kept(setting: &Setting, side: Side, shape: Shape) -> Result<()> {
    let (bed, _) = setting.bed()?;
    let host: &Host = match side {
        Side::Egress => &bed.left,
        Side::Ingress => &bed.right,
    };
    let before = perturb_tests::remains::State::of(host)?;
    let profile = format!(
        "servers: {{ wan: {{ latency: 5ms, scope: shared }} }}\nsegmentation: {}\n\
         classes: [{{ name: all, match: {{}}, egress: [wan], ingress: [wan] }}]",
        shape.segmentation
    );
    let applied = setting.product.apply(host, &profile, setting.pacer)?;
    let mut report = applied.counters()?;
    for senders in senders() {
        let named_before = named_losses(&report);
        let arrivals = order::send(&bed, &plan(senders, shape.carrier)?)?;
        report = applied.counters()?;
        let named = named_losses(&report) - named_before;
        figure!(
            "{side:?}, {senders} sender(s): {arrivals:?}, lost {}, named {named}",
            arrivals.lost()
        );
        ensure!(
            arrivals.inversions == 0,
            "{} of {} datagrams arrived after a later one of their flow ({senders} senders)",
            arrivals.inversions,
            arrivals.sent
        );
        ensure!(
            arrivals.lost() == named,
            "{} of {} datagrams were lost, of which perturb status names {named}: {report} ({senders} senders)",
            arrivals.lost(),
            arrivals.sent
        );
        // A machine that is too slow for the senders loses packets elsewhere.
        for place in ["no_slot", "slot_reused"] {
            ensure!(
                report["unintended"][place] == 0,
                "{place}: {report} ({senders} senders)"
            );
        }
        ensure!(
            arrivals.copies == 0 && arrivals.broken == 0,
            "{arrivals:?} ({senders} senders)"
        );
    }
    applied.stop()?;
    before.must_be_that_of(host)?;
    if shape.carrier == Carrier::SuperPackets {
        let sent = match side {
            Side::Egress => &report["classes"][0]["egress"],
            Side::Ingress => &report["classes"][0]["ingress"],
        };
        let whole = sent["packets"].as_u64() < sent["wire_packets"].as_u64();
        let expected = shape.segmentation == "whole";
        ensure!(
            whole == expected,
            "super-packets crossed the server whole: {whole}; {sent}"
        );
    }
    Ok(())
}

/// Packets that a report says were dropped, whatever the reason.
pub(crate) fn named_losses(report: &Value) -> u64 {
    let named = |kind: &str| report["balance"][kind].as_u64().unwrap_or_default();
    named("dropped") + named("unintended")
}

/// The bed itself keeps the order; what netem does is printed.
fn control(setting: &Setting) -> Result<()> {
    let measure = |emulator: Emulator, senders: usize, carrier: Carrier| -> Result<Arrivals> {
        let bed = Bed::new()?;
        let link = Link {
            netem: "delay 5ms",
            perturb: "latency: 5ms",
            delay: None,
        };
        let emulation = Emulation::start(&setting.product, &bed, emulator, link)?;
        let arrivals = order::send(&bed, &plan(senders, carrier)?)?;
        emulation.stop()?;
        figure!(
            "{}, {senders} sender(s), {carrier:?}: {arrivals:?}, lost {}",
            emulator.name(),
            arrivals.lost()
        );
        Ok(arrivals)
    };
    for senders in senders() {
        for carrier in [Carrier::Udp, Carrier::SuperPackets, Carrier::Frames] {
            let arrivals = measure(Emulator::Off, senders, carrier)?;
            ensure!(
                arrivals.inversions == 0,
                "without emulation, {senders} senders: {arrivals:?}"
            );
            if setting.kernel.netem {
                measure(Emulator::Netem, senders, carrier)?;
            }
        }
    }
    if setting.kernel.netem {
        Ok(())
    } else {
        Err(skip(
            "this kernel has no netem; without emulation the order was kept",
        ))
    }
}
