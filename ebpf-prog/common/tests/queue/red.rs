//! RED beside the algorithm of Floyd and Jacobson 1993 as `sch_red` has it, in floats, in a queue that is played event by event; adaptive,
//! with a timer of its own.

use perturb_common::{
    departure::Load,
    fate::{Purpose, draw},
    queue::{LAW_ADAPTIVE, LAW_ECN, Law, RED, Verdict, pie},
    units::Ticks,
};
use proptest::prelude::*;

use super::{
    BYTE, Packet, SALT, arrivals,
    fifo::{Discipline, Fifo, play},
    folded, of,
    pie::with_pauses,
};

/// What a packet of 784 bytes takes.
pub(super) const PACKET: u64 = 784 * BYTE;

pub(super) struct Red {
    min: f64,
    max: f64,
    max_p: f64,
    weight: f64,
    /// A small packet, bytes.
    typical: u64,
    ecn: bool,
    average: f64,
    /// Since when the queue is empty, as far as that has not counted.
    idle_since: u64,
    /// -1 if none was drawn.
    count: i64,
    random: f64,
    /// max_p when that was drawn.
    drawn: f64,
    arrivals: u64,
    /// Of Floyd, Gummadi and Shenker 2001, if it is adaptive.
    adaptive: Option<Adaptive>,
}

/// What moves max_p.
struct Adaptive {
    /// max_p as the kernel has it, of 2^32.
    max_p: u32,
    /// [min + 0.4 (max - min), min + 0.6 (max - min)], in whole fifths.
    target: [u64; 2],
    /// The timer; it is on from the first packet on.
    next: Option<u64>,
    /// How often max_p has grown, and fallen; and the latter while the queue was empty.
    grown: usize,
    fallen: usize,
    idle: usize,
}

/// Half a second.
const HALF: u64 = 500_000_000 * 64;

impl Adaptive {
    fn new(law: &Law) -> Self {
        let (min, max) = (law.target.0, law.burst.0);
        let fifth = (max - min) / 5;
        let of_one = law.probability as f64 / pie::ONE as f64;
        Self {
            max_p: (of_one * 2f64.powi(32)).min(f64::from(u32::MAX)) as u32,
            target: [min + 2 * fifth, min + 3 * fifth],
            next: None,
            grown: 0,
            fallen: 0,
            idle: 0,
        }
    }

    /// `red_adaptative_algo`.
    fn adapt(&mut self, average: f64, is_idle: bool) {
        const ONE_PERCENT: u32 = ((1u64 << 32) + 50).div_euclid(100) as u32;
        let average = average.floor() as u64;
        if average > self.target[1] && self.max_p <= 50 * ONE_PERCENT {
            self.max_p += ONE_PERCENT.min(self.max_p / 4);
            self.grown += 1;
        } else if average < self.target[0] && self.max_p >= ONE_PERCENT {
            self.max_p = self.max_p / 10 * 9;
            self.fallen += 1;
            self.idle += usize::from(is_idle);
        }
    }
}

impl Red {
    pub(super) fn new(law: &Law) -> Self {
        Self {
            min: law.target.0 as f64,
            max: law.burst.0 as f64,
            max_p: law.probability as f64 / pie::ONE as f64,
            weight: 0.5f64.powi(i32::try_from(law.weight).unwrap()),
            typical: law.small.bytes,
            ecn: law.flags & LAW_ECN != 0,
            average: 0.0,
            idle_since: 0,
            count: -1,
            random: 0.0,
            drawn: 0.0,
            arrivals: 0,
            adaptive: (law.flags & LAW_ADAPTIVE != 0).then(|| Adaptive::new(law)),
        }
    }

    fn max_p(&self) -> f64 {
        let adaptive = self.adaptive.as_ref();
        adaptive.map_or(self.max_p, |adaptive| f64::from(adaptive.max_p) / 2f64.powi(32))
    }

