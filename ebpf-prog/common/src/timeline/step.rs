//! A packet's step of the recursion at a server that changes, in stages: the programs' stack is too small for all at once.

use super::course::{By, Course, Hints, IN_BYTES, NO_FREE, PART_BITS, Place, Row, Rows, SHUT, STOPPED};
use crate::{
    departure::{Load, Outcome, Service},
    ticks::saturating_shl,
    units::{GapPerByte, Instant, Ticks, saturating_mul},
};

/// What is known of the step.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Step {
    /// The timeline, with the origin of its clock; [`Course::in_force`] must hold.
    pub course: Course,
    /// For how long a packet may wait at most, and what several segments serve may stay.
    pub horizon: Ticks,
    /// When the server is free.
    pub free: Instant,
    /// When the packet arrives.
    pub arrival: Instant,
    /// What it brings.
    pub load: Load,
    /// Rows to try first.
    pub hints: Hints,
    start: Instant,
    /// Arrival and beginning of the service, later of the transmission, and the rows there.
    came: Place,
    begun: Place,
    from: u32,
    index: u32,
    begin: Instant,
    /// What is left when row `index` begins, in the turn that `begun` says; 0 if nothing.
    left: u64,
    end: Instant,
    /// In force when its service ends: loss and jitter are those of this row.
    pub row: u32,
    several: u32,
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

type Stage = Result<(), Stop>;

#[inline(always)]
fn row(rows: &impl Rows, index: u32) -> Result<&Row, Stop> {
    rows.row(index).ok_or(Stop::Inconsistent)
}

impl Step {
    /// Of a packet at a server that has this timeline.
    #[inline(always)]
    #[must_use]
    pub fn new(
        course: Course,
        horizon: Ticks,
        free: Instant,
        arrival: Instant,
        load: Load,
        hints: Hints,
    ) -> Self {
        Self {
            course,
            horizon,
            free,
            arrival,
            load,
            hints,
            start: arrival,
            came: Place::default(),
            begun: Place::default(),
            from: 0,
            index: 0,
            begin: arrival,
            left: 0,
            end: arrival,
            row: 0,
            several: 0,
        }
    }

    /// All stages. Saturates; never panics.
    pub fn run(&mut self, rows: &impl Rows) -> Result<Outcome, Stop> {
        let stages = self
            .arrive(rows)
            .and_then(|()| self.wait(rows))
            .and_then(|()| self.take(rows))
            .and_then(|()| self.reach(rows))
            .and_then(|()| self.leave(rows));
        match stages {
            Ok(()) => Ok(Outcome::Served(self.service(rows).ok_or(Stop::Inconsistent)?)),
            Err(Stop::TailDrop) => Ok(Outcome::TailDrop),
            Err(Stop::BeyondHorizon) => Ok(Outcome::BeyondHorizon),
            Err(Stop::Down) => Ok(Outcome::Down),
            Err(Stop::Inconsistent) => Err(Stop::Inconsistent),
        }
    }

    /// [`Self::admit`], [`Self::begin`] and [`Self::transmit`].
    #[inline(always)]
    pub fn take(&mut self, rows: &impl Rows) -> Stage {
        self.hints = Hints::new(self.from, self.index);
        self.admit(rows)?;
        self.begin(rows)?;
        self.transmit(rows)
    }

    /// Whether something is left for [`Self::reach`].
    #[inline(always)]
    #[must_use]
    pub const fn goes_on(&self) -> bool {
        self.left != 0
    }

    /// First: the row at arrival.
    #[inline(always)]
    pub fn arrive(&mut self, rows: &impl Rows) -> Stage {
        self.start = self.arrival.max(self.free);
        self.came = self.course.place(self.arrival);
        self.from = rows.locate(self.course.len, self.hints.arrival(), self.came.since, By::Time);
        self.begun = self.came;
        self.index = self.from;
        Ok(())
    }

