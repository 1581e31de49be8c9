//! Paths in legs: a packet that comes out of the hold device goes on from its logical arrival, the
//! stamp, however late or early it is let out.
//!
//! Here the hold device keeps nothing, so packets come out at once, long before their time: all that
//! the second leg says follows from the stamp alone.

use crate::support::{
    Context, LOOPBACK, REDIRECT, Rig,
    oracle::DIRECTIONS,
    packet::{UDP, V4, V6, ethernet, udp},
    sink::Sink,
};
use perturb_clock::now;
use perturb_common::{
    abi::{Attachment, ClassCounters, Direction, Event, ServerState},
    departure::{Load, Outcome, departure},
    memory::{self, Held},
    units::{Instant, MonoNanos},
};
use perturb_dataplane::{
    attach::{Attached, Clsact, Side},
    netlink::Netlink,
    programs::{Pacer, Program},
};

/// Two ways to a trunk: packets of both are held before it.
const TREE: &str = "version: 1
servers:
  clock: { gap: 1ns }
  left: { latency: 100ms, bandwidth: 1Gbit/s }
  right: { latency: 10ms, gap: 1ns }
  trunk: { gap: 1ms, latency: 5ms, buffer: 4ms, bandwidth: 1Gbit/s }
  last: { latency: 1s, scope: flow }
classes:
  - { name: left, match: { port: 1 }, egress: [clock, left, trunk, last], ingress: [clock, left, trunk, last] }
  - { name: right, match: {}, egress: [clock, right, trunk, last], ingress: [clock, right, trunk, last] }
";
const LEFT: u32 = 0;
const RIGHT: u32 = 1;

/// A rig with the release program where packets come out.
struct Loop {
    rig: Rig,
    _release: Attached,
}

impl Loop {
    fn new() -> Option<Self> {
        Self::of(TREE)
    }

    fn of(tree: &str) -> Option<Self> {
        let mut rig = Rig::new(tree, Pacer::Fq)?;
        let cuts: Vec<u32> = rig.tables.paths.iter().map(|path| path.cuts).collect();
        assert_eq!(cuts, [0b100, 0b100], "both paths are cut before the trunk");
        let mut netlink = Netlink::open().unwrap();
        netlink.set_up("lo").unwrap();
        let sink = netlink.link("sink").unwrap().unwrap().index;
        Clsact::ensure(&mut netlink, sink).unwrap().forget();
        rig.attach(
            sink,
            Attachment {
                target: LOOPBACK,
                hold: rig.hold,
                split: 0,
                rank: 0,
            },
        );
        let release = Attached::new(&mut rig.programs, Program::Release, "sink", Side::Ingress).unwrap();
        Some(Self {
            rig,
            _release: release,
        })
    }

    /// Waits until an event has been counted so often: packets come out in the kernel's own time.
    fn wait_for(&self, event: Event, count: u64) {
        let deadline = now() + 2_000_000_000;
        while self.rig.event(event) < count {
            assert!(
                now() < deadline,
                "{event:?}: {} of {count}",
                self.rig.event(event)
            );
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        assert_eq!(self.rig.event(event), count);
    }

    fn class(&self, class: u32, direction: Direction) -> ClassCounters {
        self.rig.counters(2).classes[class as usize][direction as usize]
    }
}

/// A packet crosses a server of the profile that is idle: when the server is free again, and when the
/// packet is at the next one.
fn cross(rig: &Rig, name: &str, arrival: Instant, bytes: usize) -> (Instant, Instant) {
    let index = rig
        .tables
        .server_names
        .iter()
        .position(|other| other == name)
        .unwrap();
    let load = Load {
        bytes: bytes as u64,
        segments: 1,
    };
    match departure(&rig.tables.servers[index].server, Instant(0), arrival, load) {
        Outcome::Served(service) => (service.free, service.next),
        outcome => panic!("{outcome:?} at an idle server"),
    }
}

#[test]
fn second_leg_begins_at_the_stamp() {
    let Some(mut looped) = Loop::new() else { return };
    let frames = [
        (
            LEFT,
            "left",
            V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(7, 1, 300)).frame(),
        ),
        (
            RIGHT,
            "right",
            V6::new([1; 8], [2; 8], UDP, udp(7, 9, 300)).frame(),
        ),
        (
            LEFT,
            "left",
            V6::new([1; 8], [2; 8], UDP, udp(1, 9, 1300)).frame(),
        ),
        // Not IP: the stamp lies in a slot.
        (RIGHT, "right", ethernet(&[], 0x0806, &[1; 60])),
    ];
    for direction in [Direction::Egress, Direction::Ingress] {
        for (class, first, frame) in &frames {
            looped.rig.forget_states();
            let before = looped.class(*class, direction);
            let released = looped.rig.event(Event::Released);
            let start = now();
            let ran = looped.rig.send(direction, frame, Context::default());
            assert_eq!(ran.action, REDIRECT);
            looped.wait_for(Event::Released, released + 1);
            let rig = &looped.rig;
            let arrival = MonoNanos((rig.state("clock").free - 64) / 64);
            assert!((start..now()).contains(&arrival.0));
            // The first leg: to the trunk.
            let (_, time) = cross(rig, "clock", arrival.instant(), frame.len());
            let (free, time) = cross(rig, first, time, frame.len());
            let stamp = time.ceil_nanos();
            assert_eq!(rig.state(first).free, free.0);
            if frame[12..14] != [8, 6] {
                assert_eq!(ran.context.tstamp, stamp.0);
            }
            // The second: from the stamp, not from now.
            let (free, time) = cross(rig, "trunk", stamp.instant(), frame.len());
            assert_eq!(rig.state("trunk").free, free.0, "{direction:?} {frame:02x?}");
            let departed = time.0 / 64 + 1_000_000_000;
            let after = looped.class(*class, direction);
            assert_eq!(after.packets - before.packets, 1);
            // The whole way, to the nanosecond; the end of a tick is rounded up.
            let delay = after.delay - before.delay;
            assert!(
                (departed..=departed + 1).contains(&(arrival.0 + delay)),
                "{delay}"
            );
        }
    }
    assert_eq!(looped.rig.event(Event::Foreign), 0);
    assert_eq!(looped.rig.event(Event::HoldFull), 0);
}

