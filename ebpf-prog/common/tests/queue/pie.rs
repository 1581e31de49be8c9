//! PIE beside RFC 8033's pseudocode, in floats, with a timer of its own.

use perturb_common::{
    departure::Load,
    fate::{Purpose, draw},
    queue::{LAW_DERANDOMIZE, LAW_ECN, Law, PIE, Verdict, pie},
    units::Ticks,
};
use proptest::prelude::*;

use super::{
    Packet, SALT, arrivals,
    fifo::{Discipline, Fifo, play},
    folded, of,
};

pub(super) const MS: u64 = 64_000_000;

/// RFC 8033, section 4, 5.1, 5.4, 5.5 and appendix A; delays in seconds.
pub(super) struct Pie {
    qdelay_ref: f64,
    t_update: u64,
    max_burst: f64,
    /// Two packets of MEAN_PKTSIZE, bytes.
    small: u64,
    /// `None` without ECN.
    mark_ecnth: Option<f64>,
    derandomize: bool,
    drop_prob: f64,
    accu_prob: f64,
    qdelay_old: f64,
    burst_allowance: f64,
    /// The timer; it begins with the first packet.
    next: Option<u64>,
    /// Packets that have come.
    count: u64,
    /// Packets that the burst allowance let pass though there was a probability.
    allowed: u64,
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / 64e9
}

impl Pie {
    pub(super) fn new(law: &Law) -> Self {
        Self {
            qdelay_ref: seconds(law.target.0),
            t_update: law.interval.0,
            max_burst: seconds(law.burst.0),
            small: law.small.bytes,
            mark_ecnth: (law.flags & LAW_ECN != 0).then_some(law.probability as f64 / pie::ONE as f64),
            derandomize: law.flags & LAW_DERANDOMIZE != 0,
            drop_prob: 0.0,
            accu_prob: 0.0,
            qdelay_old: 0.0,
            burst_allowance: seconds(law.burst.0),
            next: None,
            count: 0,
            allowed: 0,
        }
    }

    fn random(&self) -> f64 {
        (draw(SALT, 0, self.count - 1, Purpose::Queue) >> 12) as f64 / (1u64 << 52) as f64
    }

    /// Whether it is to be dropped.
    fn drop_early(&mut self, work: u64, small: u64) -> bool {
        if self.qdelay_old < self.qdelay_ref / 2.0 && self.drop_prob < 0.2 || work <= small {
            return false;
        }
        if self.derandomize {
            if self.drop_prob == 0.0 {
                self.accu_prob = 0.0;
            }
            self.accu_prob += self.drop_prob;
            if self.accu_prob < 0.85 {
                return false;
            }
            if self.accu_prob >= 8.5 {
                return true;
            }
        }
        self.random() < self.drop_prob
    }
}

impl Discipline for Pie {
    fn timer(&self) -> Option<u64> {
        self.next
    }

    fn expire(&mut self, fifo: &Fifo, now: u64) {
        // Of two packets of MEAN_PKTSIZE, at first, half of one is left in service.
        let in_service = fifo.link.takes(0, self.small) / 4;
        let current = seconds(fifo.work(now).saturating_sub(in_service));
        let mut p = 0.125 * (current - self.qdelay_ref) + 1.25 * (current - self.qdelay_old);
        p /= match self.drop_prob {
            prob if prob < 0.000_001 => 2048.0,
            prob if prob < 0.000_01 => 512.0,
            prob if prob < 0.000_1 => 128.0,
            prob if prob < 0.001 => 32.0,
            prob if prob < 0.01 => 8.0,
            prob if prob < 0.1 => 2.0,
            _ => 1.0,
        };
        if self.drop_prob >= 0.1 {
            p = p.min(0.02);
        }
        self.drop_prob += p;
        if current == 0.0 && self.qdelay_old == 0.0 {
            self.drop_prob *= 1.0 - 1.0 / 64.0;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        self.burst_allowance = (self.burst_allowance - seconds(self.t_update)).max(0.0);
        if self.burst_allowance < 1e-9 {
            self.burst_allowance = 0.0;
        }
        self.qdelay_old = current;
        self.next = Some(now + self.t_update);
    }

    fn enque(&mut self, fifo: &mut Fifo, index: usize, now: u64) -> bool {
        self.next.get_or_insert(now + self.t_update);
        self.count += 1;
        let work = fifo.work(now);
        let low = |delay: f64| delay < self.qdelay_ref / 2.0;
        if self.drop_prob == 0.0 && low(seconds(work)) && low(self.qdelay_old) {
            self.burst_allowance = self.max_burst;
        }
        if self.burst_allowance > 0.0 {
            self.allowed += u64::from(self.drop_prob > 0.0);
            return true;
        }
        if !self.drop_early(work, fifo.link.takes(now, self.small)) {
            return true;
        }
        self.accu_prob = 0.0;
        let marks = self.mark_ecnth.is_some_and(|most| self.drop_prob <= most);
        if marks && fifo.packets[index].ecn != 0 {
            fifo.mark(index, Verdict::Mark);
            return true;
        }
        false
    }
}

pub(super) fn law(flags: u32, [target, interval, burst]: [u64; 3], probability: u64) -> Law {
    Law {
        kind: PIE,
        flags,
        target: Ticks(target),
        interval: Ticks(interval),
        burst: Ticks(burst),
        small: Load {
            bytes: 2 * 784,
            segments: 2,
        },
        probability,
        ..Law::TAIL
    }
}

/// Packets at half more than their rate, of which each 2000th comes so many ms late, and all behind it.
pub(super) fn with_pauses(seed: u64, count: usize, pause: u64) -> Vec<Packet> {
    let mut packets = arrivals(seed, count);
    for (index, packet) in packets.iter_mut().enumerate() {
        packet.arrival = 1 + packet.arrival * 2 / 3 + index as u64 / 2000 * pause * MS;
    }
    packets
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// The RFC's queue says the same of each packet.
    #[test]
    fn pie_is_the_rfcs(
        seed in any::<u64>(),
        flags in 0u32..4,
        target in 1000..20 * MS,
        interval in MS..20 * MS,
        burst in 0..150 * MS,
        probability in 0..=pie::ONE,
        pause in 0u64..3000,
    ) {
        let flags = (flags & 1) * LAW_ECN + (flags >> 1) * LAW_DERANDOMIZE;
        let law = law(flags, [target, interval, burst], probability);
        let packets = with_pauses(seed, 5000, pause);
        prop_assert_eq!(folded(&law, &packets), play(&packets, &mut Pie::new(&law)).fates);
    }
}

/// The random packets meet what matters, with the RFC's parameters, too.
#[test]
fn the_random_packets_are_dropped_marked_and_allowed() {
    let (mut dropped, mut marked, mut allowed, mut seen) = (0, 0, 0, 0);
    for seed in 0..40 {
        let packets = with_pauses(seed, 10_000, 100);
        let law = law(LAW_ECN, [15 * MS, 15 * MS, 150 * MS], pie::ONE / 3);
        let fates = folded(&law, &packets);
        let mut oracle = Pie::new(&law);
        assert_eq!(fates, play(&packets, &mut oracle).fates);
        dropped += of(&fates, Verdict::Drop);
        marked += of(&fates, Verdict::Mark);
        allowed += oracle.allowed;
        seen += packets.len();
    }
    println!("{seen} packets: {dropped} dropped, {marked} marked, {allowed} within an allowance");
    assert!(dropped > 1000 && marked > 1000 && allowed > 1000);
}
