//! The laws of queues beside queues that are played event by event: equal verdicts on each packet.
//!
//!     cargo test -p perturb-common --test queue

#![allow(clippy::unwrap_used, reason = "tests")]

#[cfg(feature = "alloc")]
mod changing;
mod fifo;
mod pie;
mod red;

use perturb_common::{
    departure::{Load, Outcome, Server, Service, departure},
    queue::{CODEL, Head, LAW_ECN, LAW_L4S, Law, STEP, State, Verdict, catch_up, judge, spacing},
    units::{GapPerByte, Instant, Ticks},
};
use proptest::prelude::*;

use fifo::{Discipline, Fifo, play};

/// A packet: when it arrives, ticks; its bytes; its ECN field.
#[derive(Clone, Copy, Debug)]
struct Packet {
    arrival: u64,
    bytes: u64,
    ecn: u32,
}

/// Names the draws.
const SALT: u64 = 7;
/// Ticks that a byte takes.
const BYTE: u64 = 25_600;
/// G so that it does.
const G: GapPerByte = GapPerByte(BYTE << 14);

/// The fold: packet by packet in the order of arrival.
fn folded(law: &Law, packets: &[Packet]) -> Vec<(Verdict, u64)> {
    let server = Server {
        per_byte: G,
        ..Server::IDLE
    };
    fold(
        law,
        packets,
        law.small_takes(Ticks(0), G),
        |free, arrival, load| {
            let Outcome::Served(service) = departure(&server, free, arrival, load) else {
                unreachable!("there is no limit")
            };
            (service, law.small_takes(Ticks(0), G))
        },
    )
}

/// The same at a server that says how it serves a packet, and what a small one takes then; and what it takes by the server's own rate.
fn fold(
    law: &Law,
    packets: &[Packet],
    own: Ticks,
    mut serve: impl FnMut(Instant, Instant, Load) -> (Service, Ticks),
) -> Vec<(Verdict, u64)> {
    let (mut free, mut state) = (Instant(0), State::default());
    let mut fates = Vec::new();
    for packet in packets {
        let (arrival, load) = (
            Instant(packet.arrival),
            Load {
                bytes: packet.bytes,
                segments: 1,
            },
        );
        let (service, small) = serve(free, arrival, load);
        let head = Head {
            start: arrival.after(service.backlog),
            sojourn: service.backlog,
            idle: arrival.since(free),
            small,
            ecn: packet.ecn,
            salt: SALT,
        };
        catch_up(law, &mut state, free, arrival, own);
        let verdict = judge(law, &mut state, head, spacing);
        if verdict == Verdict::Drop {
            fates.push((verdict, 0));
        } else {
            free = service.free;
            fates.push((verdict, free.0));
        }
    }
    fates
}

