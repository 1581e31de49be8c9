//! Servers that change, against a simulation byte by byte that shares no code with them.
//!
//! What is computed rounds work to 2^-16 bytes. Before a stop a rounding may decide about seconds, so a packet's end is
//! compared with those of packets a little shorter and a little longer.

#![cfg(feature = "alloc")]

use perturb_common::{
    departure::{Load, Outcome, Server, Service, departure},
    fate::Chance,
    timeline::{End, Gate, Hints, Laid, Rate, Room, Segment, Start, Timeline, Unfit, locate},
    units::{GapPerByte, Instant, Ticks},
};
use proptest::prelude::*;

mod simulation;

use simulation::{MOST_STEPS, compare};

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![
        1 => Just(Rate::Free),
        3 => Just(Rate::Stopped),
        // 8 Tbit/s to 80 kbit/s.
        6 => (1u64 << 10..100_000 << 20).prop_map(|gap| Rate::PerByte(GapPerByte(gap))),
        4 => (1u64 << 20..100 << 20).prop_map(|gap| Rate::PerByte(GapPerByte(gap))),
        2 => Just(Rate::PerByte(GapPerByte(1 << 14))),
    ]
}

fn room() -> impl Strategy<Value = Room> {
    prop_oneof![
        2 => Just(Room::Unlimited),
        1 => (100u64..20_000).prop_map(Room::Bytes),
        1 => (1u64..2_000_000).prop_map(|ns| Room::Wait(Ticks(ns << 6))),
    ]
}

fn segment() -> impl Strategy<Value = Segment> {
    let gap = prop_oneof![Just(0u64), 1..2000u64, 1..1_000_000u64];
    let gate = prop_oneof![6 => Just(Gate::Open), 1 => Just(Gate::Drop)];
    (gap, rate(), 0..1_000_000u64, room(), gate).prop_map(|(gap, rate, latency, room, gate)| Segment {
        at: Ticks(0),
        gap: Ticks(gap),
        rate,
        latency: Ticks(latency),
        room,
        loss: Chance::NEVER,
        jitter_scale: 0,
        gate,
    })
}

fn timeline(longest: usize) -> impl Strategy<Value = Timeline> {
    let length = prop_oneof![1..100u64, 1..100_000u64, 1..20_000_000u64];
    let segments = prop::collection::vec((segment(), length), 1..longest);
    (segments, any::<bool>()).prop_map(|(parts, repeats)| {
        let mut at = 0;
        let segments = parts
            .into_iter()
            .map(|(segment, length)| {
                let begin = Ticks(at);
                at += length;
                Segment { at: begin, ..segment }
            })
            .collect();
        // Short turns are long to simulate.
        let at = at.max(MOST_STEPS.into());
        Timeline {
            start: Start::Apply,
            segments,
            end: if repeats { End::Loop(Ticks(at)) } else { End::Hold },
        }
    })
}

/// Offered at this time after the last one's arrival, of so many bytes and wire packets.
fn packets() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let pause = prop_oneof![3 => 0..10_000u64, 2 => 0..1_000_000u64, 1 => 0..50_000_000u64];
    prop::collection::vec((pause, 1..3000u64, 1..3u64), 1..40)
}

fn lay(timeline: &Timeline, origin: u64) -> Laid {
    let mut laid = timeline.lay().expect("it is in order");
    laid.course.origin = origin;
    laid
}

fn hold(segments: Vec<Segment>) -> Timeline {
    Timeline {
        start: Start::Apply,
        segments,
        end: End::Hold,
    }
}

