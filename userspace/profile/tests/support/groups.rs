//! Arbitrary groups, classes that match by them, and matrices that have not been read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use perturb_profile::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;

/// Groups without a peer in common.
pub(crate) fn groups() -> BoxedStrategy<Vec<(Name, Group)>> {
    let members = (subsequence(vec![0u8, 1, 2], 0..=3), 0..=2u8);
    vec((super::name(), members), 0..=3)
        .prop_map(|groups| {
            let mut seen = std::collections::HashSet::new();
            let group = |(number, (name, (prefixes, hosts))): (u8, (Name, (Vec<u8>, u8)))| {
                let prefix = |&kind: &u8| {
                    let (address, length): (IpAddr, u8) = match kind {
                        0 => (Ipv4Addr::new(10, number, 0, 0).into(), 16),
                        1 => (Ipv4Addr::new(192, 0, 2, number).into(), 32),
                        _ => (
                            Ipv6Addr::new(0x2001, 0xdb8, number.into(), 0, 0, 0, 0, 0).into(),
                            48,
                        ),
                    };
                    Prefix::containing(address, length).unwrap()
                };
                let host = |index: u8| HostName::new(&format!("g{number}-{index}.example")).unwrap();
                // One of the two must be there.
                let hosts = if prefixes.is_empty() { hosts.max(1) } else { hosts };
                let group = Group {
                    container: vec!["label=app=db".to_owned(); usize::from(number == 2)],
                    interface: vec![Name::new("br-1.7").unwrap(); usize::from(number == 1)],
                    prefix: prefixes.iter().map(prefix).collect(),
                    host: (0..hosts).map(host).collect(),
                };
                (name, group)
            };
            (0u8..)
                .zip(groups)
                .map(group)
                .filter(|(name, _)| seen.insert(name.clone()))
                .collect()
        })
        .boxed()
}

/// A matrix of up to three groups, the first of which may be this machine's.
pub(crate) fn matrix() -> BoxedStrategy<Option<(bool, bool, bool)>> {
    proptest::option::of(any::<(bool, bool, bool)>()).boxed()
}

/// Puts groups into a profile, into some of its classes, and a matrix between them.
pub(crate) fn put(
    profile: &mut Profile,
    groups: Vec<(Name, Group)>,
    chosen: &[(u8, u8)],
    matrix: Option<(bool, bool, bool)>,
) {
    let names: Vec<Name> = groups.iter().map(|(name, _)| name.clone()).collect();
    let by_bits = |bits: u8| -> Vec<Name> {
        let chosen = names
            .iter()
            .enumerate()
            .filter(|(index, _)| bits >> index & 1 != 0);
        chosen.map(|(_, name)| name.clone()).collect()
    };
    for (class, &(other, own)) in profile.classes.iter_mut().zip(chosen) {
        if !class.matching.non_ip && class.matching.ethertype.is_empty() {
            class.matching.group = by_bits(other);
            class.matching.local_group = by_bits(own);
        }
    }
    profile.groups = groups;
    if let Some((symmetric, round_trip, here)) = matrix
        && profile.topology.is_none()
        && !names.is_empty()
    {
        let here = here.then(|| names[0].clone());
        let pair = |from: &Name, to: &Name| Name::new(&format!("{from}-to-{to}")).unwrap();
        let mut id = |name: Name| {
            profile.servers.push((name, Server::default()));
            ServerId::new(profile.servers.len() - 1).unwrap()
        };
        let mut class = |from: &Name, to: &Name, local_group, egress, ingress: Option<ServerId>| {
            profile.classes.push(Class {
                name: pair(from, to),
                matching: Match {
                    group: vec![to.clone()],
                    local_group,
                    ..Match::default()
                },
                treatment: Treatment::Emulate {
                    egress: Some(vec![egress]),
                    ingress: ingress.map(|server| vec![server]),
                },
            });
        };
        match &here {
            None => {
                for from in &names {
                    for to in &names {
                        class(from, to, vec![from.clone()], id(pair(from, to)), None);
                    }
                }
            }
            Some(here) => {
                for other in &names {
                    let egress = id(pair(here, other));
                    let ingress = if other == here {
                        egress
                    } else {
                        id(pair(other, here))
                    };
                    class(here, other, Vec::new(), egress, Some(ingress));
                }
            }
        }
        profile.matrix = Some(Matrix {
            file: "tables/regions.csv".to_owned(),
            symmetric,
            round_trip,
            here,
        });
    }
}
