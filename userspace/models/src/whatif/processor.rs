//! A group's processor: who of its processes computes, and since when.
//!
//! Either the paper's, equal [shares](Shares) for all who compute, or a scheduler's [turns](RoundRobin).

use std::cmp::Ordering;

use super::round_robin::{RoundRobin, Scheduler};
use super::shares::Shares;

/// A process due at some (virtual or real) time. Orders a max-heap so that the earliest is on top, the
/// process that stands first winning ties.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) at: f64,
    pub(super) process: u32,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .at
            .total_cmp(&self.at)
            .then(other.process.cmp(&self.process))
    }
}

/// What is next on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A process has spent its CPU time.
    Done(u32),
    /// A process's message has arrived, and the process takes it.
    Arrived(u32),
    /// Nothing to report: the processor goes from one process to another.
    Turn,
}

/// The processor of one group.
#[derive(Clone, Debug)]
pub(crate) enum Processor {
    /// Quanta without length.
    Shared(Shares),
    /// A scheduler with time slices.
    Scheduled(RoundRobin),
}

impl Processor {
    pub(crate) fn new(speed: f64, scheduler: Option<Scheduler>) -> Self {
        match scheduler {
            None => Self::Shared(Shares::new(speed)),
            Some(scheduler) => Self::Scheduled(RoundRobin::new(speed, scheduler)),
        }
    }

    /// The group time.
    pub(crate) fn clock(&self) -> f64 {
        match self {
            Self::Shared(shares) => shares.clock(),
            Self::Scheduled(turns) => turns.clock(),
        }
    }

    /// A process computes for `cpu` from now, or from its turn on; returns the virtual time at which it is
    /// done, where there is one.
    pub(crate) fn compute(&mut self, process: u32, cpu: f64) -> f64 {
        match self {
            Self::Shared(shares) => shares.compute(process, cpu),
            Self::Scheduled(turns) => {
                turns.compute(process, cpu);
                0.0
            }
        }
    }

    /// Whether a process whose message is there by now takes it now.
    pub(crate) fn takes_at_once(&self, process: u32) -> bool {
        match self {
            Self::Shared(_) => true,
            Self::Scheduled(turns) => turns.is_holder(process),
        }
    }

    /// A process's message arrives at `time`, not before the clock.
    pub(crate) fn wait(&mut self, process: u32, time: f64) {
        match self {
            Self::Shared(shares) => shares.wait(process, time),
            Self::Scheduled(turns) => turns.wait(process, time),
        }
    }

    /// When something happens here next if nothing comes from outside; infinite for never.
    pub(crate) fn next_time(&self) -> f64 {
        match self {
            Self::Shared(shares) => shares.next_time(),
            Self::Scheduled(turns) => turns.next_time(),
        }
    }

    /// Advances to what is next and takes it out.
    pub(crate) fn step(&mut self) -> Option<Next> {
        match self {
            Self::Shared(shares) => shares.step(),
            Self::Scheduled(turns) => turns.step(),
        }
    }

    /// CPU time left of a computing process; `at` is what [`Processor::compute`] returned.
    pub(crate) fn remaining(&self, process: u32, at: f64) -> f64 {
        match self {
            Self::Shared(shares) => shares.remaining(at),
            Self::Scheduled(turns) => turns.remaining(process),
        }
    }

    /// When a computing process is done if nothing else happens; `at` as in [`Processor::remaining`].
    pub(crate) fn finish(&self, process: u32, at: f64) -> f64 {
        match self {
            Self::Shared(shares) => shares.finish(at),
            Self::Scheduled(turns) => turns.finish(process, 0.0),
        }
    }

    /// When a process whose message arrives at `arrival` has then computed for `cpu`, if nothing else happens.
    pub(crate) fn finish_after(&self, process: u32, arrival: f64, cpu: f64) -> f64 {
        match self {
            // As the paper has it, with those who compute now.
            Self::Shared(shares) => arrival + cpu * (shares.sharing() + 1) as f64,
            Self::Scheduled(turns) => turns.finish(process, cpu),
        }
    }
}
