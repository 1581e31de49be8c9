//! The profile as the rest of perturb sees it: typed, and valid by construction of [`crate::parse`].

mod fates;
mod slot;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

use perturb_common::departure::Load;
use perturb_quantity::{Duration, Probability, Rate, Size};
use serde::{Serialize, Serializer};

pub use fates::{Correlated, Distribution, Drift, GilbertElliott, Jitter, Loss, LossStates, Reorder};
pub use slot::{Between, Slot};

use crate::groups::{Group, Matrix};
use crate::matching::{Match, Prefix};
use crate::timeline::{Timeline, Trace};
use crate::topology::{Collisions, Tcp, Topology};

/// A network to put programs on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// What it is called.
    pub name: Option<Name>,
    /// What it is, for people.
    pub description: Option<String>,
    /// Same seed, same packets, same losses and jitter.
    pub seed: u64,
    /// Processor time burnt per wire packet.
    pub overhead: Overhead,
    /// How super-packets are charged.
    pub segmentation: Segmentation,
    /// The longest a packet may be held, if given; see [`crate::explain`] for the derived one.
    pub horizon: Option<Duration>,
    /// Bounds on memory.
    pub limits: Limits,
    /// The servers, in the order of the text.
    pub servers: Vec<(Name, Server)>,
    /// The classes; the first that matches counts.
    pub classes: Vec<Class>,
    /// Hosts by name, in the order of their ranks.
    pub hosts: Vec<(Name, Vec<Prefix>)>,
    /// Sets of peers by name.
    pub groups: Vec<(Name, Group)>,
    /// What lies between the groups, if its file has not been read.
    pub matrix: Option<Matrix>,
    /// A generated network between the hosts.
    pub topology: Option<Topology>,
    /// TCP settings of the private hosts.
    pub tcp: Tcp,
    /// The private hosts' largest IP packet, if given.
    pub mtu: Option<Size>,
    /// How it changes.
    pub timeline: Timeline,
}

impl Profile {
    /// From IPv6's smallest (RFC 8200) to what a hold device takes whole (`tun_net_init`).
    pub const MTU: RangeInclusive<u64> = 1280..=65_521;
    /// Without `mtu`: Ethernet's.
    pub const DEFAULT_MTU: u32 = 1500;
    /// Of an Ethernet frame, without a VLAN tag.
    pub(crate) const ETHERNET_HEADER: u32 = 14;

    /// The largest IP packet of private hosts, bytes.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.mtu
            .and_then(|mtu| u32::try_from(mtu.bytes()).ok())
            .unwrap_or(Self::DEFAULT_MTU)
    }

    /// A full frame: that packet and its Ethernet header.
    #[must_use]
    pub fn frame(&self) -> Size {
        Size::from_bytes(u64::from(self.mtu() + Self::ETHERNET_HEADER))
    }

    /// Names of hosts that classes match by or that are in groups, whose addresses the profile does not give.
    #[must_use]
    pub fn named_hosts(&self) -> BTreeSet<String> {
        let of_classes = self.classes.iter().flat_map(|class| &class.matching.host);
        let of_groups = self.groups.iter().flat_map(|(_, group)| group.named());
        let named = of_classes.map(ToString::to_string).chain(of_groups);
        let given = |host: &String| self.hosts.iter().any(|(name, _)| name.as_str() == host);
        named.filter(|host| !given(host)).collect()
    }

    /// Names of interfaces whose networks are groups.
    #[must_use]
    pub fn named_interfaces(&self) -> BTreeSet<&str> {
        let named = self.groups.iter().flat_map(|(_, group)| &group.interface);
        named.map(Name::as_str).collect()
    }

    /// The server that `id` names; `None` for an id of another profile.
    pub fn server(&self, id: ServerId) -> Option<(&Name, &Server)> {
        self.servers.get(id.index()).map(|(name, server)| (name, server))
    }

    /// Whether a server changes: by steps or a trace.
    pub(crate) fn changes(&self, id: ServerId) -> bool {
        let traced = |(_, server): (&Name, &Server)| server.trace.is_some();
        self.server(id).is_some_and(traced) || self.timeline.steps.iter().any(|step| step.subject.has(id))
    }

    /// Whether anything changes.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        !self.timeline.steps.is_empty() || self.servers.iter().any(|(_, server)| server.trace.is_some())
    }
}