/// The trunk decides about a packet when it gets there, not before: its first leg is as if there were
/// no trunk.
#[test]
fn trunk_decides_on_arrival() {
    let Some(mut looped) = Loop::new() else { return };
    let busy = MonoNanos(now() + 1_000_000_000).instant();
    looped.rig.set_state(
        "trunk",
        ServerState {
            free: busy.0,
            ..ServerState::default()
        },
    );
    let frame = V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(7, 9, 300)).frame();
    let before = looped.class(RIGHT, Direction::Egress);
    let ran = looped.rig.send(Direction::Egress, &frame, Context::default());
    looped.wait_for(Event::TailDrop, 1);
    let first = ran.context.tstamp - looped.rig.state("clock").free.div_ceil(64);
    assert!(first.abs_diff(10_000_001) <= 1);
    // It may wait there for 4 ms, and would have to wait for longer.
    let after = looped.class(RIGHT, Direction::Egress);
    assert_eq!(
        (after.packets - before.packets, after.dropped - before.dropped),
        (1, 1)
    );
    assert_eq!(looped.rig.state("trunk").free, busy.0);
}

/// What carries no tag is a stranger on the hold device.
#[test]
fn strangers_are_dropped() {
    let Some(looped) = Loop::new() else { return };
    let frame = V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(7, 9, 300)).frame();
    let hold = Sink::new(looped.rig.hold).unwrap();
    hold.send(&frame).unwrap();
    looped.wait_for(Event::Foreign, 1);
    assert_eq!(looped.rig.event(Event::Released), 0);
}

/// What is charged when a packet is held is taken back when it comes out: of all kinds of packets, of each copy and leg, though
/// the kernel has taken tags out of the data in between.
#[test]
fn memory_is_given_back() {
    const ROUNDS: usize = 20;
    let ip = |size| V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(7, 1, size)).bytes();
    let frames = [
        ethernet(&[], 0x0800, &ip(30)),
        ethernet(&[], 0x0800, &ip(1480)),
        ethernet(&[], 0x0800, &ip(3000)),
        ethernet(&[0x8100], 0x0800, &ip(300)),
        // With its tag it takes a larger buffer than without.
        ethernet(&[0x8100], 0x0800, &ip(284)),
        ethernet(&[0x88a8, 0x8100], 0x0800, &ip(300)),
        ethernet(&[], 0x88b5, &[7; 500]),
        ethernet(&[0x8100], 0x88b5, &[7; 500]),
    ];
    let tree = TREE
        .replace("buffer: 4ms,", "")
        .replace("left: {", "left: { duplicate: 50%,");
    let Some(mut looped) = Loop::of(&tree) else { return };
    for frame in &frames {
        for direction in DIRECTIONS {
            for _ in 0..ROUNDS {
                let ran = looped.rig.send(direction, frame, Context::default());
                assert_eq!(ran.action, REDIRECT);
            }
            let all = looped.rig.event(Event::Captured) + looped.rig.event(Event::Duplicated);
            looped.wait_for(Event::Released, all);
            assert_eq!(looped.rig.held(), Held(0), "{} bytes, {direction:?}", frame.len());
        }
    }
    let sent = frames.len() * DIRECTIONS.len() * ROUNDS;
    assert_eq!(looped.rig.event(Event::Captured), sent as u64);
    assert_ne!(looped.rig.event(Event::Duplicated), 0);
}

/// Where nothing takes packets out, what was charged for each of them stays; what the hold device refuses is not charged.
#[test]
fn memory_is_charged() {
    let Some(mut rig) = Rig::new(TREE, Pacer::Fq) else {
        return;
    };
    for size in [8, 300, 1480, 3000] {
        let frame = V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(7, 1, size)).frame();
        for direction in DIRECTIONS {
            let before = rig.held();
            rig.send(direction, &frame, Context::default());
            let received = direction == Direction::Ingress;
            let charge = Held::new(1, memory::of(frame.len() as u32, 0, received));
            assert_eq!(rig.held().without(before), charge, "{} bytes", frame.len());
        }
    }
    Netlink::open().unwrap().delete_link(rig.hold).unwrap();
    let before = rig.held();
    let frame = V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(7, 1, 300)).frame();
    rig.send(Direction::Egress, &frame, Context::default());
    assert_eq!(rig.event(Event::HoldFull), 1);
    assert_eq!(rig.held(), before);
}
