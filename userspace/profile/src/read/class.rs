//! Reads classes: what they match, and the servers that their packets cross.

use std::collections::HashMap;

use perturb_quantity::closest;

use crate::cgroup::Cgroup;
use crate::diagnostic::{Contradiction, Problem};
use crate::findings::Findings;
use crate::keys::{self, ALTERNATIVES, Bounds};
use crate::matching::{
    DSCPS, Dscp, ETHERTYPES, EtherType, Family, Match, PROTOCOLS, PortRange, Prefix, Protocol,
};
use crate::model::{Class, Name, ServerId, Treatment};
use crate::read::groups::{self, Groups};
use crate::read::{self, At, Fields};

/// The servers that a path may name.
pub(crate) struct ServerNames<'a>(HashMap<&'a str, ServerId>);

impl<'a> ServerNames<'a> {
    pub(crate) fn new(names: impl Iterator<Item = &'a Name>) -> Self {
        let numbered = names
            .enumerate()
            .filter_map(|(index, name)| Some((name.as_str(), ServerId::new(index)?)));
        Self(numbered.collect())
    }

    pub(crate) fn find(&self, at: At<'_>, findings: &mut Findings<'_>) -> Option<ServerId> {
        let text = at.text("the name of a server", findings)?;
        let found = self.0.get(text).copied();
        // The search for a suggestion takes time with many servers.
        if found.is_none() && !findings.is_full() {
            let mut known: Vec<(ServerId, &str)> = self.0.iter().map(|(&name, &id)| (id, name)).collect();
            known.sort_unstable();
            let suggestion = closest(text, known.iter().map(|&(_, name)| name)).map(str::to_owned);
            // More names than this would bury the message.
            let known = known.iter().take(20).map(|&(_, name)| name.to_owned()).collect();
            at.report(
                Problem::UnknownName {
                    what: "a server",
                    known,
                    suggestion,
                },
                findings,
            );
        }
        found
    }

    /// A path: servers in order, none twice.
    pub(crate) fn path(&self, at: At<'_>, findings: &mut Findings<'_>) -> Option<Vec<ServerId>> {
        let mut path: Vec<ServerId> = Vec::new();
        at.list(
            (0, perturb_common::abi::MAX_PATH_SERVERS),
            findings,
            |at, findings| {
                let server = self.find(at, findings)?;
                if path.contains(&server) {
                    at.report(Problem::Repeated, findings);
                } else {
                    path.push(server);
                }
                Some(())
            },
        )?;
        Some(path)
    }
}

/// The list of classes; names are unique. A class without one is called by its place in the list.
pub(crate) fn classes(
    at: At<'_>,
    servers: &ServerNames<'_>,
    groups: &Groups,
    findings: &mut Findings<'_>,
) -> Option<Vec<Class>> {
    let mut lines: HashMap<Name, usize> = HashMap::new();
    let mut number = 0;
    at.list(
        (0, perturb_common::abi::MAX_CLASSES as usize),
        findings,
        |at, findings| {
            let fields = Fields::of(at, &keys::CLASS, &[], findings)?;
            number += 1;
            let line = at.node.place.line;
            // The line where it is taken already.
            let mut taken = |name: &Name, line| {
                let first_line = lines.get(name).copied();
                if first_line.is_none() {
                    lines.insert(name.clone(), line);
                }
                first_line
            };
            let name = if fields.has("name") {
                fields.read("name", findings, |at, findings| {
                    let name = read::name(at, findings)?;
                    if let Some(first_line) = taken(&name, at.node.place.line) {
                        let problem = Problem::DuplicateName {
                            what: "a class",
                            first_line,
                        };
                        at.report(problem, findings);
                    }
                    Some(name)
                })
            } else {
                let numbered = (number..).filter_map(|number| Name::new(&format!("class-{number}")));
                let mut free = numbered.filter(|name| taken(name, line).is_none());
                free.next()
            };
            let matching = if fields.has("match") {
                fields.read("match", findings, |at, f| conditions(at, groups, f))
            } else {
                Some(Match::default())
            };
            let treatment = treatment(&fields, servers, findings);
            if fields.has("ingress") && matching.as_ref().is_some_and(|matching| !matching.cgroup.is_empty()) {
                let why = "a packet that comes in has no socket yet, so nobody knows whose it is; let a class that matches by ports                            or addresses have `ingress`";
                fields.report("ingress", Problem::Excludes { other: "match: cgroup", why }, findings);
            }
            Some(Class {
                name: name?,
                matching: matching?,
                treatment,
            })
        },
    )
}

