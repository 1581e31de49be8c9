//! What `perturb capture` sees of a packet. A record is a [`Sighting`], so many [`Crossing`]s as it says, and so many bytes of
//! the packet.

use super::{MAX_CLASSES, MAX_PATH_SERVERS};

/// Bytes of the SIGHTINGS ring buffer.
pub const SIGHTING_BYTES: u32 = 1 << 21;

/// Bytes of a packet that are recorded at most.
pub const MAX_SNAP: u32 = 2048;

/// Places for [`Crossing`]s: the power of two above [`MAX_PATH_SERVERS`], so that indices can be masked.
pub const CROSSINGS: usize = MAX_PATH_SERVERS.next_power_of_two();

/// Words of a set of classes, of which those are recorded that are in it.
pub const CLASS_WORDS: u32 = MAX_CLASSES / 64;

/// What befell a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Sight {
    /// A leg of its path was folded: it is held now, or was dropped.
    Folded = 0,
    /// It left the emulation.
    Released = 1,
    /// A leg was folded, but the hold device did not take the packet, or one of its copies. No bytes come along.
    Refused = 2,
}

/// What befell a packet, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Sighting {
    /// By the clock, CLOCK_MONOTONIC ns: when it came, at the first leg; else when this was done.
    pub time: u64,
    /// When it arrived at the leg's first server, by the emulation's time. 0 if nothing was folded.
    pub arrival: u64,
    /// When it is to leave, or was to; 0 if it was dropped, or was never held.
    pub departure: u64,
    /// How late it left, as the histogram of lateness counts it, ns.
    pub lateness: u64,
    /// [`Sight`].
    pub what: u32,
    /// Number of the [`Event`](super::Event) that dropped it, or [`NONE`](super::NONE).
    pub event: u32,
    /// [`Direction`](super::Direction).
    pub direction: u32,
    /// Index of the emulated interface.
    pub interface: u32,
    /// Its class; [`NONE`](super::NONE) where nothing was classified.
    pub class: u32,
    /// Index on its path of the first server that was crossed here.
    pub position: u32,
    /// Servers that were crossed, the one included that dropped it.
    pub crossings: u32,
    /// Bytes that it has.
    pub length: u32,
    /// Bytes that follow.
    pub bytes: u32,
    /// The outermost VLAN tag, if it lies beside the data: its EtherType in the high half, in network order; 0 for none.
    pub vlan: u32,
    /// Wire packets of a super-packet; else 0 or 1.
    pub segments: u32,
    /// `SIGHTED_*`.
    pub flags: u32,
    /// The half of the tables that `class` and the servers are of.
    pub half: u32,
    /// Zero.
    pub reserved: u32,
}

/// [`Sighting::flags`]: it was to be marked (CE).
pub const SIGHTED_MARK: u32 = 1;
/// [`Sighting::flags`]: one more copy was sent.
pub const SIGHTED_DUPLICATED: u32 = 2;
/// [`Sighting::flags`]: a bit was flipped.
pub const SIGHTED_CORRUPTED: u32 = 4;

/// A server that a packet crossed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Crossing {
    /// When it left the server, latency and jitter included; when it came, if it was dropped there. Ticks.
    pub time: u64,
    /// How long it waited until its service began, ticks.
    pub wait: u64,
    /// Index of the server in its half of the tables.
    pub server: u32,
    /// Zero.
    pub reserved: u32,
}
