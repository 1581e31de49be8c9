//! A topology of more hosts than there are classes for their pairs: one class for all of them, and two lists of servers
//! per host, from which the programs join the path of each packet ([`perturb_common::network`]).
//!
//! What a pair crosses is the same as in the profile that [`super::expand`] writes out; only what is counted by class
//! is counted for the whole network. A list's servers are cut from those before them where other hosts' packets reach
//! them otherwise. Inward lists are cut everywhere: they are reached from all sides.
//!
//! What it lacks: meshes and tori, whose paths have no such form.

use std::collections::BTreeSet;

use perturb_common::abi::{MAX_CLASSES, MAX_PATH_SERVERS};
use perturb_quantity::Size;

use super::routes::{Link, halves};
use super::{
    Crossed, ExpandError, Topology, add_servers, check_delay, check_fit, distinct, receive_path, steps,
    without_templates,
};
use crate::explain::HELD;
use crate::matching::{Match, Prefix};
use crate::model::{Class, Name, Profile, ServerId, Treatment};

/// A profile with a topology of many hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// The profile with all servers written out. Its last class stands for all pairs of hosts; the class's path is one
    /// of the longest, which the others resemble.
    profile: Profile,
    hosts: Vec<Vec<Prefix>>,
    /// By host: what its packets cross up to the highest switch.
    outward: Vec<Vec<ServerId>>,
    /// By host: what leads down to it from there.
    inward: Vec<Vec<ServerId>>,
    /// Links at the end of each outward list, and at the beginning of each inward one.
    links: [usize; 2],
}

impl Network {
    /// The profile with all servers written out, and one class, the last, for all pairs.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Memory that held packets may take at once: as the profile says, or 4 GiB, for thousands of paths may be full.
    pub fn held(&self) -> Size {
        self.profile.limits.held.unwrap_or(Size::from_bytes(HELD.1))
    }

    pub(crate) fn hosts(&self) -> &[Vec<Prefix>] {
        &self.hosts
    }

    pub(crate) fn links(&self) -> [usize; 2] {
        self.links
    }

    pub(crate) fn outward(&self) -> &[Vec<ServerId>] {
        &self.outward
    }

    pub(crate) fn inward(&self) -> &[Vec<ServerId>] {
        &self.inward
    }
}

/// The network of `profile` for hosts known by prefixes, if it has a topology and more pairs than there are classes for.
pub fn network(profile: &Profile, hosts: &[Vec<Prefix>]) -> Result<Option<Network>, ExpandError> {
    let Some(topology) = &profile.topology else {
        return Ok(None);
    };
    let pairs = hosts.len().saturating_mul(hosts.len().saturating_sub(1));
    if pairs.saturating_add(profile.classes.len()) <= MAX_CLASSES as usize {
        return Ok(None);
    }
    generate(profile, topology, hosts)
}

/// As [`network`], however few the hosts are; nothing for a mesh.
pub(super) fn generate(
    profile: &Profile,
    topology: &Topology,
    hosts: &[Vec<Prefix>],
) -> Result<Option<Network>, ExpandError> {
    check_fit(&topology.layout, hosts.len())?;
    let Some(lists) = (0..hosts.len())
        .map(|host| halves(&topology.layout, host, hosts.len()))
        .collect::<Option<Vec<[Vec<Link>; 2]>>>()
    else {
        return Ok(None);
    };
    let hosts = distinct(hosts)?;
    let links = lists.first().map_or([0; 2], |[up, down]| [up.len(), down.len()]);
    let own = |host, templates: &[ServerId]| -> Vec<Crossed> {
        templates
            .iter()
            .map(|&template| Crossed::Own { host, template })
            .collect()
    };
    let crossed: Vec<[Vec<Crossed>; 2]> = lists
        .into_iter()
        .enumerate()
        .map(|(host, [up, down])| {
            let mut outward = own(host, &topology.egress);
            outward.extend(up.into_iter().map(Crossed::Link));
            let mut inward: Vec<Crossed> = down.into_iter().map(Crossed::Link).collect();
            inward.extend(own(host, &topology.ingress));
            [outward, inward]
        })
        .collect();

    let (mut expanded, moved) = without_templates(profile, topology);
    let all: BTreeSet<Crossed> = crossed.iter().flatten().flatten().copied().collect();
    let ids = add_servers(&mut expanded, profile, &topology.layout, &all)?;
    expanded.timeline.steps = steps::written_out(profile, &expanded, &moved, &ids)?;
    steps::no_partition(&expanded)?;
    let named = |list: &Vec<Crossed>| -> Vec<ServerId> {
        list.iter()
            .filter_map(|crossed| ids.get(crossed))
            .copied()
            .collect()
    };
    let outward: Vec<Vec<ServerId>> = crossed.iter().map(|[outward, _]| named(outward)).collect();
    let inward: Vec<Vec<ServerId>> = crossed.iter().map(|[_, inward]| named(inward)).collect();

    // The first host and the first one on the other side of the highest switch.
    let far = hosts.len().next_power_of_two() / 2;
    let longest: Vec<ServerId> = [outward.first(), inward.get(far)]
        .into_iter()
        .flatten()
        .flatten()
        .copied()
        .collect();
    if longest.len() > MAX_PATH_SERVERS {
        return Err(ExpandError::LongPath {
            from: 1,
            to: far + 1,
            servers: longest.len(),
            max: MAX_PATH_SERVERS,
        });
    }
    let class = class(profile, topology.layout.kind(), &hosts, longest)?;
    check_delay(&expanded, &class, (0, far))?;
    expanded.classes.push(class);
    Ok(Some(Network {
        profile: expanded,
        hosts,
        outward,
        inward,
        links,
    }))
}

/// The class of all pairs.
fn class(
    profile: &Profile,
    kind: &'static str,
    hosts: &[Vec<Prefix>],
    longest: Vec<ServerId>,
) -> Result<Class, ExpandError> {
    let max = Name::MAX;
    let name = Name::new(kind).ok_or(ExpandError::LongName {
        name: kind.into(),
        max,
    })?;
    if profile.classes.iter().any(|class| class.name == name) {
        return Err(ExpandError::NameTaken { what: "class", name });
    }
    if profile.classes.len() >= MAX_CLASSES as usize {
        return Err(ExpandError::TooMany {
            what: "classes",
            count: profile.classes.len() as u64 + 1,
            max: MAX_CLASSES.into(),
        });
    }
    let all: Vec<Prefix> = hosts.iter().flatten().copied().collect();
    Ok(Class {
        name,
        matching: Match {
            source: all.clone(),
            destination: all,
            ..Match::default()
        },
        treatment: Treatment::Emulate {
            egress: Some(longest),
            ingress: receive_path(profile),
        },
    })
}
