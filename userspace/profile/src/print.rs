//! Prints a profile in its normal form: defaults left out, the shorthand written out, quantities in their natural unit.
//!
//! The normal form is a tree of texts, numbers, lists and maps; as YAML it is a profile again
//! (`parse(print(p)) == p`), and serialized it is what `check --json` shows.

use std::fmt::{self, Write as _};

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::matching::Match;
use crate::model::{
    Buffer, Class, Distribution, Jitter, Limits, Loss, Overhead, Profile, Scope, Segmentation, Server,
    ServerId, Treatment, Volume,
};
use crate::topology::{Layout, Sharing, Tcp, Topology, Window};

/// Widest line of the output, in characters.
const WIDTH: usize = 110;

/// A value of the normal form.
enum Value {
    /// Needs no quotes: a number, a word of ours, a quantity.
    Bare(String),
    /// May need quotes: a word of the user's.
    Text(String),
    Integer(u64),
    Flag(bool),
    List(Vec<Self>),
    Map(Map),
}

/// Keys and values in order.
#[derive(Default)]
struct Map(Vec<(String, Value)>);

impl Map {
    fn set(&mut self, key: &str, value: Value) -> &mut Self {
        self.0.push((key.to_owned(), value));
        self
    }

    /// Sets `key` if `value` differs from its default.
    fn unless_default<T: PartialEq + Default>(
        &mut self,
        key: &str,
        value: &T,
        print: impl FnOnce(&T) -> Value,
    ) {
        if *value != T::default() {
            self.set(key, print(value));
        }
    }

    fn optional<T>(&mut self, key: &str, value: Option<&T>, print: impl FnOnce(&T) -> Value) {
        if let Some(value) = value {
            self.set(key, print(value));
        }
    }
}

fn bare<T: fmt::Display + ?Sized>(value: &T) -> Value {
    Value::Bare(value.to_string())
}

fn text<T: fmt::Display + ?Sized>(value: &T) -> Value {
    Value::Text(value.to_string())
}

