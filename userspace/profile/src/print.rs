//! Prints a profile in its normal form: defaults left out, the shorthand written out, quantities in their natural unit.
//!
//! The normal form is a tree of texts, numbers, lists and maps; as YAML it is a profile again
//! (`parse(print(p)) == p`), and serialized it is what `check --json` shows.

mod fates;
mod timeline;
mod value;

use std::fmt;

use serde::ser::{Serialize, Serializer};
use value::{Map, Value, alternatives, bare, text, write_entry};

use crate::groups::{Group, Matrix};
use crate::matching::Match;
use crate::model::{
    Buffer, Class, Framing, Limits, Overhead, Profile, Queue, Server, ServerId, Treatment, Volume,
};
use crate::topology::{Collisions, Layout, Tcp, Topology, Window};

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        for (key, value) in &profile(self).0 {
            write_entry(&mut out, 0, key, value)?;
        }
        f.write_str(&out)
    }
}

impl Serialize for Profile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Value::Map(profile(self)).serialize(serializer)
    }
}

fn profile(profile: &Profile) -> Map {
    let mut map = Map::default();
    map.set("version", Value::Integer(crate::keys::VERSION));
    map.optional("name", profile.name.as_ref(), text);
    map.optional("description", profile.description.as_ref(), text);
    map.set("seed", Value::Integer(profile.seed));
    map.unless_default("overhead", &profile.overhead, overhead);
    map.set("segmentation", bare(profile.segmentation.as_ref()));
    map.optional("horizon", profile.horizon.as_ref(), bare);
    map.set("limits", limits(&profile.limits));
    // A matrix that has not been read stands for its servers and classes.
    let (servers, classes) = profile.of_matrix();
    let servers = profile.servers.len().saturating_sub(servers);
    let classes = profile.classes.len().saturating_sub(classes);
    if servers > 0 {
        let servers = profile
            .servers
            .iter()
            .take(servers)
            .map(|(name, spec)| (name.to_string(), Value::Map(server(spec))));
        map.set("servers", Value::Map(Map(servers.collect())));
    }
    // An overhead by itself, or a lone server, would be read as a shorthand.
    let is_shorthand = profile.overhead != Overhead::default() || profile.servers.len() == 1;
    if classes > 0 || (profile.classes.is_empty() && is_shorthand) {
        let classes = profile.classes.iter().take(classes);
        map.set(
            "classes",
            Value::List(classes.map(|one| class(profile, one)).collect()),
        );
    }
    if !profile.hosts.is_empty() {
        let hosts = profile
            .hosts
            .iter()
            .map(|(name, prefixes)| (name.to_string(), alternatives(prefixes, text)));
        map.set("hosts", Value::Map(Map(hosts.collect())));
    }
    if !profile.groups.is_empty() {
        let groups = profile.groups.iter();
        let groups = groups.map(|(name, one)| (name.to_string(), group(one)));
        map.set("groups", Value::Map(Map(groups.collect())));
    }
    map.optional("matrix", profile.matrix.as_ref(), matrix);
    map.optional("topology", profile.topology.as_ref(), |one| {
        topology(profile, one)
    });
    map.unless_default("tcp", &profile.tcp, tcp);
    map.optional("mtu", profile.mtu.as_ref(), bare);
    map.unless_default("timeline", &profile.timeline, |one| {
        timeline::timeline(profile, one)
    });
    map
}

fn overhead(overhead: &Overhead) -> Value {
    let mut map = Map::default();
    map.set("send", bare(&overhead.send))
        .set("receive", bare(&overhead.receive));
    map.unless_default("acknowledgments", &overhead.acknowledgments, |one| {
        bare(one.as_ref())
    });
    Value::Map(map)
}

fn limits(limits: &Limits) -> Value {
    let mut map = Map::default();
    map.set("flows", Value::Integer(limits.flows.into()));
    map.optional("held", limits.held.as_ref(), bare);
    Value::Map(map)
}

fn server(server: &Server) -> Map {
    let mut map = Map::default();
    map.unless_default("scope", &server.scope, |scope| bare(scope.as_ref()));
    map.unless_default("gap", &server.gap, bare);
    map.optional("bandwidth", server.bandwidth.as_ref(), bare);
    map.unless_default("framing", &server.framing, framing);
    if server.reorder.is_some() && server.jitter.is_none() {
        // It needs one, be it 0 until a timeline changes it.
        map.set("latency", bare(&server.latency));
    } else {
        map.unless_default("latency", &server.latency, bare);
    }
    map.unless_default("buffer", &server.buffer, buffer);
    map.optional("jitter", server.jitter.as_ref(), fates::jitter);
    map.unless_default("loss", &server.loss, fates::loss);
    map.unless_default("duplicate", &server.duplicate, fates::correlated);
    map.unless_default("corrupt", &server.corrupt, fates::correlated);
    map.optional("reorder", server.reorder.as_ref(), fates::reorder);
    map.optional("ecn", server.ecn.as_ref(), volume);
    map.unless_default("queue", &server.queue, queue);
    map.optional("slot", server.slot.as_ref(), fates::slot);
    map.optional("collisions", server.collisions.as_ref(), collisions);
    map.optional("trace", server.trace.as_ref(), timeline::trace);
    map
}