/// RFC 8289, section 5.5 and 5.6, with Linux' marks.
struct CoDel {
    target: u64,
    interval: u64,
    ecn: bool,
    ce_threshold: u64,
    /// MAXPACKET, of the rule about what is behind; `None`: the rule is left out.
    max_packet: Option<u64>,
    /// What may be ahead, bytes.
    small: u64,
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl CoDel {
    fn new(law: &Law, max_packet: Option<u64>) -> Self {
        Self {
            target: law.target.0,
            interval: law.interval.0,
            ecn: law.flags & LAW_ECN != 0,
            ce_threshold: law.threshold.0,
            max_packet,
            small: law.small.bytes,
            first_above_time: 0,
            drop_next: 0,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    fn control_law(&self, t: u64, count: u32) -> u64 {
        let root = (u128::from(count) << 42).isqrt();
        t + u64::try_from((u128::from(self.interval) << 21) / root).unwrap()
    }

    fn dodequeue(&mut self, fifo: &mut Fifo, now: u64) -> (Option<usize>, bool) {
        let mut ok_to_drop = false;
        let Some(index) = fifo.pop() else {
            self.first_above_time = 0;
            return (None, false);
        };
        let sojourn_time = now - fifo.packets[index].arrival;
        let few = self.max_packet.is_some_and(|most| fifo.bytes <= most);
        let low = sojourn_time < self.target
            || sojourn_time <= fifo.link.takes(fifo.packets[index].arrival, self.small);
        if few && !low {
            fifo.played.behind.push(index);
        }
        if low || few {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + self.interval;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (Some(index), ok_to_drop)
    }

    fn marks(&self, fifo: &Fifo, index: Option<usize>) -> bool {
        self.ecn && index.is_some_and(|index| fifo.packets[index].ecn != 0)
    }
}

impl Discipline for CoDel {
    fn deque(&mut self, fifo: &mut Fifo, now: u64) -> Option<usize> {
        let (mut packet, mut ok_to_drop) = self.dodequeue(fifo, now);
        let mut marked = false;
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.count += 1;
                if self.marks(fifo, packet) {
                    marked = true;
                    self.drop_next = self.control_law(self.drop_next, self.count);
                    break;
                }
                fifo.drop(packet.unwrap());
                (packet, ok_to_drop) = self.dodequeue(fifo, now);
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            if self.marks(fifo, packet) {
                marked = true;
            } else {
                fifo.drop(packet.unwrap());
                (packet, _) = self.dodequeue(fifo, now);
            }
            self.dropping = true;
            let delta = i64::from(self.count) - i64::from(self.last_count);
            let since = i128::from(now) - i128::from(self.drop_next);
            self.count = if delta > 1 && since < 16 * i128::from(self.interval) {
                u32::try_from(delta).unwrap()
            } else {
                1
            };
            self.drop_next = self.control_law(now, self.count);
            self.last_count = self.count;
        }
        let index = packet?;
        if marked {
            fifo.mark(index, Verdict::Mark);
        } else if fifo.packets[index].ecn != 0 && now - fifo.packets[index].arrival > self.ce_threshold {
            fifo.mark(index, Verdict::MarkAbove);
        }
        Some(index)
    }
}

/// Marks above a wait.
struct Step {
    threshold: u64,
    l4s: bool,
}

impl Discipline for Step {
    fn deque(&mut self, fifo: &mut Fifo, now: u64) -> Option<usize> {
        let index = fifo.pop()?;
        let Packet { arrival, ecn, .. } = fifo.packets[index];
        if (if self.l4s { ecn & 1 } else { ecn }) != 0 && now - arrival > self.threshold {
            fifo.mark(index, Verdict::MarkAbove);
        }
        Some(index)
    }
}

/// Packets whose load of the server changes now and then: from a third of what it can do to twice that.
fn arrivals(seed: u64, count: usize) -> Vec<Packet> {
    let mut word = seed.wrapping_mul(2).wrapping_add(1);
    let mut below = |limit: u64| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word % limit
    };
    let (mut time, mut mean, mut left) = (1, 1, 0);
    let mut packets = Vec::new();
    for _ in 0..count {
        if left == 0 {
            // Of 784 bytes each.
            mean = 784 * BYTE * 100 / (33 + below(170));
            left = 1 + below(600);
        }
        left -= 1;
        // A few at once, and at ticks at which others leave.
        time += if below(8) == 0 { 0 } else { below(16) * mean / 7 };
        packets.push(Packet {
            arrival: time,
            bytes: 64 + below(1440),
            ecn: [0, 0, 1, 2, 3][below(5) as usize],
        });
    }
    packets
}

/// Of so many packets' time: 784 bytes take 20 million ticks, 0.3 ms.
fn law(flags: u32, target: u64, interval: u64, threshold: u64) -> Law {
    let packet = 784 * BYTE;
    Law {
        kind: CODEL,
        flags,
        target: Ticks(target * packet / 10),
        interval: Ticks(interval * packet / 10),
        threshold: if threshold == 0 {
            Ticks::MAX
        } else {
            Ticks(threshold * packet / 10)
        },
        ..Law::TAIL
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// RFC 8289's queue, but for its rule about what is behind, says the same of each packet.
    #[test]
    fn codel_is_the_rfcs(
        seed in any::<u64>(),
        ecn in any::<bool>(),
        target in 1u64..300,
        interval in 1u64..4000,
        threshold in 0u64..400,
    ) {
        let law = law(if ecn { LAW_ECN } else { 0 }, target, interval, threshold);
        let packets = arrivals(seed, 3000);
        let mut codel = CoDel::new(&law, None);
        let played = play(&packets, &mut codel);
        prop_assert_eq!(folded(&law, &packets), played.fates);
    }

    /// A step marks what a queue that looks at sojourns marks.
    #[test]
    fn a_step_marks_above_its_threshold(seed in any::<u64>(), l4s in any::<bool>(), threshold in 1u64..400) {
        let law = Law { kind: STEP, ..law(if l4s { LAW_L4S } else { 0 }, 1, 1, threshold) };
        let packets = arrivals(seed, 1000);
        let played = play(&packets, &mut Step { threshold: law.threshold.0, l4s });
        prop_assert_eq!(folded(&law, &packets), played.fates);
    }
}

/// With RFC 8289's rule about what is behind, too, until it decides for the first time.
#[test]
fn codel_is_the_rfcs_while_packets_are_behind() {
    let (mut compared, mut dropped) = (0, 0);
    for seed in 0..400 {
        let law = law(0, 1 + seed * 7 % 299, 1 + seed * 31 % 3999, 0);
        let packets = arrivals(seed, 3000);
        let mut codel = CoDel::new(&law, Some(1514));
        let played = play(&packets, &mut codel);
        let alike = played.behind.first().copied().unwrap_or(packets.len());
        let folded = folded(&law, &packets);
        assert_eq!(folded[..alike], played.fates[..alike], "{seed}");
        compared += alike;
        dropped += of(&folded[..alike], Verdict::Drop);
    }
    println!("{compared} packets compared, {dropped} of them dropped");
    assert!(compared > 500_000 && dropped > 10_000);
}

fn of(fates: &[(Verdict, u64)], verdict: Verdict) -> usize {
    fates.iter().filter(|(own, _)| *own == verdict).count()
}

/// The random packets above meet the states that matter, and the rule about what is behind decides for few.
#[test]
fn the_random_packets_are_dropped_and_marked() {
    let (mut dropped, mut marked, mut above, mut in_a_row, mut differ, mut seen) = (0, 0, 0, 0, 0, 0);
    for seed in 0..100 {
        let packets = arrivals(seed, 3000);
        let with = folded(&law(LAW_ECN, 50, 1000, 150), &packets);
        marked += of(&with, Verdict::Mark);
        above += of(&with, Verdict::MarkAbove);
        let law = law(0, 50, 1000, 0);
        let plain = folded(&law, &packets);
        dropped += of(&plain, Verdict::Drop);
        let often = Law {
            interval: Ticks(law.interval.0 / 50),
            ..law
        };
        in_a_row += folded(&often, &packets)
            .windows(2)
            .filter(|pair| pair.iter().all(|fate| fate.0 == Verdict::Drop))
            .count();
        let mut codel = CoDel::new(&law, Some(1514));
        let played = play(&packets, &mut codel).fates;
        differ += played.iter().zip(&plain).filter(|(a, b)| a.0 != b.0).count();
        seen += packets.len();
    }
    println!(
        "{seen} packets: {dropped} dropped, {in_a_row} behind another, {marked} marked, {above} above; {differ} differ"
    );
    assert!(dropped > 1000 && marked > 1000 && above > 1000 && in_a_row > 10 && differ < 100);
}

/// The control law is interval / sqrt(count).
#[test]
fn drops_come_by_the_square_root() {
    // Always above: the n-th drop of the state comes interval / sqrt(n) behind the one before.
    let law = law(0, 10, 1000, 0);
    let (mut state, mut time) = (State::default(), 1u64);
    let mut drops = Vec::new();
    while drops.len() < 200 {
        let head = Head {
            start: Instant(time),
            sojourn: law.target,
            idle: Ticks(0),
            small: Ticks(0),
            ecn: 0,
            salt: SALT,
        };
        let verdict = judge(&law, &mut state, head, spacing);
        if verdict == Verdict::Drop {
            drops.push(time);
        }
        time += 64 * 100;
    }
    let interval = law.interval.0 as f64;
    assert!((drops[0] as f64 - interval).abs() < 6400.0 + 1.0);
    let mut due = drops[0] as f64;
    for (count, &dropped) in (1..).zip(&drops[1..]) {
        due += interval / f64::from(count).sqrt();
        // The packet that comes next, and 2^-21 of each interval, to which its root is rounded.
        let late = dropped as f64 - due;
        let most = 6400.0 + f64::from(count) * interval / f64::from(1 << 21);
        assert!((-1.0..=most).contains(&late), "{count}: {late} of {most}");
    }
}
