//! Paths, and where they are cut into legs.
//!
//! The fold may run ahead of real time over a server only if no packet can get there in between by another way. So a
//! path is cut before every server but the first, except where the packets of one instance of it have all crossed one
//! instance each of the same servers before it, none of which lets packets overtake: then they arrive in the order in
//! which they are folded, however far ahead. A server of scope flow needs no cut: a flow's packets follow each other.

use std::collections::HashMap;

use perturb_common::abi::{self, Direction, NETWORK, NONE};
use perturb_common::network::Network as Lists;

use crate::expand::Network;
use crate::model::{Class, Profile, Scope, Server, ServerId};

/// The distinct paths and a network's lists, each class's path by direction, and how the lists join.
pub(super) struct Paths {
    pub(super) distinct: Vec<abi::Path>,
    pub(super) of_classes: Vec<abi::Class>,
    pub(super) network: Lists,
}

/// What precedes a server on the paths that cross it.
enum Before<'p> {
    /// Always these.
    Same(&'p [ServerId]),
    /// Now these, now others.
    Different,
}

pub(super) fn compile(profile: &Profile, network: Option<&Network>) -> Paths {
    let mut before: HashMap<ServerId, Before<'_>> = HashMap::new();
    let outward = network
        .map_or(&[][..], Network::outward)
        .iter()
        .map(Vec::as_slice);
    // What stands for a network's pairs is not all there is of it.
    let written = profile.classes.len() - usize::from(network.is_some());
    let classes = profile.classes.iter().take(written);
    for path in classes.flat_map(Class::paths).flatten().chain(outward) {
        for (position, &server) in path.iter().enumerate() {
            let prefix = path.get(..position).unwrap_or_default();
            let known = before.entry(server).or_insert(Before::Same(prefix));
            if matches!(known, Before::Same(other) if *other != prefix) {
                *known = Before::Different;
            }
        }
    }
    for &server in network.map_or(&[][..], Network::inward).iter().flatten() {
        before.insert(server, Before::Different);
    }
    let mut paths = Paths {
        distinct: Vec::new(),
        of_classes: Vec::new(),
        network: Lists::default(),
    };
    let mut numbers: HashMap<&[ServerId], u32> = HashMap::new();
    for class in &profile.classes {
        let path = class.paths().map(|path| {
            path.map_or(NONE, |path| {
                *numbers.entry(path).or_insert_with(|| {
                    paths.distinct.push(lay(profile, path, &before));
                    u32::try_from(paths.distinct.len() - 1).unwrap_or(NONE)
                })
            })
        });
        paths.of_classes.push(abi::Class { path });
    }
    if let Some(network) = network {
        add_lists(&mut paths, profile, network, &before);
    }
    paths
}

/// Adds a network's lists; its class's path is joined from them.
fn add_lists(
    paths: &mut Paths,
    profile: &Profile,
    network: &Network,
    before: &HashMap<ServerId, Before<'_>>,
) {
    let as_u32 = |count: usize| u32::try_from(count).unwrap_or(NONE);
    let [up, down] = network.links();
    let (first, hosts) = (as_u32(paths.distinct.len()), as_u32(network.hosts().len()));
    paths.network = Lists::new(first, hosts, up, down);
    for (outward, inward) in network.outward().iter().zip(network.inward()) {
        paths.distinct.push(lay(profile, outward, before));
        let mut list = lay(profile, inward, before);
        // It is never the first of a path.
        if let Some(&first) = inward.first()
            && !arrives_in_order(profile, first, before)
        {
            list.cuts |= 1;
        }
        paths.distinct.push(list);
    }
    if let Some(class) = paths.of_classes.last_mut() {
        class.path[Direction::Egress as usize] = NETWORK;
    }
}

fn lay(profile: &Profile, path: &[ServerId], before: &HashMap<ServerId, Before<'_>>) -> abi::Path {
    let mut laid = abi::Path::default();
    for (place, (position, &id)) in laid.servers.iter_mut().zip(path.iter().enumerate()) {
        *place = u32::try_from(id.index()).unwrap_or(NONE);
        laid.len += 1;
        if position > 0 && !arrives_in_order(profile, id, before) {
            laid.cuts |= 1 << position;
        }
    }
    laid
}

fn arrives_in_order(profile: &Profile, id: ServerId, before: &HashMap<ServerId, Before<'_>>) -> bool {
    let Some((_, server)) = profile.server(id) else {
        return false;
    };
    if server.scope == Scope::Flow {
        return true;
    }
    let Some(Before::Same(prefix)) = before.get(&id) else {
        return false;
    };
    prefix
        .iter()
        .filter_map(|&earlier| profile.server(earlier))
        .all(|(_, earlier)| contains(earlier, server))
}

/// Whether the packets of one instance of `server` have crossed one instance of `earlier`, and left it in order.
fn contains(earlier: &Server, server: &Server) -> bool {
    let overtaking = earlier.jitter.as_ref().is_some_and(|jitter| jitter.reorder);
    !overtaking && (earlier.scope == Scope::Shared || earlier.scope == server.scope)
}