fn served(outcome: Outcome) -> Service {
    match outcome {
        Outcome::Served(service) => service,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn equals_a_simulation_byte_by_byte(
        timeline in timeline(12),
        packets in packets(),
        origin in 0..1u64 << 60,
        horizon in prop_oneof![Just(u64::MAX), 1..100_000_000u64],
    ) {
        let laid = lay(&timeline, origin);
        let mut hints = Hints::default();
        let (mut free, mut arrival) = (Instant(origin), Instant(origin));
        for (pause, bytes, segments) in packets {
            arrival = arrival.after(Ticks(pause));
            let load = Load { bytes, segments };
            let found = laid.departure(&mut hints, Ticks(horizon), free, arrival, load).unwrap();
            let here = |time: Instant| if time.0 == u64::MAX { time.0 } else { time.0 - origin };
            let outcome = match found {
                Outcome::Served(service) => Outcome::Served(Service {
                    free: Instant(here(service.free)),
                    next: Instant(here(service.next)),
                    ..service
                }),
                dropped => dropped,
            };
            compare(&timeline, Ticks(horizon), here(free), here(arrival), load, outcome);
            if let Outcome::Served(service) = found {
                if service.free.0 == u64::MAX {
                    break;
                }
                free = service.free;
            }
        }
    }

    #[test]
    fn one_segment_is_a_server_that_does_not_change(
        segment in segment(),
        packets in packets(),
        horizon in prop_oneof![Just(u64::MAX), 1..1_000_000u64],
    ) {
        prop_assume!(segment.rate != Rate::Stopped && segment.gate == Gate::Open);
        let per_byte = match segment.rate { Rate::PerByte(gap) => gap, _ => GapPerByte(0) };
        let (buffer, doubt) = match segment.room {
            Room::Unlimited => (Ticks::MAX, Ticks(0)),
            Room::Bytes(bytes) => (per_byte.transmit(bytes), Ticks(3 + (per_byte.0 >> 30))),
            Room::Wait(time) => (time, Ticks(0)),
        };
        // Bytes that take no time fill no buffer that is counted in time.
        prop_assume!(segment.rate != Rate::Free || !matches!(segment.room, Room::Bytes(_)));
        let server = Server { gap: segment.gap, per_byte, latency: segment.latency, buffer, horizon: Ticks(horizon) };
        let laid = lay(&hold(vec![segment]), 7);
        let mut hints = Hints(u64::MAX);
        let (mut free, mut arrival) = (Instant(0), Instant(7));
        for (pause, bytes, segments) in packets {
            arrival = arrival.after(Ticks(pause));
            let load = Load { bytes, segments };
            let found = laid.departure(&mut hints, server.horizon, free, arrival, load).unwrap();
            let expected = departure(&server, free, arrival, load);
            let edge = free.since(arrival).plus(per_byte.transmit(bytes)).0.abs_diff(buffer.0) <= doubt.0;
            prop_assert!(found == expected || edge, "{:?}, not {:?}", found, expected);
            if let Outcome::Served(service) = found {
                free = service.free;
            }
        }
    }

    #[test]
    fn hints_change_nothing(timeline in timeline(60), packets in packets(), hints: Vec<u64>) {
        let laid = lay(&timeline, 0);
        let (mut free, mut arrival) = (Instant(0), Instant(0));
        let mut kept = Hints::default();
        for ((pause, bytes, segments), hint) in packets.into_iter().zip(hints.into_iter().chain([0; 40])) {
            arrival = arrival.after(Ticks(pause));
            let load = Load { bytes, segments };
            let step = |hints: &mut Hints| laid.departure(hints, Ticks::MAX, free, arrival, load).unwrap();
            let found = step(&mut kept);
            prop_assert_eq!(step(&mut Hints(hint)), found);
            prop_assert_eq!(step(&mut Hints((hint % 60) | (((hint >> 8) % 60) << 32))), found);
            if let Outcome::Served(service) = found {
                free = service.free;
            }
        }
    }

    #[test]
    fn a_search_finds_the_row_from_anywhere(
        rows in prop_oneof![1..100u32, 1..1u32 << 22, Just(1u32 << 22)],
        [hint, key] in any::<[u32; 2]>(),
        shift in 0..32u32,
        apart in 1..5u64,
    ) {
        // Their keys are 7, and then 7 more each.
        let (hint, key) = (hint >> shift, (u64::from(key) % (u64::from(rows) + 9)) * 7 / apart);
        let found = locate(|index| (index < rows).then(|| 7 * (u64::from(index) + 1)), rows, hint, key);
        let expected = (key / 7).saturating_sub(1).min(u64::from(rows) - 1);
        prop_assert_eq!(u64::from(found), expected);
    }

    /// Builds with checks of overflow panic if there is one.
    #[test]
    fn any_numbers_saturate(
        parts in prop::collection::vec((any::<[u64; 6]>(), any::<[u8; 3]>()), 1..5),
        numbers: [u64; 7],
        repeats: bool,
    ) {
        let mut at = 0u64;
        let mut segments = Vec::new();
        for ([length, gap, rate, latency, room, jitter_scale], [kind, limit, gate]) in parts {
            segments.push(Segment {
                at: Ticks(at),
                gap: Ticks(gap >> (gap & 63)),
                rate: match kind % 3 {
                    0 => Rate::Free,
                    1 => Rate::Stopped,
                    _ => Rate::PerByte(GapPerByte(rate >> (rate & 63))),
                },
                latency: Ticks(latency),
                room: match limit % 3 {
                    0 => Room::Unlimited,
                    1 => Room::Bytes(room),
                    _ => Room::Wait(Ticks(room)),
                },
                loss: Chance::NEVER,
                jitter_scale,
                gate: if gate % 5 == 0 { Gate::Drop } else { Gate::Open },
            });
            at = at.saturating_add((length >> (length & 63)).clamp(1, 1 << 60));
        }
        let end = if repeats { End::Loop(Ticks(at)) } else { End::Hold };
        let Ok(mut laid) = (Timeline { start: Start::Apply, segments, end }).lay() else {
            return Ok(());
        };
        let [origin, free, arrival, bytes, count, horizon, hint] = numbers.map(|number| number >> (number & 63));
        laid.course.origin = origin;
        let load = Load { bytes, segments: count };
        let mut hints = Hints(hint);
        let departure = laid.departure(&mut hints, Ticks(horizon), Instant(free), Instant(arrival), load);
        if let Outcome::Served(service) = departure.unwrap() {
            prop_assert!(service.free >= Instant(free).max(Instant(arrival)) && service.next >= service.free);
        }
    }
}

/// Each opportunity is for 1500 bytes; a packet of so many leaves at its own, smaller ones share it, and what no packet uses
/// is lost (mahimahi's `mm-link`).
#[test]
fn opportunities_are_a_work_of_steps() {
    const MS: u64 = 64_000_000;
    let opportunities = [5, 6, 6, 9];
    let mut segments = vec![Segment {
        rate: Rate::Stopped,
        ..Segment::IDLE
    }];
    for (index, ms) in opportunities.into_iter().enumerate() {
        let again = index > 0 && opportunities[index - 1] == ms;
        let begin = ms * MS + if again { 1500 } else { 0 };
        if again {
            segments.pop();
        }
        segments.push(Segment {
            at: Ticks(begin),
            rate: Rate::PerByte(GapPerByte(1 << 14)),
            ..Segment::IDLE
        });
        segments.push(Segment {
            at: Ticks(begin + 1500),
            rate: Rate::Stopped,
            ..Segment::IDLE
        });
    }
    let timeline = Timeline {
        start: Start::Apply,
        segments,
        end: End::Loop(Ticks(10 * MS)),
    };
    let laid = lay(&timeline, 0);
    let mut hints = Hints::default();
    let mut free = Instant(0);
    let mut send = |arrival: u64, bytes: u64| {
        let load = Load { bytes, segments: 1 };
        let found = laid
            .departure(&mut hints, Ticks::MAX, free, Instant(arrival), load)
            .unwrap();
        free = served(found).free;
        (free.0 / MS, free.0 % MS)
    };
    assert_eq!(send(0, 1500), (5, 1500));
    // Two at once, in the same millisecond.
    assert_eq!(send(0, 1500), (6, 1500));
    assert_eq!(send(0, 1500), (6, 3000));
    // Three small ones share one; the fourth takes what is left and the next turn's first.
    for part in 1..=3 {
        assert_eq!(send(0, 400), (9, part * 400));
    }
    assert_eq!(send(0, 400), (15, 100));
    assert_eq!(send(0, 1400), (15, 1500));
    // Nobody came for those at 16 and 19.
    assert_eq!(send(19 * MS + 1500, 1500), (25, 1500));
    // Hours later.
    assert_eq!(send(36_000_002 * MS, 1500), (36_000_005, 1500));
}

#[test]
fn what_has_no_order_is_refused() {
    let at = |at| Segment {
        at: Ticks(at),
        ..Segment::IDLE
    };
    let lay = |at: &[u64], end| {
        let segments = at
            .iter()
            .map(|&at| Segment {
                at: Ticks(at),
                ..Segment::IDLE
            })
            .collect();
        Timeline {
            start: Start::Apply,
            segments,
            end,
        }
        .lay()
    };
    assert_eq!(lay(&[], End::Hold), Err(Unfit::Empty));
    assert_eq!(lay(&[1], End::Hold), Err(Unfit::Unordered(0)));
    assert_eq!(lay(&[0, 5, 5], End::Hold), Err(Unfit::Unordered(2)));
    assert_eq!(lay(&[0, 5], End::Loop(Ticks(5))), Err(Unfit::ShortPeriod));
    assert!(lay(&[0, 5], End::Loop(Ticks(6))).is_ok());
    let fast = Segment {
        rate: Rate::PerByte(GapPerByte(1)),
        ..Segment::IDLE
    };
    let long = hold(vec![fast, at(1 << 60)]);
    assert_eq!(long.lay(), Err(Unfit::TooMuchWork));
}
