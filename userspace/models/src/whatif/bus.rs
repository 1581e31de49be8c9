//! The bus pseudo-process: one FIFO server at Ethernet speed between the groups; or one for each group, a link through
//! which it alone sends, so that messages of its processes queue behind each other.
//!
//! ```text
//! start = max(send time, bus free)       in the order in which sends are reported
//! free' = start + collisions + bytes / bandwidth
//! ```
//!
//! This is [`departure`] with G = 1/bandwidth; time counts in its ticks of 1/64 ns, so that the bus
//! delays a message here exactly as the emulated one does.
//!
//! **Collisions** (optional) are those of the emulated bus, [`perturb_common::collisions`]: a message that finds the bus
//! busy contends with the groups that wait for it, and the time that their back-off takes occupies the bus before it. A
//! message counts as one frame. One that is given up is sent again, as the layer above would. The draws depend only on the
//! seed and on how many messages contended before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use perturb_common::abi::ServerConfig;
use perturb_common::collisions::{CollisionTable, Contention, Fate, contend};
use perturb_common::departure::{Load, Outcome, Server, departure};
use perturb_common::units::{GapPerByte, Instant, Ticks};
use serde::Deserialize;

/// Ticks in a µs.
const TICKS: f64 = 64_000.0;

/// Times that a message is sent again at most: with few attempts and many stations it might never get through.
const MOST_RETRIES: u32 = 1 << 10;

/// CSMA/CD.
#[derive(Clone, Debug, PartialEq)]
pub struct Collisions {
    slot: Ticks,
    seed: u64,
    table: Arc<CollisionTable>,
}

impl Collisions {
    /// Back-off in slots of so many µs (51.2 for 10 Mbit/s Ethernet); a frame is given up after so many attempts (16 in
    /// Ethernet). Same seed, same messages, same collisions.
    #[must_use]
    pub fn new(slot: f64, attempts: u32, seed: u64) -> Self {
        Self {
            slot: Ticks((slot * TICKS).round() as u64),
            seed,
            table: played(attempts),
        }
    }
}

/// The table of so many attempts, played once: that takes longer than many a prediction.
fn played(attempts: u32) -> Arc<CollisionTable> {
    static PLAYED: Mutex<BTreeMap<u32, Arc<CollisionTable>>> = Mutex::new(BTreeMap::new());
    let mut played = PLAYED.lock().unwrap_or_else(PoisonError::into_inner);
    let table = played.entry(attempts);
    Arc::clone(table.or_insert_with(|| Arc::new(CollisionTable::new(attempts))))
}

/// Who shares a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All groups: a bus.
    #[default]
    Shared,
    /// The processes of a group: its link, towards the others.
    Host,
}

/// The servers between the groups.
#[derive(Clone, Debug)]
pub struct Buses(Vec<Bus>);

impl Buses {
    /// One for all, or one for each of the groups.
    #[must_use]
    pub fn new(bus: &Bus, scope: Scope, groups: usize) -> Self {
        let servers = match scope {
            Scope::Shared => 1,
            Scope::Host => groups,
        };
        Self(vec![bus.clone(); servers])
    }

    /// As [`Bus::pass`], for a message of this group, from 0.
    pub fn pass(&mut self, group: u32, time: f64, bytes: f64) -> f64 {
        let server = match self.0.as_mut_slice() {
            [shared] => shared,
            links => &mut links[group as usize],
        };
        server.pass(group, time, bytes)
    }

    /// Messages that have passed.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.0.iter().map(Bus::messages).sum()
    }

    /// What collisions took.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.0
            .iter()
            .map(|bus| bus.lost)
            .fold(Lost::default(), |sum, bus| Lost {
                time: sum.time + bus.time,
                slots: sum.slots + bus.slots,
                given_up: sum.given_up + bus.given_up,
            })
    }

    /// Time the busiest was occupied, in µs.
    #[must_use]
    pub fn busy(&self) -> f64 {
        self.0.iter().map(Bus::busy).fold(0.0, f64::max)
    }
}

