//! Reads the slots in which a server's packets leave, and what they demand of the server.

use perturb_quantity::Duration;

use crate::diagnostic::Problem;
use crate::findings::Findings;
use crate::keys;
use crate::model::{Between, Queue, Scope, Server, Slot};
use crate::read::fates::{distribution, kind};
use crate::read::{At, Fields};

/// Slots.
pub(crate) fn slot(at: At<'_>, findings: &mut Findings<'_>) -> Option<Slot> {
    let fields = Fields::of(at, &keys::SLOTS, &[], findings)?;
    let time = |at: At<'_>, f: &mut Findings<'_>| at.quantity(keys::SLOT_DELAY, f);
    let drawn = fields.node("distribution").is_some();
    let (own, others): (_, &[&str]) = if drawn {
        ("distribution", &["min", "max"])
    } else {
        ("min", &["delay", "jitter", "table"])
    };
    for &other in others {
        if fields.node(other).is_none() {
            continue;
        }
        if drawn {
            let why = "both say when the next slot opens";
            fields.report(other, Problem::Excludes { other: own, why }, findings);
        } else {
            let why = "it is of a distribution";
            fields.needs(other, "distribution: normal", why, findings);
        }
    }
    let between = if drawn {
        let kind = kind(&fields, findings);
        let distribution = distribution(&fields, kind, findings);
        let delay = fields.require("delay", "delay: 10ms", findings, time);
        let scale = fields.require("jitter", "jitter: 2ms", findings, time);
        distribution
            .zip(delay)
            .zip(scale)
            .map(|((distribution, delay), scale)| Between::Drawn {
                distribution,
                delay,
                scale,
            })
    } else {
        let min = fields.require("min", "min: 1ms", findings, time);
        let max = fields.read("max", findings, time);
        if let (Some(min), Some(max)) = (min, max)
            && max < min
        {
            let why = "it is below `min`";
            fields.unfit("max", why, "exchange them", findings);
        }
        min.map(|min| Between::Range(min, max.unwrap_or(min).max(min)))
    };
    let packets = fields.read("packets", findings, |at, f| at.integer(keys::SLOT_PACKETS, f));
    let bytes = fields.read("bytes", findings, |at, f| at.quantity(keys::SLOT_BYTES, f));
    let slot = Slot {
        between: between?,
        packets: packets.and_then(|packets| u32::try_from(packets).ok()),
        bytes,
    };
    if slot.longest() == Duration::ZERO {
        let key = if drawn { "delay" } else { "min" };
        let why = "the next slot opens at once, so nothing waits";
        fields.unfit(key, why, "give it a time, or leave `slot` out", findings);
    }
    Some(slot)
}

/// Slots have their state once, and what waits for them is known to nothing but a buffer in packets.
pub(crate) fn check_slot(fields: &Fields<'_>, server: &Server, findings: &mut Findings<'_>) {
    if server.slot.is_none() {
        return;
    }
    if server.scope != Scope::Shared {
        let why = "slots are those of servers of scope shared only";
        fields.unfit("slot", why, "change the scope, or remove it", findings);
    }
    if server.queue != Queue::Tail {
        let why = "a law does not know how long packets wait for a slot; give the slot a server of its own behind it";
        fields.report("slot", Problem::Excludes { other: "queue", why }, findings);
    }
    if server.buffer.volume.is_some() {
        let why = "what waits for a slot is counted in packets only";
        let remedy = "write `buffer: 100 packets`, or give the slot a server of its own behind it";
        fields.unfit("buffer", why, remedy, findings);
    }
}
