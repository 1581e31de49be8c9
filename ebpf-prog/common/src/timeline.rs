//! Servers that change: piecewise-constant segments, and what serves *work* by them.
//!
//! ```text
//! start = max(arrival, free)
//! begin = start + gap * segments              the gap in force at `start`; it passes whatever the rate
//! free' = W^-1(W(begin) + bytes)              W(t): the integral of the rate, bytes
//! next  = free' + latency                     the latency in force at `free'`
//! ```
//!
//! Room is that in force at `arrival`, the gate that at `start`; loss and the jitter's scale are those at `free'`. A segment is in
//! force from its `at` on, until the next one's. Before its clock starts a timeline is not in force: the server is what its
//! [`ServerConfig`](crate::abi::ServerConfig) says.

mod course;
#[cfg(feature = "alloc")]
mod lay;
mod step;

#[cfg(feature = "alloc")]
pub use self::lay::{Laid, Timeline, Unfit};
pub use self::{
    course::{By, Course, Hints, Row, Rows, locate},
    step::{Stage, Step, Stop},
};
use crate::{
    fate::Chance,
    units::{GapPerByte, Ticks},
};

/// How fast a server transmits while a segment is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rate {
    /// Bytes take no time.
    Free,
    /// G, above 0.
    PerByte(GapPerByte),
    /// Not at all: what is in service goes on when there is a rate again.
    Stopped,
}

/// How much may queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Room {
    /// Everything.
    Unlimited,
    /// So many bytes that are not transmitted yet, the arriving packet's included; below 2^46.
    Bytes(u64),
    /// What has been transmitted so long after its arrival, its own gap not counted; below 2^63 ticks.
    Wait(Ticks),
}

/// Whether packets begin service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// They do.
    Open,
    /// What would begin is dropped, and counted as [`Event::Down`](crate::abi::Event::Down). What is in service goes on by the rate.
    Drop,
}

/// What a server is from `at` on, until the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// When it begins, since the timeline's start.
    pub at: Ticks,
    /// g.
    pub gap: Ticks,
    /// 1/G.
    pub rate: Rate,
    /// L.
    pub latency: Ticks,
    /// The buffer.
    pub room: Room,
    /// Independent loss: in the place of `ServerConfig::loss`.
    pub loss: Chance,
    /// In the place of `ServerConfig::jitter_scale`; no more than 2^46 count ([`crate::fate::jitter_ticks`]).
    pub jitter_scale: u64,
    /// Whether packets begin service.
    pub gate: Gate,
}

impl Segment {
    /// From the start on: packets pass at once.
    pub const IDLE: Self = Self {
        at: Ticks(0),
        gap: Ticks(0),
        rate: Rate::Free,
        latency: Ticks(0),
        room: Room::Unlimited,
        loss: Chance::NEVER,
        jitter_scale: 0,
        gate: Gate::Open,
    };
}

/// Host overhead from `at` on, until the next of its kind; ns per wire packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Overhead {
    /// When it begins, since the timeline's start.
    pub at: Ticks,
    /// In the place of `Settings::overhead_send`.
    pub send: u64,
    /// In the place of `Settings::overhead_receive`.
    pub receive: u64,
}

/// Which instant a timeline counts from. All timelines of a profile that start alike have one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// When the emulation began, or the profile in force got its first timeline.
    Apply,
    /// The first packet that arrives at any server which waits for it.
    FirstPacket,
    /// An instant of CLOCK_REALTIME, ns; the controller says when that is by CLOCK_MONOTONIC.
    At(u64),
}

/// What follows the last segment's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// It holds. (A profile that clears lays its constant server out as the last segment.)
    Hold,
    /// The timeline begins anew whenever so much has passed, which is more than the last segment's `at`.
    Loop(Ticks),
}
