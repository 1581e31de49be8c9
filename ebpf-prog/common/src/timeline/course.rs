//! Timelines as the maps have them, and what serves by them.

use crate::{
    abi::MAX_SEGMENTS,
    departure::{Load, Outcome, Service},
    fate::Chance,
    ticks::saturating_shl,
    units::{GapPerByte, Instant, Ticks, saturating_mul},
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
/// Steps on from a hint before the whole timeline is searched.
const NEAR: u32 = 4;
/// log2 of the longest timeline: steps of the search.
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
    pub(super) latency: u64,
    /// All ones for no limit.
    pub(super) room: u64,
    /// The jitter's scale, ticks.
    pub jitter_scale: u64,
    /// Independent loss.
    pub loss: Chance,
    /// The gate, and the next free segment: this one, one behind it, or [`NO_FREE`].
    pub(super) marks: u32,
}

/// A timeline as the TIMELINES map has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Course {
    /// When its clock started, ticks of CLOCK_MONOTONIC; [`Course::WAITS`] if the first packet starts it.
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

    /// [`Course::locate`].
    fn locate(&self, course: &Course, hint: u32, key: u64, by: By) -> u32;
}

/// When a packet leaves a server that changes, and by which row: loss and jitter are those of that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// What becomes of it.
    pub outcome: Outcome,
    /// In force when its service ends.
    pub row: u32,
}

/// A place in time: when the timeline began anew last, and how much has passed since.
#[derive(Clone, Copy)]
struct Place {
    turn: Instant,
    since: u64,
}

impl Place {
    #[inline(always)]
    const fn instant(self) -> Instant {
        self.turn.after(Ticks(self.since))
    }
}

