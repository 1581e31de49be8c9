//! Reads one server: its knobs, and what they demand of each other.

use perturb_quantity::{Duration, Quantity, Rate, Size};

use crate::diagnostic::Problem;
use crate::findings::Findings;
use crate::keys;
use crate::model::{Buffer, Framing, Queue, Scope, Server, Volume};
use crate::read::fates::{correlated, jitter, loss, reorder};
use crate::read::queue::{AS_TIME, ONE_RATE, check_queue, queue};
use crate::read::slot::{check_slot, slot};
use crate::read::topology::collisions;
use crate::read::trace::trace;
use crate::read::{self, At, Fields};
use crate::yaml::Kind;

/// A server with a scope of its own choice.
pub(crate) fn server(at: At<'_>, findings: &mut Findings<'_>) -> Option<Server> {
    Some(knobs(
        &Fields::of(at, &keys::SERVER, &[], findings)?,
        true,
        findings,
    ))
}

/// A link of a topology, which is always shared.
pub(crate) fn link(at: At<'_>, findings: &mut Findings<'_>) -> Option<Server> {
    Some(knobs(
        &Fields::of(at, &keys::LINK, &[], findings)?,
        false,
        findings,
    ))
}

/// A level of a tree: a link whose buffer may also be given as `buffer_delay`.
pub(crate) fn level(at: At<'_>, findings: &mut Findings<'_>) -> Option<Server> {
    let fields = Fields::of(at, &keys::LEVEL, &[], findings)?;
    let mut server = knobs(&fields, false, findings);
    let delay = fields.read("buffer_delay", findings, |at, f| {
        at.quantity(keys::BUFFER_DELAY, f)
    });
    if let Some(delay) = delay {
        if fields.node("buffer").is_some() {
            let why = "both limit the same backlog";
            fields.report(
                "buffer_delay",
                Problem::Excludes { other: "buffer", why },
                findings,
            );
        }
        server.buffer.volume = Some(Volume::Delay(delay));
        check_buffer(&fields, "buffer_delay", &server, findings);
    }
    Some(server)
}

/// The server that the keys of `fields` describe.
pub(crate) fn knobs(fields: &Fields<'_>, scoped: bool, findings: &mut Findings<'_>) -> Server {
    let scope = if scoped {
        fields.read("scope", findings, read::variant)
    } else {
        None
    };
    let server = Server {
        scope: scope.unwrap_or_default(),
        gap: fields
            .read("gap", findings, |at, f| at.quantity(keys::GAP, f))
            .unwrap_or_default(),
        bandwidth: fields.read("bandwidth", findings, |at, f| at.quantity(keys::BANDWIDTH, f)),
        framing: fields.read("framing", findings, framing).unwrap_or_default(),
        latency: fields
            .read("latency", findings, |at, f| at.quantity(keys::LATENCY, f))
            .unwrap_or_default(),
        buffer: fields.read("buffer", findings, buffer).unwrap_or_default(),
        jitter: fields.read("jitter", findings, jitter),
        loss: fields.read("loss", findings, loss).unwrap_or_default(),
        duplicate: fields.read("duplicate", findings, correlated).unwrap_or_default(),
        corrupt: fields.read("corrupt", findings, correlated).unwrap_or_default(),
        reorder: fields.read("reorder", findings, reorder),
        ecn: fields.read("ecn", findings, |at, f| {
            volume(at, (keys::ECN_BYTES, keys::ECN_DELAY), f)
        }),
        queue: fields.read("queue", findings, queue).unwrap_or_default(),
        slot: fields.read("slot", findings, slot),
        collisions: if scoped {
            fields.read("collisions", findings, collisions)
        } else {
            None
        },
        trace: if scoped {
            fields.read("trace", findings, trace)
        } else {
            None
        },
    };
    check_buffer(fields, "buffer", &server, findings);
    check_ecn(fields, &server, findings);
    if fields.node("framing").is_some() && fields.node("bandwidth").is_none() && server.trace.is_none() {
        let why = "bytes that take no time cost nothing";
        fields.needs("framing", "bandwidth", why, findings);
    }
    if fields.node("reorder").is_some()
        && ["latency", "jitter"].iter().all(|key| fields.node(key).is_none())
        && server.trace.is_none()
    {
        let why = "what goes ahead leaves out latency and jitter, and there is neither";
        fields.needs("reorder", "latency", why, findings);
    }
    check_queue(fields, &server, findings);
    check_slot(fields, &server, findings);
    check_collisions(fields, &server, findings);
    server
}

