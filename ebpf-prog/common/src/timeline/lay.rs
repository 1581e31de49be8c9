//! Timelines as a compiled profile has them, and laid out as the maps do.

extern crate alloc;

use alloc::vec::Vec;
use core::iter;

use super::{
    By, Course, End, Gate, Hints, Overhead, Rate, Room, Row, Rows, Segment, Start, Step,
    course::{IN_BYTES, NO_FREE, PART_BITS, SHUT, STOPPED, locate},
};
use crate::{
    abi::MAX_SEGMENTS,
    departure::{Load, Outcome},
    fate::Chance,
    units::{GapPerByte, Instant, Ticks},
    word::{SPLIT, TICK_SHIFT},
};

/// How a server changes, or ([`Overhead`]) what a packet costs its host. Servers that change alike share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timeline<S = Segment> {
    /// Which instant `at` counts from.
    pub start: Start,
    /// At least one, `at` ascending without repetition, the first one's 0.
    pub segments: Vec<S>,
    /// What comes behind.
    pub end: End,
}

/// Why a timeline cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It has no segment.
    Empty,
    /// It has more than [`MAX_SEGMENTS`].
    TooLong,
    /// This segment, counted from 0, does not begin behind the one before it, or the first one not at 0.
    Unordered(usize),
    /// The period ends no later than the last segment begins.
    ShortPeriod,
    /// More than 2^46 bytes could be served until the last segment begins, or in a period.
    TooMuchWork,
}

/// A timeline as the maps have it. It serves by itself, too: a model's server, or a test's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Laid {
    /// Its `origin` is 0, and its rows begin at 0.
    pub course: Course,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// Work that is not rounded to what [`Row::work`] counts before it has been summed up.
const FINER_BITS: u32 = 32;

impl Segment {
    /// As a row that follows so much work. `marks` says only whether the gate is shut.
    fn row(&self, work: u64) -> Row {
        Row {
            at: self.at.0,
            work,
            gap: self.gap.0,
            per_byte: match self.rate {
                Rate::Free => 0,
                Rate::PerByte(gap) => gap.0.min(GapPerByte::MAX.0),
                Rate::Stopped => STOPPED,
            },
            latency: self.latency.0,
            room: match self.room {
                Room::Unlimited => u64::MAX,
                Room::Bytes(bytes) => IN_BYTES | bytes.saturating_mul(1 << PART_BITS).min(!IN_BYTES),
                Room::Wait(time) => time.0.min(!IN_BYTES),
            },
            jitter_scale: self.jitter_scale,
            loss: self.loss,
            marks: if self.gate == Gate::Drop { SHUT } else { 0 },
        }
    }

    /// Work done in so much time, 2^-48 bytes.
    fn served(&self, time: u64) -> u128 {
        match self.rate {
            Rate::PerByte(gap) if gap.0 != 0 => {
                let shift = SPLIT - TICK_SHIFT + PART_BITS + FINER_BITS;
                (u128::from(time) << shift) / u128::from(gap.0.min(GapPerByte::MAX.0))
            }
            _ => 0,
        }
    }
}

impl Overhead {
    fn row(&self) -> Row {
        Row {
            at: self.at.0,
            work: 0,
            gap: self.send,
            per_byte: 0,
            latency: self.receive,
            room: u64::MAX,
            jitter_scale: 0,
            loss: Chance::NEVER,
            marks: NO_FREE,
        }
    }
}

/// Whether instants, the first of which is of what begins, ascend, and the period ends behind them.
fn check(at: impl ExactSizeIterator<Item = Ticks>, end: End) -> Result<u64, Unfit> {
    if at.len() > MAX_SEGMENTS as usize {
        return Err(Unfit::TooLong);
    }
    let mut last = None;
    for (index, at) in at.enumerate() {
        if last.map_or(at.0 != 0, |last| at.0 <= last) {
            return Err(Unfit::Unordered(index));
        }
        last = Some(at.0);
    }
    let last = last.ok_or(Unfit::Empty)?;
    match end {
        End::Hold => Ok(0),
        End::Loop(period) if period.0 > last => Ok(period.0),
        End::Loop(_) => Err(Unfit::ShortPeriod),
    }
}

fn laid(rows: Vec<Row>, period: u64, total: u64) -> Laid {
    let course = Course {
        origin: 0,
        period,
        total,
        first: 0,
        // At most `MAX_SEGMENTS`.
        len: rows.len() as u32,
    };
    Laid { course, rows }
}

impl Timeline {
    /// As the maps have it.
    pub fn lay(&self) -> Result<Laid, Unfit> {
        let period = check(self.segments.iter().map(|segment| segment.at), self.end)?;
        let mut work = 0u128;
        let rounded = |work: u128| {
            u64::try_from(work >> FINER_BITS)
                .ok()
                .filter(|work| work & IN_BYTES == 0)
                .ok_or(Unfit::TooMuchWork)
        };
        let ends = self.segments.iter().skip(1).map(|next| next.at.0);
        let mut rows = Vec::with_capacity(self.segments.len());
        for (segment, end) in self.segments.iter().zip(ends.chain([period])) {
            rows.push(segment.row(rounded(work)?));
            work = work.saturating_add(segment.served(end.saturating_sub(segment.at.0)));
        }
        let mut free = NO_FREE;
        for (index, row) in rows.iter_mut().enumerate().rev() {
            if row.per_byte == 0 {
                free = index as u32;
            }
            row.marks |= free;
        }
        Ok(laid(rows, period, rounded(work)?))
    }

    /// Whether packets may be lost or jittered by it, or overtake others, so that each needs a look at its fate. `before` is the
    /// latency until its clock starts.
    #[must_use]
    pub fn decides(&self, before: Ticks) -> bool {
        let decided = |segment: &Segment| segment.loss != Chance::NEVER || segment.jitter_scale > 0;
        let latencies = || self.segments.iter().map(|segment| segment.latency);
        let anew = match self.end {
            End::Loop(_) => latencies().next(),
            End::Hold => None,
        };
        let all = iter::once(before).chain(latencies()).chain(anew);
        self.segments.iter().any(decided) || !all.is_sorted()
    }
}

impl Timeline<Overhead> {
    /// As the maps have it.
    pub fn lay(&self) -> Result<Laid, Unfit> {
        let period = check(self.segments.iter().map(|overhead| overhead.at), self.end)?;
        Ok(laid(self.segments.iter().map(Overhead::row).collect(), period, 0))
    }
}

impl Rows for Laid {
    fn row(&self, index: u32) -> Option<&Row> {
        self.rows.get(index as usize)
    }

    fn locate(&self, rows: u32, hint: u32, key: u64, by: By) -> u32 {
        locate(|index| Some(self.row(index)?.key(by)), rows, hint, key)
    }
}

impl Laid {
    /// One step of the recursion by these rows, as [`departure`](crate::departure::departure) is one of a server that does not
    /// change. The timeline's clock started at [`Course::origin`]; [`Course::in_force`] must hold. `horizon` is for how long a
    /// packet may wait at most, and what several segments serve may stay. `None` if `course` is not of these rows.
    pub fn departure(
        &self,
        hints: &mut Hints,
        horizon: Ticks,
        free: Instant,
        arrival: Instant,
        load: Load,
    ) -> Option<Outcome> {
        let step = Step::new(self.course, horizon, arrival, load, *hints);
        let outcome = step.outcome(self, free).ok();
        *hints = step.hints.get();
        outcome
    }
}
