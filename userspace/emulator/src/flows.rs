//! `perturb status --flows`: which flows an emulation has seen, and the requests (packets that enter it) as they come.
//!
//! Two sources, neither of which costs a packet of a known flow more than a comparison. When the programs classify a
//! flow's first packet they note it, the last [`perturb_common::abi::NOTED_FLOWS`] of them: that is the list. While somebody watches they log
//! every packet: that is the sequence of requests, in the order of their times, which `perturb locality` reads.
//!
//! What it lacks: packets that are not IP or that no class emulates, and, in the list, how often and when last: only
//! who watches counts.

mod requests;

use std::net::{IpAddr, Ipv6Addr};

use anyhow::Context as _;
use perturb_common::abi::{
    Attachment, CONTROL_GENERATION, Direction, FlowKey, FlowNote, MAX_CLASSES, NEAR_INTERFACES, NONE, in_half,
};
use perturb_dataplane::maps::{self, Maps, MapsError};
pub use requests::Logs;
use serde::Serialize;

use crate::{
    registry::{self, Record},
    told::Told,
};

/// A flow's packets in one direction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Flow {
    /// The emulation's name in the registry.
    pub emulation: String,
    /// The IP protocol's name, else its number.
    pub protocol: String,
    /// Who sends.
    pub source: IpAddr,
    /// From which port, where the protocol has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Who receives.
    pub destination: IpAddr,
    /// At which port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// `egress` or `ingress`, as the emulated host sees it.
    pub direction: &'static str,
    /// The class that it belongs to.
    pub class: String,
}

/// A flow that was noted.
#[derive(Debug, Serialize)]
pub struct Listed {
    /// When its first packet came, µs since 1970.
    pub first_us: u64,
    /// Which.
    #[serde(flatten)]
    pub flow: Flow,
}

/// The flows that every emulation has seen, oldest first.
///
/// # Errors
/// When an emulation's maps cannot be read.
pub fn noted() -> anyhow::Result<Vec<Listed>> {
    let offset = realtime_offset();
    let mut flows = Vec::new();
    for record in in_force(&mut Told::default())? {
        let names = Names::of(&record);
        let maps = Maps::by_id(&record.maps)?;
        let emulated = Emulated::of(&record, &maps)?;
        for (key, FlowNote { first, class, .. }) in maps::noted(&record.maps)? {
            if emulated.here(&maps, &key, class)?
                && let Some(flow) = names.flow(&key, class)
            {
                let first_us = micros(first, offset);
                flows.push(Listed { first_us, flow });
            }
        }
    }
    flows.sort_by(|a, b| (a.first_us, &a.flow).cmp(&(b.first_us, &b.flow)));
    Ok(flows)
}

/// The emulations that are in force and know of flows; of the others is warned, unless that was done before.
fn in_force(told: &mut Told) -> anyhow::Result<Vec<Record>> {
    let mut found = Vec::new();
    for record in registry::records()?.or_warn(told) {
        if !record.ready || !record.has_owner()? {
            continue;
        }
        let other = matches!(Maps::by_id(&record.maps), Err(MapsError::Version { .. }));
        if record.maps.has_flows() && !other {
            found.push(record);
        } else {
            let why = format!(
                "{} does not tell its flows: another version of perturb made it",
                record.id
            );
            if told.is_news(&why) {
                log::warn!("{why}");
            }
        }
    }
    Ok(found)
}

/// Which of the noted flows are emulated where they were noted: between private hosts every packet is classified at both
/// ends.
struct Emulated {
    half: u32,
    ranked: bool,
}

impl Emulated {
    fn of(record: &Record, maps: &Maps) -> anyhow::Result<Self> {
        let generation = maps
            .control
            .get(&CONTROL_GENERATION, 0)
            .context("reading the generation")?;
        let ranked = match record.interfaces.first() {
            Some(interface) if interface.index < NEAR_INTERFACES => {
                maps.near
                    .get(&interface.index, 0)
                    .context("reading an attachment")?
                    .0
                    .rank
                    != 0
            }
            Some(interface) => maps
                .attachments
                .get(&interface.index, 0)
                .is_ok_and(|attachment| attachment.0.rank != 0),
            None => false,
        };
        Ok(Self {
            half: (generation & 1) as u32,
            ranked,
        })
    }

