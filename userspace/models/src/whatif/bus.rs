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
//! **Collisions** (optional): a message that finds k-1 others on or waiting for the bus contends with
//! them. In round i each of the k stations draws a slot in 0..2^min(i, 10); if the lowest slot is drawn
//! once, its station transmits after that many idle slots, otherwise the round is lost: the idle slots
//! and one slot of collision (truncated binary exponential back-off). After `attempts` lost rounds the
//! frame is given up and sent again from the first round, as the layer above would. The draws depend
//! only on the seed and the message's number on the bus. Reading taken: the time lost occupies the bus
//! before the message, whichever station wins, since FIFO order is kept.

use std::collections::VecDeque;

use perturb_common::departure::{Load, Outcome, Server, departure};
use perturb_common::fate::{Purpose, draw};
use perturb_common::units::{GapPerByte, Instant, Ticks};

/// Ticks in a µs.
const TICKS: f64 = 64_000.0;

/// Rounds after which the range of slots grows no more (IEEE 802.3).
const LARGEST_EXPONENT: u32 = 10;

/// Contenders beyond this are not told apart: Ethernet itself allows 1024 stations.
const MOST_CONTENDERS: usize = 1024;

/// Draws after which a message goes through whatever they say: many stations with few attempts would
/// collide for ever.
const MOST_DRAWS: u64 = 1 << 16;

/// CSMA/CD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Collisions {
    /// The slot time in µs; 51.2 for 10 Mbit/s Ethernet.
    pub slot: f64,
    /// Rounds before a frame is given up; 16 in Ethernet.
    pub attempts: u32,
    /// Same seed, same messages, same collisions.
    pub seed: u64,
}

/// Who shares a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
        server.pass(time, bytes)
    }

    /// Messages that have passed.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.0.iter().map(Bus::messages).sum()
    }

    /// Rounds lost to collisions.
    #[must_use]
    pub fn lost_rounds(&self) -> u64 {
        self.0.iter().map(Bus::lost_rounds).sum()
    }

    /// Time the busiest was occupied, in µs.
    #[must_use]
    pub fn busy(&self) -> f64 {
        self.0.iter().map(Bus::busy).fold(0.0, f64::max)
    }
}

/// A server's state.
#[derive(Clone, Debug)]
pub struct Bus {
    server: Server,
    free: Instant,
    collisions: Option<Collisions>,
    /// When each message that may still be on the bus leaves it; kept only where collisions need it.
    leaving: VecDeque<Instant>,
    messages: u64,
    lost_rounds: u64,
    busy: f64,
}

impl Bus {
    /// An idle bus; `bandwidth` in bytes per second, infinite without one.
    #[must_use]
    pub fn new(bandwidth: Option<f64>, collisions: Option<Collisions>) -> Self {
        let per_byte = bandwidth.map_or(GapPerByte(0), |rate| {
            // Units of 2^-20 ns, as `GapPerByte::from_bits_per_sec`, but for rates that are no integers.
            let gap = (1e9 / rate * f64::from(1 << 20)).round();
            GapPerByte((gap as u64).clamp(1, GapPerByte::MAX.0))
        });
        Self {
            server: Server {
                per_byte,
                ..Server::IDLE
            },
            free: Instant(0),
            collisions,
            leaving: VecDeque::new(),
            messages: 0,
            lost_rounds: 0,
            busy: 0.0,
        }
    }

    /// When a message that was sent at `time` has passed, in µs. Calls come in the order of reporting.
    pub fn pass(&mut self, time: f64, bytes: f64) -> f64 {
        let arrival = Instant((time * TICKS).round() as u64);
        let lost = self.collide(arrival);
        let server = Server {
            gap: lost,
            ..self.server
        };
        let load = Load {
            bytes: bytes.round() as u64,
            segments: 1,
        };
        self.messages += 1;
        match departure(&server, self.free, arrival, load) {
            Outcome::Served(service) => {
                self.free = service.free;
                if self.collisions.is_some() {
                    self.leaving.push_back(service.free);
                }
                let delay = service.free.since(arrival);
                self.busy += (delay.0 - service.backlog.0) as f64 / TICKS;
                // Added to the exact send time: a bus that takes no time must change nothing.
                time + delay.0 as f64 / TICKS
            }
            // The server has neither buffer limit nor horizon.
            Outcome::TailDrop | Outcome::BeyondHorizon => time,
        }
    }

    /// Time lost to collisions before the message that arrives now.
    fn collide(&mut self, arrival: Instant) -> Ticks {
        let Some(collisions) = self.collisions else {
            return Ticks(0);
        };
        while self.leaving.front().is_some_and(|leaves| *leaves <= arrival) {
            self.leaving.pop_front();
        }
        let stations = (self.leaving.len() + 1).min(MOST_CONTENDERS);
        if stations == 1 {
            return Ticks(0);
        }
        let (mut slots, mut round, mut drawn) = (0_u64, 0_u32, 0_u64);
        loop {
            round += 1;
            let range = 1_u64 << round.min(LARGEST_EXPONENT);
            let (mut lowest, mut alone) = (u64::MAX, false);
            for _ in 0..stations {
                let slot = draw(collisions.seed, self.messages, drawn, Purpose::Jitter) % range;
                drawn += 1;
                alone = if slot == lowest {
                    false
                } else {
                    alone || slot < lowest
                };
                if slot < lowest {
                    (lowest, alone) = (slot, true);
                }
            }
            slots += lowest;
            if alone {
                break;
            }
            slots += 1;
            self.lost_rounds += 1;
            if drawn > MOST_DRAWS {
                break;
            }
            if round >= collisions.attempts {
                round = 0;
            }
        }
        Ticks((slots as f64 * collisions.slot * TICKS).round() as u64)
    }

    /// Messages that have passed.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Rounds lost to collisions.
    #[must_use]
    pub fn lost_rounds(&self) -> u64 {
        self.lost_rounds
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
        assert_eq!(bus.pass(100.0, 1000.0), 900.0);
        assert_eq!(bus.pass(300.0, 500.0), 1300.0);
        assert_eq!(bus.pass(2000.0, 0.0), 2000.0);
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
        assert_eq!(bus.pass(0.123_456_789, 1e9), 0.123_456_789);
    }

    #[test]
    fn collisions_are_seeded_and_only_under_contention() {
        let run = |seed, gap| {
            let collisions = Collisions {
                slot: 51.2,
                attempts: 16,
                seed,
            };
            let mut bus = Bus::new(Some(1.25e6), Some(collisions));
            let times: Vec<f64> = (0..50)
                .map(|index| bus.pass(f64::from(index) * gap, 1000.0))
                .collect();
            (times, bus.lost_rounds())
        };
        assert_eq!(run(1, 10.0), run(1, 10.0));
        assert_ne!(run(1, 10.0), run(2, 10.0));
        let (times, lost) = run(1, 10.0);
        assert!(lost > 0);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 800.0));
        let (times, lost) = run(1, 1000.0);
        assert_eq!((times[49], lost), (49_800.0, 0));
    }

    #[test]
    fn a_single_attempt_terminates() {
        let mut bus = Bus::new(
            Some(1.0),
            Some(Collisions {
                slot: 1.0,
                attempts: 1,
                seed: 0,
            }),
        );
        for _ in 0..40 {
            assert!(bus.pass(0.0, 1.0).is_finite());
        }
    }
}
