//! Groups of peers, and the matrix of what lies between each two of them.
//!
//! A matrix is a short form: as a profile is read, each pair of groups becomes a server `FROM-to-TO`, which all packets from one
//! group to the other cross, and a class of the same name behind the hand-written ones. By its own side a class is in force on
//! each host that sends, at egress; with [`Matrix::here`] there is one class for each other group, both ways.
//!
//! A profile of which only the text is known ([`crate::parse`]) has the pairs, but their servers do nothing until the file is
//! read ([`crate::load`]); then the matrix is gone, and its pairs are as if written by hand.

use crate::matching::{HostName, Prefix};
use crate::model::{Class, Name, Profile, ServerId, Treatment};

/// A named set of peers: those with any of these addresses or names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// By address.
    pub prefix: Vec<Prefix>,
    /// By name: of `hosts`, of a private host, or what the system's resolver knows.
    pub host: Vec<HostName>,
    /// By what names containers: `NAME`, `label=KEY` or `label=KEY=VALUE`.
    pub container: Vec<String>,
    /// By the networks of this machine's interfaces.
    pub interface: Vec<Name>,
}

impl Group {
    /// How the addresses of containers are called beside those of hosts.
    pub const CONTAINER: &str = "container ";

    /// Whose addresses are to be looked up.
    pub(crate) fn named(&self) -> impl Iterator<Item = String> + '_ {
        let hosts = self.host.iter().map(ToString::to_string);
        let containers = self.container.iter();
        hosts.chain(containers.map(|one| format!("{}{one}", Self::CONTAINER)))
    }
}

/// A matrix that has not been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// The file, relative to the profile, or the name of one of perturb's own.
    pub file: String,
    /// A pair that the file has one way only holds for both.
    pub symmetric: bool,
    /// The file has round trips: half of each is one way's latency.
    pub round_trip: bool,
    /// The group that this machine is in, if it emulates both ways alone.
    pub here: Option<Name>,
}

impl Matrix {
    /// What a pair is called.
    pub(crate) fn pair(from: &Name, to: &Name) -> Option<Name> {
        Name::new(&format!("{from}-to-{to}"))
    }
}

impl Profile {
    /// Whether a class tells hosts apart by their own side, or senders on a host: then each host emulates for itself what it sends.
    #[must_use]
    pub fn tells_own_side(&self) -> bool {
        self.classes
            .iter()
            .any(|Class { matching, .. }| !matching.local_group.is_empty() || !matching.cgroup.is_empty())
    }

    /// How many servers and classes, the last ones of either, stand for a matrix that has not been read.
    pub(crate) fn of_matrix(&self) -> (usize, usize) {
        let groups = self.groups.len();
        match &self.matrix {
            None => (0, 0),
            Some(Matrix { here: None, .. }) => (groups * groups, groups * groups),
            Some(Matrix { here: Some(_), .. }) => ((2 * groups).saturating_sub(1), groups),
        }
    }
}

/// What a class of a matrix does: it crosses these servers.
pub(crate) fn treatment(egress: ServerId, ingress: Option<ServerId>) -> Treatment {
    Treatment::Emulate {
        egress: Some(vec![egress]),
        ingress: ingress.map(|server| vec![server]),
    }
}
