//! Why a valid topology cannot be written out for some hosts. Hosts are counted from 1 here.

use perturb_quantity::Duration;

use crate::matching::Prefix;
use crate::model::Name;

/// Why a topology cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpandError {
    /// Nobody to talk to.
    #[error(
        "the topology has {hosts} hosts, but a path joins 2; name hosts with their addresses under `hosts`, or run \
         with at least 2 private hosts"
    )]
    TooFewHosts {
        /// How many there are.
        hosts: usize,
    },
    /// More hosts than places.
    #[error(
        "the {kind} has room for {capacity} hosts, not for {hosts}; add levels or dimensions, or use fewer hosts"
    )]
    NoRoom {
        /// The kind of topology.
        kind: &'static str,
        /// How many hosts there are.
        hosts: usize,
        /// How many it has room for.
        capacity: usize,
    },
    /// More pairs than classes.
    #[error(
        "{hosts} hosts are {pairs} pairs, each a class, and the profile has {written} classes already, but there can \
         be {max} classes in all; use fewer hosts or classes (a bus, a star or a tree that names its hosts under `hosts` \
         needs none per pair)"
    )]
    TooManyPairs {
        /// How many hosts there are.
        hosts: usize,
        /// Their ordered pairs.
        pairs: usize,
        /// Hand-written classes.
        written: usize,
        /// How many classes there can be.
        max: u32,
    },
    /// A step of a link that no packet crosses.
    #[error(
        "step {step} of the timeline: there is no link `{name}` between these hosts; `perturb check` names them"
    )]
    NoLink {
        /// Which step, from 1.
        step: usize,
        /// The name.
        name: Name,
    },
    /// A step of a host that is not there.
    #[error("step {step} of the timeline: there is no host {host}; name those that are there")]
    NoHost {
        /// Which step, from 1.
        step: usize,
        /// Its rank, from 1.
        host: usize,
    },
    /// A partition of hosts whose pairs have no class each.
    #[error(
        "step {step} of the timeline: a partition needs a class for each pair of hosts, which more than 64 hosts have \
         not; take down their links instead"
    )]
    NoPairs {
        /// Which step, from 1.
        step: usize,
    },
    /// A host that no packet comes from.
    #[error("host {host} has no address, so its packets cannot be told from others; give it one")]
    NoAddress {
        /// The host.
        host: usize,
    },
    /// More addresses than a match may list.
    #[error(
        "host {host} has {count} addresses, more than the {max} that a match may list; use wider prefixes"
    )]
    TooManyAddresses {
        /// The host.
        host: usize,
        /// How many it has.
        count: usize,
        /// How many there can be.
        max: usize,
    },
    /// Hosts that cannot be told apart.
    #[error("hosts {host} and {other} both have {address}; give every address to one host")]
    SameAddress {
        /// One host.
        host: usize,
        /// The other.
        other: usize,
        /// What they have in common.
        address: Prefix,
    },
    /// More servers than a path holds.
    #[error(
        "the path from host {from} to host {to} crosses {servers} servers, more than the {max} that a path can; use \
         fewer levels, shorter dimensions or fewer hosts"
    )]
    LongPath {
        /// Where it begins.
        from: usize,
        /// Where it ends.
        to: usize,
        /// How many servers it crosses.
        servers: usize,
        /// How many there can be.
        max: usize,
    },
    /// A path that may hold packets too long.
    #[error(
        "the path from host {from} to host {to} may take {delay}, longer than a packet may be held ({horizon}); \
         lower latencies or buffers of its links, or raise `horizon`"
    )]
    LongDelay {
        /// Where it begins.
        from: usize,
        /// Where it ends.
        to: usize,
        /// Its largest delay.
        delay: Duration,
        /// The longest a packet may be held.
        horizon: Duration,
    },
    /// A total that is too large.
    #[error(
        "with its topology the profile has {count} {what}, more than the {max} there is room for; use fewer hosts"
    )]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many it has.
        count: u64,
        /// How many there can be.
        max: u64,
    },
    /// A hand-written name that the topology uses.
    #[error("{what} `{name}`: the topology calls one of its own by this name; rename yours")]
    NameTaken {
        /// A server or a class.
        what: &'static str,
        /// The name.
        name: Name,
    },
    /// A server's name that leaves no room for its host's.
    #[error(
        "a host's own server would be called `{name}`, longer than {max} letters; shorten the server's name"
    )]
    LongName {
        /// The name.
        name: String,
        /// The longest there can be.
        max: usize,
    },
}
