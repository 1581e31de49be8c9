//! Generated networks between named hosts, and the TCP settings that go with an experiment on them.
//!
//! Each kind says which servers exist and which of them a packet from host i to host j crosses; the hosts' own
//! servers (a slow NIC) stand before and after. The hosts are those of `perturb run --hosts N`, or the `hosts` of the
//! profile, in order. What a kind means is in [`Layout`]; the paths themselves are generated elsewhere.

use perturb_quantity::{Duration, Size};

use crate::model::{Name, Server, ServerId};

/// A network between hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Its shape.
    pub layout: Layout,
    /// Servers of the sending host, crossed before the network.
    pub egress: Vec<ServerId>,
    /// Servers of the receiving host, crossed after the network.
    pub ingress: Vec<ServerId>,
}

/// The shape of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// One server that every packet crosses (the bus pseudo-process of LBF, section 4).
    Bus {
        /// The bus, with its collisions.
        link: Server,
    },
    /// A server from each host to the switch and one back.
    Star {
        /// Each of them.
        link: Server,
    },
    /// A perfect binary tree of switches with the hosts as leaves (PlogPT): up to the common ancestor, down again.
    Tree {
        /// An edge of each height, the lowest first: b(h) and d(h).
        levels: Vec<Server>,
        /// Whether the two directions of an edge share it.
        sharing: Sharing,
    },
    /// A k-ary n-cube with dimension-ordered routing (LoGPC).
    Mesh {
        /// Hosts along each dimension.
        dimensions: Vec<u16>,
        /// A channel between neighbors.
        link: Server,
        /// Whether the ends of a dimension are neighbors (a torus).
        wrap: bool,
    },
}

impl Layout {
    /// The word for it in a profile.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Bus { .. } => "bus",
            Self::Star { .. } => "star",
            Self::Tree { .. } => "tree",
            Self::Mesh { wrap: false, .. } => "mesh",
            Self::Mesh { wrap: true, .. } => "torus",
        }
    }

    /// Its kinds of links: one, or one for each height of a tree.
    pub fn links(&self) -> &[Server] {
        match self {
            Self::Bus { link, .. } | Self::Star { link } | Self::Mesh { link, .. } => {
                std::slice::from_ref(link)
            }
            Self::Tree { levels, .. } => levels,
        }
    }

    /// The same, to change them.
    pub(crate) fn links_mut(&mut self) -> &mut [Server] {
        match self {
            Self::Bus { link, .. } | Self::Star { link } | Self::Mesh { link, .. } => {
                std::slice::from_mut(link)
            }
            Self::Tree { levels, .. } => levels,
        }
    }

    /// The most hosts it has room for.
    pub fn capacity(&self) -> usize {
        match self {
            Self::Bus { .. } | Self::Star { .. } => MAX_HOSTS,
            Self::Tree { levels, .. } => 1usize
                .checked_shl(levels.len() as u32)
                .unwrap_or(MAX_HOSTS)
                .min(MAX_HOSTS),
            Self::Mesh { dimensions, .. } => dimensions
                .iter()
                .fold(1usize, |product, &length| product.saturating_mul(length.into()))
                .min(MAX_HOSTS),
        }
    }
}

/// Hosts of a topology at most.
pub const MAX_HOSTS: usize = 1024;

/// Whether the two directions of a tree edge share it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, strum::AsRefStr, strum::EnumString, strum::VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum Sharing {
    /// Full duplex: a server each way.
    #[default]
    Unidirectional,
    /// One server for both ways.
    Bidirectional,
}

/// Truncated binary exponential back-off of CSMA/CD; the model is [`perturb_common::collisions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collisions {
    /// The slot time; 51.2 us on 10 Mbit/s Ethernet (512 bit times, IEEE 802.3).
    pub slot: Duration,
    /// After how many attempts a frame is given up.
    pub attempts: u8,
}

/// TCP settings of the private hosts of `perturb run`; what is absent stays as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tcp {
    /// net.ipv4.tcp_congestion_control.
    pub congestion_control: Option<Name>,
    /// net.ipv4.tcp_sack.
    pub sack: Option<bool>,
    /// net.ipv4.tcp_early_retrans.
    pub early_retrans: Option<u8>,
    /// net.ipv4.tcp_recovery.
    pub recovery: Option<u8>,
    /// rto_min of the routes; net.ipv4.tcp_rto_min_us if it is not in whole ms.
    pub rto_min: Option<Duration>,
    /// net.ipv4.tcp_rto_max_ms.
    pub rto_max: Option<Duration>,
    /// net.ipv4.tcp_thin_linear_timeouts.
    pub thin_linear_timeouts: Option<bool>,
    /// net.ipv4.tcp_slow_start_after_idle.
    pub slow_start_after_idle: Option<bool>,
    /// net.ipv4.tcp_ecn: connections ask for ECN, or refuse it.
    pub ecn: Option<bool>,
    /// false: quickack of the routes.
    pub delayed_acks: Option<bool>,
    /// net.ipv4.tcp_rmem.
    pub receive_buffer: Option<Window>,
    /// net.ipv4.tcp_wmem.
    pub send_buffer: Option<Window>,
    /// Segmentation and checksum offloads of the interfaces.
    pub offloads: Option<bool>,
    /// net.ipv4.tcp_no_metrics_save.
    pub no_metrics_save: Option<bool>,
}

/// A socket buffer's three sizes, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Guaranteed under memory pressure.
    pub min: Size,
    /// At the beginning of a connection.
    pub initial: Size,
    /// Limit of auto-tuning.
    pub max: Size,
}
