//! Paths, and where they are cut into legs.
//!
//! The fold may run ahead of real time over a server only if no packet can get there in between by another way. So a
//! path is cut before every server but the first, except where the packets of one instance of it have all crossed one
//! instance each of the same servers before it, none of which lets packets overtake: then they arrive in the order in
//! which they are folded, however far ahead. A server of scope flow needs no cut: a flow's packets follow each other.

use std::collections::HashMap;

use perturb_common::abi::{self, NONE};

use crate::model::{Class, Profile, Scope, Server, ServerId};

/// The distinct paths, and each class's by direction.
pub(super) struct Paths {
    pub(super) distinct: Vec<abi::Path>,
    pub(super) of_classes: Vec<abi::Class>,
}

/// What precedes a server on the paths that cross it.
enum Before<'p> {
    /// Always these.
    Same(&'p [ServerId]),
    /// Now these, now others.
    Different,
}

pub(super) fn compile(profile: &Profile) -> Paths {
    let mut before: HashMap<ServerId, Before<'_>> = HashMap::new();
    for path in profile.classes.iter().flat_map(Class::paths).flatten() {
        for (position, &server) in path.iter().enumerate() {
            let prefix = path.get(..position).unwrap_or_default();
            let known = before.entry(server).or_insert(Before::Same(prefix));
            if matches!(known, Before::Same(other) if *other != prefix) {
                *known = Before::Different;
            }
        }
    }
    let mut paths = Paths {
        distinct: Vec::new(),
        of_classes: Vec::new(),
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
    paths
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