/// A name of a server, class, host or profile: letters, digits, `_`, `-`, `.`, at most 63, a letter or digit first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// Longest name, that of a DNS label.
    pub const MAX: usize = 63;
    /// As a regular expression, for the schema.
    pub(crate) const PATTERN: &'static str = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$";

    /// `text`, if it is a name.
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = text.bytes();
        let good = bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
            && text.len() <= Self::MAX;
        good.then(|| Self(text.to_owned()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// The LogGP overhead o, in processor time of this host, per wire packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overhead {
    /// o_s, burnt at egress in the sender's context.
    pub send: Duration,
    /// o_r, burnt at ingress.
    pub receive: Duration,
    /// What TCP's acknowledgments cost.
    pub acknowledgments: Acknowledgments,
}

impl Overhead {
    /// Whether nothing is burnt.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.send == Duration::ZERO && self.receive == Duration::ZERO
    }
}

/// What TCP packets cost that carry neither data nor SYN, FIN or RST.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    Serialize,
    strum::AsRefStr,
    strum::EnumString,
    strum::VariantNames,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Acknowledgments {
    /// The overhead, as any packet does: every packet costs a host processor time.
    #[default]
    Charged,
    /// Nothing: o is a message's, as in LogP.
    Free,
}

/// How a super-packet (GSO, up to 64 KB that leave as many wire packets) passes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, strum::AsRefStr, strum::EnumString, strum::VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum Segmentation {
    /// Split where a slow server or a packet-wise fate would tell the difference, else whole.
    #[default]
    Auto,
    /// Always split into wire packets first.
    Exact,
    /// Never split; gap and bandwidth are charged for all its wire packets at once.
    Whole,
}

/// Bounds on the memory of the emulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Flows and per-flow or per-host instances remembered at once. Beyond it, an instance whose server is idle makes room.
    pub flows: u32,
    /// Memory of held packets; derived from bandwidths and delays if absent.
    pub held: Option<Size>,
}

impl Limits {
    /// Flows remembered unless the profile says otherwise.
    pub const DEFAULT_FLOWS: u32 = 131_072;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            flows: Self::DEFAULT_FLOWS,
            held: None,
        }
    }
}

/// Index of a server in [`Profile::servers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(u16);

impl ServerId {
    /// The `index`-th server; `None` beyond 65535.
    pub fn new(index: usize) -> Option<Self> {
        u16::try_from(index).ok().map(Self)
    }

    /// As an index.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A FIFO server: see `perturb_common::departure`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Server {
    /// Whose packets queue together.
    pub scope: Scope,
    /// g: occupancy per wire packet.
    pub gap: Duration,
    /// 1/G, counted in wire bytes; absent, bytes cost nothing.
    pub bandwidth: Option<Rate>,
    /// What the link sends besides packets' bytes.
    pub framing: Framing,
    /// L: one-way latency after the service.
    pub latency: Duration,
    /// Where arriving packets are dropped.
    pub buffer: Buffer,
    /// Random addition to the latency.
    pub jitter: Option<Jitter>,
    /// Which packets are lost.
    pub loss: Loss,
    /// Which packets leave twice.
    pub duplicate: Correlated,
    /// Of which packets one bit is flipped.
    pub corrupt: Correlated,
    /// Which packets go ahead of others.
    pub reorder: Option<Reorder>,
    /// Backlog above which ECN-capable packets are marked.
    pub ecn: Option<EcnThreshold>,
    /// What drops and marks packets before the buffer is full.
    pub queue: Queue,
    /// Slots in which packets leave.
    pub slot: Option<Slot>,
    /// CSMA/CD back-off between the stations that send over it.
    pub collisions: Option<Collisions>,
    /// A file by which it changes.
    pub trace: Option<Trace>,
}

/// What a link sends besides packets' bytes; by default nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Framing {
    /// Bytes of each packet.
    pub packet_overhead: u32,
    /// The Ethernet header does not cross it.
    pub without_ethernet: bool,
    /// Bytes of packets that a cell carries; 0 for no cells.
    pub cell_size: u32,
    /// Bytes of each cell besides.
    pub cell_overhead: u32,
}

impl Framing {
    /// As the programs count it.
    pub(crate) fn compiled(&self) -> perturb_common::framing::Framing {
        let header = if self.without_ethernet {
            Profile::ETHERNET_HEADER
        } else {
            0
        };
        perturb_common::framing::Framing {
            packet_overhead: self.packet_overhead as i32 - header as i32,
            cell_size: self.cell_size,
            cell_bytes: self.cell_size + self.cell_overhead,
        }
    }

    /// Bytes of a packet of that size on the wire.
    pub(crate) fn on_wire(&self, packet: Size) -> Size {
        let load = Load {
            bytes: packet.bytes(),
            segments: 1,
        };
        Size::from_bytes(self.compiled().on_wire(load))
    }
}

/// Whose packets queue together at a server.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, strum::AsRefStr, strum::EnumString, strum::VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum Scope {
    /// All that cross it, on every interface the profile is applied to.
    #[default]
    Shared,
    /// Those of one interface.
    Interface,
    /// Those of one remote address.
    Host,
    /// Those of one 5-tuple.
    Flow,
}

