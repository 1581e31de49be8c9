//! When packets leave: the stamps of the program equal the recursion of `perturb_common::departure`
//! folded in Rust over the same tables, to the nanosecond; drops, counters and states likewise.
//!
//! The program reads the clock by itself. Every path begins with the server `clock`, which is
//! occupied for a nanosecond per packet: its state afterwards says when the packet arrived.

use std::{collections::HashMap, fmt::Write as _};

use crate::support::{
    Context, REDIRECT, Rig,
    choices::Choices,
    oracle::DIRECTIONS,
    packet::{TCP, UDP, V4, V6, tcp, udp},
};
use perturb_clock::now;
use perturb_common::{
    abi::{Direction, Event, LEASE_PAUSED, Scope, ServerCounters, ServerState},
    departure::{Load, Outcome, departure},
    units::{Instant, MonoNanos, Nanos, Ticks},
};
use perturb_dataplane::programs::Pacer;

/// What `clock` is occupied for.
const TICK: Ticks = Ticks(64);

/// Servers of a random path, as the profile says them.
fn random_servers(choices: &mut Choices) -> Vec<String> {
    (0..=choices.below(5))
        .map(|_| {
            let mut keys = vec![format!(
                "scope: {}",
                choices.pick(&["shared", "interface", "host", "flow"])
            )];
            if choices.below(3) != 0 {
                keys.push(format!("gap: {}ns", 1 + choices.below(200_000)));
            }
            let bandwidth = choices.below(3) != 0;
            if bandwidth {
                keys.push(format!(
                    "bandwidth: {}kbit/s",
                    100_000 + choices.below(10_000_000)
                ));
            }
            if choices.below(2) == 0 {
                keys.push(format!("latency: {}ns", choices.below(40_000_000)));
            }
            match choices.below(3) {
                0 if bandwidth => keys.push(format!("buffer: {}B", 2000 + choices.below(20_000))),
                1 if bandwidth => keys.push(format!("buffer: {}us", 20 + choices.below(500))),
                _ => {}
            }
            keys.join(", ")
        })
        .collect()
}

fn profile(servers: &[String]) -> String {
    let mut text = String::from("version: 1\nservers:\n  clock: { gap: 1ns }\n");
    let mut path = String::from("clock");
    for (index, keys) in servers.iter().enumerate() {
        writeln!(text, "  s{index}: {{ {keys} }}").unwrap();
        write!(path, ", s{index}").unwrap();
    }
    writeln!(
        text,
        "classes:\n  - {{ name: all, match: {{}}, egress: [{path}], ingress: [{path}] }}"
    )
    .unwrap();
    text
}

/// Whose queue a packet is in at a server: as much of its identity as the scope says.
type Queue = (usize, Option<u8>, Option<u16>);

/// The servers in Rust.
#[derive(Default)]
struct Reference {
    free: HashMap<Queue, Instant>,
    counters: Vec<ServerCounters>,
}

/// What becomes of a packet.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Departs(MonoNanos),
    Dropped(Event),
}

impl Reference {
    fn fold(
        &mut self,
        rig: &Rig,
        path: &[u32],
        arrival: MonoNanos,
        load: Load,
        remote: u8,
        port: u16,
    ) -> Fate {
        self.counters
            .resize(rig.tables.servers.len(), ServerCounters::default());
        let mut time = arrival.instant();
        for &index in path {
            let index = index as usize;
            let config = &rig.tables.servers[index];
            let queue = match config.scope {
                scope if scope == Scope::Host as u32 => (index, Some(remote), None),
                scope if scope == Scope::Flow as u32 => (index, Some(remote), Some(port)),
                _ => (index, None, None),
            };
            let free = self.free.entry(queue).or_default();
            let counters = &mut self.counters[index];
            match departure(&config.server, *free, time, load) {
                Outcome::TailDrop => {
                    counters.tail_drops += 1;
                    return Fate::Dropped(Event::TailDrop);
                }
                Outcome::BeyondHorizon => {
                    counters.tail_drops += 1;
                    return Fate::Dropped(Event::Horizon);
                }
                Outcome::Down | Outcome::Early => unreachable!("none of them changes, nor has a law"),
                Outcome::Served(service) => {
                    counters.packets += 1;
                    counters.bytes += load.bytes;
                    counters.busy += service.free.since(time).0 - service.backlog.0;
                    counters.max_backlog = counters.max_backlog.max(service.backlog.0);
                    *free = service.free;
                    time = service.next;
                }
            }
        }
        Fate::Departs(time.ceil_nanos())
    }
}

