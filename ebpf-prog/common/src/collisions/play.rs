//! Plays the back-off of stations that always have a frame, to fill the table.

extern crate alloc;

use alloc::{vec, vec::Vec};

use super::{CollisionTable, LENGTH_STEP, LENGTHS, PARTS, ROWS, SLOT_PARTS, STATIONS};
use crate::departure::Server;
use crate::fate::{Chance, Purpose, draw};
use crate::units::Ticks;

/// Frames that are played for each entry of the table; more of short frames, which a station that has captured the bus
/// sends many of while the others wait.
const FRAMES_PER_PART: [usize; 2] = [64, 256];
/// Slots below which a frame is short.
const SHORT: u32 = 8;
/// Rounds after which the range of slots grows no more.
const LARGEST_EXPONENT: u32 = 10;
/// Looks at stations that a row may take: with few attempts and many stations hardly a frame ever gets through.
const WORK: u64 = 1 << 22;

impl CollisionTable {
    /// The table for frames that are given up after so many attempts, as if all took a slot.
    #[must_use]
    pub fn new(attempts: u32) -> Self {
        let mut table = Self {
            given_up: [Chance::NEVER; ROWS],
            lost: [[0; PARTS]; ROWS],
            by_length: [0; 64],
            by_stations: [0; 64],
        };
        for (others, row) in table.by_stations.iter_mut().enumerate() {
            let beyond = STATIONS.iter().skip(1);
            *row = beyond
                .filter(|&&stations| stations as usize <= others + 1)
                .count() as u8;
        }
        let rows = LENGTHS
            .iter()
            .flat_map(|&length| STATIONS.iter().map(move |&stations| (length, stations)));
        for ((length, stations), (given_up, lost)) in rows.zip(table.given_up.iter_mut().zip(&mut table.lost))
        {
            (*given_up, *lost) = row(stations, length, attempts);
        }
        table
    }

    /// The same for a server's frames and slot.
    #[must_use]
    pub fn with_lengths(mut self, server: &Server, slot: Ticks) -> Self {
        for (steps, first) in self.by_length.iter_mut().enumerate() {
            let bytes = steps as u64 * LENGTH_STEP + LENGTH_STEP / 2;
            let frame = server.per_byte.transmit(bytes).plus(server.gap);
            // Half-way between two lengths.
            let longer = LENGTHS
                .windows(2)
                .filter(|pair| 2 * frame.0 >= slot.0 * u64::from(pair[0] + pair[1]))
                .count();
            *first = (longer * STATIONS.len()) as u8;
        }
        self
    }
}

fn row(stations: u32, length: u32, attempts: u32) -> (Chance, [u16; PARTS]) {
    let frames = FRAMES_PER_PART[usize::from(length < SHORT)] * PARTS;
    let mut bus = Bus::new(stations, length, attempts);
    // Until it no longer matters that all began at once.
    let warm_up = frames / 4;
    let mut lost: Vec<u64> = (0..warm_up + frames)
        .map_while(|_| bus.frame())
        .skip(warm_up)
        .collect();
    lost.sort_unstable();
    let mut parts = [0; PARTS];
    for (index, part) in parts.iter_mut().enumerate() {
        let share = &lost[index * lost.len() / PARTS..(index + 1) * lost.len() / PARTS];
        let count = share.len().max(1) as u64;
        let mean = (share.iter().sum::<u64>() * SLOT_PARTS + count / 2) / count;
        *part = u16::try_from(mean).unwrap_or(u16::MAX);
    }
    let ended = (bus.given_up + bus.passed).max(1);
    (
        Chance::from_parts_per_billion(bus.given_up * 1_000_000_000 / ended),
        parts,
    )
}

/// A station: when it transmits next, and how often its frame has collided.
#[derive(Clone, Copy)]
struct Station {
    ready: u64,
    collisions: u32,
}

/// A bus in slots.
struct Bus {
    stations: Vec<Station>,
    length: u64,
    attempts: u32,
    now: u64,
    passed: u64,
    given_up: u64,
    drawn: u64,
    work: u64,
}

impl Bus {
    fn new(stations: u32, length: u32, attempts: u32) -> Self {
        let fresh = Station {
            ready: 0,
            collisions: 0,
        };
        Self {
            stations: vec![fresh; stations as usize],
            length: u64::from(length),
            attempts,
            now: 0,
            passed: 0,
            given_up: 0,
            drawn: 0,
            work: 0,
        }
    }

    /// The next frame passes: slots that were lost before it; nothing once the work is done.
    fn frame(&mut self) -> Option<u64> {
        let start = self.now;
        while self.work < WORK {
            self.work += self.stations.len() as u64;
            let (mut first, mut winner, mut second) = (u64::MAX, 0, u64::MAX);
            for (index, station) in self.stations.iter().enumerate() {
                if station.ready < first {
                    second = first;
                    (first, winner) = (station.ready, index);
                } else {
                    second = second.min(station.ready);
                }
            }
            self.now = self.now.max(first);
            if second > self.now {
                let lost = self.now - start;
                self.passed += 1;
                self.now += self.length;
                self.stations[winner] = Station {
                    ready: self.now,
                    collisions: 0,
                };
                return Some(lost);
            }
            self.collide();
        }
        None
    }

    fn collide(&mut self) {
        let now = self.now;
        self.now += 1;
        for station in self.stations.iter_mut().filter(|station| station.ready <= now) {
            station.collisions += 1;
            if station.collisions >= self.attempts {
                self.given_up += 1;
                *station = Station {
                    ready: self.now,
                    collisions: 0,
                };
                continue;
            }
            let range = 1u64 << station.collisions.min(LARGEST_EXPONENT);
            self.drawn += 1;
            let slots = draw(0, 0, self.drawn, Purpose::Collision) & (range - 1);
            station.ready = self.now + slots;
        }
    }
}