    /// Whether it [waits](Self::wait).
    #[inline(always)]
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.start.0 != self.arrival.0
    }

    /// Then: the row at the beginning of service, if it is later.
    #[inline(always)]
    pub fn wait(&mut self, rows: &impl Rows) -> Stage {
        if self.waits() {
            self.begun = self.course.place(self.start);
            self.index = rows.locate(self.course.len, self.hints.start(), self.begun.since, By::Time);
        }
        Ok(())
    }

    /// Then: whether there is room in bytes, and the gate is open.
    #[inline(always)]
    fn admit(&mut self, rows: &impl Rows) -> Stage {
        let room = row(rows, self.from)?.room;
        if room & IN_BYTES != 0 && room != u64::MAX {
            let ahead = if self.waits() {
                self.ahead(rows).ok_or(Stop::Inconsistent)?
            } else {
                0
            };
            let work = ahead.saturating_add(saturating_shl(self.load.bytes, PART_BITS));
            if work > room & !IN_BYTES {
                return Err(Stop::TailDrop);
            }
        }
        if row(rows, self.index)?.marks & SHUT != 0 {
            return Err(Stop::Down);
        }
        Ok(())
    }

    /// Work that is served between arrival and the beginning of service.
    #[inline(always)]
    fn ahead(&self, rows: &impl Rows) -> Option<u64> {
        let row = rows.row(self.from)?;
        if self.from == self.index && self.came.turn.0 == self.begun.turn.0 {
            return Some(row.served(self.begun.since.saturating_sub(self.came.since)));
        }
        let head = row.served(self.course.end(rows, self.from)?.saturating_sub(self.came.since));
        let row = rows.row(self.index)?;
        let tail = row.served(self.begun.since.saturating_sub(row.at));
        let turns = self.begun.turn.since(self.came.turn).0;
        let turns = turns.checked_div(self.course.period).unwrap_or_default();
        let whole = saturating_mul(turns, self.course.total)
            .saturating_add(row.work)
            .saturating_sub(self.course.work_until_end(rows, self.from)?);
        Some(head.saturating_add(whole).saturating_add(tail))
    }

    /// Then: the row in which transmission begins, behind the gap.
    #[inline(always)]
    fn begin(&mut self, rows: &impl Rows) -> Stage {
        let busy = saturating_mul(row(rows, self.index)?.gap, self.load.segments);
        self.begin = self.start.after(Ticks(busy));
        let since = self.begun.since.saturating_add(busy);
        if since < self.course.end(rows, self.index).ok_or(Stop::Inconsistent)? {
            self.begun.since = since;
        } else if busy != 0 {
            self.begun = self.course.place(self.begin);
            self.index = rows.locate(self.course.len, self.index, self.begun.since, By::Time);
        }
        Ok(())
    }

    /// Then: transmission, as far as this row goes.
    #[inline(always)]
    fn transmit(&mut self, rows: &impl Rows) -> Stage {
        self.row = self.index;
        self.end = self.begin;
        self.left = 0;
        self.several = 0;
        let row = row(rows, self.index)?;
        if row.per_byte == 0 {
            return Ok(());
        }
        let end = self.course.end(rows, self.index).ok_or(Stop::Inconsistent)?;
        let room = end.saturating_sub(self.begun.since);
        let mut work = saturating_shl(self.load.bytes, PART_BITS);
        if row.per_byte != STOPPED {
            let time = GapPerByte(row.per_byte).transmit(self.load.bytes);
            if time.0 <= room {
                self.end = self.begin.after(time);
                if time.0 == room {
                    self.row = self.course.next(self.index);
                }
                return Ok(());
            }
            work = work.saturating_sub(row.served(room));
        }
        self.several = 1;
        if self.index + 1 < self.course.len {
            self.index += 1;
        } else if self.course.period != 0 {
            self.begun.turn = self.begun.turn.after(Ticks(self.course.period));
            self.index = 0;
        } else {
            self.end = Instant(u64::MAX);
            return Ok(());
        }
        // Something is left: `served` rounds down.
        self.left = if work == 0 { 1 } else { work };
        Ok(())
    }

    /// Then: what is left, by the rows that follow.
    #[inline(always)]
    pub fn reach(&mut self, rows: &impl Rows) -> Stage {
        if self.left == 0 {
            return Ok(());
        }
        let course = &self.course;
        let first = row(rows, self.index)?;
        let mut target = first.work.saturating_add(self.left);
        let mut free = first.free();
        self.row = self.index;
        if free == NO_FREE && target > course.total {
            if course.period == 0 {
                if row(rows, course.len.saturating_sub(1))?.per_byte == STOPPED {
                    self.end = Instant(u64::MAX);
                    return Ok(());
                }
            } else {
                target -= course.total;
                self.begun.turn = self.begun.turn.after(Ticks(course.period));
                self.index = 0;
                free = row(rows, 0)?.free();
                if free == NO_FREE {
                    if course.total == 0 {
                        self.end = Instant(u64::MAX);
                        return Ok(());
                    }
                    let turns = (target - 1) / course.total;
                    target -= turns * course.total;
                    let whole = Ticks(saturating_mul(turns, course.period));
                    self.begun.turn = self.begun.turn.after(whole);
                }
            }
        }
        if free != NO_FREE {
            let row = row(rows, free)?;
            if row.work < target {
                self.row = free;
                self.end = self.begun.turn.after(Ticks(row.at));
                return Ok(());
            }
        }
        self.row = rows.locate(course.len, self.index, target.saturating_sub(1), By::Work);
        let row = row(rows, self.row)?;
        let at = row.at.saturating_add(row.takes(target.saturating_sub(row.work)));
        let end = course.end(rows, self.row).ok_or(Stop::Inconsistent)?;
        if at < end {
            self.end = self.begun.turn.after(Ticks(at));
        } else {
            self.end = self.begun.turn.after(Ticks(end));
            self.row = course.next(self.row);
        }
        Ok(())
    }

    /// Last: whether there is room in time, and how far the horizon is.
    #[inline(always)]
    pub fn leave(&mut self, rows: &impl Rows) -> Stage {
        let backlog = self.start.since(self.arrival);
        let room = row(rows, self.from)?.room;
        if room & IN_BYTES == 0 && backlog.plus(self.end.since(self.begin)).0 > room {
            return Err(Stop::TailDrop);
        }
        let waits = if self.several != 0 {
            self.end.since(self.arrival)
        } else {
            backlog
        };
        if waits.0 > self.horizon.0 {
            return Err(Stop::BeyondHorizon);
        }
        Ok(())
    }

    /// The times of a packet that has come through all stages.
    #[inline(always)]
    pub fn service(&self, rows: &impl Rows) -> Option<Service> {
        Some(Service {
            backlog: self.start.since(self.arrival),
            free: self.end,
            next: self.end.after(Ticks(rows.row(self.row)?.latency)),
        })
    }
}
