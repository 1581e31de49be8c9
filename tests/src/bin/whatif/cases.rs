//! What is predicted and measured: networks, programs, and placements.

use anyhow::{Context as _, Result};

/// A network between the two hosts.
pub(crate) struct Network {
    pub(crate) name: &'static str,
    pub(crate) profile: &'static str,
    /// What messages pass besides.
    pub(crate) server: Option<Server>,
}

/// A server that messages pass one after the other; the table is that of a network without it.
#[derive(Clone, Copy)]
pub(crate) struct Server {
    /// Payload, bit/s.
    pub(crate) rate: f64,
    /// The other network.
    pub(crate) table: &'static str,
    pub(crate) scope: Scope,
}

/// Whose messages pass a server.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scope {
    /// All: the paper's bus.
    Shared,
    /// Those that a host sends. The paper knows tables only.
    Host,
}

/// A bus carries 1448 bytes of payload in 1514 on the wire.
pub(crate) const PAYLOAD: f64 = 1448.0 / 1514.0;

pub(crate) const NETWORKS: [Network; 7] = [
    Network {
        name: "0.1 ms",
        profile: "latency: 100us",
        server: None,
    },
    Network {
        name: "1 ms",
        profile: "latency: 1ms",
        server: None,
    },
    Network {
        name: "5 ms",
        profile: "latency: 5ms",
        server: None,
    },
    Network {
        name: "5 ms, Reno",
        profile: "latency: 5ms\ntcp: { congestion_control: reno }",
        server: None,
    },
    Network {
        name: "20 Mbit/s",
        profile: "latency: 100us\nbandwidth: 20Mbit/s\nbuffer: 1MiB",
        server: Some(Server {
            rate: 20e6 * PAYLOAD,
            table: TRACED,
            scope: Scope::Host,
        }),
    },
    Network {
        name: "20 Mbit/s, Reno",
        profile: "latency: 100us\nbandwidth: 20Mbit/s\nbuffer: 1MiB\ntcp: { congestion_control: reno }",
        server: Some(Server {
            rate: 20e6 * PAYLOAD,
            table: TRACED,
            scope: Scope::Host,
        }),
    },
    Network {
        name: "bus of 50 Mbit/s",
        profile: "servers: { bus: { bandwidth: 50Mbit/s, latency: 100us } }\n\
                  classes: [ { name: all, match: {}, egress: [bus], ingress: [bus] } ]",
        server: Some(Server {
            rate: 50e6 * PAYLOAD,
            table: TRACED,
            scope: Scope::Shared,
        }),
    },
];

/// Which ranks stand on h1; the others on h2.
pub(crate) type Placement = [&'static [u32]; 2];

const BLOCKS: Placement = [&[0, 1], &[2, 3]];
const ROUND_ROBIN: Placement = [&[0, 2], &[1, 3]];
const ENDS: Placement = [&[0, 3], &[1, 2]];
const ONE_APART: Placement = [&[3], &[0, 1, 2]];
/// Two ranks, a processor each: what the model says of the network, without what it says of a shared processor.
const APART: Placement = [&[0], &[1]];

/// What the program does.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) pattern: &'static str,
    pub(crate) bytes: u32,
    /// Computing per round and rank, in µs.
    pub(crate) compute: &'static [u32],
    /// Where the ranks stand when the program is traced.
    pub(crate) traced: Placement,
}

const IMBALANCED: Workload = Workload {
    name: "ring, imbalanced",
    pattern: "ring",
    bytes: 4096,
    compute: &[1000, 2000, 3000, 4000],
    traced: BLOCKS,
};
const PAIRS: Workload = Workload {
    name: "pairs, balanced",
    pattern: "pairs",
    bytes: 16_384,
    compute: &[3000, 3000, 3000, 3000],
    traced: BLOCKS,
};
const ALL_TO_ALL: Workload = Workload {
    name: "all-to-all",
    pattern: "alltoall",
    bytes: 8192,
    compute: &[2000, 2000, 2000, 2000],
    traced: BLOCKS,
};
const SUM: Workload = Workload {
    name: "sum for everyone",
    pattern: "reduce",
    bytes: 1024,
    compute: &[2000, 2500, 2000, 2500],
    traced: BLOCKS,
};
const RING_APART: Workload = Workload {
    name: "ring, two ranks",
    pattern: "ring",
    bytes: 4096,
    compute: &[2000, 4000],
    traced: APART,
};
const PAIRS_APART: Workload = Workload {
    name: "pairs, two ranks",
    pattern: "pairs",
    bytes: 16_384,
    compute: &[6000, 6000],
    traced: APART,
};

/// A prediction to be checked; the trace is made at 0.1 ms.
pub(crate) struct Case {
    pub(crate) workload: &'static Workload,
    pub(crate) placement: Placement,
    pub(crate) network: &'static str,
    pub(crate) what: &'static str,
}

const fn case(
    workload: &'static Workload,
    placement: Placement,
    network: &'static str,
    what: &'static str,
) -> Case {
    Case {
        workload,
        placement,
        network,
        what,
    }
}

pub(crate) const TRACED: &str = "0.1 ms";

pub(crate) const CASES: [Case; 21] = [
    case(&IMBALANCED, BLOCKS, TRACED, "as traced"),
    case(&IMBALANCED, ROUND_ROBIN, TRACED, "placement"),
    case(&IMBALANCED, ENDS, TRACED, "placement"),
    case(&IMBALANCED, ONE_APART, TRACED, "placement"),
    case(&IMBALANCED, BLOCKS, "5 ms", "latency"),
    case(&IMBALANCED, BLOCKS, "20 Mbit/s", "bandwidth"),
    case(&PAIRS, BLOCKS, "1 ms", "latency"),
    case(&PAIRS, BLOCKS, "20 Mbit/s", "bandwidth"),
    case(&PAIRS, BLOCKS, "20 Mbit/s, Reno", "bandwidth"),
    case(&ALL_TO_ALL, BLOCKS, "5 ms", "latency"),
    case(&ALL_TO_ALL, ROUND_ROBIN, "1 ms", "both"),
    case(&ALL_TO_ALL, BLOCKS, "bus of 50 Mbit/s", "bus"),
    case(&SUM, BLOCKS, "1 ms", "latency"),
    case(&IMBALANCED, ENDS, "5 ms", "both"),
    case(&RING_APART, APART, TRACED, "as traced"),
    case(&RING_APART, APART, "1 ms", "latency"),
    case(&RING_APART, APART, "5 ms", "latency"),
    case(&PAIRS_APART, APART, "5 ms", "latency"),
    case(&PAIRS_APART, APART, "5 ms, Reno", "latency"),
    case(&PAIRS_APART, APART, "20 Mbit/s", "bandwidth"),
    case(&PAIRS_APART, APART, "20 Mbit/s, Reno", "bandwidth"),
];

/// The network of a name.
pub(crate) fn network(name: &str) -> Result<&'static Network> {
    NETWORKS
        .iter()
        .find(|network| network.name == name)
        .with_context(|| format!("there is no network {name}"))
}