    fn here(&self, maps: &Maps, key: &FlowKey, class: u32) -> anyhow::Result<bool> {
        if class >= MAX_CLASSES {
            return Ok(false);
        }
        let index = in_half(self.half, class);
        let class = maps.classes.get(&index, 0).context("reading a class")?.0;
        let (local, remote) = if key.direction == Direction::Egress as u16 {
            (&key.source, &key.destination)
        } else {
            (&key.destination, &key.source)
        };
        let rank = if self.ranked {
            u32::from(u16::from_be_bytes([local[14], local[15]]))
        } else {
            0
        };
        let attachment = Attachment {
            rank,
            ..Attachment::default()
        };
        Ok(class.path[(key.direction & 1) as usize] != NONE && attachment.emulates(remote))
    }
}

/// What numbers stand for.
struct Names {
    emulation: String,
    classes: Vec<String>,
}

impl Names {
    fn of(record: &Record) -> Self {
        Self {
            emulation: record.id.clone(),
            classes: record.in_force.classes.clone(),
        }
    }

    /// The flow of a key; nothing if it is not IP.
    fn flow(&self, key: &FlowKey, class: u32) -> Option<Flow> {
        const IPV4: u16 = 0x0800;
        const IPV6: u16 = 0x86dd;
        if key.ethertype != IPV4 && key.ethertype != IPV6 {
            return None;
        }
        let protocol = protocol(key.protocol);
        let port = |port: u16| protocol.1.then_some(port);
        let address = |bytes: [u8; 16]| Ipv6Addr::from(bytes).to_canonical();
        Some(Flow {
            emulation: self.emulation.clone(),
            source: address(key.source),
            source_port: port(key.source_port),
            destination: address(key.destination),
            destination_port: port(key.destination_port),
            direction: if key.direction == Direction::Egress as u16 {
                "egress"
            } else {
                "ingress"
            },
            // A class that came with a later change of the profile has no name here.
            class: self
                .classes
                .get(class as usize)
                .cloned()
                .unwrap_or_else(|| class.to_string()),
            protocol: protocol.0,
        })
    }
}

/// An IP protocol's name, else its number; and whether it has ports.
fn protocol(number: u8) -> (String, bool) {
    let (name, ports) = match number {
        1 => ("icmp", false),
        6 => ("tcp", true),
        17 => ("udp", true),
        33 => ("dccp", true),
        58 => ("icmpv6", false),
        132 => ("sctp", true),
        136 => ("udplite", true),
        other => return (other.to_string(), false),
    };
    (name.into(), ports)
}

/// What to add to CLOCK_MONOTONIC, ns, for the time since 1970.
#[must_use]
pub fn realtime_offset() -> u64 {
    let (monotonic, wall) = perturb_clock::both();
    wall.saturating_sub(monotonic)
}

/// An instant of CLOCK_MONOTONIC, ns, as µs since 1970.
#[must_use]
pub fn micros(time: u64, offset: u64) -> u64 {
    time.saturating_add(offset) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(protocol: u8) -> FlowKey {
        let address = |last: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last];
        FlowKey {
            source: address(1),
            destination: address(2),
            source_port: 4000,
            destination_port: 80,
            ethertype: 0x0800,
            protocol,
            direction: Direction::Ingress as u16,
            ..FlowKey::default()
        }
    }

    fn names() -> Names {
        Names {
            emulation: "run-1".into(),
            classes: vec!["web".into()],
        }
    }

    #[test]
    fn what_has_no_ports_shows_none_and_what_is_not_ip_is_left_out() {
        let icmp = names().flow(&key(1), 7).unwrap();
        let ends = (icmp.source.to_string(), icmp.destination.to_string());
        assert_eq!(ends, ("10.0.0.1".into(), "10.0.0.2".into()));
        assert_eq!((icmp.source_port, icmp.destination_port), (None, None));
        assert_eq!(
            (&*icmp.protocol, icmp.direction, &*icmp.class),
            ("icmp", "ingress", "7")
        );
        let arp = FlowKey {
            ethertype: 0x0806,
            ..FlowKey::default()
        };
        assert!(names().flow(&arp, 0).is_none());
    }
}