fn framing(framing: &Framing) -> Value {
    let mut map = Map::default();
    let mut put = |key, bytes: u32| {
        map.unless_default(key, &bytes, |&bytes| Value::Integer(bytes.into()));
    };
    put("packet_overhead", framing.packet_overhead);
    put("cell_size", framing.cell_size);
    put("cell_overhead", framing.cell_overhead);
    map.unless_default("without_ethernet", &framing.without_ethernet, |&flag| {
        Value::Flag(flag)
    });
    Value::Map(map)
}

fn collisions(collisions: &Collisions) -> Value {
    let mut map = Map::default();
    map.set("slot", bare(&collisions.slot))
        .set("attempts", Value::Integer(collisions.attempts.into()));
    Value::Map(map)
}

fn volume(volume: &Volume) -> Value {
    match volume {
        Volume::Bytes(size) => bare(size),
        Volume::Delay(delay) => bare(delay),
    }
}

fn queue(queue: &Queue) -> Value {
    let mut map = Map::default();
    match queue {
        Queue::Tail => {
            map.set("kind", bare("tail"));
        }
        Queue::Step { threshold, l4s } => {
            map.set("kind", bare("step")).set("threshold", volume(threshold));
            map.unless_default("l4s", l4s, |&flag| Value::Flag(flag));
        }
        Queue::CoDel {
            target,
            interval,
            ecn,
            ce_threshold,
        } => {
            map.set("kind", bare("codel"))
                .set("target", bare(target))
                .set("interval", bare(interval));
            map.unless_default("ecn", ecn, |&flag| Value::Flag(flag));
            map.optional("ce_threshold", ce_threshold.as_ref(), volume);
        }
        Queue::Pie {
            target,
            t_update,
            max_burst,
            ecn,
            mark_ecnth,
            derandomize,
        } => {
            map.set("kind", bare("pie"))
                .set("target", bare(target))
                .set("t_update", bare(t_update))
                .set("max_burst", bare(max_burst));
            map.unless_default("ecn", ecn, |&flag| Value::Flag(flag));
            map.set("mark_ecnth", bare(mark_ecnth));
            map.unless_default("derandomize", derandomize, |&flag| Value::Flag(flag));
        }
        Queue::Red {
            min,
            max,
            probability,
            avpkt,
            burst,
            ecn,
            adaptive,
        } => {
            map.set("kind", bare("red"))
                .set("min", volume(min))
                .set("max", volume(max))
                .set("probability", bare(probability))
                .set("avpkt", bare(avpkt));
            map.optional("burst", burst.as_ref(), |&burst| Value::Integer(burst));
            map.unless_default("ecn", ecn, |&flag| Value::Flag(flag));
            map.unless_default("adaptive", adaptive, |&flag| Value::Flag(flag));
        }
    }
    Value::Map(map)
}

fn buffer(buffer: &Buffer) -> Value {
    match *buffer {
        Buffer {
            volume: Some(one),
            packets: None,
        } => volume(&one),
        Buffer {
            volume: None,
            packets: Some(packets),
        } => bare(&format!("{packets} packets")),
        Buffer {
            volume: limit,
            packets,
        } => {
            let mut map = Map::default();
            match limit {
                Some(Volume::Bytes(size)) => map.set("bytes", bare(&size)),
                Some(Volume::Delay(delay)) => map.set("delay", bare(&delay)),
                None => &mut map,
            };
            map.optional("packets", packets.as_ref(), |&packets| {
                Value::Integer(packets.into())
            });
            Value::Map(map)
        }
    }
}

fn path(profile: &Profile, path: &[ServerId]) -> Value {
    Value::List(
        path.iter()
            .filter_map(|&id| profile.server(id))
            .map(|(name, _)| text(name))
            .collect(),
    )
}

fn class(profile: &Profile, class: &Class) -> Value {
    let mut map = Map::default();
    map.set("name", text(&class.name))
        .set("match", matching(&class.matching));
    match &class.treatment {
        Treatment::Bypass => {
            map.set("bypass", Value::Flag(true));
        }
        Treatment::Emulate { egress, ingress } => {
            map.optional("egress", egress.as_ref(), |servers| path(profile, servers));
            map.optional("ingress", ingress.as_ref(), |servers| path(profile, servers));
        }
    }
    Value::Map(map)
}

