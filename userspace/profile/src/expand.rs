//! Expands a topology: the same network with its servers and paths written out, for given hosts.
//!
//! Host i = 1, 2, … of n has a set of addresses, disjoint from the others'. Each ordered pair (i, j), i ≠ j, becomes
//! one class `h<i>-h<j>` behind the hand-written ones, with source i and destination j, whose egress path is
//!
//! ```text
//! servers of host i (topology's egress) ++ route from i to j ++ servers of host j (topology's ingress)
//! ```
//!
//! Only the sender folds it: at ingress the class burns the receive overhead, if there is one, and crosses nothing. The
//! routes are in [`routes`]; only the links that a pair crosses become servers. The hosts' own servers are templates:
//! host 3 has a copy `h3-nic` of server `nic`, one queue even if `nic` stands at both ends; scope `interface` means
//! the host, hence becomes shared. A template that no hand-written class crosses is left out.
//!
//! A profile written so has no more hosts than there are classes for their pairs (n (n - 1) ≤ 4096: 64); for more, in
//! a bus, a star or a tree, there is [`network`]. A path is part of a class, so paths longer than a class can hold are
//! refused rather than shortened.

mod error;
mod network;
mod routes;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use perturb_common::abi::{MAX_CLASSES, MAX_NTH, MAX_PATH_SERVERS, MAX_SERVERS};

pub use error::ExpandError;
pub use network::{Network, network};
use perturb_quantity::Duration;
use routes::{Link, route};

use crate::delay::bounded_delay;
use crate::keys::{ALTERNATIVES, BUFFER_PACKETS, MAX_HORIZON};
use crate::matching::{Match, Prefix};
use crate::model::{Class, Name, Profile, Scope, Server, ServerId, Treatment};
use crate::topology::{Layout, Topology};

/// A server that paths of the topology cross; in the order in which they are added to the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Crossed {
    /// A copy of the template, host's own.
    Own { host: usize, template: ServerId },
    /// A link of the network.
    Link(Link),
}

/// `profile` with its topology written out for hosts with these addresses, in the order of their ranks.
///
/// Without a topology it is returned as it is, whatever the hosts.
pub fn expand(profile: &Profile, hosts: &[Vec<IpAddr>]) -> Result<Profile, ExpandError> {
    let hosts: Vec<Vec<Prefix>> = hosts
        .iter()
        .map(|addresses| addresses.iter().copied().map(Prefix::of).collect())
        .collect();
    expand_prefixes(profile, &hosts)
}

/// As [`expand`], for hosts known by prefixes: those of [`hosts_of`], or any others.
pub fn expand_prefixes(profile: &Profile, hosts: &[Vec<Prefix>]) -> Result<Profile, ExpandError> {
    match &profile.topology {
        Some(topology) => generate(profile, topology, hosts),
        None => Ok(profile.clone()),
    }
}

/// The hosts that `profile` names, in the order of their ranks.
pub fn hosts_of(profile: &Profile) -> Vec<Vec<Prefix>> {
    profile
        .hosts
        .iter()
        .map(|(_, prefixes)| prefixes.clone())
        .collect()
}

