//! The tables of the bit-vector classifier.

use super::*;

/// A dimension of the classifier, in this order; each one's value is a 128-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Dimension {
    /// [`FlowKey::source`], big-endian.
    Source = 0,
    /// [`FlowKey::destination`], big-endian.
    Destination = 1,
    /// [`FlowKey::source_port`].
    SourcePort = 2,
    /// [`FlowKey::destination_port`].
    DestinationPort = 3,
    /// [`FlowKey::ethertype`].
    Ethertype = 4,
    /// [`FlowKey::protocol`].
    Protocol = 5,
    /// [`FlowKey::dscp`].
    Dscp = 6,
    /// [`FlowKey::mark`].
    Mark = 7,
    /// [`FlowKey::cgroup`].
    Cgroup = 8,
}

/// Number of dimensions.
pub const DIMENSIONS: u32 = 9;

/// Index in the SPANS map of the hosts of a half's network: the boundaries between their addresses, whose `vector` is
/// the host's number from 0, or [`NONE`] between hosts.
#[inline(always)]
#[must_use]
pub const fn hosts_span(half: u32) -> u32 {
    4 * DIMENSIONS + half
}

/// Index in the SPANS map of the cgroups of a half: the boundaries between their ids, whose `vector` is the cgroup's number in
/// the profile, or [`NONE`] between them.
#[inline(always)]
#[must_use]
pub const fn cgroups_span(half: u32) -> u32 {
    4 * DIMENSIONS + 2 + half
}
/// Index in the RULES map of a rule's class. `table` is `half * 2 + direction`.
#[inline(always)]
#[must_use]
pub const fn rule_place(table: u32, rule: u32) -> u32 {
    rule * 4 + table
}
/// Elements of the SPANS map.
pub const SPANS_LEN: u32 = 4 * DIMENSIONS + 4;

/// The boundaries of one dimension: `BOUNDS[start..start + len]`. Index in the DIMENSIONS map:
/// `(half * 2 + direction) * DIMENSIONS + dimension`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Span {
    /// First boundary, an index into the whole BOUNDS map.
    pub start: u32,
    /// How many, at most 2^[`MAX_BOUND_BITS`]; 0 if the dimension does not matter (every rule
    /// matches every value). The first boundary is 0.
    pub len: u32,
}

/// One boundary: values from this one to the next boundary match the rules of `vector`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Bound {
    /// High half of the value.
    pub high: u64,
    /// Low half of the value.
    pub low: u64,
    /// Index into the whole VECTORS map.
    pub vector: u32,
    /// Zero.
    pub reserved: u32,
}

/// The rules that match an interval, bit r of word r/64 for rule r. The vector whose index is that of a half has all
/// bits set; the other ones of both halves follow these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct RuleVector {
    /// The bits.
    pub words: [u64; RULE_WORDS],
}