fn matching(matching: &Match) -> Value {
    let mut map = Map::default();
    map.optional("family", matching.family.as_ref(), bare);
    map.unless_default("non_ip", &matching.non_ip, |&flag| Value::Flag(flag));
    map.unless_default("ethertype", &matching.ethertype, |list| alternatives(list, bare));
    map.unless_default("protocol", &matching.protocol, |list| alternatives(list, bare));
    for (key, list) in [
        ("source", &matching.source),
        ("destination", &matching.destination),
        ("local", &matching.local),
        ("remote", &matching.remote),
        ("address", &matching.address),
    ] {
        map.unless_default(key, list, |list| alternatives(list, text));
    }
    map.unless_default("host", &matching.host, |list| alternatives(list, text));
    map.unless_default("group", &matching.group, |list| alternatives(list, text));
    map.unless_default("local_group", &matching.local_group, |list| {
        alternatives(list, text)
    });
    for (key, list) in [
        ("source_port", &matching.source_port),
        ("destination_port", &matching.destination_port),
        ("local_port", &matching.local_port),
        ("remote_port", &matching.remote_port),
        ("port", &matching.port),
    ] {
        map.unless_default(key, list, |list| alternatives(list, bare));
    }
    map.unless_default("dscp", &matching.dscp, |list| alternatives(list, bare));
    map.unless_default("fwmark", &matching.fwmark, |list| {
        alternatives(list, |&mark| Value::Integer(mark.into()))
    });
    map.unless_default("cgroup", &matching.cgroup, |list| alternatives(list, text));
    Value::Map(map)
}

fn group(group: &Group) -> Value {
    let mut map = Map::default();
    map.unless_default("prefix", &group.prefix, |list| alternatives(list, text));
    map.unless_default("host", &group.host, |list| alternatives(list, text));
    map.unless_default("container", &group.container, |list| alternatives(list, text));
    map.unless_default("interface", &group.interface, |list| alternatives(list, text));
    Value::Map(map)
}

fn matrix(matrix: &Matrix) -> Value {
    let mut map = Map::default();
    map.set("file", text(&matrix.file));
    map.unless_default("symmetric", &matrix.symmetric, |&flag| Value::Flag(flag));
    map.unless_default("round_trip", &matrix.round_trip, |&flag| Value::Flag(flag));
    map.optional("here", matrix.here.as_ref(), text);
    Value::Map(map)
}

fn topology(profile: &Profile, topology: &Topology) -> Value {
    let mut map = Map::default();
    let kind = bare(topology.layout.kind());
    match &topology.layout {
        Layout::Bus { link } => {
            let alone = Server {
                collisions: None,
                ..link.clone()
            };
            map.set("kind", kind).set("link", Value::Map(server(&alone)));
            map.optional("collisions", link.collisions.as_ref(), collisions);
        }
        Layout::Star { link } => {
            map.set("kind", bare("star"))
                .set("link", Value::Map(server(link)));
        }
        Layout::Tree { levels, sharing } => {
            map.set("kind", kind);
            map.unless_default("sharing", sharing, |sharing| bare(sharing.as_ref()));
            map.set(
                "levels",
                Value::List(levels.iter().map(|level| Value::Map(server(level))).collect()),
            );
        }
        Layout::Mesh { dimensions, link, .. } => {
            let dimensions = dimensions
                .iter()
                .map(|&length| Value::Integer(length.into()))
                .collect();
            map.set("kind", kind).set("dimensions", Value::List(dimensions));
            map.set("link", Value::Map(server(link)));
        }
    }
    map.unless_default("egress", &topology.egress, |servers| path(profile, servers));
    map.unless_default("ingress", &topology.ingress, |servers| path(profile, servers));
    Value::Map(map)
}

fn tcp(tcp: &Tcp) -> Value {
    let window = |window: &Window| {
        Value::List(
            [window.min, window.initial, window.max]
                .iter()
                .map(bare)
                .collect(),
        )
    };
    let mut map = Map::default();
    map.optional("congestion_control", tcp.congestion_control.as_ref(), text);
    map.optional("sack", tcp.sack.as_ref(), |&flag| Value::Flag(flag));
    map.optional("early_retrans", tcp.early_retrans.as_ref(), |&value| {
        Value::Integer(value.into())
    });
    map.optional("recovery", tcp.recovery.as_ref(), |&value| {
        Value::Integer(value.into())
    });
    map.optional("rto_min", tcp.rto_min.as_ref(), bare);
    map.optional("rto_max", tcp.rto_max.as_ref(), bare);
    for (key, flag) in [
        ("thin_linear_timeouts", tcp.thin_linear_timeouts),
        ("slow_start_after_idle", tcp.slow_start_after_idle),
        ("ecn", tcp.ecn),
        ("delayed_acks", tcp.delayed_acks),
    ] {
        map.optional(key, flag.as_ref(), |&flag| Value::Flag(flag));
    }
    map.optional("receive_buffer", tcp.receive_buffer.as_ref(), window);
    map.optional("send_buffer", tcp.send_buffer.as_ref(), window);
    map.optional("offloads", tcp.offloads.as_ref(), |&flag| Value::Flag(flag));
    map.optional("no_metrics_save", tcp.no_metrics_save.as_ref(), |&flag| {
        Value::Flag(flag)
    });
    Value::Map(map)
}
