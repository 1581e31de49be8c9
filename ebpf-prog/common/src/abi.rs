//! The wire types: what the controller writes into the maps and the eBPF programs read, and the
//! counters that come back. All `repr(C)`, without padding, little-endian like the machine.
//!
//! The compiled form of a profile is `crate::tables::Tables` (feature `alloc`).
//!
//! Configuration is double-buffered: every table has two halves, the low bit of the generation
//! says which one counts. Their elements lie by turns ([`in_half`]), so that the size of a table, which the
//! controller chooses by the profile, appears nowhere in the programs. An update writes the other half, then the generation, a single 64-bit
//! store; packets in flight see either all of the old profile or all of the new. State (how long
//! a server is busy) lies elsewhere and outlives updates.

mod classifier;
mod counters;
pub mod histogram;
mod hold;
mod sighting;

pub use self::{
    classifier::{
        Bound, DIMENSIONS, Dimension, RuleVector, SPANS_LEN, Span, cgroups_span, hosts_span, rule_place,
    },
    counters::{
        ClassCounters, EVENTS, Event, MAX_PACER_THREADS, PACER_STATS_LEN, PacerStat, ServerCounters,
        ThreadStat, class_counter, thread_stat,
    },
    histogram::{BUCKETS, Sojourns},
    hold::{PACER_FQ, PACER_USER, SLOTS, Slot, Tag, Ticket, carried_cgroup, carry_cgroup},
    sighting::{
        CLASS_WORDS, CROSSINGS, Crossing, MAX_SNAP, SIGHTED_CORRUPTED, SIGHTED_DUPLICATED, SIGHTED_MARK,
        SIGHTING_BYTES, Sight, Sighting,
    },
};
use crate::{
    departure::Server,
    fate::{Chance, GilbertElliott, JITTER_ENTRIES},
    framing::Framing,
    grants::Grants,
    network::Network,
    queue::Law,
    ties::Ties,
    units::{Nanos, Ticks},
};

/// Version of these types. Programs and controller refuse each other when it differs.
pub const ABI_VERSION: u64 = 25;

/// Servers of a profile.
pub const MAX_SERVERS: u32 = 16_384;
/// Classes of a profile, the implied last one (pass untouched) not counted.
pub const MAX_CLASSES: u32 = 4096;
/// Distinct paths of a profile.
pub const MAX_PATHS: u32 = 8192;
/// Servers on a path: up and down a tree of 1024 hosts, and two of each host's own.
pub const MAX_PATH_SERVERS: usize = 24;
/// Places of a path: the power of two above, so that indices can be masked.
pub const PATH_PLACES: usize = 32;
/// Jitter tables of a profile.
pub const MAX_JITTER_TABLES: u32 = 64;
/// Tables of collisions of a profile.
pub const MAX_COLLISION_TABLES: u32 = 4;
/// Timelines of a profile.
pub const MAX_TIMELINES: u32 = MAX_SERVERS;
/// Segments of all timelines of a profile.
pub const MAX_SEGMENTS: u32 = 1 << 22;
/// Slots for packet-limited buffers, over all servers: the sum of their `packets`.
pub const MAX_RING_SLOTS: u32 = 1 << 18;
/// cgroups of a profile: their numbers, from 1, travel in a byte of a packet's hash ([`carry_cgroup`]).
pub const MAX_CGROUPS: u32 = 255;
/// How many levels below the root of cgroup2 a cgroup of a profile may lie.
pub const MAX_CGROUP_LEVEL: u32 = 16;
/// Entries of all `nth` lists of a profile.
pub const MAX_NTH: u32 = 1 << 16;
/// Longest host overhead per wire packet.
pub const MAX_OVERHEAD: Nanos = Nanos(1_000_000);

/// Rules of the classifier per direction; a class makes at least one.
pub const MAX_RULES: u32 = 8192;
/// 64-bit words of a rule bit vector.
pub const RULE_WORDS: usize = MAX_RULES as usize / 64;
/// Interval boundaries of the classifier, over all dimensions and both directions.
pub const MAX_BOUNDS: u32 = 1 << 17;
/// Distinct bit vectors of the classifier, over all dimensions and both directions: 4096 classes, each
/// with a port of its own on either side, need 2 x 8194 and the one of all rules.
pub const MAX_VECTORS: u32 = 16_640;
/// log2 of the longest list of boundaries of one dimension: steps of the binary search.
pub const MAX_BOUND_BITS: u32 = 15;

/// Interfaces with an index below this are found without hashing.
pub const NEAR_INTERFACES: u32 = 4096;

/// Names a path, class, table or slot that is not there.
pub const NONE: u32 = u32::MAX;

