//! The recursion with collisions beside a direct simulation of the back-off, in bit times.

extern crate std;

use std::{collections::VecDeque, eprintln, sync::LazyLock, vec, vec::Vec};

use super::*;
use crate::departure::{Outcome, Server, departure};
use crate::units::GapPerByte;

/// 10 Mbit/s: 100 ns a bit, a slot of 512 bits.
const BIT: u64 = 100 * 64;
const SLOT_BITS: u64 = 512;

fn bus(salt: u64) -> ServerConfig {
    ServerConfig {
        server: Server {
            per_byte: GapPerByte::from_bits_per_sec(10_000_000),
            ..Server::IDLE
        },
        salt,
        collision_slot: SLOT_BITS * BIT,
        ..ServerConfig::IDLE
    }
}

/// Of Ethernet.
static SIXTEEN: LazyLock<CollisionTable> = LazyLock::new(|| CollisionTable::new(16));

/// A server with its state.
struct Emulated {
    config: ServerConfig,
    table: CollisionTable,
    contention: Contention,
    free: Instant,
}

impl Emulated {
    fn new(table: CollisionTable, salt: u64) -> Self {
        let config = bus(salt);
        Self {
            config,
            table: table.with_lengths(&config.server, Ticks(config.collision_slot)),
            contention: Contention::default(),
            free: Instant(0),
        }
    }

    /// When the frame has passed; nothing if it is given up.
    fn pass(&mut self, station: u32, arrival: Instant, bytes: u64) -> Option<Instant> {
        let load = Load { bytes, segments: 1 };
        let times = (arrival, self.free);
        let fate = contend(
            &mut self.contention,
            &self.table,
            &self.config,
            station,
            times,
            load,
        );
        let Fate::Lost(lost) = fate else {
            return None;
        };
        let Outcome::Served(service) = departure(&self.config.server, self.free, arrival, load) else {
            panic!("it has no buffer");
        };
        self.free = service.delayed(lost, Ticks(0)).free;
        Some(self.free)
    }
}

/// Share of the time in which frames pass, and of the frames that are given up.
#[derive(Debug)]
struct Outcomes {
    utilization: f64,
    given_up: f64,
}

/// Stations that send the next frame when the last one has passed.
fn emulated(stations: u32, bytes: u64, table: CollisionTable, frames: u32) -> Outcomes {
    let mut bus = Emulated::new(table, 7);
    let mut waiting: VecDeque<(u32, Instant)> = (0..stations).map(|station| (station, Instant(0))).collect();
    let (mut passed, mut given_up) = (0, 0);
    while let Some((station, arrival)) = waiting.pop_front()
        && passed < frames
    {
        // Who gives a frame up has the next one at once.
        let left = loop {
            match bus.pass(station, arrival, bytes) {
                Some(left) => break left,
                None => given_up += 1,
            }
        };
        passed += 1;
        waiting.push_back((station, left));
    }
    let useful = f64::from(passed) * (bytes * 8 * BIT) as f64;
    Outcomes {
        utilization: useful / bus.free.0 as f64,
        given_up: f64::from(given_up) / f64::from(given_up + passed),
    }
}

/// The same stations, each with a back-off of its own: who starts within a quarter of a slot of another collides.
fn direct(stations: usize, bytes: u64, attempts: u32, frames: u32) -> Outcomes {
    let (mut ready, mut collided) = (vec![0u64; stations], vec![0u32; stations]);
    let (mut idle_from, mut passed, mut given_up) = (0, 0, 0);
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = move |range: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % range
    };
    while passed < frames {
        let start = ready.iter().copied().min().unwrap_or(0).max(idle_from);
        let starts: Vec<usize> = (0..stations)
            .filter(|&station| ready[station].max(idle_from) <= start + SLOT_BITS / 4)
            .collect();
        if let [alone] = starts[..] {
            idle_from = start + bytes * 8;
            (ready[alone], collided[alone]) = (idle_from, 0);
            passed += 1;
            continue;
        }
        idle_from = start + SLOT_BITS;
        for station in starts {
            collided[station] += 1;
            if collided[station] == attempts {
                given_up += 1;
                (ready[station], collided[station]) = (idle_from, 0);
            } else {
                let range = 1 << collided[station].min(10);
                ready[station] = idle_from + random(range) * SLOT_BITS;
            }
        }
    }
    Outcomes {
        utilization: (u64::from(passed) * bytes * 8) as f64 / idle_from as f64,
        given_up: f64::from(given_up) / f64::from(given_up + passed),
    }
}