fn treatment(fields: &Fields<'_>, servers: &ServerNames<'_>, findings: &mut Findings<'_>) -> Treatment {
    let egress = fields.read("egress", findings, |at, f| servers.path(at, f));
    let ingress = fields.read("ingress", findings, |at, f| servers.path(at, f));
    if fields.node("bypass").is_none() {
        if fields.node("egress").is_none() && fields.node("ingress").is_none() {
            let example = "egress: [SERVER], ingress: [SERVER] or bypass: true";
            fields.report_whole(
                Problem::MissingKey {
                    key: "egress",
                    example,
                },
                findings,
            );
        }
        return Treatment::Emulate { egress, ingress };
    }
    fields.read("bypass", findings, |at, f| at.choice(&["true"], &[()], f));
    for key in ["egress", "ingress"] {
        if fields.node(key).is_some() {
            let why = "what bypasses the emulation crosses no server";
            fields.report(key, Problem::Excludes { other: "bypass", why }, findings);
        }
    }
    Treatment::Bypass
}

fn conditions(at: At<'_>, groups: &Groups, findings: &mut Findings<'_>) -> Option<Match> {
    let fields = Fields::of(at, &keys::MATCH, &[], findings)?;
    let prefixes = |key, findings: &mut Findings<'_>| -> Vec<Prefix> {
        fields
            .read(key, findings, |at, f| {
                at.one_or_more(ALTERNATIVES, f, read::prefix)
            })
            .unwrap_or_default()
    };
    let ports = |key, findings: &mut Findings<'_>| -> Vec<PortRange> {
        fields
            .read(key, findings, |at, f| at.one_or_more(ALTERNATIVES, f, read::port))
            .unwrap_or_default()
    };
    let members = |key, findings: &mut Findings<'_>| {
        fields
            .read(key, findings, |at, f| groups::names(at, groups, f))
            .unwrap_or_default()
    };
    let matching = Match {
        family: fields.read("family", findings, read::variant),
        non_ip: fields
            .read("non_ip", findings, |at, f| at.choice(&["true"], &[()], f))
            .is_some(),
        ethertype: numbers(&fields, "ethertype", findings, |at, f| {
            let number = at.word(&ETHERTYPES, Bounds { min: 0, max: 0xffff }, f)?;
            u16::try_from(number).ok().map(EtherType)
        }),
        protocol: numbers(&fields, "protocol", findings, |at, f| {
            let number = at.word(&PROTOCOLS, Bounds { min: 0, max: 255 }, f)?;
            u8::try_from(number).ok().map(Protocol)
        }),
        source: prefixes("source", findings),
        destination: prefixes("destination", findings),
        local: prefixes("local", findings),
        remote: prefixes("remote", findings),
        host: fields
            .read("host", findings, |at, f| {
                at.one_or_more(ALTERNATIVES, f, read::host)
            })
            .unwrap_or_default(),
        group: members("group", findings),
        local_group: members("local_group", findings),
        address: prefixes("address", findings),
        source_port: ports("source_port", findings),
        destination_port: ports("destination_port", findings),
        local_port: ports("local_port", findings),
        remote_port: ports("remote_port", findings),
        port: ports("port", findings),
        dscp: numbers(&fields, "dscp", findings, |at, f| {
            let number = at.word(&DSCPS, Bounds { min: 0, max: 63 }, f)?;
            u8::try_from(number).ok().map(Dscp)
        }),
        fwmark: numbers(&fields, "fwmark", findings, |at, f| {
            u32::try_from(at.integer(keys::ANY_U32, f)?).ok()
        }),
        cgroup: fields
            .read("cgroup", findings, |at, f| {
                at.one_or_more(ALTERNATIVES, f, cgroup)
            })
            .unwrap_or_default(),
    };
    if fields.has("host") && fields.has("remote") {
        let why = "both say who the other side is";
        fields.report("host", Problem::Excludes { other: "remote", why }, findings);
    }
    if let Some(contradiction) = contradiction(&matching) {
        at.report(Problem::NeverMatches(contradiction), findings);
    }
    Some(matching)
}