/// The path of a class that stands for all pairs of hosts of the network: see [`Network`].
pub const NETWORK: u32 = u32::MAX - 1;
/// Places of the cache of pairs, a power of two.
pub const PAIR_PLACES: u32 = 1 << 16;

/// Where element `index` of a half of a table lies.
#[inline(always)]
#[must_use]
pub const fn in_half(half: u32, index: u32) -> u32 {
    index * 2 + half
}

/// Which way a packet goes, seen from the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Direction {
    /// Sent by this host.
    Egress = 0,
    /// Received by this host.
    Ingress = 1,
}

/// Index of the generation in the CONTROL map.
pub const CONTROL_GENERATION: u32 = 0;
/// Index of the lease in the CONTROL map: CLOCK_MONOTONIC ns until which the programs emulate;
/// `u64::MAX` for ever. After it they let traffic pass untouched.
pub const CONTROL_LEASE: u32 = 1;
/// The lease of an emulation that is paused.
pub const LEASE_PAUSED: u64 = 0;
/// Index of [`ABI_VERSION`] in the CONTROL map, written by the controller that made the maps.
pub const CONTROL_VERSION: u32 = 2;
/// Index in the CONTROL map of the time, CLOCK_MONOTONIC ns, until which the programs log requests ([`Request`]): who
/// reads the log keeps putting it off; 0 if nobody does.
pub const CONTROL_WATCH: u32 = 3;
/// The same of [`Sighting`]s, which `perturb capture` reads.
pub const CONTROL_SIGHT: u32 = 4;
/// Index in the CONTROL map of how many bytes of a packet are recorded, 1 to [`MAX_SNAP`].
pub const CONTROL_SNAP: u32 = 5;
/// Index in the CONTROL map of the set of classes whose packets are recorded: its first word.
pub const CONTROL_CLASSES: u32 = 6;
/// Elements of the CONTROL map.
pub const CONTROL_LEN: u32 = CONTROL_CLASSES + CLASS_WORDS;

/// Index in the LEAD map of the lead itself, a [`crate::lead::Lead`].
pub const LEAD_NOW: u32 = 0;
/// Index in the LEAD map of what passes at least from a packet's release to its being read, ns: the user pacer tells it.
pub const LEAD_WAKE_UP: u32 = 1;
/// Elements of the LEAD map.
pub const LEAD_LEN: u32 = 2;

/// Index in the HELD map of what all processors have told that sch_fq holds, a [`crate::memory::Held`].
pub const HELD_ALL: u32 = 0;
/// Index in the HELD map of what of that is not held any more, and was not released: the controller tells it.
pub const HELD_LOST: u32 = 1;
/// Elements of the HELD map.
pub const HELD_LEN: u32 = 2;

/// Split super-packets into wire packets before the fold ([`Settings::flags`]).
pub const SETTING_EXACT: u32 = 1;
/// Have the kernel fill in checksums that senders leave to their device, before anything is corrupted
/// ([`Settings::flags`]).
pub const SETTING_CHECKSUM: u32 = 2;

/// Packets of TCP that carry neither data nor SYN, FIN or RST cost no overhead ([`Settings::flags`]).
pub const SETTING_FREE_ACKNOWLEDGMENTS: u32 = 4;

/// Elements of the CLOCKS map: when first packets came, ticks; 0: none yet. A clock that begins anew is the other one, for the
/// profile in force goes on, and may come back.
pub const CLOCKS_LEN: u32 = 2;
/// Overheads change by a timeline ([`Settings::flags`]); the loader says so.
pub const SETTING_OVERHEADS: u32 = 8;

/// What holds for the whole profile; one per half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Settings {
    /// Host overhead o_s burnt per wire packet at egress, ns.
    pub overhead_send: u64,
    /// Host overhead o_r burnt per wire packet at ingress, ns.
    pub overhead_receive: u64,
    /// Words of the rule bit vectors in use, by [`Direction`].
    pub rule_words: [u32; 2],
    /// `SETTING_*`.
    pub flags: u32,
    /// Changes when a packet of any flow may have another path than before.
    pub epoch: u32,
    /// Memory that packets may take while sch_fq holds them, bytes.
    pub held: u64,
    /// The network whose paths are joined from lists.
    pub network: Network,
    /// Index of the timeline of overheads in the whole TIMELINES map; `SETTING_OVERHEADS` says whether there is one.
    pub overheads: u32,
    /// Bit n: a cgroup of the profile lies n levels below the root of cgroup2 ([`cgroups_span`]). 0: no class names one.
    pub cgroup_levels: u32,
}

/// Whose packets queue together at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Scope {
    /// All packets that cross it, on every interface that carries the profile.
    Shared = 0,
    /// Those of one interface.
    Interface = 1,
    /// Those of one remote address.
    Host = 2,
    /// Those of one 5-tuple, both directions.
    Flow = 3,
}

