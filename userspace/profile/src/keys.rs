//! Every key of a profile: its value, range, default and meaning. The reader takes allowed keys and ranges from here,
//! the JSON Schema and docs/reference/keys.md are generated from here, so they cannot drift apart.

mod groups;
mod sections;
mod servers;
mod timeline;

use perturb_common::abi;
use perturb_quantity::{Duration, Probability, Rate, Size};

use crate::matching::Words;
use crate::model::Profile;
pub(crate) use crate::reader::Bounds;
use crate::topology::MAX_HOSTS;

const fn bounds<T: Copy>(min: T, max: T) -> Bounds<T> {
    Bounds { min, max }
}

const SECOND: u64 = 1_000_000_000;

/// The longest a packet may be held. fq keeps what is beyond its own horizon from leaving at all.
pub(crate) const MAX_HORIZON: Duration = Duration::from_nanos(60 * SECOND);
/// The smallest buffer: one full Ethernet frame with its header, or nothing of that size ever passes.
pub(crate) const FRAME: Size = Size::from_bytes(1514);
pub(crate) const MTU: Bounds<Size> = bounds(
    Size::from_bytes(*Profile::MTU.start()),
    Size::from_bytes(*Profile::MTU.end()),
);

pub(crate) const LATENCY: Bounds<Duration> = bounds(Duration::ZERO, MAX_HORIZON);
pub(crate) const GAP: Bounds<Duration> = bounds(Duration::ZERO, Duration::from_nanos(SECOND));
pub(crate) const OVERHEAD: Bounds<Duration> =
    bounds(Duration::ZERO, Duration::from_nanos(abi::MAX_OVERHEAD.0));
pub(crate) const HORIZON: Bounds<Duration> = bounds(Duration::from_millis(1), MAX_HORIZON);
pub(crate) const SCALE: Bounds<Duration> = bounds(Duration::from_nanos(1), Duration::from_nanos(10 * SECOND));
pub(crate) const BANDWIDTH: Bounds<Rate> = bounds(
    Rate::from_bits_per_second(1_000),
    Rate::from_bits_per_second(10_000_000_000_000),
);
pub(crate) const BUFFER_BYTES: Bounds<Size> = bounds(FRAME, Size::from_bytes(64 << 30));
pub(crate) const BUFFER_DELAY: Bounds<Duration> = bounds(Duration::from_nanos(1), MAX_HORIZON);
pub(crate) const BUFFER_PACKETS: Bounds<u64> = bounds(1, abi::MAX_RING_SLOTS as u64);
pub(crate) const ECN_BYTES: Bounds<Size> = bounds(Size::from_bytes(1), Size::from_bytes(64 << 30));
pub(crate) const ECN_DELAY: Bounds<Duration> = bounds(Duration::from_nanos(1), MAX_HORIZON);
pub(crate) const TARGET: Bounds<Duration> =
    bounds(Duration::from_nanos(1_000), Duration::from_nanos(10 * SECOND));
pub(crate) const INTERVAL: Bounds<Duration> =
    bounds(Duration::from_nanos(1_000), Duration::from_nanos(100 * SECOND));
pub(crate) const T_UPDATE: Bounds<Duration> =
    bounds(Duration::from_millis(1), Duration::from_nanos(10 * SECOND));
pub(crate) const MAX_BURST: Bounds<Duration> = bounds(Duration::ZERO, MAX_HORIZON);
pub(crate) const AVPKT: Bounds<Size> = bounds(Size::from_bytes(64), Size::from_bytes(65_535));
pub(crate) const BURST: Bounds<u64> = bounds(1, 1_000_000);
pub(crate) const SHARE: Bounds<Probability> = bounds(Probability::ZERO, Probability::ONE);
/// A certain one would never change what happens.
pub(crate) const CORRELATION: Bounds<Probability> =
    bounds(Probability::ZERO, Probability::from_billionths(999_000_000));
pub(crate) const TIME_CONSTANT: Bounds<Duration> =
    bounds(Duration::from_nanos(1_000_000), Duration::from_nanos(60 * SECOND));