fn cgroup(at: At<'_>, findings: &mut Findings<'_>) -> Option<Cgroup> {
    match Cgroup::parse(&at.prose(keys::MAX_TEXT, findings)?) {
        Ok(cgroup) => Some(cgroup),
        Err(problem) => {
            at.report(problem, findings);
            None
        }
    }
}

fn numbers<T: Copy + Eq + std::hash::Hash>(
    fields: &Fields<'_>,
    key: &'static str,
    findings: &mut Findings<'_>,
    read: impl FnMut(At<'_>, &mut Findings<'_>) -> Option<T>,
) -> Vec<T> {
    fields
        .read(key, findings, |at, f| at.one_or_more(ALTERNATIVES, f, read))
        .unwrap_or_default()
}

/// Why no packet can fulfil all conditions, if that is so.
fn contradiction(matching: &Match) -> Option<Contradiction> {
    /// Bits: IPv4, IPv6, neither.
    fn kinds_of(list: impl Iterator<Item = u8>) -> u8 {
        match list.fold(0, |all, kind| all | kind) {
            0 => 0b111,
            some => some,
        }
    }
    let family = |family| if family == Family::Ipv4 { 0b001 } else { 0b010 };
    let ethertype = |ethertype: &EtherType| match *ethertype {
        EtherType::IPV4 => 0b001,
        EtherType::IPV6 => 0b010,
        _ => 0b100,
    };
    let outside =
        kinds_of(matching.ethertype.iter().map(ethertype)) & if matching.non_ip { 0b100 } else { 0b111 };
    if outside == 0 || (outside == 0b100 && matching.looks_at_ip()) {
        return Some(Contradiction::FieldsWithoutIp);
    }
    let lists = [
        &matching.source,
        &matching.destination,
        &matching.local,
        &matching.remote,
        &matching.address,
    ];
    let inside = lists
        .iter()
        .map(|list| kinds_of(list.iter().map(|prefix| family(prefix.family()))))
        .fold(kinds_of(matching.family.into_iter().map(family)), |all, kinds| {
            all & kinds
        });
    if outside & inside == 0 {
        return Some(Contradiction::Families);
    }
    let portless = |protocol| !Protocol::WITH_PORTS.contains(protocol);
    let ports_impossible = !matching.protocol.is_empty() && matching.protocol.iter().all(portless);
    (matching.looks_at_ports() && ports_impossible).then_some(Contradiction::PortsWithoutProtocol)
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn a_class_needs_neither_name_nor_match() {
        let servers = "version: 1\nservers: { s: { latency: 1ms } }\n";
        let short = format!(
            "{servers}classes: [{{ name: class-2, match: {{ port: 1 }}, egress: [s] }}, {{ ingress: [s] }}, \
             {{ egress: [s] }}]\n"
        );
        let long = format!(
            "{servers}classes: [{{ name: class-2, match: {{ port: 1 }}, egress: [s] }}, \
             {{ name: class-3, match: {{}}, ingress: [s] }}, {{ name: class-4, match: {{}}, egress: [s] }}]\n"
        );
        let (short, long) = (parse(&short).unwrap(), parse(&long).unwrap());
        assert_eq!(short, long);
        let twice = format!("{servers}classes: [{{ name: a, egress: [s] }}, {{ name: a, egress: [s] }}]\n");
        assert!(parse(&twice).is_err());
    }
}
