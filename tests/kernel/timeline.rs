//! Servers that change: what the program does equals `perturb_common::timeline` over the same rows, to the nanosecond.
//!
//! As in `departure`, every path begins with the server `clock`, whose state says when the packet arrived.

use crate::support::{
    Context, REDIRECT, Rig,
    choices::Choices,
    packet::{UDP, V4, udp},
};
use perturb_clock::{both, now};
use perturb_common::{
    abi::{CONTROL_GENERATION, Direction, Event, SERVER_FATE, SERVER_KEEP_ORDER, ServerState},
    departure::{Load, Outcome, departure},
    fate::Chance,
    tables::Tables,
    timeline::{Course, End, Gate, Hints, Laid, Rate, Room, Segment, Start, Timeline},
    units::{GapPerByte, Instant, MonoNanos, Nanos, Ticks},
};
use perturb_dataplane::programs::Pacer;

const PROFILE: &str = "version: 1
servers: { clock: { gap: 1ns }, s0: { gap: 2us, latency: 50us } }
classes: [{ name: all, match: {}, egress: [clock, s0], ingress: [] }]
";

fn us(us: u64) -> Ticks {
    Nanos(us * 1000).ticks()
}

fn random(choices: &mut Choices) -> Timeline {
    let mut at = 0;
    let mut segments = Vec::new();
    for _ in 0..=choices.below(20) {
        segments.push(Segment {
            at: Ticks(at),
            gap: Ticks(choices.below(2) * choices.below(64 * 20_000)),
            rate: match choices.below(5) {
                0 => Rate::Free,
                1 => Rate::Stopped,
                // 100 Mbit/s to 10 Gbit/s.
                _ => Rate::PerByte(GapPerByte::from_bits_per_sec(
                    100_000_000 * (1 + choices.below(100)),
                )),
            },
            latency: Ticks(choices.below(64 * 200_000)),
            room: match choices.below(3) {
                0 => Room::Unlimited,
                1 => Room::Bytes(1500 + choices.below(20_000)),
                _ => Room::Wait(us(10 + choices.below(300))),
            },
            loss: Chance::NEVER,
            jitter_scale: 0,
            gate: if choices.below(8) == 0 {
                Gate::Drop
            } else {
                Gate::Open
            },
        });
        at += 64 * (1 + choices.below(200_000));
    }
    Timeline {
        start: match choices.below(4) {
            0 | 1 => Start::Apply,
            2 => Start::FirstPacket,
            _ => {
                let (_, wall) = both();
                let soon = *choices.pick(&[2_000_000, 200_000_000]);
                Start::At(wall - 1_000_000 + choices.below(soon))
            }
        },
        segments,
        end: if choices.below(4) == 0 {
            End::Hold
        } else {
            End::Loop(Ticks(at))
        },
    }
}

/// [`PROFILE`] with this timeline at `s0`.
fn tables(rig: &Rig, timeline: Timeline) -> Tables {
    let mut tables = rig.tables.clone();
    let server = &mut tables.servers[1];
    server.timeline = 0;
    server.flags = if timeline.decides(server.server.latency) {
        SERVER_FATE
    } else {
        0
    };
    tables.timelines = vec![timeline];
    tables
}

fn frame(len: usize) -> Vec<u8> {
    V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(5, 9, len - 34)).frame()
}

/// When the last packet arrived at `s0`.
fn arrival(rig: &Rig) -> Instant {
    Instant(rig.state("clock").free)
}

/// When the first timeline started, as the programs find it; 0: it waits for a packet.
fn clock(rig: &Rig) -> u64 {
    let maps = rig.loader.maps();
    let half = (maps.control.get(&CONTROL_GENERATION, 0).unwrap() & 1) as u32;
    let origin = maps.timelines.get(&half, 0).unwrap().0.origin;
    match origin.checked_sub(Course::WAITS) {
        Some(place) => maps.clocks.get(&(place as u32), 0).unwrap(),
        None => origin,
    }
}

/// By its rows as they lie in the kernel.
pub(crate) fn laid(rig: &Rig) -> Laid {
    let mut laid = rig.tables.timelines[0].lay().unwrap();
    laid.course.origin = clock(rig);
    laid
}