fn generate(profile: &Profile, topology: &Topology, hosts: &[Vec<Prefix>]) -> Result<Profile, ExpandError> {
    check_hosts(profile, &topology.layout, hosts.len())?;
    let hosts = distinct(hosts)?;
    let pairs: Vec<(usize, usize)> = (0..hosts.len())
        .flat_map(|from| (0..hosts.len()).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    let paths: Vec<Vec<Crossed>> = pairs
        .iter()
        .map(|&(from, to)| path(topology, from, to))
        .collect::<Result<_, _>>()?;

    let (mut expanded, moved) = without_templates(profile, topology);
    let crossed: BTreeSet<Crossed> = paths.iter().flatten().copied().collect();
    let ids = add_servers(&mut expanded, profile, &topology.layout, &crossed)?;
    expanded.timeline.steps = steps::written_out(profile, &expanded, &moved, &ids)?;
    let partitions = steps::partitions(&mut expanded, hosts.len())?;
    let mut taken: HashSet<Name> = expanded.classes.iter().map(|class| class.name.clone()).collect();
    for (&(from, to), path) in pairs.iter().zip(&paths) {
        let crossed = path.iter().filter_map(|crossed| ids.get(crossed)).copied();
        let egress: Vec<ServerId> = steps::parted(&partitions, (from, to)).chain(crossed).collect();
        check_length(egress.len(), (from, to))?;
        let class =
            class(profile, &hosts, (from, to), egress).ok_or(ExpandError::NoAddress { host: from + 1 })?;
        check_delay(&expanded, &class, (from, to))?;
        if !taken.insert(class.name.clone()) {
            return Err(ExpandError::NameTaken {
                what: "class",
                name: class.name,
            });
        }
        expanded.classes.push(class);
    }
    Ok(expanded)
}

fn check_hosts(profile: &Profile, layout: &Layout, hosts: usize) -> Result<(), ExpandError> {
    check_fit(layout, hosts)?;
    let written = profile.classes.len();
    let pairs = hosts.saturating_mul(hosts - 1);
    if pairs.saturating_add(written) > MAX_CLASSES as usize {
        return Err(ExpandError::TooManyPairs {
            hosts,
            pairs,
            written,
            max: MAX_CLASSES,
        });
    }
    Ok(())
}

fn check_fit(layout: &Layout, hosts: usize) -> Result<(), ExpandError> {
    if hosts < 2 {
        return Err(ExpandError::TooFewHosts { hosts });
    }
    let capacity = layout.capacity();
    if hosts > capacity {
        return Err(ExpandError::NoRoom {
            kind: layout.kind(),
            hosts,
            capacity,
        });
    }
    Ok(())
}

/// The hosts' prefixes, each once; no two hosts may have an address in common.
fn distinct(hosts: &[Vec<Prefix>]) -> Result<Vec<Vec<Prefix>>, ExpandError> {
    let mut all: Vec<(usize, Prefix)> = Vec::new();
    let mut distinct = Vec::with_capacity(hosts.len());
    for (number, prefixes) in (1..).zip(hosts) {
        let mut seen = HashSet::new();
        let once: Vec<Prefix> = prefixes
            .iter()
            .copied()
            .filter(|&prefix| seen.insert(prefix))
            .collect();
        if once.is_empty() {
            return Err(ExpandError::NoAddress { host: number });
        }
        if once.len() > ALTERNATIVES {
            return Err(ExpandError::TooManyAddresses {
                host: number,
                count: once.len(),
                max: ALTERNATIVES,
            });
        }
        all.extend(once.iter().map(|&prefix| (number, prefix)));
        distinct.push(once);
    }
    match shared(all) {
        Some((host, other, address)) => Err(ExpandError::SameAddress { host, other, address }),
        None => Ok(distinct),
    }
}

/// Two owners of an address, each with a number, and what they have in common.
pub(crate) fn shared(mut all: Vec<(usize, Prefix)>) -> Option<(usize, usize, Prefix)> {
    // Prefixes of one family are nested or disjoint, so each need only be compared with the widest that began before.
    // IPv6 prefixes do not hold IPv4 addresses, whatever their ranges.
    all.sort_unstable_by_key(|(_, prefix)| {
        let (low, high) = prefix.range();
        (prefix.address().is_ipv6(), low, std::cmp::Reverse(high))
    });
    let mut widest: Option<(Prefix, usize)> = None;
    for (owner, prefix) in all {
        let within = |wide: &Prefix| wide.family() == prefix.family() && prefix.range().0 <= wide.range().1;
        match widest {
            Some((wide, other)) if within(&wide) => {
                if other != owner {
                    return Some((owner, other, prefix));
                }
            }
            _ => widest = Some((prefix, owner)),
        }
    }
    None
}

/// What a packet from one host to another (from 0) crosses.
fn path(topology: &Topology, from: usize, to: usize) -> Result<Vec<Crossed>, ExpandError> {
    let own = |host| move |&template: &ServerId| Crossed::Own { host, template };
    let path: Vec<Crossed> = topology
        .egress
        .iter()
        .map(own(from))
        .chain(route(&topology.layout, from, to).into_iter().map(Crossed::Link))
        .chain(topology.ingress.iter().map(own(to)))
        .collect();
    check_length(path.len(), (from, to))?;
    Ok(path)
}

fn check_length(servers: usize, (from, to): (usize, usize)) -> Result<(), ExpandError> {
    if servers > MAX_PATH_SERVERS {
        return Err(ExpandError::LongPath {
            from: from + 1,
            to: to + 1,
            servers,
            max: MAX_PATH_SERVERS,
        });
    }
    Ok(())
}

/// The hand-written part of `profile`, without the servers that stand only for each host's own, and what the others have
/// become.
fn without_templates(profile: &Profile, topology: &Topology) -> (Profile, HashMap<ServerId, ServerId>) {
    let written: HashSet<ServerId> = profile
        .classes
        .iter()
        .flat_map(Class::paths)
        .flatten()
        .flatten()
        .copied()
        .collect();
    let is_template =
        |id| (topology.egress.contains(&id) || topology.ingress.contains(&id)) && !written.contains(&id);
    let mut servers = Vec::with_capacity(profile.servers.len());
    let mut moved: HashMap<ServerId, ServerId> = HashMap::new();
    for (index, entry) in profile.servers.iter().enumerate() {
        if let (Some(id), Some(new)) = (ServerId::new(index), ServerId::new(servers.len()))
            && !is_template(id)
        {
            moved.insert(id, new);
            servers.push(entry.clone());
        }
    }
    let mut classes = profile.classes.clone();
    for class in &mut classes {
        if let Treatment::Emulate { egress, ingress } = &mut class.treatment {
            for id in [egress, ingress].into_iter().flatten().flatten() {
                *id = moved.get(id).copied().unwrap_or(*id);
            }
        }
    }
    let written = Profile {
        servers,
        classes,
        topology: None,
        ..profile.clone()
    };
    (written, moved)
}

/// Adds a server for each that is crossed; what they have become.
fn add_servers(
    expanded: &mut Profile,
    profile: &Profile,
    layout: &Layout,
    crossed: &BTreeSet<Crossed>,
) -> Result<BTreeMap<Crossed, ServerId>, ExpandError> {
    let count = expanded.servers.len() + crossed.len();
    limit("servers", count as u64, MAX_SERVERS.into())?;
    let mut taken: HashSet<Name> = expanded.servers.iter().map(|(name, _)| name.clone()).collect();
    let mut ids = BTreeMap::new();
    for &one in crossed {
        let (text, server) = match one {
            Crossed::Link(link) => (link.to_string(), link.of(layout).cloned()),
            Crossed::Own { host, template } => match profile.server(template) {
                Some((name, server)) => (format!("h{}-{name}", host + 1), Some(server.clone())),
                None => continue,
            },
        };
        let Some(name) = Name::new(&text) else {
            return Err(ExpandError::LongName {
                name: text,
                max: Name::MAX,
            });
        };
        if !taken.insert(name.clone()) {
            return Err(ExpandError::NameTaken { what: "server", name });
        }
        if let (Some(mut server), Some(id)) = (server, ServerId::new(expanded.servers.len())) {
            // It belongs to one place of the network, whatever interface its packets come from.
            if server.scope == Scope::Interface {
                server.scope = Scope::Shared;
            }
            ids.insert(one, id);
            expanded.servers.push((name, server));
        }
    }
    let sum = |of: fn(&Server) -> u64| expanded.servers.iter().map(|(_, server)| of(server)).sum();
    let packets = sum(|server| server.buffer.packets.unwrap_or(0).into());
    limit("packets in all buffers together", packets, BUFFER_PACKETS.max)?;
    let listed = sum(|server| server.loss.nth.len() as u64);
    limit("entries in all `nth` lists together", listed, MAX_NTH.into())?;
    Ok(ids)
}

fn limit(what: &'static str, count: u64, max: u64) -> Result<(), ExpandError> {
    if count > max {
        Err(ExpandError::TooMany { what, count, max })
    } else {
        Ok(())
    }
}

/// The class of a pair of hosts (from 0).
fn class(
    profile: &Profile,
    hosts: &[Vec<Prefix>],
    (from, to): (usize, usize),
    egress: Vec<ServerId>,
) -> Option<Class> {
    Some(Class {
        name: Name::new(&format!("h{}-h{}", from + 1, to + 1))?,
        matching: Match {
            source: hosts.get(from)?.clone(),
            destination: hosts.get(to)?.clone(),
            ..Match::default()
        },
        treatment: Treatment::Emulate {
            egress: Some(egress),
            ingress: receive_path(profile),
        },
    })
}

/// The receiver crosses nothing, but burns its overhead.
fn receive_path(profile: &Profile) -> Option<Vec<ServerId>> {
    (profile.overhead.receive > Duration::ZERO).then(Vec::new)
}

fn check_delay(expanded: &Profile, class: &Class, (from, to): (usize, usize)) -> Result<(), ExpandError> {
    let horizon = expanded.horizon.unwrap_or(MAX_HORIZON);
    for path in class.paths().into_iter().flatten() {
        let delay = bounded_delay(expanded, path);
        if delay > horizon {
            return Err(ExpandError::LongDelay {
                from: from + 1,
                to: to + 1,
                delay,
                horizon,
            });
        }
    }
    Ok(())
}
