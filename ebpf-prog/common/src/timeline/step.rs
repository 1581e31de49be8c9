//! A packet's step of the recursion at a server that changes.

use core::cell::Cell;

use super::course::{
    By, Course, Found, Hints, IN_BYTES, NO_FREE, PART_BITS, Place, Row, Rows, SHUT, STOPPED,
};
use crate::{
    departure::{Load, Outcome, Service},
    queue::Law,
    ticks::saturating_shl,
    units::{GapPerByte, Instant, Ticks, saturating_mul},
};

/// What is known of the step. In cells: the programs have it in a map, and its rarer parts are functions of their own there,
/// for the stack's sake ([`Rows`]).
#[derive(Clone)]
#[repr(C)]
pub struct Step {
    /// The timeline, with the origin of its clock; [`Course::in_force`] must hold.
    pub course: Course,
    /// For how long a packet may wait at most, and what several segments serve may stay.
    pub horizon: Ticks,
    /// When the packet arrives.
    pub arrival: Instant,
    /// What it brings.
    pub load: Load,
    /// Rows to try first.
    pub hints: Cell<Hints>,
    start: Cell<Instant>,
    begin: Cell<Instant>,
    end: Cell<Instant>,
    /// Arrival, and the row there.
    came: Cell<Place>,
    from: Cell<u32>,
    /// Beginning of the service, later of the transmission, and the row there.
    index: Cell<u32>,
    begun: Cell<Place>,
    /// In force at arrival.
    room: Cell<u64>,
    /// Work between arrival and beginning, if room is in bytes.
    ahead: Cell<u64>,
    /// What is left when row `index` begins, in the turn that `begun` says; 0 if nothing.
    left: Cell<u64>,
    /// In force when its service ends.
    row: Cell<u32>,
    /// Whether several rows serve it.
    several: Cell<bool>,
}

/// Why a packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stop {
    /// [`Outcome::TailDrop`].
    TailDrop = 1,
    /// [`Outcome::BeyondHorizon`].
    BeyondHorizon = 2,
    /// [`Outcome::Down`].
    Down = 3,
    /// The tables contradict themselves.
    Inconsistent = 4,
}

/// How a part of the step ends.
pub type Stage = Result<(), Stop>;

#[inline(always)]
fn row(rows: &impl Rows, index: u32) -> Result<&Row, Stop> {
    rows.row(index).ok_or(Stop::Inconsistent)
}

/// Whether room is counted in bytes.
#[inline(always)]
const fn in_bytes(room: u64) -> bool {
    room & IN_BYTES != 0 && room != u64::MAX
}

impl Step {
    /// Of a packet at a server that has this timeline.
    #[inline(always)]
    #[must_use]
    pub fn new(course: Course, horizon: Ticks, arrival: Instant, load: Load, hints: Hints) -> Self {
        Self {
            course,
            horizon,
            arrival,
            load,
            hints: Cell::new(hints),
            start: Cell::new(arrival),
            begin: Cell::new(arrival),
            end: Cell::new(arrival),
            came: Cell::default(),
            from: Cell::default(),
            index: Cell::default(),
            begun: Cell::default(),
            room: Cell::default(),
            ahead: Cell::default(),
            left: Cell::default(),
            row: Cell::default(),
            several: Cell::default(),
        }
    }

    /// The step of a packet whose server is free then. `Err` if `course` is not of these rows. Saturates; never panics.
    pub fn outcome(&self, rows: &impl Rows, free: Instant) -> Result<Outcome, Stop> {
        match self.run(rows, free) {
            Ok((service, _)) => Ok(Outcome::Served(service)),
            Err(Stop::TailDrop) => Ok(Outcome::TailDrop),
            Err(Stop::BeyondHorizon) => Ok(Outcome::BeyondHorizon),
            Err(Stop::Down) => Ok(Outcome::Down),
            Err(Stop::Inconsistent) => Err(Stop::Inconsistent),
        }
    }