impl Hints {
    #[inline(always)]
    const fn arrival(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    const fn start(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    const fn new(arrival: u32, start: u32) -> Self {
        Self((start as u64) << 32 | arrival as u64)
    }
}

impl Row {
    #[inline(always)]
    const fn key(&self, by: u32) -> u64 {
        if by == By::Work as u32 { self.work } else { self.at }
    }

    #[inline(always)]
    const fn free(&self) -> u32 {
        self.marks & NO_FREE
    }

    /// Work done in so much time.
    #[inline(always)]
    const fn served(&self, time: u64) -> u64 {
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
    const fn takes(&self, work: u64) -> u64 {
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
    pub const WAITS: u64 = u64::MAX;

    /// Where an instant is; before the clock starts: where it starts.
    #[inline(always)]
    const fn place(&self, time: Instant) -> Place {
        let since = time.0.saturating_sub(self.origin);
        let turns = match since.checked_div(self.period) {
            Some(turns) => turns,
            None => 0,
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
        rows.locate(self, hint, self.place(time).since, By::Time)
    }

    /// Index of the last row whose time, or work ([`By`]), is not above `key`: 0 if all are.
    #[inline(always)]
    pub fn locate<'a>(&self, row: impl Fn(u32) -> Option<&'a Row>, hint: u32, key: u64, by: u32) -> u32 {
        let above = |index| match row(index) {
            Some(row) => row.key(by) > key,
            None => true,
        };
        let mut first = if hint < self.len { hint } else { 0 };
        let mut len = first;
        if above(first) {
            first = 0;
        } else {
            for _ in 0..NEAR {
                let next = first + 1;
                if next >= self.len || above(next) {
                    return first;
                }
                first = next;
            }
            len = self.len - first;
        }
        for _ in 0..=SEARCH {
            if len <= 1 {
                break;
            }
            let half = len / 2;
            if above(first + half) {
                len = half;
            } else {
                first += half;
                len -= half;
            }
        }
        first
    }

    /// When a row ends, since the timeline began; never for the last one if it holds.
    #[inline(always)]
    fn end(&self, rows: &impl Rows, index: u32) -> Option<u64> {
        if index + 1 < self.len {
            return Some(rows.row(index + 1)?.at);
        }
        Some(if self.period == 0 { u64::MAX } else { self.period })
    }

    /// Work served until a row ends, since the timeline began.
    #[inline(always)]
    fn work_until_end(&self, rows: &impl Rows, index: u32) -> Option<u64> {
        if index + 1 < self.len {
            return Some(rows.row(index + 1)?.work);
        }
        Some(self.total)
    }

    /// The row behind one that ends.
    #[inline(always)]
    const fn next(&self, index: u32) -> u32 {
        if index + 1 < self.len {
            index + 1
        } else if self.period == 0 {
            index
        } else {
            0
        }
    }

    /// Work that is served between two places, the first in row `from`, the other in row `to`.
    #[inline(always)]
    fn between(&self, rows: &impl Rows, first: Place, from: u32, last: Place, to: u32) -> Option<u64> {
        let row = rows.row(from)?;
        if from == to && first.turn.0 == last.turn.0 {
            return Some(row.served(last.since.saturating_sub(first.since)));
        }
        let head = row.served(self.end(rows, from)?.saturating_sub(first.since));
        let row = rows.row(to)?;
        let tail = row.served(last.since.saturating_sub(row.at));
        let turns = last
            .turn
            .since(first.turn)
            .0
            .checked_div(self.period)
            .unwrap_or(0);
        let whole = saturating_mul(turns, self.total)
            .saturating_add(row.work)
            .saturating_sub(self.work_until_end(rows, from)?);
        Some(head.saturating_add(whole).saturating_add(tail))
    }

    /// When work that is left when `index` begins has been done, and the row then.
    #[inline(always)]
    fn reach(&self, rows: &impl Rows, turn: Instant, index: u32, work: u64) -> Option<(Instant, u32)> {
        const NEVER: Instant = Instant(u64::MAX);
        let (mut turn, mut index) = (turn, index);
        let row = rows.row(index)?;
        let mut target = row.work.saturating_add(work);
        let mut free = row.free();
        if free == NO_FREE && target > self.total {
            if self.period == 0 {
                if rows.row(self.len.saturating_sub(1))?.per_byte == STOPPED {
                    return Some((NEVER, index));
                }
            } else {
                target -= self.total;
                turn = turn.after(Ticks(self.period));
                index = 0;
                free = rows.row(0)?.free();
                if free == NO_FREE {
                    if self.total == 0 {
                        return Some((NEVER, index));
                    }
                    let turns = (target - 1) / self.total;
                    target -= turns * self.total;
                    turn = turn.after(Ticks(saturating_mul(turns, self.period)));
                }
            }
        }
        if free != NO_FREE {
            let row = rows.row(free)?;
            if row.work < target {
                return Some((turn.after(Ticks(row.at)), free));
            }
        }
        let index = rows.locate(self, index, target.saturating_sub(1), By::Work);
        let row = rows.row(index)?;
        let (at, end) = (
            row.at.saturating_add(row.takes(target.saturating_sub(row.work))),
            self.end(rows, index)?,
        );
        Some(if at < end {
            (turn.after(Ticks(at)), index)
        } else {
            (turn.after(Ticks(end)), self.next(index))
        })
    }

    /// When so many bytes have been transmitted whose transmission begins at `begin`, in row `index`; the row then, and whether
    /// another one had to help.
    #[inline(always)]
    fn transmit(
        &self,
        rows: &impl Rows,
        begin: Place,
        index: u32,
        bytes: u64,
    ) -> Option<(Instant, u32, bool)> {
        let row = rows.row(index)?;
        if row.per_byte == 0 {
            return Some((begin.instant(), index, false));
        }
        let left = self.end(rows, index)?.saturating_sub(begin.since);
        let mut work = saturating_shl(bytes, PART_BITS);
        if row.per_byte != STOPPED {
            let time = GapPerByte(row.per_byte).transmit(bytes);
            if time.0 < left {
                return Some((begin.instant().after(time), index, false));
            }
            if time.0 == left {
                return Some((begin.instant().after(time), self.next(index), false));
            }
            work = work.saturating_sub(row.served(left));
        }
        // Something is left: `served` rounds down.
        let work = if work == 0 { 1 } else { work };
        let (end, row) = if index + 1 < self.len {
            self.reach(rows, begin.turn, index + 1, work)?
        } else if self.period != 0 {
            self.reach(rows, begin.turn.after(Ticks(self.period)), 0, work)?
        } else {
            (Instant(u64::MAX), index)
        };
        Some((end, row, true))
    }

    /// Whether it is in force for what begins service then.
    #[inline(always)]
    #[must_use]
    pub const fn in_force(&self, free: Instant, arrival: Instant) -> bool {
        arrival.max(free).0 >= self.origin
    }

    /// One step of the recursion, as [`departure`](crate::departure::departure) is for a server that does not change;
    /// [`Self::in_force`] must hold. `horizon` is for how long a packet may wait at most, and what several segments serve may stay.
    /// `None` if rows lack. Saturates; never panics.
    #[inline(always)]
    pub fn departure(
        &self,
        rows: &impl Rows,
        hints: &mut Hints,
        horizon: Ticks,
        free: Instant,
        arrival: Instant,
        load: Load,
    ) -> Option<Departure> {
        let start = arrival.max(free);
        let backlog = start.since(arrival);
        let came = self.place(arrival);
        let from = rows.locate(self, hints.arrival(), came.since, By::Time);
        let room = rows.row(from)?.room;
        let (begun, index) = if backlog.0 == 0 {
            (came, from)
        } else {
            let begun = self.place(start);
            (begun, rows.locate(self, hints.start(), begun.since, By::Time))
        };
        *hints = Hints::new(from, index);
        let dropped = |outcome| Some(Departure { outcome, row: index });
        let in_bytes = room & IN_BYTES != 0;
        if in_bytes && room != u64::MAX {
            let ahead = if backlog.0 == 0 {
                0
            } else {
                self.between(rows, came, from, begun, index)?
            };
            let work = ahead.saturating_add(saturating_shl(load.bytes, PART_BITS));
            if work > room & !IN_BYTES {
                return dropped(Outcome::TailDrop);
            }
        }
        let row = rows.row(index)?;
        if row.marks & SHUT != 0 {
            return dropped(Outcome::Down);
        }
        let latency_of = |row| Some(Ticks(rows.row(row)?.latency));
        let busy = saturating_mul(row.gap, load.segments);
        let (begin, first) = if busy == 0 {
            (begun, index)
        } else {
            let begin = self.place(start.after(Ticks(busy)));
            (begin, rows.locate(self, index, begin.since, By::Time))
        };
        let (free, row, several) = self.transmit(rows, begin, first, load.bytes)?;
        if !in_bytes && backlog.plus(free.since(begin.instant())).0 > room {
            return dropped(Outcome::TailDrop);
        }
        let waits = if several { free.since(arrival) } else { backlog };
        if waits.0 > horizon.0 {
            return dropped(Outcome::BeyondHorizon);
        }
        Some(Departure {
            outcome: Outcome::Served(Service {
                backlog,
                free,
                next: free.after(latency_of(row)?),
            }),
            row,
        })
    }
}