pub(crate) const REORDER_GAP: Bounds<u64> = bounds(1, perturb_common::ties::MAX_GAP as u64);
/// Bytes of a packet's framing, and of a cell.
pub(crate) const FRAMING_BYTES: Bounds<u64> = bounds(0, 4096);
pub(crate) const CELL: Bounds<u64> = bounds(1, 4096);
pub(crate) const NTH: Bounds<u64> = bounds(1, 1 << 48);
pub(crate) const FLOWS: Bounds<u64> = bounds(1024, 4_194_304);
pub(crate) const HELD: Bounds<Size> = bounds(Size::from_bytes(1 << 20), Size::from_bytes(64 << 30));
pub(crate) const ANY_U64: Bounds<u64> = bounds(0, u64::MAX);
pub(crate) const ANY_U32: Bounds<u64> = bounds(0, u32::MAX as u64);
pub(crate) const RTO_MIN: Bounds<Duration> =
    bounds(Duration::from_nanos(1_000), Duration::from_nanos(120 * SECOND));
pub(crate) const RTO_MAX: Bounds<Duration> =
    bounds(Duration::from_nanos(SECOND), Duration::from_nanos(120 * SECOND));
pub(crate) const WINDOW: Bounds<Size> = bounds(Size::from_bytes(4096), Size::from_bytes(1 << 30));
pub(crate) const EARLY_RETRANS: Bounds<u64> = bounds(0, 4);
pub(crate) const RECOVERY: Bounds<u64> = bounds(0, 7);
pub(crate) const SLOT: Bounds<Duration> = bounds(Duration::from_nanos(1), Duration::from_millis(10));
/// From one slot of `slot` to the next, and how far it is from the mean.
pub(crate) const SLOT_DELAY: Bounds<Duration> = bounds(Duration::ZERO, Duration::from_nanos(10 * SECOND));
pub(crate) const SLOT_PACKETS: Bounds<u64> = bounds(1, u32::MAX as u64);
pub(crate) const SLOT_BYTES: Bounds<Size> = bounds(Size::from_bytes(1), Size::from_bytes(4 << 30));
pub(crate) const ATTEMPTS: Bounds<u64> = bounds(1, 16);
pub(crate) const LEVELS: usize = 10;
pub(crate) const DIMENSION: Bounds<u64> = bounds(2, MAX_HOSTS as u64);
pub(crate) const DIMENSIONS: usize = 8;
/// Entries of a list of addresses, ports and the like.
pub(crate) const ALTERNATIVES: usize = 4096;
pub(crate) const MAX_TEXT: usize = 4096;

/// What a value looks like.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    Duration(Bounds<Duration>),
    Rate(Bounds<Rate>),
    Size(Bounds<Size>),
    Share,
    /// A percentage that may exceed 100%.
    Factor(Bounds<Probability>),
    /// `100 packets`.
    Packets,
    Integer(Bounds<u64>),
    Flag,
    True,
    Name,
    Text,
    Choice(&'static [&'static str]),
    /// A number or one of the words that stand for numbers.
    Word(&'static Words, Bounds<u64>),
    Prefix,
    /// A host's name.
    Host,
    Port,
    Section(&'static Section),
    /// Names of the user's choice, each with a value.
    Named(&'static Shape),
    List(&'static Shape, usize, usize),
    /// A single value, or a list of alternatives.
    OneOrMore(&'static Shape),
    Either(&'static [Shape]),
}

/// A key and what is to be said about it.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    pub(crate) required: bool,
    /// What holds without it.
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
}

const fn key(name: &'static str, shape: Shape, default: &'static str, doc: &'static str) -> Key {
    Key {
        name,
        shape,
        required: false,
        default,
        doc,
    }
}

const fn required(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key {
        name,
        shape,
        required: true,
        default: "",
        doc,
    }
}

/// A map with fixed keys.
pub(crate) struct Section {
    /// With its article, for messages.
    pub(crate) what: &'static str,
    /// For the schema and the reference.
    pub(crate) title: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) keys: &'static [Key],
}

impl Section {
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|key| key.name)
    }
}

pub(crate) use groups::*;
pub(crate) use sections::*;
pub(crate) use servers::*;
pub(crate) use timeline::*;
