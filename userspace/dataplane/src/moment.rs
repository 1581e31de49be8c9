//! Where servers are in their timelines, and what their queues' laws remember.

use aya::maps::MapError;
use perturb_clock::now;
use perturb_common::{
    abi::{CONTROL_GENERATION, SERVER_LAW, SERVER_TIMELINE, ServerConfig, in_half},
    queue::{Law, State, catch_up},
    timeline::{By, Course, locate},
    units::{Instant, MonoNanos, Ticks},
};

use crate::maps::Maps;

/// When the first timeline of the profile in force started; `None` until it does.
pub fn started(maps: &Maps) -> Result<Option<Instant>, MapError> {
    let half = (maps.control.get(&CONTROL_GENERATION, 0)? & 1) as u32;
    let origin = course(maps, in_half(half, 0))?.origin;
    Ok((origin < Course::WAITS).then_some(Instant(origin)))
}

/// With the clock that a packet has started.
fn course(maps: &Maps, timeline: u32) -> Result<Course, MapError> {
    let course = maps.timelines.get(&timeline, 0)?.0;
    let Some(place) = course.origin.checked_sub(Course::WAITS) else {
        return Ok(course);
    };
    Ok(match maps.clocks.get(&(place as u32), 0)? {
        0 => course,
        started => course.started(started),
    })
}

/// A moment of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When it began, or will; `None` while it waits for a packet.
    pub began: Option<Instant>,
    /// How much has passed since its turn began, and how often it has begun anew; `None` until it starts.
    pub since: Option<(Ticks, u64)>,
    /// Until it starts, if that is known.
    pub starts_in: Option<Ticks>,
    /// The segment in force, counted from 0.
    pub segment: u32,
    /// How many there are.
    pub segments: u32,
}

impl Moment {
    /// Now, of the server that has this index in the profile; `None` if it does not change.
    pub fn of(maps: &Maps, server: u32) -> Result<Option<Self>, MapError> {
        let config = config(maps, server)?;
        if config.flags & SERVER_TIMELINE == 0 {
            return Ok(None);
        }
        let course = course(maps, config.timeline)?;
        let began = (course.origin < Course::WAITS).then_some(Instant(course.origin));
        let now = MonoNanos(now()).instant();
        let segments = course.segments();
        if now.0 < course.origin {
            return Ok(Some(Self {
                began,
                since: None,
                starts_in: began.map(|origin| origin.since(now)),
                segment: 0,
                segments,
            }));
        }
        let (since, turn) = course.since(now);
        let row = |index| {
            let row = maps.segments.get(&course.first.saturating_add(index), 0).ok()?;
            Some(row.0.key(By::Time))
        };
        Ok(Some(Self {
            began,
            since: Some((since, turn)),
            starts_in: None,
            segment: locate(row, segments, 0, since.0),
            segments,
        }))
    }
}

fn config(maps: &Maps, server: u32) -> Result<ServerConfig, MapError> {
    let half = (maps.control.get(&CONTROL_GENERATION, 0)? & 1) as u32;
    Ok(maps.servers.get(&in_half(half, server), 0)?.0)
}

/// The law of the server that has this index in the profile, and what it remembers now, if the server is free again then; `None` if
/// the server has none.
pub fn law(maps: &Maps, server: u32, free: Instant) -> Result<Option<(Law, State)>, MapError> {
    let config = config(maps, server)?;
    if config.flags & SERVER_LAW == 0 {
        return Ok(None);
    }
    let mut state = maps.queues.get(&config.slot, 0)?.0.state;
    // Nothing has come since: it is what the next packet would find.
    let small = config.law.small_takes(config.server.gap, config.server.per_byte);
    catch_up(&config.law, &mut state, free, MonoNanos(now()).instant(), small);
    Ok(Some((config.law, state)))
}
