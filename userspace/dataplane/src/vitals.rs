//! What keeps an emulation alive, apart from the emulation itself, so that a thread of its own can do it: the lease,
//! the pacer's figures for `perturb status`, and a look at what others may have changed.

use std::sync::Arc;

use perturb_common::abi::{PacerStat, ThreadStat, thread_stat};

use crate::{
    emulation::EmulationError,
    loader::LoaderError,
    losses::{self, Losses, SharedLedgers},
    maps::Maps,
    netlink::{NetlinkError, Notices},
    user::{UserPacer, UserPacerStats},
    watch::{Fault, Watched},
};

/// The vital parts of an emulation.
pub struct Vitals {
    pub(crate) maps: Maps,
    pub(crate) pacer: Option<Arc<UserPacer>>,
    pub(crate) ledgers: SharedLedgers,
    pub(crate) watched: Vec<Watched>,
}

impl Vitals {
    /// Lets the programs emulate until `until`, CLOCK_MONOTONIC ns; `u64::MAX` for ever, 0 no more.
    pub fn set_lease(&mut self, until: u64) -> Result<(), LoaderError> {
        self.maps.set_lease(until).map_err(|source| LoaderError::Map {
            map: "CONTROL",
            source,
        })
    }

    /// Tells the figures of pacer and devices to those who read the maps.
    pub fn publish(&mut self) -> Result<(), EmulationError> {
        publish(self.pacer.as_deref(), &self.ledgers, &mut self.maps)
    }

    /// Where notices of changes come from, to wait for them.
    pub fn notices(&self) -> impl Iterator<Item = &Notices> {
        self.watched.iter().map(Watched::notices)
    }

    /// Takes what was heard; whether there was anything.
    pub fn listen(&mut self) -> Result<bool, NetlinkError> {
        let mut any = false;
        for watched in &mut self.watched {
            any |= watched.listen()?;
        }
        Ok(any)
    }

    /// Looks whether everything is as it was; the first fault found.
    pub fn look(&mut self) -> Result<Option<Fault>, EmulationError> {
        for watched in &mut self.watched {
            if let Some(fault) = watched.look()? {
                return Ok(Some(fault));
            }
        }
        let dead = self.pacer.as_ref().and_then(|pacer| pacer.dead());
        Ok(dead.and_then(|index| self.watched.iter().find_map(|watched| watched.dead(index))))
    }
}

pub(crate) fn publish(
    pacer: Option<&UserPacer>,
    ledgers: &SharedLedgers,
    maps: &mut Maps,
) -> Result<(), EmulationError> {
    let mut ledgers = losses::lock(ledgers);
    let (losses, stats) = match pacer {
        Some(pacer) => (ledgers.total()?, pacer.stats()),
        None => {
            let (losses, held_bytes) = ledgers.settle(maps)?;
            let stats = UserPacerStats {
                held_bytes,
                ..UserPacerStats::default()
            };
            (losses, stats)
        }
    };
    drop(ledgers);
    tell(maps, &losses, &stats)
}

/// Tells figures to those who read the maps.
pub(crate) fn tell(maps: &mut Maps, losses: &Losses, stats: &UserPacerStats) -> Result<(), EmulationError> {
    let all = stats.sum();
    let figures = [
        (PacerStat::HeldPackets, stats.held_packets + losses.waiting),
        (PacerStat::HeldBytes, stats.held_bytes),
        (PacerStat::Dropped, stats.dropped),
        (PacerStat::RealTime, u64::from(stats.real_time)),
        (PacerStat::Busy, all.busy),
        (PacerStat::Stalls, all.stalls),
        (PacerStat::StalledNanos, all.stalled),
        (PacerStat::LongestStall, all.longest_stall),
        (PacerStat::HoldDrops, losses.hold),
        (PacerStat::SplitterDrops, losses.splitter),
        (PacerStat::InterfaceDrops, losses.interface),
        (PacerStat::Threads, stats.threads.len() as u64),
    ];
    let threads = stats.threads.iter().zip(0..).flat_map(|(thread, number)| {
        [
            (ThreadStat::Released, thread.released),
            (ThreadStat::Busy, thread.busy),
            (ThreadStat::Stalls, thread.stalls),
            (ThreadStat::StalledNanos, thread.stalled),
            (ThreadStat::LongestStall, thread.longest_stall),
        ]
        .map(|(stat, value)| (thread_stat(number, stat), value))
    });
    let figures = figures.into_iter().map(|(stat, value)| (stat as u32, value));
    for (place, value) in figures.chain(threads) {
        maps.pacer_stats
            .set(place, value, 0)
            .map_err(EmulationError::PacerStats)?;
    }
    Ok(())
}