/// A frame between this host and `remote`, of so many bytes.
fn frame(direction: Direction, remote: u8, port: u16, len: usize) -> Vec<u8> {
    let (here, there) = ([10, 0, 0, 1], [10, 0, 0, remote]);
    match direction {
        Direction::Egress => V4::new(here, there, UDP, udp(port, 9, len - 34)).frame(),
        Direction::Ingress => V4::new(there, here, UDP, udp(9, port, len - 34)).frame(),
    }
}

/// When the last packet arrived, by the state of `clock`.
fn arrival(rig: &Rig) -> MonoNanos {
    MonoNanos((rig.state("clock").free - TICK.0) / TICK.0)
}

#[test]
fn stamps_equal_the_recursion() {
    let mut choices = Choices::new(11);
    for pacer in [Pacer::Fq, Pacer::User] {
        let Some(mut rig) = Rig::spacious(&profile(&[]), pacer) else {
            return;
        };
        let (mut departed, mut dropped) = (0, 0);
        for _ in 0..60 {
            let servers = random_servers(&mut choices);
            rig.load(&profile(&servers));
            // A server keeps its state, and an instance, as long as its name stays: begin anew.
            rig.forget_states();
            let path = rig.tables.paths[0];
            // The first leg: up to the first cut, where the packet is held until it arrives.
            let leg = path.len.min(path.cuts.trailing_zeros());
            let path = &path.servers[..leg as usize];
            let before = rig.counters(1);
            let mut reference = Reference::default();
            for _ in 0..50 {
                let direction = *choices.pick(&DIRECTIONS);
                let (remote, port) = (2 + choices.below(2) as u8, 100 + choices.below(2) as u16);
                let len = 60 + choices.below(1454) as usize;
                let start = now();
                let ran = rig.send(
                    direction,
                    &frame(direction, remote, port, len),
                    Context::default(),
                );
                assert_eq!(ran.action, REDIRECT);
                let arrival = arrival(&rig);
                assert!((start..=now()).contains(&arrival.0));
                let load = Load {
                    bytes: len as u64,
                    segments: 1,
                };
                match reference.fold(&rig, path, arrival, load, remote, port) {
                    Fate::Departs(departure) => {
                        departed += 1;
                        assert_eq!(rig.departure(&ran), departure.0, "{servers:#?}");
                    }
                    Fate::Dropped(_) => {
                        dropped += 1;
                        // A packet that is dropped bears no stamp.
                        assert!(ran.context.tstamp == 0 && ran.data[..2] == [2, 0], "{servers:#?}");
                    }
                }
            }
            let after = rig.counters(1);
            for ((before, after), expected) in
                before.servers.iter().zip(&after.servers).zip(&reference.counters)
            {
                let grown = ServerCounters {
                    packets: after.packets - before.packets,
                    bytes: after.bytes - before.bytes,
                    tail_drops: after.tail_drops - before.tail_drops,
                    busy: after.busy - before.busy,
                    ..*expected
                };
                assert_eq!(grown, *expected, "{servers:#?}");
                assert!(after.max_backlog >= expected.max_backlog);
            }
        }
        assert!(
            departed > 1000 && dropped > 100,
            "{departed} departed, {dropped} dropped"
        );
    }
}

