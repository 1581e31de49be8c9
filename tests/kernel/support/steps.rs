//! A server that changes often.

use perturb_common::{
    tables::Tables,
    timeline::{End, Segment, Start, Timeline},
    units::Ticks,
};
use perturb_dataplane::{programs::Pacer, room::Room};

use super::Rig;

/// Steps of the longest timeline that is tried.
pub(crate) const MILLION: u64 = 1 << 20;

impl Rig {
    /// With a profile whose last server is, by turns for so long, what each of [`MILLION`] segments says, from the first on again
    /// and again.
    pub(crate) fn stepping(
        profile: &str,
        pacer: Pacer,
        each: Ticks,
        segment: impl Fn(u64) -> Segment,
    ) -> Option<Self> {
        let room = |tables: &Tables| Room {
            segments: MILLION as u32,
            ..Room::of(tables)
        };
        let mut rig = Self::with_room(profile, pacer, 131_072, room)?;
        let mut tables = rig.tables.clone();
        tables.servers.last_mut()?.timeline = 0;
        tables.timelines = vec![Timeline {
            start: Start::Apply,
            segments: (0..MILLION)
                .map(|index| Segment {
                    at: Ticks(index * each.0),
                    ..segment(index)
                })
                .collect(),
            end: End::Loop(Ticks(MILLION * each.0)),
        }];
        rig.load_tables(tables);
        Some(rig)
    }
}
