//! Timelines: laid out, written, and their clocks.

use perturb_clock::{both, now};
use perturb_common::{
    abi::{CLOCK_APPLY, CLOCK_FIRST, SETTING_OVERHEADS, Settings, in_half},
    tables::Tables,
    timeline::{Course, End, Laid, Start},
    units::{MonoNanos, Nanos},
};

use super::{Loader, LoaderError, write};
use crate::maps::Wire;

/// A timeline whose rows are written, and whose clock is not set.
struct Written {
    course: Course,
    start: Start,
    end: End,
}

/// When something began that began at an instant of CLOCK_REALTIME, ticks of CLOCK_MONOTONIC.
fn began(wall: u64, end: End) -> Result<u64, LoaderError> {
    let (now, wall_now) = both();
    if let Some(since) = (wall + now).checked_sub(wall_now) {
        return Ok(MonoNanos(since).instant().0);
    }
    // Before the machine started.
    let missing = Nanos(wall_now - now - wall).ticks().0;
    match end {
        End::Loop(period) => Ok(missing.div_ceil(period.0) * period.0 - missing),
        End::Hold => Err(LoaderError::BeforeBoot),
    }
}

impl Loader {
    /// Writes the timelines' rows, and then, with their clocks, themselves; the settings learn of that of overheads.
    pub(super) fn load_timelines(
        &mut self,
        tables: &Tables,
        half: u32,
        settings: &mut Settings,
    ) -> Result<(), LoaderError> {
        let mut first = half * self.room.segments;
        let mut written = Vec::new();
        for one in &tables.timelines {
            let course = self.write_rows(&one.lay()?, &mut first)?;
            written.push(Written {
                course,
                start: one.start,
                end: one.end,
            });
        }
        if let Some(one) = &tables.overheads {
            let course = self.write_rows(&one.lay()?, &mut first)?;
            settings.overheads = in_half(half, written.len() as u32);
            settings.flags |= SETTING_OVERHEADS;
            written.push(Written {
                course,
                start: one.start,
                end: one.end,
            });
        }
        if written.is_empty() {
            return self.restart_clocks();
        }
        let applied = self.clock()?;
        for (index, mut one) in (0..).zip(written) {
            one.course.origin = match one.start {
                Start::Apply => applied,
                Start::FirstPacket => Course::WAITS,
                Start::At(wall) => began(wall, one.end)?,
            };
            let place = in_half(half, index);
            write("TIMELINES", self.maps.timelines.set(place, Wire(one.course), 0))?;
        }
        Ok(())
    }

    fn write_rows(&mut self, laid: &Laid, first: &mut u32) -> Result<Course, LoaderError> {
        let mut course = laid.course;
        course.first = *first;
        for (row, place) in laid.rows.iter().zip(*first..) {
            write("SEGMENTS", self.maps.segments.set(place, Wire(*row), 0))?;
        }
        *first += laid.rows.len() as u32;
        Ok(course)
    }

    /// When the clock of what is applied started, ticks; now if it has not yet.
    fn clock(&mut self) -> Result<u64, LoaderError> {
        let started = write("CLOCKS", self.maps.clocks.get(&CLOCK_APPLY, 0))?;
        if started != 0 {
            return Ok(started);
        }
        let started = MonoNanos(now()).instant().0;
        write("CLOCKS", self.maps.clocks.set(CLOCK_APPLY, started, 0))?;
        Ok(started)
    }

    /// The next profile's timelines begin anew; without this they go on.
    pub fn restart_clocks(&mut self) -> Result<(), LoaderError> {
        for clock in [CLOCK_APPLY, CLOCK_FIRST] {
            write("CLOCKS", self.maps.clocks.set(clock, 0, 0))?;
        }
        Ok(())
    }
}
