//! Timelines: laid out, written, and their clocks.

use std::mem;

use perturb_clock::{both, now};
use perturb_common::{
    abi::{CLOCKS_LEN, SETTING_OVERHEADS, Settings, in_half},
    tables::Tables,
    timeline::{Course, End, Laid, Start},
    units::{MonoNanos, TICK_SHIFT},
};

use super::{Loader, LoaderError, slots::Clock, write};
use crate::maps::Wire;

/// A timeline whose rows are written, and whose clock is not set.
struct Written {
    course: Course,
    start: Start,
    end: End,
}

/// When something begins that begins at an instant of CLOCK_REALTIME, ticks of CLOCK_MONOTONIC; at the latest when ticks end.
/// `clocks` are both at one moment, ns.
fn began((now, wall_now): (u64, u64), wall: u64, end: End) -> Result<u64, LoaderError> {
    let since = i128::from(wall) + i128::from(now) - i128::from(wall_now);
    if since >= 0 {
        let since = MonoNanos(u64::try_from(since).unwrap_or(u64::MAX));
        return Ok(since.instant().0.min(Course::WAITS - 1));
    }
    // Before the machine started.
    match end {
        // Below the period.
        End::Loop(period) => Ok((since << TICK_SHIFT).rem_euclid(i128::from(period.0)) as u64),
        End::Hold => Err(LoaderError::BeforeBoot),
    }
}

impl Loader {
    /// Writes the timelines' rows, and then, with their clocks, themselves; the settings learn of that of overheads. Their clock.
    pub(super) fn load_timelines(
        &mut self,
        tables: &Tables,
        half: u32,
        settings: &mut Settings,
    ) -> Result<Clock, LoaderError> {
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
        let (in_force, anew) = (self.slots.clock, mem::take(&mut self.anew));
        if written.is_empty() {
            return Ok(Clock {
                applied: 0,
                ..in_force
            });
        }
        let clock = if in_force.applied == 0 || anew {
            let place = (in_force.place + 1) % CLOCKS_LEN;
            write("CLOCKS", self.maps.clocks.set(place, 0, 0))?;
            let applied = MonoNanos(now()).instant().0;
            Clock { applied, place }
        } else {
            in_force
        };
        // Once: what starts alike is in step.
        let clocks = both();
        for (index, mut one) in (0..).zip(written) {
            one.course.origin = match one.start {
                Start::Apply => clock.applied,
                Start::FirstPacket => Course::WAITS + u64::from(clock.place),
                Start::At(wall) => began(clocks, wall, one.end)?,
            };
            let place = in_half(half, index);
            write("TIMELINES", self.maps.timelines.set(place, Wire(one.course), 0))?;
        }
        Ok(clock)
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

    /// The next profile's timelines begin anew; without this they go on.
    pub fn restart_clock(&mut self) {
        self.anew = true;
    }
}

#[cfg(test)]
mod tests {
    use perturb_common::units::{Nanos, Ticks};

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * SECOND;
    /// The machine has run for an hour when it is 2026-11-25T01:00:00Z.
    const CLOCKS: (u64, u64) = (3600 * SECOND, 20_782 * DAY + 3600 * SECOND);
    const BOOT: u64 = CLOCKS.1 - CLOCKS.0;

    fn ticks(seconds: u64) -> u64 {
        Nanos(seconds * SECOND).ticks().0
    }

    #[test]
    fn an_instant_is_one_of_the_machines_clock() {
        let began = |wall, end| began(CLOCKS, wall, end).ok();
        for end in [End::Hold, End::Loop(Ticks(ticks(7)))] {
            assert_eq!(began(BOOT, end), Some(0));
            assert_eq!(began(BOOT + 5 * SECOND, end), Some(ticks(5)));
            // Ticks last for nine years: far off is not with the first packet.
            for years in [10, 100, 480] {
                assert_eq!(began(BOOT + years * 365 * DAY, end), Some(Course::WAITS - 1));
            }
        }
        assert_eq!(began(BOOT - 1, End::Hold), None);
    }

    #[test]
    fn what_began_before_the_machine_is_in_phase() {
        for (since, period) in [
            (5, 7),
            (14, 7),
            (15, 7),
            (12 * 365 * 86_400, 7),
            (BOOT / SECOND, 3601),
        ] {
            let origin = began(CLOCKS, BOOT - since * SECOND, End::Loop(Ticks(ticks(period)))).ok();
            assert_eq!(
                origin,
                Some(ticks((period - since % period) % period)),
                "{since} s before"
            );
        }
    }
}
