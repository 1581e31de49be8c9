//! When the timeline of an emulation starts.

use anyhow::Context as _;
use perturb_dataplane::{maps::Maps, moment};

use crate::registry::Record;

/// The clock of what `start: apply` and `start: first-packet` say.
pub struct Clock(Maps);

impl Clock {
    /// That of an emulation.
    pub fn of(record: &Record) -> anyhow::Result<Self> {
        Ok(Self(Maps::by_id(&record.maps)?))
    }

    /// When it started, ns of CLOCK_MONOTONIC; `None` until then.
    pub fn started(&self) -> anyhow::Result<Option<u64>> {
        let started = moment::started(&self.0).context("reading when the timeline started")?;
        Ok(started.map(|instant| instant.ceil_nanos().0))
    }
}