    /// The average after so long an idle time.
    fn faded(&self, idle: u64, typical: u64) -> f64 {
        let (steps, rest) = (idle / typical, idle % typical);
        let whole = (1.0 - self.weight).powi(i32::try_from(steps.min(1 << 30)).unwrap());
        self.average * whole * (1.0 - self.weight * rest as f64 / typical as f64)
    }

    /// Why it is to be dropped or marked: at random, or because the average is too long.
    fn chooses(&mut self) -> Option<Verdict> {
        let draw = draw(SALT, 0, self.arrivals, Purpose::Queue) >> 12;
        self.arrivals += 1;
        if self.average < self.min {
            self.count = -1;
            return None;
        }
        if self.average >= self.max {
            self.count = -1;
            return Some(Verdict::MarkAbove);
        }
        self.count += 1;
        if self.count > 0 {
            // Queues count in whole ticks, as the kernel's in whole bytes.
            let p_b = self.drawn * (self.average - self.min).floor() / (self.max - self.min);
            if p_b * (self.count as f64) < self.random {
                return None;
            }
        }
        let chosen = (self.count > 0).then_some(Verdict::Mark);
        self.count = 0;
        self.random = draw as f64 / (1u64 << 52) as f64;
        self.drawn = self.max_p();
        chosen
    }
}

impl Discipline for Red {
    fn timer(&self) -> Option<u64> {
        self.adaptive.as_ref()?.next
    }

    fn expire(&mut self, fifo: &Fifo, now: u64) {
        let is_idle = fifo.work(now) == 0;
        let average = if is_idle {
            // By the rate that it was set up for, as `bandwidth` of tc.
            self.faded(now - self.idle_since, fifo.link.takes(0, self.typical))
        } else {
            self.average
        };
        let adaptive = self.adaptive.as_mut().unwrap();
        adaptive.adapt(average, is_idle);
        adaptive.next = Some(now + HALF);
    }

    fn enque(&mut self, fifo: &mut Fifo, index: usize, now: u64) -> bool {
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.next.get_or_insert((now / HALF + 1) * HALF);
        }
        let queue = fifo.work(now);
        if queue == 0 {
            let (idle, typical) = (now - self.idle_since, fifo.link.takes(now, self.typical));
            self.average = self.faded(idle, typical);
        } else {
            self.average += self.weight * (queue as f64 - self.average);
        }
        let Some(verdict) = self.chooses() else {
            self.idle_since = fifo.link.end(now + queue, fifo.packets[index].bytes);
            return true;
        };
        if self.ecn && fifo.packets[index].ecn != 0 {
            fifo.mark(index, verdict);
            self.idle_since = fifo.link.end(now + queue, fifo.packets[index].bytes);
            return true;
        }
        if queue == 0 {
            self.idle_since = now;
        }
        false
    }
}

