//! Reads hosts, topologies and TCP settings.

use crate::findings::Findings;
use crate::keys::{self, ALTERNATIVES};
use crate::matching::Prefix;
use crate::model::Name;
use crate::read::class::ServerNames;
use crate::read::server::{check_collisions, level, link};
use crate::read::{self, At, Fields};
use crate::topology::{Collisions, Layout, MAX_HOSTS, Sharing, Tcp, Topology, Window};

/// Hosts by name, with their addresses.
pub(crate) fn hosts(at: At<'_>, findings: &mut Findings<'_>) -> Option<Vec<(Name, Vec<Prefix>)>> {
    let hosts = at.named(MAX_HOSTS, findings, |at, f| {
        at.one_or_more(ALTERNATIVES, f, read::prefix)
    })?;
    Some(
        hosts
            .into_iter()
            .map(|(name, prefixes)| (name, prefixes.unwrap_or_default()))
            .collect(),
    )
}

/// A topology for `hosts` named hosts (0: as many as there are).
pub(crate) fn topology(
    at: At<'_>,
    servers: &ServerNames<'_>,
    hosts: usize,
    findings: &mut Findings<'_>,
) -> Option<Topology> {
    let fields = Fields::of(at, &keys::TOPOLOGY, &[], findings)?;
    let kind = fields.require("kind", "kind: tree", findings, |at, f| {
        at.choice(keys::LAYOUTS, keys::LAYOUTS, f)
    });
    let mut end = |key| {
        fields
            .read(key, findings, |at, f| servers.path(at, f))
            .unwrap_or_default()
    };
    let (egress, ingress) = (end("egress"), end("ingress"));
    let layout = layout(&fields, kind?, findings)?;
    if hosts > layout.capacity() {
        let why = "there are more `hosts` than it has room for";
        at.unfit(why, "add levels or dimensions, or remove hosts", findings);
    }
    Some(Topology {
        layout,
        egress,
        ingress,
    })
}

fn layout(fields: &Fields<'_>, kind: &str, findings: &mut Findings<'_>) -> Option<Layout> {
    let own: &[&str] = match kind {
        "bus" => &["link", "collisions"],
        "star" => &["link"],
        "tree" => &["levels", "sharing"],
        _ => &["link", "dimensions"],
    };
    for key in ["link", "collisions", "levels", "sharing", "dimensions"] {
        if !own.contains(&key) && fields.node(key).is_some() {
            let why = "this kind of topology has no such thing";
            fields.unfit(key, why, "remove it, or change `kind`", findings);
        }
    }
    let edge = |findings: &mut Findings<'_>| {
        fields.require("link", "link: { bandwidth: 100Mbit/s }", findings, link)
    };
    Some(match kind {
        "bus" => {
            let collisions = fields.read("collisions", findings, collisions);
            let mut link = edge(findings)?;
            link.collisions = collisions;
            check_collisions(fields, &link, findings);
            Layout::Bus { link }
        }
        "star" => Layout::Star {
            link: edge(findings)?,
        },
        "tree" => {
            let sharing = fields.read("sharing", findings, read::variant::<Sharing>);
            let example = "levels: [{ bandwidth: 100Mbit/s, buffer: 64KiB }]";
            let levels = fields.require("levels", example, findings, |at, f| {
                at.list((1, keys::LEVELS), f, level)
            });
            Layout::Tree {
                levels: levels?,
                sharing: sharing.unwrap_or_default(),
            }
        }
        _ => {
            let dimensions = fields.require("dimensions", "dimensions: [4, 8]", findings, dimensions);
            Layout::Mesh {
                link: edge(findings)?,
                dimensions: dimensions?,
                wrap: kind == "torus",
            }
        }
    })
}

/// CSMA/CD.
pub(crate) fn collisions(at: At<'_>, findings: &mut Findings<'_>) -> Option<Collisions> {
    let fields = Fields::of(at, &keys::COLLISIONS, &[], findings)?;
    let slot = fields.require("slot", "slot: 51.2us", findings, |at, f| {
        at.quantity(keys::SLOT, f)
    });
    let attempts = fields.read("attempts", findings, |at, f| at.integer(keys::ATTEMPTS, f));
    Some(Collisions {
        slot: slot?,
        attempts: attempts.and_then(|count| u8::try_from(count).ok()).unwrap_or(16),
    })
}

fn dimensions(at: At<'_>, findings: &mut Findings<'_>) -> Option<Vec<u16>> {
    let dimensions = at.list((1, keys::DIMENSIONS), findings, |at, f| {
        u16::try_from(at.integer(keys::DIMENSION, f)?).ok()
    })?;
    let hosts = dimensions
        .iter()
        .try_fold(1usize, |product, &length| product.checked_mul(length.into()));
    if hosts.is_none_or(|hosts| hosts > MAX_HOSTS) {
        let why = "their product exceeds 1024 hosts";
        at.unfit(why, "make it smaller", findings);
        return None;
    }
    Some(dimensions)
}

/// TCP settings.
pub(crate) fn tcp(at: At<'_>, findings: &mut Findings<'_>) -> Option<Tcp> {
    let fields = Fields::of(at, &keys::TCP, &[], findings)?;
    let flag = |key, findings: &mut Findings<'_>| fields.read(key, findings, read::flag);
    let small = |key, bounds, findings: &mut Findings<'_>| {
        fields.read(key, findings, |at, f| u8::try_from(at.integer(bounds, f)?).ok())
    };
    Some(Tcp {
        congestion_control: fields.read("congestion_control", findings, read::name),
        sack: flag("sack", findings),
        early_retrans: small("early_retrans", keys::EARLY_RETRANS, findings),
        recovery: small("recovery", keys::RECOVERY, findings),
        rto_min: fields.read("rto_min", findings, |at, f| at.quantity(keys::RTO_MIN, f)),
        rto_max: fields.read("rto_max", findings, |at, f| at.quantity(keys::RTO_MAX, f)),
        thin_linear_timeouts: flag("thin_linear_timeouts", findings),
        slow_start_after_idle: flag("slow_start_after_idle", findings),
        ecn: flag("ecn", findings),
        delayed_acks: flag("delayed_acks", findings),
        receive_buffer: fields.read("receive_buffer", findings, window),
        send_buffer: fields.read("send_buffer", findings, window),
        offloads: flag("offloads", findings),
        no_metrics_save: flag("no_metrics_save", findings),
    })
}

fn window(at: At<'_>, findings: &mut Findings<'_>) -> Option<Window> {
    let sizes = at.list((3, 3), findings, |at, f| at.quantity(keys::WINDOW, f))?;
    let [min, initial, max] = sizes[..] else {
        return None;
    };
    if min > initial || initial > max {
        let why = "the three sizes do not ascend";
        at.unfit(why, "order them: [min, initial, max]", findings);
        return None;
    }
    Some(Window { min, initial, max })
}