/// Packets of a backlogged server leave one after the other, whenever they come.
#[test]
fn backlog_hides_arrivals() {
    let Some(mut rig) = Rig::new(
        &profile(&["gap: 7us, bandwidth: 1Gbit/s, latency: 3ms".into()]),
        Pacer::Fq,
    ) else {
        return;
    };
    let busy_until = MonoNanos(now() + 1_000_000_000);
    rig.set_state(
        "s0",
        ServerState {
            free: busy_until.instant().0,
            ..ServerState::default()
        },
    );
    for packet in 1..=100 {
        let ran = rig.send(
            Direction::Egress,
            &frame(Direction::Egress, 2, 5, 1000),
            Context::default(),
        );
        // 7 us and 8000 bits at 1 Gbit/s.
        assert_eq!(ran.context.tstamp, busy_until.0 + packet * 15_000 + 3_000_000);
    }
}

/// A super-packet is charged for its segments, each with its own headers.
#[test]
fn super_packets_are_charged_by_segment() {
    let Some(mut rig) = Rig::new(&profile(&["gap: 10us, bandwidth: 1Gbit/s".into()]), Pacer::Fq) else {
        return;
    };
    for (payload, size, segments) in [
        (3000u64, 1000u32, 3),
        (3001, 1000, 4),
        (999, 1000, 1),
        (2896, 1448, 2),
    ] {
        rig.forget_states();
        let ran = rig.send(
            Direction::Egress,
            &frame(Direction::Egress, 2, 5, 42 + payload as usize),
            Context {
                gso_size: size,
                gso_segs: segments,
                ..Context::default()
            },
        );
        let bits = 8 * (payload + u64::from(segments) * 42);
        let occupied = Nanos(u64::from(segments) * 10_000 + bits);
        // `clock` charges a nanosecond per segment.
        let arrival = MonoNanos(rig.state("clock").free / TICK.0 - u64::from(segments));
        assert_eq!(ran.context.tstamp, arrival.0 + u64::from(segments) + occupied.0);
    }
}

/// A super-packet repeats the headers that it says it has, read in place or, behind options, by a helper.
#[test]
fn super_packets_repeat_their_headers() {
    let Some(mut rig) = Rig::new(&profile(&["bandwidth: 1Gbit/s".into()]), Pacer::Fq) else {
        return;
    };
    // Bytes on the wire that a super-packet of so many segments is charged for.
    let mut charge = |frame: &[u8], gso_size: u32, segments: u32| {
        rig.forget_states();
        let context = Context {
            gso_size,
            gso_segs: segments,
            ..Context::default()
        };
        let ran = rig.send(Direction::Egress, frame, context);
        // What comes after `clock` is charged a nanosecond per bit.
        (ran.context.tstamp - rig.state("clock").free / TICK.0) / 8
    };
    let both = |protocol, upper: Vec<u8>| {
        let v4 = V4::new([192, 0, 2, 1], [192, 0, 2, 2], protocol, upper.clone());
        let v6 = V6::new([1; 8], [2; 8], protocol, upper);
        let (mut v4_options, mut v6_options) = (v4.clone(), v6.clone());
        v4_options.options = 1;
        v6_options.extensions = vec![V6::extension(60, 0)];
        [v4.frame(), v4_options.frame(), v6.frame(), v6_options.frame()]
    };
    // 20 bytes and 12 of options, in words; a header that claims to be shorter than any is taken at its word.
    for (words, payload) in [(8u8, 3000), (5, 3012), (2, 3024), (0, 3032)] {
        let mut upper = tcp(40_000, 2049, 32 + 3000);
        upper[12] = words << 4;
        for frame in both(TCP, upper) {
            let (len, segments) = (frame.len() as u64, if payload > 3000 { 4 } else { 3 });
            let asked = payload + u64::from(segments) * (len - payload);
            assert_eq!(
                charge(&frame, 1000, segments),
                asked,
                "{words} words, {len} bytes"
            );
        }
    }
    for frame in both(UDP, udp(40_000, 2049, 8 + 3000)) {
        let headers = frame.len() as u64 - 3000;
        assert_eq!(charge(&frame, 1000, 3), 3000 + 3 * headers);
    }
    // A header that claims more than there is.
    let mut upper = tcp(40_000, 2049, 40);
    upper[12] = 15 << 4;
    for frame in both(TCP, upper) {
        assert_eq!(charge(&frame, 10, 1), frame.len() as u64);
    }
}