pub(super) fn law(flags: u32, [min, more]: [u64; 2], probability: u64, weight: u64) -> Law {
    Law {
        kind: RED,
        flags,
        target: Ticks(min),
        burst: Ticks(min + more),
        small: Load {
            bytes: 784 / 2,
            segments: 1,
        },
        probability,
        weight,
        ..Law::TAIL
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// The queue says the same of each packet.
    #[test]
    fn red_is_the_queues(
        seed in any::<u64>(),
        ecn in any::<bool>(),
        min in 1..40 * PACKET,
        more in PACKET..80 * PACKET,
        probability in 1..=pie::ONE,
        weight in 1u64..12,
    ) {
        let law = law(if ecn { LAW_ECN } else { 0 }, [min, more], probability, weight);
        let packets = arrivals(seed, 5000);
        prop_assert_eq!(folded(&law, &packets), play(&packets, &mut Red::new(&law)).fates);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    /// With a timer that moves max_p, too: over pauses of many of its intervals.
    #[test]
    fn adaptive_red_is_the_queues(
        seed in any::<u64>(),
        ecn in any::<bool>(),
        min in PACKET..40 * PACKET,
        more in PACKET..80 * PACKET,
        probability in 1..=pie::ONE,
        small in 0u32..8,
        weight in 1u64..12,
        pause in 0u64..8000,
    ) {
        let flags = LAW_ADAPTIVE + if ecn { LAW_ECN } else { 0 };
        let law = law(flags, [min, more], probability >> small, weight);
        let packets = with_pauses(seed, 20_000, pause);
        prop_assert_eq!(folded(&law, &packets), play(&packets, &mut Red::new(&law)).fates);
    }
}

/// Within the range of Floyd, Gummadi and Shenker 2001 max_p grows and falls, and is another one than at first.
#[test]
fn adaptive_red_moves_max_p() {
    let (mut grown, mut fallen, mut idle, mut other) = (0, 0, 0, 0);
    for seed in 0..40 {
        let packets = with_pauses(seed, 40_000, 700);
        let law = law(LAW_ADAPTIVE, [5 * PACKET, 40 * PACKET], pie::ONE / 50, 7);
        let mut red = Red::new(&law);
        let fates = folded(&law, &packets);
        assert_eq!(fates, play(&packets, &mut red).fates);
        let adaptive = red.adaptive.unwrap();
        grown += adaptive.grown;
        fallen += adaptive.fallen;
        idle += adaptive.idle;
        let fixed = Law { flags: 0, ..law };
        let pairs = fates.iter().zip(folded(&fixed, &packets));
        other += pairs.filter(|(adaptive, fixed)| adaptive.0 != fixed.0).count();
    }
    println!(
        "max_p grew {grown} times, fell {fallen}, {idle} of them while idle; {other} packets fare otherwise"
    );
    assert!(grown > 100 && fallen > 300 && idle > 50 && other > 1000);
}

/// The random packets meet what matters.
#[test]
fn the_random_packets_are_dropped_marked_and_forced() {
    let (mut dropped, mut marked, mut forced, mut seen) = (0, 0, 0, 0);
    for seed in 0..100 {
        let packets = arrivals(seed, 5000);
        let law = law(LAW_ECN, [5 * PACKET, 10 * PACKET], pie::ONE / 50, 5);
        let fates = folded(&law, &packets);
        assert_eq!(fates, play(&packets, &mut Red::new(&law)).fates);
        dropped += of(&fates, Verdict::Drop);
        marked += of(&fates, Verdict::Mark);
        forced += of(&fates, Verdict::MarkAbove);
        seen += packets.len();
    }
    println!("{seen} packets: {dropped} dropped, {marked} marked, {forced} above the threshold");
    assert!(dropped > 1000 && marked > 500 && forced > 1000);
}

/// Behind a flood, a load that never waits is neither marked nor dropped for long: the server idles for less than a small packet at
/// a time.
#[test]
fn what_never_waits_is_forgiven() {
    for flags in [0, LAW_ECN] {
        let law = Law {
            small: Load {
                bytes: 784,
                segments: 1,
            },
            ..law(flags, [30 * PACKET, 60 * PACKET], pie::ONE / 50, 7)
        };
        let service = 3 * PACKET / 2;
        let flood = (0..400u64).map(|number| number * PACKET);
        let after = 400 * service + 100 * PACKET;
        let quiet = (0..20_000u64).map(|number| after + number * 2 * PACKET);
        let packet = |arrival| Packet {
            arrival,
            bytes: service / BYTE,
            ecn: 1,
        };
        let packets: Vec<_> = flood.chain(quiet).map(packet).collect();
        let fates = folded(&law, &packets);
        assert_eq!(fates, play(&packets, &mut Red::new(&law)).fates);
        let late = &fates[400 + 20 * 128..];
        assert_eq!(of(late, Verdict::Pass), late.len(), "{flags}");
        assert!(of(&fates, Verdict::Pass) < fates.len(), "the flood is");
    }
}