#[test]
fn stamps_equal_the_recursion() {
    let mut choices = Choices::new(5);
    for pacer in [Pacer::Fq, Pacer::User] {
        let Some(mut rig) = Rig::new(PROFILE, pacer) else {
            return;
        };
        let (mut departed, mut dropped, mut down, mut before) = (0, 0, 0, 0);
        let plain = rig.tables.clone();
        for _ in 0..80 {
            let timeline = random(&mut choices);
            let mut tables = tables(&rig, timeline.clone());
            let keeps = choices.below(2) == 0;
            let decides = tables.servers[1].flags != 0;
            tables.servers[1].flags |= if keeps { SERVER_KEEP_ORDER } else { 0 };
            let horizon = us(200 + choices.below(2000));
            tables.servers[1].server.horizon = horizon;
            // Either half.
            for _ in 0..choices.below(2) {
                rig.load_tables(plain.clone());
            }
            rig.loader.restart_clock();
            rig.load_tables(tables);
            rig.forget_states();
            let (mut free, mut last) = (Instant(0), Instant(0));
            let server = rig.tables.servers[1].server;
            for _ in 0..50 {
                let len = 60 + choices.below(1454) as usize;
                let counted = rig.event(Event::Down);
                let ran = rig.send(Direction::Egress, &frame(len), Context::default());
                assert_eq!(ran.action, REDIRECT);
                let laid = laid(&rig);
                let arrival = arrival(&rig);
                if timeline.start == Start::FirstPacket {
                    assert!(laid.course.origin <= arrival.0 && laid.course.origin != 0);
                }
                let load = Load {
                    bytes: len as u64,
                    segments: 1,
                };
                let outcome = if laid.course.in_force(free, arrival) {
                    let hints = &mut Hints::default();
                    laid.departure(hints, horizon, free, arrival, load).unwrap()
                } else {
                    before += 1;
                    departure(&server, free, arrival, load)
                };
                match outcome {
                    Outcome::Served(service) => {
                        departed += 1;
                        free = service.free;
                        let mut next = service.next;
                        if keeps && decides {
                            last = last.max(next);
                            next = last;
                        }
                        assert_eq!(rig.departure(&ran), next.ceil_nanos().0, "{timeline:#?}");
                    }
                    outcome => {
                        dropped += 1;
                        down += u64::from(outcome == Outcome::Down);
                        assert!(
                            ran.context.tstamp == 0 && ran.data[..2] == [2, 0],
                            "{timeline:#?}"
                        );
                    }
                }
                assert_eq!(
                    rig.event(Event::Down) - counted,
                    u64::from(outcome == Outcome::Down)
                );
                assert_eq!(rig.state("s0").free, free.0, "{timeline:#?}");
            }
        }
        assert!(
            departed > 1000 && dropped > 300 && down > 20 && before > 10,
            "{departed} departed, {dropped} dropped, {down} of them because of a gate; {before} before the start"
        );
    }
}

#[test]
fn a_live_change_keeps_the_clock() {
    let Some(mut rig) = Rig::new(PROFILE, Pacer::Fq) else {
        return;
    };
    let first = |start| Timeline {
        start,
        segments: vec![Segment::IDLE],
        end: End::Hold,
    };
    let by = [Start::Apply, Start::FirstPacket];
    let plain = rig.tables.clone();
    // The clock of each, and the packet that comes.
    let clocks = |rig: &mut Rig, anew: bool| {
        if anew {
            rig.loader.restart_clock();
        }
        let clocks = by.map(|start| {
            rig.load_tables(tables(rig, first(start)));
            clock(rig)
        });
        rig.send(Direction::Egress, &frame(100), Context::default());
        let [applied, waits] = clocks;
        ([applied, clock(rig)], waits == 0, arrival(rig).0)
    };
    let started = now();
    let (began, waited, arrived) = clocks(&mut rig, false);
    assert!((started..=now()).contains(&Instant(began[0]).ceil_nanos().0));
    assert!(waited);
    assert_eq!(began[1], arrived);
    assert_eq!(clocks(&mut rig, false).0, began);
    // Nobody confirms a profile without any, or a new clock: what comes back goes on.
    let undone = |rig: &mut Rig, anew: bool, tables: Tables| {
        let had = rig.loader.slots().clone();
        if anew {
            rig.loader.restart_clock();
        }
        rig.load_tables(tables);
        rig.send(Direction::Egress, &frame(100), Context::default());
        rig.loader.go_back(had).unwrap();
    };
    undone(&mut rig, false, plain.clone());
    let changing = tables(&rig, first(Start::FirstPacket));
    undone(&mut rig, true, changing);
    assert_eq!(clock(&rig), began[1]);
    assert_eq!(clocks(&mut rig, false).0, began);
    // Behind one without any, and if it is asked for, they begin anew.
    let mut before = began;
    for anew in [false, true] {
        if !anew {
            rig.load_tables(plain.clone());
            rig.send(Direction::Egress, &frame(100), Context::default());
        }
        let (began, waited, arrived) = clocks(&mut rig, anew);
        assert!(waited && began[0] > before[0]);
        assert_eq!(began[1], arrived);
        before = began;
    }
}

