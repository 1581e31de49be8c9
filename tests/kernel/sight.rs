//! What `perturb capture` reads: a record of each packet that is the packet, with the servers that it crossed, as their states
//! in the maps say; nothing while nobody asks; and what found no room is counted.

use perturb_clock::now;
use perturb_common::{
    abi::{Attachment, Direction, Event, MAX_SNAP, NONE, SIGHTING_BYTES, ServerState, Sight},
    units::{MonoNanos, Nanos},
};
use perturb_dataplane::{
    attach::{Attached, Clsact, Side},
    maps::{Seen, Sightings},
    netlink::Netlink,
    programs::{Pacer, Program},
};

use crate::support::{
    Context, LOOPBACK, Rig,
    choices::Choices,
    packet::{UDP, V4, udp},
    pair,
};

const PROFILE: &str = "version: 1\nservers:\n  up: { bandwidth: 10Mbit/s, latency: 3ms }\n  \
                       wan: { latency: 20ms, loss: { nth: [3, 7] } }\n  back: { latency: 1ms }\n\
                       classes:\n  - { name: dns, match: { port: 53 }, egress: [up, wan], ingress: [back] }\n  \
                       - { name: rest, match: {}, egress: [up], ingress: [back] }\n";
/// Numbers of the servers and classes.
const UP: u32 = 0;
const WAN: u32 = 1;
const BACK: u32 = 2;
const DNS: u32 = 0;

fn frame(port: u16, len: usize) -> Vec<u8> {
    V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(7, port, len)).frame()
}

fn all(sightings: &mut Sightings) -> Vec<Seen> {
    std::iter::from_fn(|| sightings.take()).collect()
}

fn unseen(rig: &Rig) -> [u64; 2] {
    [0, 1].map(|direction| rig.loader.maps().unseen.get(&direction, 0).unwrap().iter().sum())
}

fn each_packet(pacer: Pacer) {
    let Some(mut rig) = Rig::new(PROFILE, pacer) else {
        return;
    };
    let mut sightings = rig.capture_all(100);
    let mut choices = Choices::new(20);
    let mut lost = 0;
    for index in 1..=60u64 {
        // What waits behind it has to be before the next one comes: 1500 bytes take 1.2 ms here.
        let frame = frame(53, 20 + choices.below(1400) as usize);
        let before: ServerState = rig.state("up");
        let sent = now();
        let ran = rig.send(Direction::Egress, &frame, Context::default());
        let free = rig.state("up").free;
        let [seen] = &all(&mut sightings)[..] else {
            panic!("a packet, a record")
        };
        let sighting = &seen.sighting;
        assert_eq!(seen.bytes, frame[..frame.len().min(100)], "its beginning");
        assert_eq!(
            (
                sighting.length as usize,
                sighting.class,
                sighting.what,
                sighting.position
            ),
            (frame.len(), DNS, Sight::Folded as u32, 0)
        );
        assert!((sent..=now()).contains(&sighting.time));
        let arrival = MonoNanos(sighting.arrival).instant().0;
        let servers: Vec<u32> = seen.crossings.iter().map(|crossing| crossing.server).collect();
        assert_eq!(servers, [UP, WAN]);
        let [up, wan] = &seen.crossings[..] else { panic!() };
        assert_eq!(up.wait, before.free.saturating_sub(arrival), "until it was free");
        assert_eq!(up.time, free + Nanos(3_000_000).ticks().0);
        assert_eq!(wan.wait, 0);
        if [3, 7].contains(&index) {
            lost += 1;
            assert_eq!(
                (sighting.event, sighting.departure),
                (Event::NthLoss as u32, 0),
                "packet {index}"
            );
        } else {
            assert_eq!((sighting.event, sighting.departure), (NONE, rig.departure(&ran)));
            assert_eq!(wan.time, up.time + Nanos(20_000_000).ticks().0);
        }
    }
    assert_eq!((rig.event(Event::NthLoss), lost, unseen(&rig)), (2, 2, [0, 0]));

    rig.send(Direction::Ingress, &frame(53, 500), Context::default());
    let [seen] = &all(&mut sightings)[..] else {
        panic!("a packet, a record")
    };
    assert_eq!(
        (
            seen.sighting.direction,
            seen.crossings[0].server,
            seen.crossings.len()
        ),
        (1, BACK, 1)
    );
}

