//! Timelines as the maps have them, and what serves by them.

use super::step::{Stage, Step};
use crate::{
    abi::{CLOCKS_LEN, MAX_SEGMENTS},
    fate::Chance,
    ticks::saturating_shl,
    units::{GapPerByte, Instant, Ticks},
    word::{SPLIT, TICK_SHIFT},
};

/// Parts of a byte in which work is counted, as a power of two. What a packet has left when a segment ends is rounded up to
/// this, and the time that the rest takes down to a tick; a packet that one segment serves leaves when
/// [`departure`](crate::departure::departure) says.
pub(super) const PART_BITS: u32 = 16;
/// Time in one segment from which on work is not computed any more: 2^50 ticks are 4.9 hours.
const LONG: u64 = 1 << 50;
/// [`Row::per_byte`] of what is stopped.
pub(super) const STOPPED: u64 = u64::MAX;
/// [`Row::room`]: the other bits count work; without it they count ticks.
pub(super) const IN_BYTES: u64 = 1 << 63;
/// [`Row::marks`]: the gate is shut.
pub(super) const SHUT: u32 = 1 << 31;
/// [`Row::marks`] without the gate, where no free segment follows.
pub(super) const NO_FREE: u32 = SHUT - 1;
/// log2 of how much longer a stride of a search is than the one before it.
const LONGER: u32 = 3;
/// log2 of the longest timeline.
const SEARCH: u32 = MAX_SEGMENTS.trailing_zeros();

/// A segment as the SEGMENTS map has it: one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Row {
    /// When it begins since the timeline did, ticks.
    pub(super) at: u64,
    /// Work served before it since the timeline began, 2^-16 bytes; none while a segment is free.
    pub(super) work: u64,
    /// g; of what packets cost the host: of one that is sent, ns.
    pub(super) gap: u64,
    /// G: 0 if free.
    pub(super) per_byte: u64,
    /// L; of what packets cost the host: of one that is received, ns.
    pub latency: u64,
    /// All ones for no limit.
    pub(super) room: u64,
    /// The jitter's scale, ticks.
    pub jitter_scale: u64,
    /// Independent loss.
    pub loss: Chance,
    /// The gate, and the next free segment: this one, one behind it, or [`NO_FREE`].
    pub(super) marks: u32,
}

/// Index of the last of so many rows whose key, by what they are ordered by, is not above `key`: 0 if all are. It looks from
/// `hint` on, in ever longer strides, and then in between. Strides are powers of two at the ends, too: what the verifier knows of
/// them is then the same in whatever way it gets there.
#[inline(always)]
#[must_use]
pub fn locate(key_of: impl Fn(u32) -> Option<u64>, rows: u32, hint: u32, key: u64) -> u32 {
    let above = |index| match key_of(index) {
        Some(found) => found > key,
        None => true,
    };
    let mut first = if hint < rows { hint } else { 0 };
    let mut stride = 1;
    let back = above(first);
    // Before the first row an index wraps.
    let above = |index| if index < rows { above(index) } else { !back };
    for _ in 0..=SEARCH / LONGER + 1 {
        let next = if back {
            first.wrapping_sub(stride)
        } else {
            first.wrapping_add(stride)
        };
        let passed = above(next) != back;
        if back || !passed {
            first = next;
        }
        if passed {
            break;
        }
        stride <<= LONGER;
    }
    for _ in 0..=SEARCH + 2 * LONGER {
        if stride <= 1 {
            break;
        }
        stride /= 2;
        let next = first.wrapping_add(stride);
        if !above(next) {
            first = next;
        }
    }
    if first < rows { first } else { 0 }
}

/// A timeline as the TIMELINES map has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Course {
    /// When its clock started, ticks of CLOCK_MONOTONIC; from [`Course::WAITS`] on if the first packet starts it, at that place
    /// of the CLOCKS map.
    pub origin: u64,
    /// After which it begins anew, ticks; 0 if the last segment holds.
    pub(super) period: u64,
    /// Work served in a period; without one, before the last segment.
    pub(super) total: u64,
    /// Index of its first row in the SEGMENTS map.
    pub first: u32,
    /// How many rows.
    pub(super) len: u32,
}

/// Where the last packet arrived and began: rows that a look-up tries first. Any number is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints(pub u64);

/// What rows are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum By {
    /// `at`.
    Time = 0,
    /// `work`.
    Work = 1,
}

/// The rows of a timeline.
pub trait Rows {
    /// One of them.
    fn row(&self, index: u32) -> Option<&Row>;

    /// [`locate`] among the first so many of them.
    fn locate(&self, rows: u32, hint: u32, key: u64, by: By) -> u32;

    /// [`Step::seek`]. The programs have this and what follows as functions of their own, for the stack's sake.
    #[inline(always)]
    fn seek(&self, step: &Step) -> Stage
    where
        Self: Sized,
    {
        step.seek(self)
    }

    /// [`Step::ahead`].
    #[inline(always)]
    fn ahead(&self, step: &Step) -> Stage
    where
        Self: Sized,
    {
        step.ahead(self)
    }

    /// [`Step::reach`].
    #[inline(always)]
    fn reach(&self, step: &Step) -> Stage
    where
        Self: Sized,
    {
        step.reach(self)
    }

