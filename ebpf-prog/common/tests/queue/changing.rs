//! Laws at a server that changes, beside a queue whose link does. Rates, and when they change, so that no work is rounded.

use perturb_common::{
    departure::{Load, Outcome, Server},
    queue::{CODEL, LAW_ADAPTIVE, LAW_ECN, LAW_L4S, Law, STEP, Verdict, pie},
    timeline::{End, Hints, Rate, Segment, Start, Step as Served, Timeline},
    units::{GapPerByte, Instant, Ticks},
};
use proptest::prelude::*;

use super::{
    CoDel, Packet, Step, arrivals,
    fifo::{Discipline, Link, play_at},
    fold, of,
    pie::{MS, Pie},
    red::{PACKET, Red},
};

/// As [`Link`] has it, and as a timeline: by turns of 10 ms on average a byte takes 2^13 to 2^16 ticks, or the link is stopped.
fn changes(seed: u64, until: u64) -> (Link, Timeline) {
    let mut word = seed | 1;
    let mut below = |limit: u64| {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(23) + 1;
        (word >> 20) % limit
    };
    let mut link = vec![(0, 1 << 14)];
    let mut at = 0;
    while at < until {
        at += 1 + below(20 * MS);
        link.push((
            at,
            match below(8) {
                0 => 0,
                power => 1 << (13 + power % 4),
            },
        ));
    }
    link.push((at + 1, 1 << 14));
    let segments = link
        .iter()
        .map(|&(at, byte)| Segment {
            at: Ticks(at),
            rate: match byte {
                0 => Rate::Stopped,
                byte => Rate::PerByte(GapPerByte(byte << 14)),
            },
            ..Segment::IDLE
        })
        .collect();
    let timeline = Timeline {
        start: Start::Apply,
        segments,
        end: End::Hold,
    };
    (Link(link), timeline)
}

/// The fold over the timeline.
fn folded(law: &Law, packets: &[Packet], timeline: &Timeline) -> Vec<(Verdict, u64)> {
    let laid = timeline.lay().unwrap();
    let own = Server::IDLE;
    let mut hints = Hints::default();
    let at_first = law.small_takes(own.gap, GapPerByte(1 << 28));
    fold(law, packets, at_first, |free, arrival, load: Load| {
        let step = Served::new(laid.course, own.horizon, arrival, load, hints);
        let Ok(Outcome::Served(service)) = step.outcome(&laid, free) else {
            unreachable!("there is no limit")
        };
        hints = step.hints.get();
        (service, step.small_takes(&laid, law).unwrap_or(at_first))
    })
}

/// Both say the same of each packet; how many were dropped, and marked.
fn compare(law: &Law, seed: u64, mut discipline: impl Discipline) -> Result<[usize; 2], TestCaseError> {
    let packets = arrivals(seed, 3000);
    let (link, timeline) = changes(seed, packets.last().unwrap().arrival);
    let fates = folded(law, &packets, &timeline);
    let played = play_at(link, &packets, &mut discipline).fates;
    let differs = fates.iter().zip(&played).position(|(own, other)| own != other);
    prop_assert_eq!(differs, None, "of {:?}", law);
    let marked = of(&fates, Verdict::Mark) + of(&fates, Verdict::MarkAbove);
    Ok([of(&fates, Verdict::Drop), marked])
}

fn codel(flags: u32, target: u64, interval: u64) -> Law {
    Law {
        small: Load {
            bytes: 1514,
            segments: 1,
        },
        ..super::law(flags, target, interval, 0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn all_say_what_the_queues_say(
        seed in any::<u64>(),
        ecn in any::<bool>(),
        delays in [1u64..300, 1u64..4000],
        times in [1000..20 * MS, MS..20 * MS, 0..150 * MS],
        [min, more] in [1..40 * PACKET, PACKET..80 * PACKET],
        probability in 1..=pie::ONE,
        weight in 1u64..12,
    ) {
        let flags = if ecn { LAW_ECN } else { 0 };
        let law = codel(flags, delays[0], delays[1]);
        compare(&law, seed, CoDel::new(&law, None))?;
        let law = super::pie::law(flags, times, probability);
        compare(&law, seed, Pie::new(&law))?;
        let law = super::red::law(flags, [min, more], probability, weight);
        compare(&law, seed, Red::new(&law))?;
        let law = Law { flags: flags | LAW_ADAPTIVE, ..law };
        compare(&law, seed, Red::new(&law))?;
        let law = Law {
            kind: STEP,
            flags: if ecn { LAW_L4S } else { 0 },
            threshold: Ticks(min),
            ..Law::TAIL
        };
        compare(&law, seed, Step { threshold: min, l4s: ecn })?;
    }
}

/// The random packets meet what matters.
#[test]
fn the_random_packets_are_dropped_and_marked() {
    let (mut by_codel, mut by_pie, mut by_red) = ([0; 2], [0; 2], [0; 2]);
    for seed in 0..100 {
        let add = |sum: &mut [usize; 2], more: Result<[usize; 2], TestCaseError>| {
            sum.iter_mut()
                .zip(more.unwrap())
                .for_each(|(sum, more)| *sum += more);
        };
        let law = codel(LAW_ECN, 50, 1000);
        assert_eq!(law.kind, CODEL);
        add(&mut by_codel, compare(&law, seed, CoDel::new(&law, None)));
        let law = super::pie::law(LAW_ECN, [5 * MS, 5 * MS, 10 * MS], pie::ONE / 3);
        add(&mut by_pie, compare(&law, seed, Pie::new(&law)));
        let law = super::red::law(LAW_ECN, [5 * PACKET, 20 * PACKET], pie::ONE / 50, 5);
        add(&mut by_red, compare(&law, seed, Red::new(&law)));
    }
    println!("dropped and marked: by codel {by_codel:?}, by pie {by_pie:?}, by red {by_red:?}");
    for count in [by_codel, by_pie, by_red].as_flattened() {
        assert!(*count > 300);
    }
}

/// Times of a small packet are those of the rate in force, and of the server's own while it is stopped.
#[test]
fn small_packets_take_what_they_take_then() {
    let law = codel(0, 1, 1);
    let (_, timeline) = changes(1, 100 * MS);
    let laid = timeline.lay().unwrap();
    let load = Load {
        bytes: 100,
        segments: 1,
    };
    for segment in &timeline.segments {
        let step = Served::new(
            laid.course,
            Ticks::MAX,
            Instant(segment.at.0),
            load,
            Hints::default(),
        );
        step.outcome(&laid, Instant(0)).unwrap();
        let expected = match segment.rate {
            Rate::PerByte(gap) => Some(gap.transmit(1514)),
            _ => None,
        };
        assert_eq!(step.small_takes(&laid, &law), expected);
    }
}