/// A size or a duration.
pub(crate) fn volume(
    at: At<'_>,
    (bytes, delay): (keys::Bounds<Size>, keys::Bounds<Duration>),
    findings: &mut Findings<'_>,
) -> Option<Volume> {
    let text = at.text("a size or a duration", findings)?;
    if text.parse::<Duration>().is_ok() {
        return at.quantity(delay, findings).map(Volume::Delay);
    }
    match text.parse::<Size>() {
        Ok(_) => at.quantity(bytes, findings).map(Volume::Bytes),
        Err(error) => {
            let (what, units) = (
                "a size or a duration",
                "B, kB, MB, GB, KiB, MiB, GiB, or ns, us, ms, s, min, h",
            );
            at.report(
                Problem::Quantity {
                    error: error.fault,
                    what,
                    units,
                    example: Size::DIMENSION.example,
                },
                findings,
            );
            None
        }
    }
}

fn buffer(at: At<'_>, findings: &mut Findings<'_>) -> Option<Buffer> {
    if let Kind::Map(_) = at.node.kind {
        let fields = Fields::of(at, &keys::BUFFER, &[], findings)?;
        let bytes = fields.read("bytes", findings, |at, f| at.quantity(keys::BUFFER_BYTES, f));
        let delay = fields.read("delay", findings, |at, f| at.quantity(keys::BUFFER_DELAY, f));
        let packets = fields.read("packets", findings, |at, f| at.integer(keys::BUFFER_PACKETS, f));
        if fields.node("bytes").is_some() && fields.node("delay").is_some() {
            let why = "both limit the same backlog";
            fields.report("delay", Problem::Excludes { other: "bytes", why }, findings);
        }
        let volume = bytes.map(Volume::Bytes).or(delay.map(Volume::Delay));
        return Some(Buffer {
            volume,
            packets: packets.and_then(|count| u32::try_from(count).ok()),
        });
    }
    let text = at.text("a size, a duration, `100 packets` or a map", findings)?;
    let Some(count) = text
        .strip_suffix("packets")
        .or_else(|| text.strip_suffix("packet"))
    else {
        return volume(at, (keys::BUFFER_BYTES, keys::BUFFER_DELAY), findings).map(|volume| Buffer {
            volume: Some(volume),
            packets: None,
        });
    };
    let keys::Bounds { min, max } = keys::BUFFER_PACKETS;
    match count.trim().parse::<u64>() {
        Ok(count) if (min..=max).contains(&count) => Some(Buffer {
            volume: None,
            packets: u32::try_from(count).ok(),
        }),
        Ok(_) => {
            at.report(
                Problem::OutOfRange {
                    min: format!("{min} packets"),
                    max: format!("{max} packets"),
                },
                findings,
            );
            None
        }
        Err(_) => {
            at.report(Problem::NotAnInteger { min, max }, findings);
            None
        }
    }
}

fn framing(at: At<'_>, findings: &mut Findings<'_>) -> Option<Framing> {
    let fields = Fields::of(at, &keys::FRAMING, &[], findings)?;
    let mut bytes = |key, bounds| {
        let read = fields.read(key, findings, |at, f| at.integer(bounds, f));
        read.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(0)
    };
    let framing = Framing {
        packet_overhead: bytes("packet_overhead", keys::FRAMING_BYTES),
        cell_size: bytes("cell_size", keys::CELL),
        cell_overhead: bytes("cell_overhead", keys::FRAMING_BYTES),
        without_ethernet: fields
            .read("without_ethernet", findings, read::flag)
            .unwrap_or(false),
    };
    if fields.node("cell_overhead").is_some() && fields.node("cell_size").is_none() {
        fields.needs(
            "cell_overhead",
            "cell_size",
            "without cells it is nothing's",
            findings,
        );
    }
    Some(framing)
}