#[test]
fn a_record_is_its_packet() {
    each_packet(Pacer::Fq);
    each_packet(Pacer::User);
}

#[test]
fn nothing_is_told_unasked() {
    let Some(mut rig) = Rig::new(PROFILE, Pacer::Fq) else {
        return;
    };
    let past = now() - 1;
    for (until, classes, port, told) in [
        (0, u64::MAX, 53, 0),
        (past, u64::MAX, 53, 0),
        (u64::MAX, u64::MAX ^ 1 << DNS, 53, 0),
        (u64::MAX, u64::MAX ^ 1 << DNS, 54, 1),
        (u64::MAX, 1 << DNS, 53, 1),
        (u64::MAX, 1 << DNS, 54, 0),
    ] {
        let mut sightings = rig.see(until, 100, classes);
        rig.send(Direction::Egress, &frame(port, 100), Context::default());
        let case = (until, classes, port);
        assert_eq!(all(&mut sightings).len(), told, "{case:?}");
    }
    assert_eq!((rig.event(Event::Captured), unseen(&rig)), (6, [0, 0]));
}

/// More than the ring buffer holds, and none is taken meanwhile.
#[test]
fn what_finds_no_room_is_counted() {
    let Some(mut rig) = Rig::new(PROFILE, Pacer::Fq) else {
        return;
    };
    let mut sightings = rig.capture_all(MAX_SNAP.into());
    let frame = frame(54, 1400);
    let enough = u64::from(SIGHTING_BYTES) / frame.len() as u64 + 100;
    for _ in 0..enough {
        rig.send(Direction::Ingress, &frame, Context::default());
    }
    let kept = all(&mut sightings);
    assert!(kept.iter().all(|seen| seen.bytes == frame));
    let [egress, ingress] = unseen(&rig);
    assert_eq!((egress, kept.len() as u64 + ingress), (0, enough));
    assert!(ingress >= 100, "{ingress} of {enough}");
    // There is room again.
    rig.send(Direction::Ingress, &frame, Context::default());
    assert_eq!((all(&mut sightings).len(), unseen(&rig)), (1, [0, ingress]));
}

/// One that is split came when it was captured, not when its parts came out: no lead is there yet, so that is its arrival.
#[test]
fn a_split_packet_came_before_its_parts() {
    let Some(mut rig) = Rig::new(PROFILE, Pacer::Fq) else {
        return;
    };
    let mut netlink = Netlink::open().unwrap();
    netlink.set_up("lo").unwrap();
    let [near, far] = pair(&mut netlink, ["near", "far"]);
    Clsact::ensure(&mut netlink, far).unwrap().forget();
    for (index, split) in [(LOOPBACK, near), (far, 0)] {
        rig.attach(
            index,
            Attachment {
                target: LOOPBACK,
                hold: rig.hold,
                split,
                rank: 0,
            },
        );
    }
    let _release = Attached::new(&mut rig.programs, Program::Release, "far", Side::Ingress).unwrap();
    let mut sightings = rig.capture_all(100);
    let frame = frame(53, 500);
    let sent = now();
    rig.send(Direction::Egress, &frame, Context::default());
    let deadline = now() + 2_000_000_000;
    let seen = loop {
        match &all(&mut sightings)[..] {
            [] => assert!(now() < deadline, "nothing came out of the splitter"),
            [seen] => break seen.clone(),
            more => panic!("{more:?}"),
        }
    };
    assert_eq!(
        (seen.sighting.what, seen.sighting.position),
        (Sight::Folded as u32, 0)
    );
    assert_eq!(seen.bytes, frame[..100]);
    assert_eq!(seen.sighting.time, seen.sighting.arrival);
    assert!((sent..now()).contains(&seen.sighting.time));
}
