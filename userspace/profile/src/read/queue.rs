//! Reads the law of a server's queue, and what it demands of the server.

use perturb_quantity::Duration;

use crate::compile;
use crate::diagnostic::Problem;
use crate::findings::Findings;
use crate::keys;
use crate::model::{Queue, Scope, Server};
use crate::read::server::volume;
use crate::read::{self, At, Fields};

/// Why no threshold is in bytes where a trace has the rate, and what to do.
pub(super) const ONE_RATE: &str = "a threshold in bytes is of one rate, and a trace has many";
pub(super) const AS_TIME: &str = "give the threshold as a time";

/// Kinds whose later arrivals change earlier departures.
const INEXACT: [&str; 3] = ["fq_codel", "cake", "dualpi2"];

/// A queue; tail drop without any keys.
pub(crate) fn queue(at: At<'_>, findings: &mut Findings<'_>) -> Option<Queue> {
    let fields = Fields::of(at, &keys::QUEUE, &[], findings)?;
    let kind = fields.read("kind", findings, |at, f| {
        if INEXACT.contains(&at.text("one word", f)?) {
            let why = "with several queues a packet that comes later changes when earlier ones leave, which is fixed when they come";
            let remedy = "take `codel`, or `step` for the marks of L4S";
            at.unfit(why, remedy, f);
            return None;
        }
        at.choice(keys::QUEUES, keys::QUEUES, f)
    });
    if fields.node("kind").is_some() && kind.is_none() {
        return None;
    }
    let kind = kind.unwrap_or("tail");
    let own: &[&str] = match kind {
        "step" => &["threshold", "l4s"],
        "codel" => &["target", "interval", "ecn", "ce_threshold"],
        "pie" => &[
            "target",
            "t_update",
            "max_burst",
            "ecn",
            "mark_ecnth",
            "derandomize",
        ],
        "red" => &["min", "max", "probability", "avpkt", "burst", "ecn", "adaptive"],
        _ => &[],
    };
    for key in keys::QUEUE.names().filter(|key| *key != "kind") {
        if !own.contains(&key) && fields.node(key).is_some() {
            let why = "this kind of queue has no such thing";
            fields.unfit(key, why, "remove it, or change `kind`", findings);
        }
    }
    let marks = |at: At<'_>, f: &mut Findings<'_>| volume(at, (keys::ECN_BYTES, keys::ECN_DELAY), f);
    let flag = |key, f: &mut Findings<'_>| fields.read(key, f, read::flag).unwrap_or(false);
    let time = |key, bounds, default, f: &mut Findings<'_>| {
        fields
            .read(key, f, |at, f| at.quantity(bounds, f))
            .unwrap_or(default)
    };
    let share = |key, default, f: &mut Findings<'_>| {
        fields
            .read(key, f, |at, f| at.quantity(keys::SHARE, f))
            .unwrap_or(default)
    };
    Some(match kind {
        "step" => {
            let threshold = fields.require("threshold", "threshold: 1ms", findings, marks);
            Queue::Step {
                threshold: threshold?,
                l4s: flag("l4s", findings),
            }
        }
        "codel" => Queue::CoDel {
            target: time("target", keys::TARGET, Queue::TARGET, findings),
            interval: time("interval", keys::INTERVAL, Queue::INTERVAL, findings),
            ecn: flag("ecn", findings),
            ce_threshold: fields.read("ce_threshold", findings, marks),
        },
        "red" => {
            let (min, max) = (
                fields.require("min", "min: 5ms", findings, marks),
                fields.require("max", "max: 15ms", findings, marks),
            );
            let size = |at: At<'_>, f: &mut Findings<'_>| at.quantity(keys::AVPKT, f);
            let count = |at: At<'_>, f: &mut Findings<'_>| at.integer(keys::BURST, f);
            Queue::Red {
                min: min?,
                max: max?,
                probability: share("probability", Queue::MAX_P, findings),
                avpkt: fields.read("avpkt", findings, size).unwrap_or(Queue::AVPKT),
                burst: fields.read("burst", findings, count),
                ecn: flag("ecn", findings),
                adaptive: flag("adaptive", findings),
            }
        }
        "pie" => Queue::Pie {
            target: time("target", keys::TARGET, Queue::QDELAY_REF, findings),
            t_update: time("t_update", keys::T_UPDATE, Queue::QDELAY_REF, findings),
            max_burst: time("max_burst", keys::MAX_BURST, Queue::MAX_BURST, findings),
            ecn: flag("ecn", findings),
            mark_ecnth: share("mark_ecnth", Queue::MARK_ECNTH, findings),
            derandomize: flag("derandomize", findings),
        },
        _ => Queue::Tail,
    })
}

/// A law needs a queue, and has its state once.
pub(crate) fn check_queue(fields: &Fields<'_>, server: &Server, findings: &mut Findings<'_>) {
    if server.queue == Queue::Tail {
        return;
    }
    let counts_bytes = server.queue.counts_bytes();
    let takes_time = server.gap != Duration::ZERO;
    let red = matches!(server.queue, Queue::Red { .. });
    let needs_rate = counts_bytes || (!takes_time && (red || server.trace.is_none()));
    if server.trace.is_some() && counts_bytes {
        fields.unfit("queue", ONE_RATE, AS_TIME, findings);
    } else if fields.node("bandwidth").is_none() && needs_rate {
        let why = if red {
            "RED counts packets of `avpkt` bytes by the time that they take"
        } else {
            "packets that take no time do not queue"
        };
        fields.needs("queue", "bandwidth", why, findings);
    } else if let Queue::Red {
        min,
        max,
        avpkt,
        burst,
        ..
    } = server.queue
    {
        let time = compile::time_of(server);
        if time(min) >= time(max) {
            let why = "RED's `max` is not above its `min`";
            fields.unfit("queue", why, "raise `max`, or lower `min`", findings);
        } else if compile::red_weight(server, [min, max], avpkt, burst).is_none() {
            let why =
                "RED's `min` is less than a packet of `avpkt` bytes takes, or more than `burst` of them do";
            let remedy = "raise `min`, or leave `burst` out";
            fields.unfit("queue", why, remedy, findings);
        }
    }
    if server.scope != Scope::Shared {
        let why = "queues have laws at servers of scope shared only";
        let remedy = "change the scope, or take `ecn`, which marks at all";
        fields.unfit("queue", why, remedy, findings);
    }
    if server.ecn.is_some() {
        let why = "the queue says itself what is marked";
        fields.report("ecn", Problem::Excludes { other: "queue", why }, findings);
    }
}
