//! CSMA/CD: the time that truncated binary exponential back-off (IEEE 802.3, clause 4.2.3.2.5) takes from a shared
//! server, and the frames that are given up.
//!
//! ```text
//! k = stations with frames at the server, the arriving frame's among them     see [`Contention`]
//! a frame that finds the server busy, with k >= 2:
//!   given up   with the probability that attempts run out among k             counted as lost to collisions
//!   lost       time between two frames on a bus with k stations, drawn        see [`CollisionTable`]
//! free'      = start + lost + gap * segments + G * bytes                      per segment, as the gap
//! ```
//!
//! The table is made by playing the back-off: k stations that always have a frame, in slots. In a slot in which nobody
//! transmits an idle slot is lost; where one does, its frame occupies the bus, and who becomes ready meanwhile
//! transmits right after it (1-persistent); where several do, a slot is lost and each waits for 0 to 2^min(n, 10) - 1
//! slots after its n-th collision, or gives its frame up after `attempts`. What depends on the length of frames
//! (more stations become ready during a long one) is played for four lengths.
//!
//! What it lacks: frames are served in the order of arrival, so the capture of the bus by one station (Boggs, Mogul
//! and Kent 1988) shortens the time lost, as it does there, but nobody's frame overtakes another's; a frame that
//! arrives at an idle server never collides, however soon the next one comes; stations that send frames of different
//! lengths count as if all sent the arriving one's. Preamble and the gap between frames are the bandwidth's or the
//! gap's affair.
//!
//! Integers only: the same seed gives the same table and the same fates on every machine.

use crate::{
    abi::ServerConfig,
    departure::Load,
    fate::{Chance, Purpose, draw},
    units::{Instant, Ticks},
};

/// Stations that a row of the table stands for: more count as the last.
pub const STATIONS: [u32; 16] = [2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64];
/// Lengths of frames that a row stands for, slots: the nearest.
pub const LENGTHS: [u32; 4] = [1, 4, 10, 24];
/// Rows of the table: lengths by stations.
pub const ROWS: usize = STATIONS.len() * LENGTHS.len();
/// Entries of a row, a power of two: the means of as many equal parts of the distribution.
pub const PARTS: usize = 64;
/// Bytes by which lengths of frames are told apart.
pub const LENGTH_STEP: u64 = 32;
/// Parts of a slot in which the table counts.
pub const SLOT_PARTS: u64 = 16;

/// What k stations lose before a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct CollisionTable {
    /// By row: that a frame is given up.
    pub given_up: [Chance; ROWS],
    /// By row and part: time lost, in sixteenths of a slot.
    pub lost: [[u16; PARTS]; ROWS],
    /// First of the rows for frames of so many times [`LENGTH_STEP`] bytes, the last for longer ones.
    pub by_length: [u8; 64],
    /// Which of those rows counts for so many stations, less one.
    pub by_stations: [u8; 64],
}

/// Who contends for a server, as far as a packet needs it. Stations are told apart by the last six bits of their
/// address. A station counts from its frame's arrival until all that was queued then has left, and up to as long again:
/// two epochs of a backlog each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Contention {
    /// Stations seen in this epoch, bit by bit.
    pub now: u64,
    /// Those of the one before.
    pub before: u64,
    /// When this epoch ends, ticks.
    pub until: u64,
    /// Frames that contended: the next one's index for the draws.
    pub contended: u64,
}

impl Contention {
    /// A frame of `station` arrives at a server that is free at `free`; who contends, as bits.
    #[inline(always)]
    pub const fn meet(&mut self, station: u32, arrival: Instant, free: Instant) -> u64 {
        if free.0 <= arrival.0 {
            self.before = 0;
            self.now = 0;
            self.until = arrival.0;
        } else if self.until <= arrival.0 {
            self.before = self.now;
            self.now = 0;
            self.until = free.0;
        }
        self.now |= 1 << (station & 63);
        self.now | self.before
    }
}

/// What contention does to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is transmitted after this time was lost, for each of its segments.
    Lost(Ticks),
    /// It is given up.
    GivenUp,
}

/// The fate of a frame that arrives now.
#[inline(always)]
pub fn contend(
    contention: &mut Contention,
    table: &CollisionTable,
    config: &ServerConfig,
    station: u32,
    (arrival, free): (Instant, Instant),
    load: Load,
) -> Fate {
    let stations = contention.meet(station, arrival, free);
    let several = stations & stations.wrapping_sub(1) != 0;
    if free.0 <= arrival.0 || !several {
        return Fate::Lost(Ticks(0));
    }
    let index = contention.contended;
    contention.contended += 1;
    let chosen = draw(config.salt, 0, index, Purpose::Collision);
    // Rows are looked up, not computed: branches on the way to an index would each be verified apart. A super-packet
    // that is not split has long frames.
    let steps = load.bytes / LENGTH_STEP;
    let steps = if steps > 63 { 63 } else { steps as usize };
    let others = (count(stations) - 1) as usize & 63;
    let row = (table.by_length[steps] as usize + table.by_stations[others] as usize) & (ROWS - 1);
    if table.given_up[row].hit((chosen >> 32) as u32) {
        return Fate::GivenUp;
    }
    let parts = table.lost[row][chosen as usize & (PARTS - 1)] as u64;
    // A slot is 10 ms at most, 2^30 ticks.
    Fate::Lost(Ticks(config.collision_slot.wrapping_mul(parts) / SLOT_PARTS))
}

/// Bits set. (The instruction is not there on the BPF target, and the intrinsic expands to a table.)
#[inline(always)]
const fn count(bits: u64) -> u32 {
    let pairs = bits - ((bits >> 1) & 0x5555_5555_5555_5555);
    let nibbles = (pairs & 0x3333_3333_3333_3333) + ((pairs >> 2) & 0x3333_3333_3333_3333);
    let bytes = (nibbles + (nibbles >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    (bytes.wrapping_mul(0x0101_0101_0101_0101) >> 56) as u32
}

#[cfg(feature = "alloc")]
mod play;
#[cfg(all(test, feature = "alloc"))]
mod tests;
