//! The steps of a timeline, with the servers that a topology has become.
//!
//! A step of a host's own server is one of each host's copy; one of links or a level is one of their servers. A partition
//! becomes a server of its own at the beginning of the paths between hosts of different groups, which is down meanwhile.

use std::collections::{BTreeMap, HashMap};

use super::routes::Link;
use super::{Crossed, ExpandError};
use crate::model::{Name, Profile, Server, ServerId};
use crate::timeline::{Change, Down, Step, Subject};

/// The steps of `profile` for `expanded`, but for partitions.
pub(super) fn written_out(
    profile: &Profile,
    expanded: &Profile,
    moved: &HashMap<ServerId, ServerId>,
    ids: &BTreeMap<Crossed, ServerId>,
) -> Result<Vec<Step>, ExpandError> {
    let links = |of: &dyn Fn(Link, ServerId) -> bool| -> Vec<ServerId> {
        let links = ids.iter().filter_map(|(crossed, &id)| match crossed {
            Crossed::Link(link) => Some((*link, id)),
            Crossed::Own { .. } => None,
        });
        links
            .filter(|&(link, id)| of(link, id))
            .map(|(_, id)| id)
            .collect()
    };
    let named = |name: &Name, step: usize| -> Result<ServerId, ExpandError> {
        let has_name = |id: ServerId| expanded.server(id).is_some_and(|(other, _)| other == name);
        let found = links(&|_, id| has_name(id)).into_iter().next();
        found.ok_or_else(|| ExpandError::NoLink {
            step,
            name: name.clone(),
        })
    };
    let steps = (1..).zip(&profile.timeline.steps).map(|(number, step)| {
        let subject = match &step.subject {
            Subject::Servers(servers) => {
                let copies = |id: ServerId| {
                    let own = ids.iter().filter(move |(crossed, _)| {
                        matches!(crossed, Crossed::Own { template, .. } if *template == id)
                    });
                    moved
                        .get(&id)
                        .into_iter()
                        .chain(own.map(|(_, copy)| copy))
                        .copied()
                };
                Subject::Servers(servers.iter().flat_map(|&id| copies(id)).collect())
            }
            Subject::Links(names) if names.is_empty() => Subject::Servers(links(&|_, _| true)),
            Subject::Links(names) => {
                let servers: Result<_, _> = names.iter().map(|name| named(name, number)).collect();
                Subject::Servers(servers?)
            }
            Subject::Level(level) => Subject::Servers(links(
                &|link, _| matches!(link, Link::Edge { height, .. } if height as usize == *level),
            )),
            other @ (Subject::Partition(_) | Subject::Overhead) => other.clone(),
        };
        Ok(Step {
            subject,
            ..step.clone()
        })
    });
    steps.collect()
}

/// A partition: the group of each host, and the server between groups.
pub(super) struct Partition {
    groups: Vec<Option<usize>>,
    server: ServerId,
}

/// Makes a server of each partition.
pub(super) fn partitions(expanded: &mut Profile, hosts: usize) -> Result<Vec<Partition>, ExpandError> {
    let mut partitions = Vec::new();
    let servers = &mut expanded.servers;
    for (number, step) in (1..).zip(&mut expanded.timeline.steps) {
        let Subject::Partition(listed) = &step.subject else {
            continue;
        };
        let mut groups = vec![None; hosts];
        for (group, members) in listed.iter().enumerate() {
            for &host in members {
                let place = groups.get_mut(host).ok_or(ExpandError::NoHost {
                    step: number,
                    host: host + 1,
                })?;
                *place = Some(group);
            }
        }
        let name = Name::new(&format!("partition-{number}"))
            .filter(|name| servers.iter().all(|(other, _)| other != name))
            .zip(ServerId::new(servers.len()));
        let Some((name, server)) = name else {
            return Err(ExpandError::NoPairs { step: number });
        };
        servers.push((name, Server::default()));
        step.subject = Subject::Servers(vec![server]);
        step.change = Change {
            down: Some(Down::Drop),
            ..Change::default()
        };
        partitions.push(Partition { groups, server });
    }
    Ok(partitions)
}

/// The servers between two hosts of different groups.
pub(super) fn parted(
    partitions: &[Partition],
    (from, to): (usize, usize),
) -> impl Iterator<Item = ServerId> + '_ {
    let group = move |partition: &Partition, host: usize| partition.groups.get(host).copied().flatten();
    partitions.iter().filter_map(move |partition| {
        let (one, other) = group(partition, from).zip(group(partition, to))?;
        (one != other).then_some(partition.server)
    })
}

/// Refuses a partition of hosts whose pairs have no class each.
pub(super) fn no_partition(expanded: &Profile) -> Result<(), ExpandError> {
    let steps = (1..).zip(&expanded.timeline.steps);
    let mut partitions = steps.filter(|(_, step)| matches!(step.subject, Subject::Partition(_)));
    match partitions.next() {
        Some((step, _)) => Err(ExpandError::NoPairs { step }),
        None => Ok(()),
    }
}