/// What collisions took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lost {
    /// In µs.
    pub time: f64,
    /// In slots.
    pub slots: f64,
    /// Messages that were given up and sent again, as often as that happened.
    pub given_up: u64,
}

/// CSMA/CD at a server.
#[derive(Clone, Debug)]
struct Medium {
    config: ServerConfig,
    table: Arc<CollisionTable>,
    contention: Contention,
}

/// A server's state.
#[derive(Clone, Debug)]
pub struct Bus {
    server: Server,
    free: Instant,
    medium: Option<Medium>,
    messages: u64,
    lost: Lost,
    busy: f64,
}

impl Bus {
    /// An idle bus; `bandwidth` in bytes per second, infinite without one.
    #[must_use]
    pub fn new(bandwidth: Option<f64>, collisions: Option<&Collisions>) -> Self {
        let per_byte = bandwidth.map_or(GapPerByte(0), |rate| {
            // Units of 2^-20 ns, as `GapPerByte::from_bits_per_sec`, but for rates that are no integers.
            let gap = (1e9 / rate * f64::from(1 << 20)).round();
            GapPerByte((gap as u64).clamp(1, GapPerByte::MAX.0))
        });
        let server = Server {
            per_byte,
            ..Server::IDLE
        };
        let medium = |collisions: &Collisions| Medium {
            config: ServerConfig {
                server,
                salt: collisions.seed,
                collision_slot: collisions.slot.0,
                ..ServerConfig::IDLE
            },
            table: Arc::new(collisions.table.with_lengths(&server, collisions.slot)),
            contention: Contention::default(),
        };
        Self {
            server,
            free: Instant(0),
            medium: collisions.map(medium),
            messages: 0,
            lost: Lost::default(),
            busy: 0.0,
        }
    }

    /// When a message that `station` sent at `time` has passed, in µs. Calls come in the order of reporting.
    pub fn pass(&mut self, station: u32, time: f64, bytes: f64) -> f64 {
        let arrival = Instant((time * TICKS).round() as u64);
        let load = Load {
            bytes: bytes.round() as u64,
            segments: 1,
        };
        let server = Server {
            gap: self.collide(station, arrival, load),
            ..self.server
        };
        self.messages += 1;
        match departure(&server, self.free, arrival, load) {
            Outcome::Served(service) => {
                self.free = service.free;
                let delay = service.free.since(arrival);
                self.busy += (delay.0 - service.backlog.0) as f64 / TICKS;
                // Added to the exact send time: a bus that takes no time must change nothing.
                time + delay.0 as f64 / TICKS
            }
            // The server has neither buffer limit, horizon nor law, and does not change.
            Outcome::TailDrop | Outcome::BeyondHorizon | Outcome::Down | Outcome::Early => time,
        }
    }

    /// Time lost to collisions before the message that arrives now.
    fn collide(&mut self, station: u32, arrival: Instant, load: Load) -> Ticks {
        let Some(medium) = &mut self.medium else {
            return Ticks(0);
        };
        for _ in 0..=MOST_RETRIES {
            let Medium {
                config,
                table,
                contention,
            } = medium;
            match contend(contention, table, config, station, (arrival, self.free), load) {
                Fate::GivenUp => self.lost.given_up += 1,
                Fate::Lost(ticks) => {
                    self.lost.time += ticks.0 as f64 / TICKS;
                    self.lost.slots += ticks.0 as f64 / config.collision_slot.max(1) as f64;
                    return ticks;
                }
            }
        }
        Ticks(0)
    }

