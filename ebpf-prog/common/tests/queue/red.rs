//! RED beside the algorithm of Floyd and Jacobson 1993 as `sch_red` has it, in floats, in a queue that is played event by event.

use perturb_common::{
    departure::Load,
    fate::{Purpose, draw},
    queue::{LAW_ECN, Law, RED, Verdict, pie},
    units::Ticks,
};
use proptest::prelude::*;

use super::{
    BYTE, Packet, SALT, arrivals,
    fifo::{Discipline, Fifo, play},
    folded, of,
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
    arrivals: u64,
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
            arrivals: 0,
        }
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
            let p_b = self.max_p * (self.average - self.min).floor() / (self.max - self.min);
            if p_b * (self.count as f64) < self.random {
                return None;
            }
        }
        let chosen = (self.count > 0).then_some(Verdict::Mark);
        self.count = 0;
        self.random = draw as f64 / (1u64 << 52) as f64;
        chosen
    }
}

impl Discipline for Red {
    fn enque(&mut self, fifo: &mut Fifo, index: usize, now: u64) -> bool {
        let queue = fifo.work(now);
        if queue == 0 {
            let (idle, typical) = (now - self.idle_since, fifo.link.takes(now, self.typical));
            let (steps, rest) = (idle / typical, idle % typical);
            self.average *= (1.0 - self.weight).powi(i32::try_from(steps.min(1 << 30)).unwrap());
            self.average *= 1.0 - self.weight * rest as f64 / typical as f64;
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