/// A packet-limited buffer holds that many packets, the one in service included.
#[test]
fn packet_limit_is_exact() {
    let keys = "gap: 100ms, buffer: 5 packets";
    let Some(mut rig) = Rig::new(&profile(&[keys.into()]), Pacer::Fq) else {
        return;
    };
    let send = |rig: &mut Rig| {
        let ran = rig.send(
            Direction::Egress,
            &frame(Direction::Egress, 2, 5, 100),
            Context::default(),
        );
        ran.context.tstamp != 0
    };
    let first = now();
    let kept: Vec<bool> = (0..8).map(|_| send(&mut rig)).collect();
    assert_eq!(kept, [true, true, true, true, true, false, false, false]);
    assert_eq!(rig.event(Event::PacketLimit), 3);
    // The first has left 100 ms after it came: there is room for one.
    while now() < first + 101_000_000 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let late = now() > first + 195_000_000;
    assert!(send(&mut rig));
    assert!(late || !send(&mut rig));
}

/// The horizon bounds the wait, and what is beyond it is counted as unintended.
#[test]
fn horizon_is_a_drop_of_its_own() {
    let text = "version: 1\nhorizon: 100ms\nservers: { s: { gap: 40ms } }\nclasses:\n  - { name: all, match: {}, egress: [s] }\n";
    let Some(mut rig) = Rig::new(text, Pacer::Fq) else {
        return;
    };
    for _ in 0..5 {
        rig.send(
            Direction::Egress,
            &frame(Direction::Egress, 2, 5, 100),
            Context::default(),
        );
    }
    // Held for 40 and 80 ms; then it would be 120.
    assert_eq!(rig.event(Event::Horizon), 3);
    assert_eq!(rig.event(Event::TailDrop), 0);
}

/// An instant past the lease: traffic passes, untouched.
#[test]
fn lease_runs_out() {
    let Some(mut rig) = Rig::new(&profile(&["latency: 1ms".into()]), Pacer::Fq) else {
        return;
    };
    let data = frame(Direction::Egress, 2, 5, 100);
    rig.loader.set_lease(now() + 3_600_000_000_000).unwrap();
    assert_eq!(
        rig.send(Direction::Egress, &data, Context::default()).action,
        REDIRECT
    );
    rig.loader.set_lease(now() - 1).unwrap();
    let ran = rig.send(Direction::Egress, &data, Context::default());
    assert_eq!(
        (ran.action, ran.context.tstamp, &ran.data),
        (crate::support::PASS, 0, &data)
    );
    assert_eq!((rig.event(Event::LeaseExpired), rig.event(Event::Paused)), (1, 0));
    rig.loader.set_lease(LEASE_PAUSED).unwrap();
    let ran = rig.send(Direction::Egress, &data, Context::default());
    assert_eq!((ran.action, &ran.data), (crate::support::PASS, &data));
    assert_eq!((rig.event(Event::LeaseExpired), rig.event(Event::Paused)), (1, 1));
}

/// A loaded profile counts at once, the state of a server that keeps its name stays, and no packet is
/// dropped on the way.
#[test]
fn live_update_keeps_state() {
    let Some(mut rig) = Rig::new(&profile(&["gap: 50ms".into()]), Pacer::Fq) else {
        return;
    };
    let data = frame(Direction::Egress, 2, 5, 100);
    let stamp = |rig: &mut Rig| {
        rig.send(Direction::Egress, &data, Context::default())
            .context
            .tstamp
    };
    let first = stamp(&mut rig);
    assert_eq!(stamp(&mut rig), first + 50_000_000);
    rig.load(&profile(&["gap: 10ms, latency: 1s".into()]));
    // Behind those two, with the new gap and latency.
    assert_eq!(stamp(&mut rig), first + 50_000_000 + 10_000_000 + 1_000_000_000);
}
