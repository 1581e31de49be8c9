//! Routes against definitions that share no arithmetic with them.

use super::*;

fn host(text: &str) -> usize {
    text.strip_prefix('h').unwrap().parse().unwrap()
}

/// An edge's leaves and direction, from its name.
fn edge(name: &str) -> (usize, usize, &str) {
    let (leaves, way) = name.rsplit_once('-').unwrap();
    let (first, last) = leaves.split_once("..").unwrap_or((leaves, leaves));
    (host(first), host(last), way)
}

/// A path crosses the edge above a subtree if exactly one of its ends lies below: upward first, from the smallest
/// subtree on, then downward, from the largest on.
fn tree_path(levels: u32, from: usize, to: usize, bidirectional: bool) -> Vec<String> {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for size in (0..levels).map(|level| 1 << level) {
        for first in (1..=1 << levels).step_by(size) {
            let last = first + size - 1;
            let below = |leaf| (first..=last).contains(&leaf);
            let name = |way| {
                let way = if bidirectional { "edge" } else { way };
                if size == 1 {
                    format!("h{first}-{way}")
                } else {
                    format!("h{first}..h{last}-{way}")
                }
            };
            match (below(from), below(to)) {
                (true, false) => up.push(name("up")),
                (false, true) => down.insert(0, name("down")),
                _ => {}
            }
        }
    }
    up.append(&mut down);
    up
}

#[test]
fn a_tree_path_crosses_the_subtrees_that_hold_one_end() {
    for levels in [3, 5] {
        for hosts in [2, 3, 5, 8] {
            for sharing in ["unidirectional", "bidirectional"] {
                let profile = expanded(&tree(levels, sharing), hosts);
                for (from, to) in pairs(hosts) {
                    let meant = tree_path(levels, from, to, sharing == "bidirectional");
                    assert_eq!(
                        between(&profile, from, to),
                        meant,
                        "{hosts} hosts, {levels} levels"
                    );
                }
            }
        }
    }
    let profile = expanded(&tree(3, "unidirectional"), 8);
    let path = [
        "h3-up",
        "h3..h4-up",
        "h1..h4-up",
        "h5..h8-down",
        "h5..h6-down",
        "h6-down",
    ];
    assert_eq!(between(&profile, 3, 6), path);
}

#[test]
fn an_edge_has_the_parameters_of_its_height() {
    for sharing in ["unidirectional", "bidirectional"] {
        let profile = expanded(&tree(5, sharing), 32);
        let Layout::Tree { levels, .. } = with(&tree(5, sharing)).topology.unwrap().layout else {
            panic!("a tree")
        };
        for (name, server) in &profile.servers {
            let (first, last, _) = edge(name.as_str());
            let height = (last - first + 1).ilog2();
            assert_eq!(server, &levels[height as usize], "{name}");
        }
        // 32 + 16 + 8 + 4 + 2 edges.
        let directions = if sharing == "bidirectional" { 1 } else { 2 };
        assert_eq!(profile.servers.len(), 62 * directions);
    }
}

#[test]
fn only_edges_that_are_crossed_become_servers() {
    let names = |hosts| -> Vec<String> {
        let profile = expanded(&tree(5, "unidirectional"), hosts);
        profile.servers.iter().map(|(name, _)| name.to_string()).collect()
    };
    assert_eq!(names(2), ["h1-up", "h1-down", "h2-up", "h2-down"]);
    let three = [
        "h1-up",
        "h1-down",
        "h2-up",
        "h2-down",
        "h3-up",
        "h3-down",
        "h1..h2-up",
        "h1..h2-down",
        "h3..h4-up",
        "h3..h4-down",
    ];
    assert_eq!(names(3), three);
}

#[test]
fn a_star_has_two_links_and_a_bus_one() {
    let star = expanded("{ kind: star, link: { bandwidth: 1Gbit/s } }", 5);
    let bus = expanded("{ kind: bus, link: { bandwidth: 10Mbit/s } }", 5);
    for (from, to) in pairs(5) {
        assert_eq!(
            between(&star, from, to),
            [format!("h{from}-up"), format!("h{to}-down")]
        );
        assert_eq!(between(&bus, from, to), ["bus"]);
    }
    assert_eq!((star.servers.len(), bus.servers.len()), (10, 1));
}