/// One value by itself, several as a list.
fn alternatives<T>(list: &[T], print: impl Fn(&T) -> Value) -> Value {
    match list {
        [one] => print(one),
        _ => Value::List(list.iter().map(print).collect()),
    }
}

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

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bare(text) | Self::Text(text) => serializer.serialize_str(text),
            Self::Integer(number) => serializer.serialize_u64(*number),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::List(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(value)?;
                }
                list.end()
            }
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.0.len()))?;
                for (key, value) in &entries.0 {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

/// `key: value`, on one line if it fits, else as a block.
fn write_entry(out: &mut String, indent: usize, key: &str, value: &Value) -> fmt::Result {
    write!(out, "{:indent$}{}:", "", quoted(key))?;
    write_value(out, indent, key.chars().count() + 2, value)
}

/// A value after its key or dash, which end at `used` beyond `indent`.
fn write_value(out: &mut String, indent: usize, used: usize, value: &Value) -> fmt::Result {
    let line = value.to_string();
    let splits = match value {
        Value::Map(entries) => {
            !entries.0.is_empty()
                && entries
                    .0
                    .iter()
                    .any(|(_, value)| matches!(value, Value::Map(map) if !map.0.is_empty()))
        }
        Value::List(values) => values.iter().any(|value| matches!(value, Value::Map(_))),
        _ => false,
    };
    if !splits && indent + used + line.chars().count() <= WIDTH {
        return writeln!(out, " {line}");
    }
    match value {
        Value::Map(entries) => {
            out.push('\n');
            entries
                .0
                .iter()
                .try_for_each(|(key, value)| write_entry(out, indent + 2, key, value))
        }
        Value::List(values) => {
            out.push('\n');
            values.iter().try_for_each(|value| {
                write!(out, "{:1$}-", "", indent + 2)?;
                write_item(out, indent + 4, value)
            })
        }
        _ => writeln!(out, " {line}"),
    }
}

/// An item after its dash: on one line if it fits, else its entries one below the other.
fn write_item(out: &mut String, indent: usize, value: &Value) -> fmt::Result {
    let line = value.to_string();
    match value {
        Value::Map(entries) if indent + line.chars().count() > WIDTH => entries
            .0
            .iter()
            .enumerate()
            .try_for_each(|(index, (key, value))| {
                if index == 0 {
                    write!(out, " {}:", quoted(key))?;
                    write_value(out, indent, key.chars().count() + 2, value)
                } else {
                    write_entry(out, indent, key, value)
                }
            }),
        _ => writeln!(out, " {line}"),
    }
}

/// The value on one line.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bare(text) => f.write_str(text),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::List(values) => {
                f.write_char('[')?;
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index == 0 { "" } else { ", " })?;
                }
                f.write_char(']')
            }
            Self::Map(entries) if entries.0.is_empty() => f.write_str("{}"),
            Self::Map(entries) => {
                f.write_str("{ ")?;
                for (index, (key, value)) in entries.0.iter().enumerate() {
                    write!(
                        f,
                        "{}{}: {value}",
                        if index == 0 { "" } else { ", " },
                        quoted(key)
                    )?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// `text`, in double quotes if any YAML reader could take it for something else.
fn quoted(text: &str) -> String {
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    if word && !reserved.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(c),
            // Beyond ASCII only letters and digits are certain to be printable in YAML's sense.
            c if c.is_alphanumeric() => out.push(c),
            c if u32::from(c) <= 0xffff => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

fn profile(profile: &Profile) -> Map {
    let mut map = Map::default();
    map.set("version", Value::Integer(crate::keys::VERSION));
    map.optional("name", profile.name.as_ref(), text);
    map.optional("description", profile.description.as_ref(), text);
    map.set("seed", Value::Integer(profile.seed));
    map.unless_default("overhead", &profile.overhead, overhead);
    let segmentation = match profile.segmentation {
        Segmentation::Auto => "auto",
        Segmentation::Exact => "exact",
        Segmentation::Whole => "whole",
    };
    map.set("segmentation", bare(segmentation));
    map.optional("horizon", profile.horizon.as_ref(), bare);
    map.set("limits", limits(&profile.limits));
    if !profile.servers.is_empty() {
        let servers = profile
            .servers
            .iter()
            .map(|(name, spec)| (name.to_string(), Value::Map(server(spec))));
        map.set("servers", Value::Map(Map(servers.collect())));
    }
    // An overhead by itself would be read as a shorthand.
    if !profile.classes.is_empty() || profile.overhead != Overhead::default() {
        map.set(
            "classes",
            Value::List(profile.classes.iter().map(|one| class(profile, one)).collect()),
        );
    }
    if !profile.hosts.is_empty() {
        let hosts = profile
            .hosts
            .iter()
            .map(|(name, prefixes)| (name.to_string(), alternatives(prefixes, text)));
        map.set("hosts", Value::Map(Map(hosts.collect())));
    }
    map.optional("topology", profile.topology.as_ref(), |one| {
        topology(profile, one)
    });
    map.unless_default("tcp", &profile.tcp, tcp);
    map
}

fn overhead(overhead: &Overhead) -> Value {
    let mut map = Map::default();
    map.set("send", bare(&overhead.send))
        .set("receive", bare(&overhead.receive));
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
    map.unless_default("scope", &server.scope, |scope| {
        bare(match scope {
            Scope::Shared => "shared",
            Scope::Interface => "interface",
            Scope::Host => "host",
            Scope::Flow => "flow",
        })
    });
    map.unless_default("gap", &server.gap, bare);
    map.optional("bandwidth", server.bandwidth.as_ref(), bare);
    map.unless_default("latency", &server.latency, bare);
    map.unless_default("buffer", &server.buffer, buffer);
    map.optional("jitter", server.jitter.as_ref(), jitter);
    map.unless_default("loss", &server.loss, loss);
    map.unless_default("duplicate", &server.duplicate, bare);
    map.unless_default("corrupt", &server.corrupt, bare);
    map.optional("ecn", server.ecn.as_ref(), volume);
    map
}

fn volume(volume: &Volume) -> Value {
    match volume {
        Volume::Bytes(size) => bare(size),
        Volume::Delay(delay) => bare(delay),
    }
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

fn jitter(jitter: &Jitter) -> Value {
    let mut map = Map::default();
    let (word, width) = match jitter.distribution {
        Distribution::Uniform => ("uniform", "scale"),
        Distribution::Normal => ("normal", "stddev"),
        Distribution::Pareto => ("pareto", "scale"),
        Distribution::ParetoNormal => ("pareto-normal", "scale"),
        Distribution::Table(_) => ("table", "scale"),
    };
    map.set("distribution", bare(word))
        .set(width, bare(&jitter.scale));
    if let Distribution::Table(path) = &jitter.distribution {
        map.set("table", text(path));
    }
    map.unless_default("reorder", &jitter.reorder, |&reorder| Value::Flag(reorder));
    Value::Map(map)
}

fn loss(loss: &Loss) -> Value {
    let mut map = Map::default();
    map.unless_default("random", &loss.random, bare);
    map.optional("gilbert_elliott", loss.burst.as_ref(), |burst| {
        let mut map = Map::default();
        map.set("p", bare(&burst.to_bad)).set("r", bare(&burst.to_good));
        map.set("bad_loss", bare(&burst.bad_loss))
            .set("good_loss", bare(&burst.good_loss));
        Value::Map(map)
    });
    if !loss.nth.is_empty() {
        map.set(
            "nth",
            Value::List(loss.nth.iter().map(|&index| Value::Integer(index)).collect()),
        );
    }
    Value::Map(map)
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
    Value::Map(map)
}

fn topology(profile: &Profile, topology: &Topology) -> Value {
    let mut map = Map::default();
    match &topology.layout {
        Layout::Bus { link, collisions } => {
            map.set("kind", bare("bus")).set("link", Value::Map(server(link)));
            map.optional("collisions", collisions.as_ref(), |collisions| {
                let mut map = Map::default();
                map.set("slot", bare(&collisions.slot))
                    .set("attempts", Value::Integer(collisions.attempts.into()));
                Value::Map(map)
            });
        }
        Layout::Star { link } => {
            map.set("kind", bare("star"))
                .set("link", Value::Map(server(link)));
        }
        Layout::Tree { levels, sharing } => {
            map.set("kind", bare("tree"));
            map.unless_default("sharing", sharing, |sharing| match sharing {
                Sharing::Unidirectional => bare("unidirectional"),
                Sharing::Bidirectional => bare("bidirectional"),
            });
            map.set(
                "levels",
                Value::List(levels.iter().map(|level| Value::Map(server(level))).collect()),
            );
        }
        Layout::Mesh {
            dimensions,
            link,
            wrap,
        } => {
            let dimensions = dimensions
                .iter()
                .map(|&length| Value::Integer(length.into()))
                .collect();
            map.set("kind", bare(if *wrap { "torus" } else { "mesh" }))
                .set("dimensions", Value::List(dimensions));
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
    map.optional("receive_buffer", tcp.receive_buffer.as_ref(), window);
    map.optional("send_buffer", tcp.send_buffer.as_ref(), window);
    map.optional("offloads", tcp.offloads.as_ref(), |&flag| Value::Flag(flag));
    map.optional("no_metrics_save", tcp.no_metrics_save.as_ref(), |&flag| {
        Value::Flag(flag)
    });
    Value::Map(map)
}