/// [`ServerConfig::flags`]: packets leave in the order in which they came, whatever the jitter, or the changes of the latency.
pub const SERVER_KEEP_ORDER: u32 = 1;
/// [`ServerConfig::flags`]: look the packet's index up in the NTH map.
pub const SERVER_NTH: u32 = 2;
/// [`ServerConfig::flags`]: the Gilbert–Elliott chain runs.
pub const SERVER_BURST: u32 = 4;
/// [`ServerConfig::flags`]: any pseudo-random or counted choice at all (index and draws are needed).
pub const SERVER_FATE: u32 = 8;
/// [`ServerConfig::flags`]: frames that meet others' collide ([`crate::collisions`]); scope shared only.
pub const SERVER_COLLISIONS: u32 = 16;
/// [`ServerConfig::flags`]: it changes by its [`ServerConfig::timeline`]; the loader says so.
pub const SERVER_TIMELINE: u32 = 32;
/// [`ServerConfig::flags`]: its [`ServerConfig::law`] judges packets; scope shared only.
pub const SERVER_LAW: u32 = 64;
/// [`ServerConfig::flags`]: fates depend on those before ([`ServerConfig::ties`]).
pub const SERVER_TIES: u32 = 128;
/// [`ServerConfig::flags`]: packets take more bytes on the wire than they have ([`ServerConfig::framing`]).
pub const SERVER_FRAMING: u32 = 256;
/// [`ServerConfig::flags`]: packets leave in slots ([`ServerConfig::grants`]); scope shared only.
pub const SERVER_GRANTS: u32 = 512;
/// [`ServerConfig::flags`]: what would be lost by chance or by its number is marked instead, if it is ECN-capable (netem's `ecn`).
pub const SERVER_SPARES: u32 = 1024;

/// A server's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct ServerConfig {
    /// g, G, L, buffer, horizon.
    pub server: Server,
    /// CE mark above this backlog; [`Ticks::MAX`] for never.
    pub ecn: Ticks,
    /// Ticks that one scale of the jitter table stands for.
    pub jitter_scale: u64,
    /// See [`crate::fate::salt`].
    pub salt: u64,
    /// The slot of collisions, ticks.
    pub collision_slot: u64,
    /// By which it drops and marks packets before its buffer is full.
    pub law: Law,
    /// The slots in which packets leave it.
    pub grants: Grants,
    /// How fates depend on those before.
    pub ties: Ties,
    /// Burst loss.
    pub burst: GilbertElliott,
    /// Independent loss.
    pub loss: Chance,
    /// One more copy.
    pub duplicate: Chance,
    /// One bit flipped.
    pub corrupt: Chance,
    /// Index of the jitter table in the whole JITTER map (half included), or [`NONE`].
    pub jitter_table: u32,
    /// Buffer in packets: how many ring slots; 0 for no such limit.
    pub ring_len: u32,
    /// First ring slot.
    pub ring_start: u32,
    /// [`Scope`].
    pub scope: u32,
    /// Where its state lies (scope `shared`), and what its instances are keyed by (all others).
    pub slot: u32,
    /// `SERVER_*`.
    pub flags: u32,
    /// Index of the table in the whole COLLISIONS map (half included), or [`NONE`].
    pub collision_table: u32,
    /// Index of the timeline in the whole TIMELINES map (half included), or [`NONE`]: what it says takes the place of
    /// `server` but for the horizon, of `loss` and of `jitter_scale`.
    pub timeline: u32,
    /// What packets take besides their bytes.
    pub framing: Framing,
}

impl ServerConfig {
    /// A server that does nothing.
    pub const IDLE: Self = Self {
        server: Server::IDLE,
        ecn: Ticks::MAX,
        jitter_scale: 0,
        salt: 0,
        collision_slot: 0,
        law: Law::TAIL,
        grants: Grants::NONE,
        ties: Ties::NONE,
        burst: GilbertElliott {
            to_bad: Chance::NEVER,
            to_good: Chance::NEVER,
            bad_loss: Chance::NEVER,
            good_loss: Chance::NEVER,
        },
        loss: Chance::NEVER,
        duplicate: Chance::NEVER,
        corrupt: Chance::NEVER,
        jitter_table: NONE,
        ring_len: 0,
        ring_start: 0,
        scope: Scope::Shared as u32,
        slot: 0,
        flags: 0,
        collision_table: NONE,
        timeline: NONE,
        framing: Framing::NONE,
    };
}