/// A drop-tail buffer; a packet is dropped if any limit that is given would be exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Buffer {
    /// Limit on the backlog's amount.
    pub volume: Option<Volume>,
    /// Limit on the backlog's packets.
    pub packets: Option<u32>,
}

impl Buffer {
    /// Whether it limits nothing.
    pub fn is_unlimited(&self) -> bool {
        self.volume.is_none() && self.packets.is_none()
    }
}

/// An amount of backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Volume {
    /// In bytes.
    Bytes(Size),
    /// In the time the server needs for it (PlogPT's d).
    Delay(Duration),
}

/// Backlog above which ECN-capable packets are CE-marked.
pub type EcnThreshold = Volume;

/// What drops and marks packets before the buffer is full: see `perturb_common::queue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Queue {
    /// Nothing does.
    #[default]
    Tail,
    /// Marks packets that have waited for longer.
    Step {
        /// Than this.
        threshold: EcnThreshold,
        /// Only those of L4S, ECT(1).
        l4s: bool,
    },
    /// RFC 8289.
    CoDel {
        /// The wait that may last.
        target: Duration,
        /// How long it may be longer before packets are dropped.
        interval: Duration,
        /// ECN-capable packets are marked in place of being dropped.
        ecn: bool,
        /// ECN-capable packets that have waited for longer are marked.
        ce_threshold: Option<EcnThreshold>,
    },
    /// RFC 8033.
    Pie {
        /// QDELAY_REF.
        target: Duration,
        /// T_UPDATE.
        t_update: Duration,
        /// MAX_BURST.
        max_burst: Duration,
        /// ECN-capable packets are marked in place of being dropped,
        ecn: bool,
        /// up to this probability.
        mark_ecnth: Probability,
        /// Drops keep a distance, at least and at most.
        derandomize: bool,
    },
    /// RED of Floyd and Jacobson 1993, as Linux has it.
    Red {
        /// The average above which packets are dropped at random, by a probability that grows from 0 on,
        min: Volume,
        /// and that at which all are.
        max: Volume,
        /// The probability at `max`.
        probability: Probability,
        /// The size of a packet, of the times of an idle queue.
        avpkt: Size,
        /// How many packets may come at once; `None`: (2 min + max) / (3 avpkt).
        burst: Option<u64>,
        /// ECN-capable packets are marked in place of being dropped.
        ecn: bool,
        /// The probability at `max` moves.
        adaptive: bool,
    },
}

impl Queue {
    /// RFC 8289's TARGET.
    pub const TARGET: Duration = Duration::from_millis(5);
    /// RFC 8289's INTERVAL.
    pub const INTERVAL: Duration = Duration::from_millis(100);
    /// RFC 8033's QDELAY_REF and T_UPDATE.
    pub const QDELAY_REF: Duration = Duration::from_millis(15);
    /// RFC 8033's MAX_BURST.
    pub const MAX_BURST: Duration = Duration::from_millis(150);
    /// RFC 8033's mark_ecnth.
    pub const MARK_ECNTH: Probability = Probability::from_billionths(100_000_000);
    /// RED's max_p, as `tc` has it.
    pub const MAX_P: Probability = Probability::from_billionths(20_000_000);
    /// RED's avpkt.
    pub const AVPKT: Size = Size::from_bytes(1000);

    /// Whether a threshold of it is in bytes, whose time depends on the rate.
    pub(crate) fn counts_bytes(&self) -> bool {
        let in_bytes = |volume: &Volume| matches!(volume, Volume::Bytes(_));
        match self {
            Self::Tail | Self::Pie { .. } => false,
            Self::Step { threshold, .. } => in_bytes(threshold),
            Self::CoDel { ce_threshold, .. } => ce_threshold.as_ref().is_some_and(in_bytes),
            Self::Red { min, max, .. } => in_bytes(min) || in_bytes(max),
        }
    }
}

/// Which packets, and what becomes of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// What it is called.
    pub name: Name,
    /// Which packets.
    pub matching: Match,
    /// What becomes of them.
    pub treatment: Treatment,
}

/// What becomes of a class's packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Treatment {
    /// They pass untouched, both ways.
    Bypass,
    /// They cross servers. `None` for a direction: they pass it untouched. An empty path: only the overhead is burnt.
    Emulate {
        /// Servers of packets that this host sends.
        egress: Option<Vec<ServerId>>,
        /// Servers of packets that this host receives.
        ingress: Option<Vec<ServerId>>,
    },
}

impl Class {
    /// The paths by direction, egress first.
    pub fn paths(&self) -> [Option<&[ServerId]>; 2] {
        match &self.treatment {
            Treatment::Bypass => [None, None],
            Treatment::Emulate { egress, ingress } => [egress.as_deref(), ingress.as_deref()],
        }
    }
}
