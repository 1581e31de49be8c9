//! Which links a packet crosses on its way through a network, by the network's shape. Hosts are counted from 0 here,
//! and from 1 in names.
//!
//! * Bus: the one link.
//! * Star: up to the switch, down to the receiver.
//! * Tree (PlogPT): the edge of height h joins a subtree of 2^(h-1) leaves to the switch above. The lowest common
//!   ancestor of leaves i and j has height H, the position of the highest bit in which they differ; the path is the
//!   edges of heights 1 to H above i, then those of heights H to 1 above j.
//! * Mesh, torus: the coordinates of a host are its digits, the first dimension counting fastest (host i + 1 is the
//!   neighbor of host i along the first). Coordinates are corrected one dimension after the other, the first one first
//!   (dimension order); in a torus by the shorter way round, upward if both are as long.
//!
//! Adaptive routing and virtual channels are not modeled.

use std::fmt;

use crate::model::Server;
use crate::topology::{Layout, Sharing};

/// A link of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Link {
    /// What all share.
    Bus,
    /// Between a subtree and the switch above it.
    Edge {
        /// From 1, that of the hosts' own links.
        height: u32,
        /// Which of the subtrees of this height, from 0.
        subtree: usize,
        /// Which of its directions.
        way: Way,
    },
    /// From a node of a mesh to its neighbor.
    Channel {
        /// The one that sends.
        from: usize,
        /// The one that receives.
        to: usize,
    },
}

/// A direction of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Way {
    /// Away from the hosts.
    Up,
    /// To the hosts.
    Down,
    /// The one server of both directions.
    Both,
}

impl Link {
    /// The parameters that `layout` gives it.
    pub(super) fn of(self, layout: &Layout) -> Option<&Server> {
        let kind = match self {
            Self::Edge { height, .. } => height as usize - 1,
            Self::Bus | Self::Channel { .. } => 0,
        };
        layout.links().get(kind)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bus => f.write_str("bus"),
            Self::Edge { height, subtree, way } => {
                let leaves = 1 << (height - 1);
                let (first, last) = (subtree * leaves + 1, (subtree + 1) * leaves);
                write!(f, "h{first}")?;
                if last > first {
                    write!(f, "..h{last}")?;
                }
                f.write_str(match way {
                    Way::Up => "-up",
                    Way::Down => "-down",
                    Way::Both => "-edge",
                })
            }
            Self::Channel { from, to } => write!(f, "h{}-to-h{}", from + 1, to + 1),
        }
    }
}

/// The links from one host to another, in order; none from a host to itself, except the bus.
pub(super) fn route(layout: &Layout, from: usize, to: usize) -> Vec<Link> {
    match layout {
        Layout::Bus { .. } => vec![Link::Bus],
        Layout::Star { .. } => climb(from, to, u32::from(from != to), [Way::Up, Way::Down]),
        Layout::Tree { sharing, .. } => climb(
            from,
            to,
            usize::BITS - (from ^ to).leading_zeros(),
            ways(*sharing),
        ),
        Layout::Mesh { dimensions, wrap, .. } => walk(dimensions, *wrap, from, to),
    }
}

/// The links from a host up to the highest switch, and those from there down to it, in the order of travel: what the
/// routes of all pairs of so many hosts are made of. Nothing for a mesh.
pub(super) fn halves(layout: &Layout, host: usize, hosts: usize) -> Option<[Vec<Link>; 2]> {
    let (top, ways) = match layout {
        Layout::Bus { .. } => return Some([vec![Link::Bus], Vec::new()]),
        Layout::Star { .. } => (1, [Way::Up, Way::Down]),
        Layout::Tree { sharing, .. } => (usize::BITS - (hosts - 1).leading_zeros(), ways(*sharing)),
        Layout::Mesh { .. } => return None,
    };
    let mut up = climb(host, host, top, ways);
    let down = up.split_off(top as usize);
    Some([up, down])
}

fn ways(sharing: Sharing) -> [Way; 2] {
    match sharing {
        Sharing::Unidirectional => [Way::Up, Way::Down],
        Sharing::Bidirectional => [Way::Both; 2],
    }
}

/// Up from one leaf to the switch of height `top`, down to the other.
fn climb(from: usize, to: usize, top: u32, [up, down]: [Way; 2]) -> Vec<Link> {
    let edge = |leaf: usize, way| {
        move |height: u32| Link::Edge {
            height,
            subtree: leaf >> (height - 1),
            way,
        }
    };
    let ascent = (1..=top).map(edge(from, up));
    ascent.chain((1..=top).rev().map(edge(to, down))).collect()
}

/// One dimension after the other.
fn walk(dimensions: &[u16], wrap: bool, from: usize, to: usize) -> Vec<Link> {
    let mut links = Vec::new();
    let (mut node, mut stride) = (from, 1);
    for length in dimensions.iter().map(|&length| usize::from(length)) {
        let (mut here, there) = (node / stride % length, to / stride % length);
        let upward = (there + length - here) % length;
        let up = if wrap { 2 * upward <= length } else { there > here };
        while here != there {
            let next = (here + if up { 1 } else { length - 1 }) % length;
            let neighbor = node - here * stride + next * stride;
            links.push(Link::Channel {
                from: node,
                to: neighbor,
            });
            (node, here) = (neighbor, next);
        }
        stride *= length;
    }
    links
}