/// A node's coordinates, by counting there.
fn coordinates(dimensions: &[u16], node: usize) -> Vec<i32> {
    let mut at = vec![0; dimensions.len()];
    for _ in 1..node {
        for (place, &length) in at.iter_mut().zip(dimensions) {
            *place += 1;
            if *place < i32::from(length) {
                break;
            }
            *place = 0;
        }
    }
    at
}

/// Follows a path from coordinate to coordinate: neighbors only, dimensions in order, straight on, no longer than
/// the shortest way, and upward where both ways are as long.
fn follow(dimensions: &[u16], wrap: bool, (from, to): (usize, usize), path: &[&str]) {
    let mut node = from;
    let mut steps: Vec<(usize, i32)> = Vec::new();
    for name in path {
        let (tail, head) = name.split_once("-to-").unwrap();
        assert_eq!(host(tail), node, "{path:?} is not connected");
        node = host(head);
        let (tail, head) = (coordinates(dimensions, host(tail)), coordinates(dimensions, node));
        let changed: Vec<usize> = (0..dimensions.len()).filter(|&d| tail[d] != head[d]).collect();
        let &[dimension] = changed.as_slice() else {
            panic!("{name} is no channel")
        };
        let length = i32::from(dimensions[dimension]);
        let step = match head[dimension] - tail[dimension] {
            step @ (1 | -1) if !(wrap && length == 2) => step,
            1 | -1 => 1, // of two nodes in a ring, either is above the other
            around if wrap && around == 1 - length => 1,
            around if wrap && around == length - 1 => -1,
            _ => panic!("{name} joins no neighbors"),
        };
        steps.push((dimension, step));
    }
    assert_eq!(node, to, "{path:?} does not arrive");
    let mut meant = Vec::new();
    let (start, end) = (coordinates(dimensions, from), coordinates(dimensions, to));
    for (dimension, &length) in dimensions.iter().enumerate() {
        let straight = end[dimension] - start[dimension];
        let around = straight - i32::from(length) * straight.signum();
        let shift = match straight.abs().cmp(&around.abs()) {
            std::cmp::Ordering::Greater if wrap => around,
            std::cmp::Ordering::Equal if wrap => straight.abs(),
            _ => straight,
        };
        meant.extend(std::iter::repeat_n(
            (dimension, shift.signum()),
            shift.unsigned_abs() as usize,
        ));
    }
    assert_eq!(steps, meant, "{from} to {to} of {dimensions:?}: {path:?}");
}

#[test]
fn a_mesh_corrects_one_coordinate_after_the_other() {
    let grids: [&[u16]; 7] = [&[8], &[7], &[4, 8], &[3, 3, 3], &[2, 2, 2, 2], &[5, 4], &[2, 6]];
    for dimensions in grids {
        let nodes: usize = dimensions.iter().copied().map(usize::from).product();
        for kind in ["mesh", "torus"] {
            for hosts in [nodes, nodes - 1] {
                let profile = expanded(&grid(kind, dimensions), hosts);
                for (from, to) in pairs(hosts) {
                    follow(
                        dimensions,
                        kind == "torus",
                        (from, to),
                        &between(&profile, from, to),
                    );
                }
            }
        }
    }
    let mesh = expanded(&grid("mesh", &[4, 8]), 32);
    assert_eq!(
        between(&mesh, 4, 10),
        ["h4-to-h3", "h3-to-h2", "h2-to-h6", "h6-to-h10"]
    );
    let torus = expanded(&grid("torus", &[4, 8]), 32);
    assert_eq!(between(&torus, 4, 29), ["h4-to-h1", "h1-to-h29"]);
    assert_eq!(
        between(&torus, 3, 1),
        ["h3-to-h4", "h4-to-h1"],
        "a tie goes upward"
    );
}