    /// [`Step::rest`].
    #[inline(always)]
    fn rest(&self, step: &Step) -> Stage
    where
        Self: Sized,
    {
        step.rest(self)
    }
}

/// A row in force.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) index: u32,
    pub(super) row: &'a Row,
    /// When it ends, since the timeline began; never for the last one if it holds.
    pub(super) end: u64,
}

/// A place in time: when the timeline began anew last, and how much has passed since.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Place {
    pub(super) turn: Instant,
    pub(super) since: u64,
}

impl Hints {
    #[inline(always)]
    pub(super) const fn arrival(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(super) const fn start(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(super) const fn new(arrival: u32, start: u32) -> Self {
        Self((start as u64) << 32 | arrival as u64)
    }
}

impl Row {
    /// What it is ordered by.
    #[inline(always)]
    #[must_use]
    pub const fn key(&self, by: By) -> u64 {
        match by {
            By::Time => self.at,
            By::Work => self.work,
        }
    }

    #[inline(always)]
    pub(super) const fn free(&self) -> u32 {
        self.marks & NO_FREE
    }

    /// Work done in so much time.
    #[inline(always)]
    pub(super) const fn served(&self, time: u64) -> u64 {
        if self.per_byte == 0 || self.per_byte == STOPPED {
            return 0;
        }
        if time >= LONG {
            return u64::MAX;
        }
        let parts = time << (SPLIT - TICK_SHIFT);
        let (bytes, rest) = (parts / self.per_byte, parts % self.per_byte);
        // The remainder is below G, 2^44 at most.
        saturating_shl(bytes, PART_BITS).saturating_add((rest << PART_BITS) / self.per_byte)
    }

    /// Time that so much work takes.
    #[inline(always)]
    pub(super) const fn takes(&self, work: u64) -> u64 {
        let part = (work & ((1 << PART_BITS) - 1)) * self.per_byte;
        let whole = GapPerByte(self.per_byte).transmit(work >> PART_BITS);
        whole.plus(Ticks(part >> (PART_BITS + SPLIT - TICK_SHIFT))).0
    }

    /// What a packet costs its host, ns: (send, receive).
    #[inline(always)]
    #[must_use]
    pub const fn overheads(&self) -> (u64, u64) {
        (self.gap, self.latency)
    }
}

impl Course {
    /// [`Course::origin`] of what the first packet starts.
    pub const WAITS: u64 = u64::MAX - CLOCKS_LEN as u64;

    /// The same, by a clock that started then.
    #[inline(always)]
    #[must_use]
    pub const fn started(self, origin: u64) -> Self {
        Self { origin, ..self }
    }

    /// Where an instant is; before the clock starts: where it starts.
    #[inline(always)]
    pub(super) const fn place(&self, time: Instant) -> Place {
        let since = time.0.saturating_sub(self.origin);
        // A division takes long, and most timelines are in their first turn, or have no other.
        let turns = if self.period == 0 || since < self.period {
            0
        } else {
            since / self.period
        };
        let past = turns * self.period;
        Place {
            turn: Instant(self.origin.saturating_add(past)),
            since: since - past,
        }
    }

    /// The row in force at an instant. `hint` is tried first.
    #[inline(always)]
    pub fn at(&self, rows: &impl Rows, hint: u32, time: Instant) -> u32 {
        rows.locate(self.len, hint, self.place(time).since, By::Time)
    }

    /// A row by its index.
    #[inline(always)]
    pub(super) fn found<'a>(&self, rows: &'a impl Rows, index: u32) -> Option<Found<'a>> {
        let row = rows.row(index)?;
        let end = self.end(rows, index)?;
        Some(Found { index, row, end })
    }

    /// How much has passed since it began anew last, and how often it has.
    #[must_use]
    pub fn since(&self, time: Instant) -> (Ticks, u64) {
        let place = self.place(time);
        let turns = place.turn.0.saturating_sub(self.origin);
        (Ticks(place.since), turns.checked_div(self.period).unwrap_or(0))
    }

    /// How many segments it has.
    #[must_use]
    pub const fn segments(&self) -> u32 {
        self.len
    }

    /// When a row ends, since the timeline began; never for the last one if it holds.
    #[inline(always)]
    pub(super) fn end(&self, rows: &impl Rows, index: u32) -> Option<u64> {
        if index + 1 < self.len {
            return Some(rows.row(index + 1)?.at);
        }
        Some(if self.period == 0 { u64::MAX } else { self.period })
    }

    /// Work served until a row ends, since the timeline began.
    #[inline(always)]
    pub(super) fn work_until_end(&self, rows: &impl Rows, index: u32) -> Option<u64> {
        if index + 1 < self.len {
            return Some(rows.row(index + 1)?.work);
        }
        Some(self.total)
    }

    /// The row behind one that ends.
    #[inline(always)]
    pub(super) const fn next(&self, index: u32) -> u32 {
        if index + 1 < self.len {
            index + 1
        } else if self.period == 0 {
            index
        } else {
            0
        }
    }

    /// Whether it is in force for what begins service then.
    #[inline(always)]
    #[must_use]
    pub const fn in_force(&self, free: Instant, arrival: Instant) -> bool {
        arrival.max(free).0 >= self.origin
    }
}