    /// The same: its times, and the row in force when its service ends, whose loss and jitter are those that it meets. What is
    /// needed behind the look-up of a row is read from the cells again, as registers do not outlive it.
    #[inline(always)]
    pub fn run<'r>(&self, rows: &'r impl Rows, free: Instant) -> Result<(Service, &'r Row), Stop> {
        let course = &self.course;
        self.start.set(self.arrival.max(free));
        let came = course.place(self.arrival);
        self.came.set(came);
        self.begun.set(came);
        self.index.set(self.hints.get().arrival());
        let mut here = self.here(rows)?;
        self.from.set(here.index);
        self.room.set(here.row.room);
        self.ahead.set(0);
        if self.start.get().0 != self.arrival.0 {
            let begun = course.place(self.start.get());
            self.begun.set(begun);
            let came = self.came.get();
            if begun.turn.0 != came.turn.0 || begun.since >= here.end {
                self.index.set(self.hints.get().start());
                here = self.here(rows)?;
                self.index.set(here.index);
                if in_bytes(self.room.get()) {
                    rows.ahead(self)?;
                }
            } else if in_bytes(self.room.get()) {
                self.ahead
                    .set(here.row.served(begun.since.saturating_sub(came.since)));
            }
        }
        self.hints.set(Hints::new(self.from.get(), here.index));
        let room = self.room.get();
        if in_bytes(room) {
            let work = saturating_shl(self.load.bytes, PART_BITS);
            if self.ahead.get().saturating_add(work) > room & !IN_BYTES {
                return Err(Stop::TailDrop);
            }
        }
        if here.row.marks & SHUT != 0 {
            return Err(Stop::Down);
        }
        let busy = saturating_mul(here.row.gap, self.load.segments);
        let mut begun = self.begun.get();
        begun.since = begun.since.saturating_add(busy);
        let begin = self.start.get().after(Ticks(busy));
        self.begin.set(begin);
        if begun.since >= here.end {
            self.begun.set(course.place(begin));
            self.index.set(here.index);
            rows.seek(self)?;
            here = course.found(rows, self.index.get()).ok_or(Stop::Inconsistent)?;
            begun = self.begun.get();
        }
        let begin = self.begin.get();
        let time = GapPerByte(here.row.per_byte).transmit(self.load.bytes);
        // Most packets are served by the row in which they begin.
        if begun.since.saturating_add(time.0) < here.end && here.row.per_byte != STOPPED {
            self.end.set(begin.after(time));
            self.several.set(false);
        } else {
            self.begun.set(begun);
            self.index.set(here.index);
            rows.reach(self)?;
            if self.left.get() != 0 {
                rows.rest(self)?;
            }
            here.row = row(rows, self.row.get())?;
        }
        let (backlog, end) = (self.start.get().since(self.arrival), self.end.get());
        let room = self.room.get();
        if room & IN_BYTES == 0 && backlog.plus(end.since(self.begin.get())).0 > room {
            return Err(Stop::TailDrop);
        }
        let waits = if self.several.get() {
            end.since(self.arrival)
        } else {
            backlog
        };
        if waits.0 > self.horizon.0 {
            return Err(Stop::BeyondHorizon);
        }
        let service = Service {
            backlog,
            free: end,
            next: end.after(Ticks(here.row.latency)),
        };
        Ok((service, here.row))
    }

    /// What a law's small packets take when the packet arrives, behind [`Self::run`]; `None` while the server is stopped.
    #[inline(always)]
    pub fn small_takes(&self, rows: &impl Rows, law: &Law) -> Option<Ticks> {
        let row = rows.row(self.from.get())?;
        if row.per_byte == STOPPED {
            return None;
        }
        Some(law.small_takes(Ticks(row.gap), GapPerByte(row.per_byte)))
    }

    /// The row at `begun`. `index` is tried first.
    #[inline(always)]
    fn here<'r>(&self, rows: &'r impl Rows) -> Result<Found<'r>, Stop> {
        let index = self.index.get();
        if index < self.course.len {
            let found = self.course.found(rows, index).ok_or(Stop::Inconsistent)?;
            let since = self.begun.get().since;
            if found.row.at <= since && since < found.end {
                return Ok(found);
            }
        }
        rows.seek(self)?;
        self.course
            .found(rows, self.index.get())
            .ok_or(Stop::Inconsistent)
    }

    /// The index of the row at `begun`.
    #[inline(always)]
    pub fn seek(&self, rows: &impl Rows) -> Stage {
        let (index, since) = (self.index.get(), self.begun.get().since);
        self.index
            .set(rows.locate(self.course.len, index, since, By::Time));
        Ok(())
    }

    /// Work that is served between arrival and the beginning of service, there.
    #[inline(always)]
    pub fn ahead(&self, rows: &impl Rows) -> Stage {
        let (course, came, begun) = (&self.course, self.came.get(), self.begun.get());
        let Found { row: from, end, .. } = course.found(rows, self.from.get()).ok_or(Stop::Inconsistent)?;
        let head = from.served(end.saturating_sub(came.since));
        let row = row(rows, self.index.get())?;
        let tail = row.served(begun.since.saturating_sub(row.at));
        let turns = begun.turn.since(came.turn).0;
        let turns = turns.checked_div(course.period).unwrap_or_default();
        let until = course
            .work_until_end(rows, self.from.get())
            .ok_or(Stop::Inconsistent)?;
        let whole = saturating_mul(turns, course.total)
            .saturating_add(row.work)
            .saturating_sub(until);
        self.ahead.set(head.saturating_add(whole).saturating_add(tail));
        Ok(())
    }

    /// When its service ends, if that is not within the row in which transmission begins.
    #[inline(always)]
    pub fn reach(&self, rows: &impl Rows) -> Stage {
        let (course, begin, bytes) = (&self.course, self.begin.get(), self.load.bytes);
        let (mut begun, mut index) = (self.begun.get(), self.index.get());
        let Found { row: first, end, .. } = course.found(rows, index).ok_or(Stop::Inconsistent)?;
        self.several.set(false);
        self.left.set(0);
        self.row.set(index);
        if first.per_byte == 0 {
            self.end.set(begin);
            return Ok(());
        }
        let room = end.saturating_sub(begun.since);
        let mut work = saturating_shl(bytes, PART_BITS);
        if first.per_byte != STOPPED {
            let time = GapPerByte(first.per_byte).transmit(bytes);
            if time.0 <= room {
                self.end.set(begin.after(time));
                if time.0 == room {
                    self.row.set(course.next(index));
                }
                return Ok(());
            }
            work = work.saturating_sub(first.served(room));
        }
        self.several.set(true);
        self.end.set(Instant(u64::MAX));
        if index + 1 < course.len {
            index += 1;
        } else if course.period != 0 {
            begun.turn = begun.turn.after(Ticks(course.period));
            index = 0;
        } else {
            return Ok(());
        }
        // Something is left: `served` rounds down.
        self.left.set(if work == 0 { 1 } else { work });
        self.begun.set(begun);
        self.index.set(index);
        Ok(())
    }

    /// The same for what is left when that row begins, in the turn that began then.
    #[inline(always)]
    pub fn rest(&self, rows: &impl Rows) -> Stage {
        let (mut turn, mut index) = (self.begun.get().turn, self.index.get());
        let course = &self.course;
        let first = row(rows, index)?;
        let mut target = first.work.saturating_add(self.left.get());
        let mut free = first.free();
        self.row.set(index);
        if free == NO_FREE && target > course.total {
            if course.period == 0 {
                if row(rows, course.len.saturating_sub(1))?.per_byte == STOPPED {
                    return Ok(());
                }
            } else {
                target -= course.total;
                turn = turn.after(Ticks(course.period));
                index = 0;
                free = row(rows, 0)?.free();
                if free == NO_FREE {
                    if course.total == 0 {
                        return Ok(());
                    }
                    let turns = (target - 1) / course.total;
                    target -= turns * course.total;
                    turn = turn.after(Ticks(saturating_mul(turns, course.period)));
                }
            }
        }
        if free != NO_FREE {
            let row = row(rows, free)?;
            if row.work < target {
                self.row.set(free);
                self.end.set(turn.after(Ticks(row.at)));
                return Ok(());
            }
        }
        index = rows.locate(course.len, index, target.saturating_sub(1), By::Work);
        let row = row(rows, index)?;
        let at = row.at.saturating_add(row.takes(target.saturating_sub(row.work)));
        let end = course.end(rows, index).ok_or(Stop::Inconsistent)?;
        if at < end {
            self.row.set(index);
            self.end.set(turn.after(Ticks(at)));
        } else {
            self.row.set(course.next(index));
            self.end.set(turn.after(Ticks(end)));
        }
        Ok(())
    }
}
