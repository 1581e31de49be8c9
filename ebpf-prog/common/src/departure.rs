//! The departure recursion (Lindley 1952): one FIFO server, one packet.
//!
//! ```text
//! start = max(arrival, free)                 wait for the packets ahead
//! drop    if the backlog would exceed the buffer (tail drop)
//! free' = start + gap * segments + G * bytes occupancy: LogGP's g and G
//! next  = free' + latency                    LogGP's L; arrival at the next server
//! ```
//!
//! `free` is the only state. A path is the fold of [`departure`] over its servers; jitter and loss
//! are in [`crate::fate`]. The packet in service counts towards the backlog with what is left of it.

use super::{
    ticks::{GapPerByte, Instant, Ticks, saturating_mul},
    word::Word,
};

/// What a server does to each packet: the knobs g, G, L and its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Server {
    /// Occupancy per wire packet (LogGP's g).
    pub gap: Ticks,
    /// Occupancy per byte (LogGP's G).
    pub per_byte: GapPerByte,
    /// Propagation after the service, one way (LogGP's L).
    pub latency: Ticks,
    /// Largest backlog including the arriving packet's bytes, as the time the server needs to
    /// transmit it; [`Ticks::MAX`] for no limit.
    pub buffer: Ticks,
    /// Longest wait before service whatever the buffer says: the largest delay that the pacer can
    /// hold. [`Ticks::MAX`] for no limit.
    pub horizon: Ticks,
}

impl Server {
    /// A server that costs nothing.
    pub const IDLE: Self = Self {
        gap: Ticks(0),
        per_byte: GapPerByte(0),
        latency: Ticks(0),
        buffer: Ticks::MAX,
        horizon: Ticks::MAX,
    };
}

/// A packet as a server sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Load {
    /// Bytes on the wire, headers of every segment included.
    pub bytes: Word,
    /// Wire packets: 1, or `gso_segs` of a super-packet.
    pub segments: Word,
}

/// How long a packet occupies a server, whatever its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Cost {
    /// For its bytes: G.
    pub transmit: Ticks,
    /// In all: g and G.
    pub occupancy: Ticks,
}

impl Cost {
    /// That of a packet at a server; saturates.
    #[inline(always)]
    #[must_use]
    pub const fn of(server: &Server, load: Load) -> Self {
        let transmit = server.per_byte.transmit(load.bytes);
        Self {
            transmit,
            occupancy: Ticks(saturating_mul(server.gap.0, load.segments)).plus(transmit),
        }
    }
}

/// What becomes of a packet at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Served; see the fields.
    Served(Service),
    /// The buffer is full.
    TailDrop,
    /// The wait would exceed the horizon.
    BeyondHorizon,
    /// It would begin service while the server is down ([`crate::timeline`]).
    Down,
    /// The law of its queue drops it ([`crate::queue`]).
    Early,
}

/// The times of a served packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// How long it waited: `start - arrival`, the backlog it found.
    pub backlog: Ticks,
    /// When the server is free again; the new state.
    pub free: Instant,
    /// When it arrives at the next server.
    pub next: Instant,
}

impl Service {
    /// That of a packet which occupies nothing and waits for nothing.
    #[inline(always)]
    #[must_use]
    pub const fn at_once(arrival: Instant) -> Self {
        Self {
            backlog: Ticks(0),
            free: arrival,
            next: arrival,
        }
    }

    /// The same at a server of this latency, occupied for longer before.
    #[inline(always)]
    #[must_use]
    pub const fn delayed(self, lost: Ticks, latency: Ticks) -> Self {
        let free = self.free.after(lost);
        Self {
            backlog: self.backlog,
            free,
            next: free.after(latency),
        }
    }
}

/// One step of the recursion. Saturates instead of overflowing, for any input; never panics.
#[inline(always)]
#[must_use]
pub fn departure(server: &Server, free: Instant, arrival: Instant, load: Load) -> Outcome {
    depart(server, free, arrival, Cost::of(server, load))
}

/// The same for a packet whose cost is known.
#[inline(always)]
#[must_use]
pub fn depart(server: &Server, free: Instant, arrival: Instant, cost: Cost) -> Outcome {
    let start = arrival.max(free);
    let backlog = start.since(arrival);
    // A buffer without limit admits even what saturates.
    if server.buffer.0 != Ticks::MAX.0 && backlog.plus(cost.transmit).0 > server.buffer.0 {
        return Outcome::TailDrop;
    }
    if backlog.0 > server.horizon.0 {
        return Outcome::BeyondHorizon;
    }
    let free = start.after(cost.occupancy);
    Outcome::Served(Service {
        backlog,
        free,
        next: free.after(server.latency),
    })
}