/// A server's state, or that of one of its instances; each word is updated atomically, but those that are written when
/// an instance is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct ServerState {
    /// When it is free again: ticks of CLOCK_MONOTONIC.
    pub free: u64,
    /// Departure of the last packet in order, ticks.
    pub last: u64,
    /// Packets that arrived: the next one's index for the draws.
    pub arrivals: u64,
    /// 1 while the Gilbert–Elliott chain is in the bad state; with [`SERVER_TIES`] a [`crate::ties::Memory`].
    pub bad: u64,
    /// Which instance of its server this is, in order of creation; 0 for the only one.
    pub ordinal: u32,
    /// Of the [`crate::ties::Memory`], too.
    pub since: u32,
    /// Which instance lies here ([`crate::instance`]); 0 for none, and for the only one.
    pub name: u64,
    /// Among instances: places of the flow cache ([`crate::flow`]), whichever instance lies here. Of a server's only state:
    /// packets admitted to a packet-limited buffer, the next ring slot, and zero. With them a state is as large as a cache
    /// line, of which the map that holds it begins one: no state lies in two, and two shared servers never share one.
    pub beside: [u64; 2],
}

/// A list of servers: a path, or a part of those of a network ([`Network`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Path {
    /// Servers on it, at most [`MAX_PATH_SERVERS`].
    pub len: u32,
    /// Bit i set: the packet is held until it arrives at server i before the fold goes on there (a
    /// leg ends before every shared server but the first).
    pub cuts: u32,
    /// Indices of the servers within the half.
    pub servers: [u32; PATH_PLACES],
}

/// A class: its path by [`Direction`], or [`NONE`] to pass untouched, or [`NETWORK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Class {
    /// Index of the path within the half, by direction; for [`NETWORK`] the hosts at its ends say which.
    pub path: [u32; 2],
}

/// The headers that classify a packet, and the key of the flow cache ([`crate::flow`]). Addresses in network order,
/// IPv4 as `::ffff:a.b.c.d`; everything else in host order, zero where the packet has no such field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C, align(8))]
pub struct FlowKey {
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Source port of TCP, UDP, UDP-Lite, SCTP or DCCP.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Innermost EtherType.
    pub ethertype: u16,
    /// IP protocol: that of the upper layer, after IPv6 extension headers.
    pub protocol: u8,
    /// DiffServ code point.
    pub dscp: u8,
    /// The packet's fwmark.
    pub mark: u32,
    /// [`Direction`].
    pub direction: u16,
    /// Number of the sender's cgroup in the profile, from 1; 0 for none of its.
    pub cgroup: u16,
}

/// Flows in the NOTED map: the last ones that were classified.
pub const NOTED_FLOWS: u32 = 16_384;

/// What is noted of a flow when its first packet is classified: value of the NOTED map, whose key is the
/// [`FlowKey`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct FlowNote {
    /// When that was, CLOCK_MONOTONIC ns.
    pub first: u64,
    /// Its class; that of the profile in force when it was classified last.
    pub class: u32,
    /// Zero.
    pub reserved: u32,
}

/// Bytes of the REQUESTS ring buffer: 26,214 requests.
pub const REQUEST_BYTES: u32 = 1 << 21;

/// A packet that enters the emulation, as logged while somebody reads the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Request {
    /// When it came, CLOCK_MONOTONIC ns.
    pub time: u64,
    /// Wire bytes.
    pub bytes: u64,
    /// Whose it is.
    pub key: FlowKey,
    /// Wire packets.
    pub segments: u32,
    /// Its class.
    pub class: u32,
}

/// Identity of a fragmented datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct FragmentKey {
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Identification.
    pub id: u32,
    /// IP protocol.
    pub protocol: u32,
}

/// Ports of a datagram's first fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FragmentPorts {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

/// A jitter distribution: its inverse cumulative distribution at (i + 1/2)/4096, scaled by
/// [`crate::fate::JITTER_UNIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct JitterTable {
    /// The entries, ascending or not.
    pub entries: [i16; JITTER_ENTRIES],
}

/// Key of the NTH set: the `index`-th packet (from 1) at a server is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct NthKey {
    /// Index of the packet, from 1.
    pub index: u64,
    /// Index of the server's configuration in the whole SERVERS map (half included).
    pub server: u32,
    /// Zero.
    pub reserved: u32,
}

/// What an interface is to the programs, by its index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Attachment {
    /// The emulated interface.
    pub target: u32,
    /// Where held packets are sent to.
    pub hold: u32,
    /// Where super-packets are sent to be split; 0 if there is no such device.
    pub split: u32,
    /// Number of a private host, from 1; 0 for a real interface. The low 16 bits of a private host's
    /// addresses are its number; what passes between two of them is emulated once, at the lower one.
    pub rank: u32,
}

impl Attachment {
    /// Whether a packet's path is folded here: not if the other side is a private host of lower number.
    #[inline(always)]
    #[must_use]
    pub const fn emulates(&self, remote: &[u8; 16]) -> bool {
        let other = (remote[14] as u32) << 8 | remote[15] as u32;
        self.rank == 0 || self.rank <= other
    }
}