#[test]
fn saturated_stations_lose_what_their_back_off_takes() {
    eprintln!("stations  frame, B  utilization: direct  emulated");
    for bytes in [1514, 64] {
        for stations in [2, 4, 8, 16] {
            let (direct, emulated) = (
                direct(stations as usize, bytes, 16, 20_000),
                emulated(stations, bytes, *SIXTEEN, 5_000),
            );
            eprintln!(
                "{stations:>8}  {bytes:>8}  {:>19.3}  {:>8.3}",
                direct.utilization, emulated.utilization
            );
            let ratio = emulated.utilization / direct.utilization;
            assert!(
                (ratio - 1.0).abs() < 0.04,
                "{stations} stations, {bytes} B: {direct:?}, {emulated:?}"
            );
        }
    }
}

#[test]
fn attempts_run_out_as_often() {
    eprintln!("stations  attempts  given up: direct  emulated");
    for (stations, attempts) in [(4, 5), (8, 8)] {
        let (direct, emulated) = (
            direct(stations as usize, 1514, attempts, 5_000),
            emulated(stations, 1514, CollisionTable::new(attempts), 5_000),
        );
        eprintln!(
            "{stations:>8}  {attempts:>8}  {:>16.4}  {:>8.4}",
            direct.given_up, emulated.given_up
        );
        let difference = (emulated.given_up - direct.given_up).abs();
        assert!(
            difference < 0.01 + 0.1 * direct.given_up,
            "{stations} stations, {attempts} attempts: {direct:?}, {emulated:?}"
        );
    }
}

#[test]
fn same_seed_same_fate() {
    let departures = |salt| {
        let mut bus = Emulated::new(*SIXTEEN, salt);
        (0..500u64)
            .map(|index| bus.pass(index as u32 % 5, Instant(index * 640_000), 1000))
            .collect::<Vec<_>>()
    };
    assert_eq!(departures(1), departures(1));
    assert_ne!(departures(1), departures(2));
}

#[test]
fn nobody_collides_alone() {
    let mut bus = Emulated::new(*SIXTEEN, 1);
    let times: Vec<Option<Instant>> = (0..100).map(|_| bus.pass(9, Instant(0), 1250)).collect();
    let expected: Vec<Option<Instant>> = (1..=100).map(|frame| Some(Instant(frame * 64_000_000))).collect();
    assert_eq!(times, expected, "a queue of one station's frames");
    // Two stations that never meet.
    let mut bus = Emulated::new(*SIXTEEN, 1);
    for index in 0..100u64 {
        let arrival = Instant(index * 64_000_001);
        let left = bus.pass(index as u32 % 2, arrival, 1250);
        assert_eq!(left, Some(arrival.after(Ticks(64_000_000))));
    }
}

#[test]
fn stations_count_while_their_frames_may_wait() {
    let mut contention = Contention::default();
    let mut meet = |station, arrival, free| {
        contention
            .meet(station, Instant(arrival), Instant(free))
            .count_ones()
    };
    assert_eq!(meet(1, 10, 0), 1);
    assert_eq!(meet(2, 20, 110), 2, "1 is on the bus until 110");
    assert_eq!(meet(3, 60, 210), 3);
    assert_eq!(meet(4, 150, 310), 3, "1 has left, 2 and 3 wait");
    assert_eq!(meet(5, 330, 410), 2, "4 is on the bus");
    assert_eq!(meet(64 + 5, 350, 510), 2, "told apart by six bits");
    assert_eq!(meet(5, 1000, 510), 1, "idle since");
}

#[test]
fn few_attempts_and_many_stations_end() {
    let table = CollisionTable::new(1);
    // Who never waits collides again at once.
    assert_eq!(table.given_up[0], Chance::ALWAYS);
    let many = &*SIXTEEN;
    let mean = |row: usize| many.lost[row].iter().map(|&part| u64::from(part)).sum::<u64>();
    assert!(mean(0) < mean(6) && mean(6) < mean(15), "more stations lose more");
    assert!(many.given_up[0].0 < many.given_up[15].0);
}

#[test]
fn rows_are_those_of_stations_and_length() {
    let bus = bus(0);
    // 512 bits are 64 bytes.
    let table = SIXTEEN.with_lengths(&bus.server, Ticks(bus.collision_slot));
    let row = |stations: usize, bytes: u64| {
        usize::from(table.by_stations[stations - 1] + table.by_length[(bytes / LENGTH_STEP).min(63) as usize])
    };
    assert_eq!((row(2, 64), row(9, 64), row(64, 64)), (0, 6, 15));
    assert_eq!(
        (row(2, 256), row(2, 640), row(3, 1514), row(64, 9000)),
        (16, 32, 49, 63)
    );
    for bits in [0, 1, 0x8000_0000_0000_0001, u64::MAX, 0x1234_5678_9abc_def0] {
        assert_eq!(count(bits), bits.count_ones());
    }
}