/// A limit on a backlog needs something that makes a backlog.
fn check_buffer(fields: &Fields<'_>, key: &'static str, server: &Server, findings: &mut Findings<'_>) {
    let occupied = server.gap > Duration::ZERO || fields.node("gap").is_some();
    // A trace may bring one.
    let has_bandwidth = fields.node("bandwidth").is_some() || server.trace.is_some();
    match server.buffer.volume {
        Some(Volume::Bytes(_)) if !has_bandwidth => {
            let why = "bytes that take no time do not queue";
            fields.needs(key, "bandwidth", why, findings);
        }
        Some(Volume::Delay(_)) if !has_bandwidth && !occupied => {
            let why = "packets that take no time do not queue";
            fields.needs(key, "bandwidth", why, findings);
        }
        Some(Volume::Delay(delay))
            if server
                .bandwidth
                .is_some_and(|rate| rate.time_of(keys::FRAME.bytes()) > delay) =>
        {
            let why = "it is shorter than one frame of 1514 bytes takes, so no such frame would ever pass";
            fields.unfit(key, why, "give it at least the time of one frame", findings);
        }
        _ => {}
    }
    if server.buffer.packets.is_some() {
        if !has_bandwidth && !occupied && fields.node("slot").is_none() {
            let why = "packets that take no time do not queue";
            fields.needs(key, "bandwidth", why, findings);
        }
        if server.scope != Scope::Shared {
            let why = "packets are counted at servers of scope shared only";
            let remedy = "limit the bytes instead, or change the scope";
            fields.unfit(key, why, remedy, findings);
        }
    }
}

fn check_ecn(fields: &Fields<'_>, server: &Server, findings: &mut Findings<'_>) {
    let (other, why) = match server.ecn {
        Some(Volume::Bytes(_)) if server.trace.is_some() => {
            return fields.unfit("ecn", ONE_RATE, AS_TIME, findings);
        }
        _ if server.trace.is_some() => return,
        Some(Volume::Bytes(_)) if fields.node("bandwidth").is_none() => {
            ("bandwidth", "bytes that take no time do not queue")
        }
        Some(Volume::Delay(_)) if fields.node("bandwidth").is_none() && fields.node("gap").is_none() => {
            ("bandwidth", "packets that take no time do not queue")
        }
        _ => return,
    };
    fields.needs("ecn", other, why, findings);
}

/// Frames meet only where they take time, and stations share one server.
pub(crate) fn check_collisions(fields: &Fields<'_>, server: &Server, findings: &mut Findings<'_>) {
    if server.collisions.is_none() {
        return;
    }
    if server.bandwidth.is_none() && server.gap == Duration::ZERO {
        let (other, why) = ("bandwidth", "frames that take no time never meet");
        fields.needs("collisions", other, why, findings);
    }
    if server.queue != Queue::Tail {
        let why = "a law knows no frames that collide";
        fields.report("collisions", Problem::Excludes { other: "queue", why }, findings);
    }
    if server.scope != Scope::Shared {
        let why = "stations collide at servers of scope shared only";
        let remedy = "change the scope, or remove it";
        fields.unfit("collisions", why, remedy, findings);
    }
}

/// How long `bytes` of backlog take at `rate`; a backlog given in time is that.
pub(crate) fn backlog_time(volume: Volume, rate: Option<Rate>) -> Duration {
    match volume {
        Volume::Delay(delay) => delay,
        Volume::Bytes(size) => rate.map_or(Duration::ZERO, |rate| rate.time_of(size.bytes())),
    }
}