#[test]
fn loss_follows_the_timeline() {
    let Some(mut rig) = Rig::new(PROFILE, Pacer::Fq) else {
        return;
    };
    let (_, wall) = both();
    let always = |loss, start| Timeline {
        start,
        segments: vec![Segment {
            loss,
            ..Segment::IDLE
        }],
        end: End::Hold,
    };
    for (loss, start, lost) in [
        (Chance::ALWAYS, Start::Apply, 1),
        (Chance::NEVER, Start::Apply, 0),
        (Chance::ALWAYS, Start::At(wall + 3_600_000_000_000), 0),
    ] {
        rig.load_tables(tables(&rig, always(loss, start)));
        let before = rig.event(Event::Loss);
        rig.send(Direction::Egress, &frame(100), Context::default());
        assert_eq!(rig.event(Event::Loss) - before, lost);
    }
}

/// Nobody waits or is lost by what is not there: neither by the rows of others nor as the packet before did.
#[test]
fn rows_that_are_not_there_are_skipped() {
    let Some(mut rig) = Rig::new(PROFILE, Pacer::Fq) else {
        return;
    };
    let mut tables = tables(
        &rig,
        Timeline {
            start: Start::Apply,
            segments: vec![Segment {
                loss: Chance::ALWAYS,
                latency: us(700),
                ..Segment::IDLE
            }],
            end: End::Hold,
        },
    );
    tables.servers[1].flags |= SERVER_FATE;
    rig.load_tables(tables);
    let counted = |rig: &Rig| {
        [Event::Loss, Event::Horizon, Event::Inconsistent, Event::TailDrop].map(|event| rig.event(event))
    };
    rig.send(Direction::Egress, &frame(100), Context::default());
    assert_eq!(counted(&rig), [1, 0, 0, 0]);
    let half = (rig.loader.maps().control.get(&CONTROL_GENERATION, 0).unwrap() & 1) as u32;
    let mut course = rig.loader.maps().timelines.get(&half, 0).unwrap();
    course.0.first = u32::MAX / 2;
    rig.loader.maps_mut().timelines.set(half, course, 0).unwrap();
    let ran = rig.send(Direction::Egress, &frame(100), Context::default());
    assert_eq!(counted(&rig), [1, 0, 1, 0]);
    assert_eq!(rig.departure(&ran), arrival(&rig).ceil_nanos().0);
}

/// A million segments, of 20 us each, and packets hours apart.
#[test]
fn a_million_segments_are_searched() {
    let segment = |index| Segment {
        latency: Ticks(64 * index),
        ..Segment::IDLE
    };
    let Some(mut rig) = Rig::stepping(PROFILE, Pacer::Fq, us(20), segment) else {
        return;
    };
    // Hours are a wait like any other.
    let mut tables = rig.tables.clone();
    tables.servers[1].server.horizon = Ticks::MAX;
    rig.load_tables(tables);
    for wait in [0u64, 1, 1000, 1_000_000, 7_000_000, 19_000_000, 3_600_000_000, 5] {
        let state = ServerState {
            free: MonoNanos(now() + wait * 1000).instant().0,
            ..ServerState::default()
        };
        rig.set_state("s0", state);
        let ran = rig.send(Direction::Egress, &frame(100), Context::default());
        let load = Load {
            bytes: 100,
            segments: 1,
        };
        let hints = &mut Hints::default();
        let found = laid(&rig).departure(hints, Ticks::MAX, Instant(state.free), arrival(&rig), load);
        let Outcome::Served(service) = found.unwrap() else {
            panic!("{found:?}");
        };
        assert_eq!(
            rig.departure(&ran),
            service.next.ceil_nanos().0,
            "after {wait} us"
        );
    }
}