    /// Messages that have passed.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Time the bus was occupied, in µs.
    #[must_use]
    pub fn busy(&self) -> f64 {
        self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served() {
        let mut bus = Bus::new(Some(1.25e6), None);
        // 1000 B at 10 Mbit/s take 800 us.
        assert_eq!(bus.pass(0, 100.0, 1000.0), 900.0);
        assert_eq!(bus.pass(0, 300.0, 500.0), 1300.0);
        assert_eq!(bus.pass(0, 2000.0, 0.0), 2000.0);
        assert_eq!((bus.messages(), bus.busy()), (3, 1200.0));
    }

    #[test]
    fn links_do_not_wait_for_each_other() {
        let bus = Bus::new(Some(1.25e6), None);
        let mut links = Buses::new(&bus, Scope::Host, 2);
        assert_eq!(links.pass(0, 0.0, 1000.0), 800.0);
        assert_eq!(links.pass(1, 0.0, 1000.0), 800.0);
        assert_eq!(links.pass(0, 0.0, 500.0), 1200.0);
        assert_eq!((links.messages(), links.busy()), (3, 1200.0));
        let mut shared = Buses::new(&bus, Scope::Shared, 2);
        assert_eq!(shared.pass(0, 0.0, 1000.0), 800.0);
        assert_eq!(shared.pass(1, 0.0, 1000.0), 1600.0);
    }

    #[test]
    fn no_bandwidth_given_means_no_time() {
        let mut bus = Bus::new(None, None);
        assert_eq!(bus.pass(0, 0.123_456_789, 1e9), 0.123_456_789);
    }

    #[test]
    fn collisions_are_seeded_and_only_between_stations() {
        let run = |seed, stations: u32, gap| {
            let collisions = Collisions::new(51.2, 16, seed);
            let mut bus = Bus::new(Some(1.25e6), Some(&collisions));
            let times: Vec<f64> = (0..50)
                .map(|index| bus.pass(index % stations, f64::from(index) * gap, 1000.0))
                .collect();
            (times, bus.lost)
        };
        assert_eq!(run(1, 4, 10.0), run(1, 4, 10.0));
        assert_ne!(run(1, 4, 10.0), run(2, 4, 10.0));
        let (times, lost) = run(1, 4, 10.0);
        assert!(lost.slots > 1.0, "{lost:?}");
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 800.0));
        let total = times[49] - 50.0 * 800.0;
        assert!((total - lost.time).abs() < 1e-6, "{total} {lost:?}");
        // Nobody collides on an idle bus, nor with itself.
        assert_eq!(
            run(1, 4, 1000.0),
            (
                (0..50).map(|index| f64::from(index) * 1000.0 + 800.0).collect(),
                Lost::default()
            )
        );
        assert_eq!(run(1, 1, 10.0).1, Lost::default());
    }

    /// The bus of the model loses what the emulated one loses: the same table, the same draws.
    #[test]
    fn the_emulated_bus() {
        let collisions = Collisions::new(51.2, 16, 7);
        let mut bus = Bus::new(Some(1.25e6), Some(&collisions));
        let server = Server {
            per_byte: GapPerByte::from_bits_per_sec(10_000_000),
            ..Server::IDLE
        };
        let config = ServerConfig {
            server,
            salt: 7,
            collision_slot: 3_276_800,
            ..ServerConfig::IDLE
        };
        let table = collisions
            .table
            .with_lengths(&server, Ticks(config.collision_slot));
        let (mut contention, mut free) = (Contention::default(), Instant(0));
        for index in 0..200_u32 {
            let arrival = Instant(u64::from(index) * 640_000);
            let load = Load {
                bytes: 60 + u64::from(index % 3) * 700,
                segments: 1,
            };
            let now = (arrival, free);
            let Fate::Lost(gap) = contend(&mut contention, &table, &config, index % 5, now, load) else {
                continue;
            };
            let Outcome::Served(service) = departure(&Server { gap, ..server }, free, arrival, load) else {
                unreachable!("no buffer limit");
            };
            free = service.free;
            let passed = bus.pass(index % 5, f64::from(index) * 10.0, load.bytes as f64);
            assert!((passed - free.0 as f64 / TICKS).abs() < 1e-6, "message {index}");
        }
    }

    #[test]
    fn a_single_attempt_terminates() {
        let collisions = Collisions::new(1.0, 1, 0);
        let mut bus = Bus::new(Some(1.0), Some(&collisions));
        for station in 0..40 {
            assert!(bus.pass(station, 0.0, 1.0).is_finite());
        }
        assert!(bus.lost.given_up > 0);
    }
}
