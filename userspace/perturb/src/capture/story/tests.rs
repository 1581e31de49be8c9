use perturb_common::{
    abi::{Crossing, Event, NONE, SIGHTED_DUPLICATED, Sight, Sighting},
    units::MonoNanos,
};
use perturb_emulator::sights::{Seen, Sighted};

use super::{GIVEN_UP, Kind, Shown, Stories, reason, time};

/// ns of CLOCK_MONOTONIC.
const NOW: u64 = 5_000_000_000;
const MS: u64 = 1_000_000;

/// A packet that arrives now, and crosses servers that it leaves so late, after waiting for so long.
fn folded(way: &[(&str, u64, u64)], bytes: &[u8]) -> Sighted {
    let crossing = |&(_, after, wait): &(&str, u64, u64)| Crossing {
        time: MonoNanos(NOW + after).instant().0,
        wait: wait * 64,
        ..Crossing::default()
    };
    Sighted {
        seen: Seen {
            sighting: Sighting {
                time: NOW,
                arrival: NOW,
                departure: NOW + way.last().unwrap().1,
                event: NONE,
                crossings: way.len() as u32,
                length: bytes.len() as u32,
                ..Sighting::default()
            },
            crossings: way.iter().map(crossing).collect(),
            bytes: bytes.into(),
        },
        class: Some("web".into()),
        servers: way.iter().map(|(server, ..)| (*server).into()).collect(),
    }
}

fn released(after: u64, lateness: u64, bytes: &[u8]) -> Sighted {
    Sighted {
        seen: Seen {
            sighting: Sighting {
                time: NOW + after + lateness,
                departure: NOW + after,
                lateness,
                what: Sight::Released as u32,
                event: NONE,
                class: NONE,
                length: bytes.len() as u32,
                ..Sighting::default()
            },
            crossings: Vec::new(),
            bytes: bytes.into(),
        },
        class: None,
        servers: Vec::new(),
    }
}

fn tell(stories: &mut Stories, sighted: Sighted) -> Shown {
    stories.tell(sighted, false).unwrap()
}

#[test]
fn a_packet_comes_and_goes() {
    let mut stories = Stories::default();
    let way = [("up", 3 * MS, 2 * MS), ("wan", 23 * MS, 0)];
    let shown = tell(&mut stories, folded(&way, b"abc"));
    assert_eq!(
        (shown.kind, &*shown.comment, shown.id),
        (
            Kind::Captured,
            "captured: class web, for 23.000 ms, 2.000 ms of it waiting; up 3.000 ms (2.000 ms waiting), wan 20.000 ms",
            Some(1)
        )
    );
    assert_eq!(stories.held(), 1);
    let shown = tell(&mut stories, released(23 * MS, 3_100, b"abc"));
    assert_eq!(
        (shown.kind, &*shown.comment, shown.id),
        (
            Kind::Released,
            "released: class web, after 23.003 ms, 3.100 us late; up 3.000 ms (2.000 ms waiting), wan 20.000 ms",
            Some(1)
        )
    );
    assert_eq!(stories.held(), 0);
    // It came out once.
    let shown = tell(&mut stories, released(23 * MS, 0, b"abc"));
    assert_eq!(
        shown.comment,
        "released: 0 ns late; captured before this file begins"
    );
    assert_eq!(stories.tell(released(23 * MS, 0, b"abc"), true), None);
}

#[test]
fn a_drop_names_its_reason_and_its_server() {
    let mut dropped = folded(&[("up", MS, 0), ("wan", MS, 0)], b"abc");
    dropped.seen.sighting.event = Event::BurstLoss as u32;
    dropped.seen.sighting.departure = 0;
    let shown = tell(&mut Stories::default(), dropped);
    assert_eq!(
        (shown.kind, &*shown.comment),
        (
            Kind::Dropped,
            "dropped: burst_loss at wan, class web; up 1.000 ms, wan 0 ns"
        )
    );
}

/// Two that leave at once are told apart by what is in them, but for the MAC addresses.
#[test]
fn packets_are_told_apart_by_their_bytes() {
    let mut stories = Stories::default();
    let frame = |mac: u8, rest: u8| [[mac; 12].as_slice(), &[rest; 20]].concat();
    for rest in [1, 2, 3] {
        tell(&mut stories, folded(&[("up", MS, 0)], &frame(7, rest)));
    }
    for rest in [2, 3, 1] {
        let shown = tell(&mut stories, released(MS, 0, &frame(8, rest)));
        assert_eq!(shown.id, Some(rest.into()));
    }
}

#[test]
fn both_copies_are_one_packet() {
    let mut stories = Stories::default();
    let mut twice = folded(&[("up", MS, 0)], b"abc");
    twice.seen.sighting.flags = SIGHTED_DUPLICATED;
    assert!(tell(&mut stories, twice).comment.ends_with("; duplicated"));
    assert_eq!(stories.held(), 2);
    for left in [1, 0] {
        assert_eq!(tell(&mut stories, released(MS, 0, b"abc")).id, Some(1));
        assert_eq!(stories.held(), left);
    }
}

#[test]
fn a_later_leg_goes_on() {
    let mut stories = Stories::default();
    tell(&mut stories, folded(&[("up", MS, 0)], b"abc"));
    let mut later = folded(&[("hub", 3 * MS, MS)], b"abc");
    later.seen.sighting.position = 1;
    later.seen.sighting.arrival = NOW + MS;
    assert_eq!(stories.tell(later.clone(), false), None);
    let shown = tell(&mut stories, released(3 * MS, 0, b"abc"));
    assert_eq!(
        (shown.id, &*shown.comment),
        (
            Some(1),
            "released: class web, after 3.000 ms, 0 ns late; up 1.000 ms, hub 2.000 ms (1.000 ms waiting)"
        )
    );
    // The end of one that was captured before the file begins.
    later.seen.sighting.event = Event::TailDrop as u32;
    let shown = tell(&mut stories, later);
    assert_eq!((shown.kind, shown.id), (Kind::Dropped, None));
}

#[test]
fn what_is_refused_is_dropped_after_all() {
    let mut stories = Stories::default();
    tell(&mut stories, folded(&[("up", MS, 0)], b"abc"));
    let mut refused = released(MS, 0, b"");
    refused.seen.sighting.what = Sight::Refused as u32;
    refused.seen.sighting.event = Event::MemoryLimit as u32;
    let shown = tell(&mut stories, refused.clone());
    assert_eq!((shown.kind, &*shown.bytes), (Kind::Dropped, b"abc".as_slice()));
    assert!(
        shown.comment.starts_with("dropped: pacer at up"),
        "{}",
        shown.comment
    );
    assert_eq!((stories.held(), stories.tell(refused, false)), (0, None));
}

/// A super-packet comes out of a TAP in parts.
#[test]
fn parts_are_of_one_packet() {
    let mut stories = Stories::default();
    let mut large = folded(&[("up", MS, 0)], &[1; 40]);
    large.seen.sighting.segments = 2;
    tell(&mut stories, large);
    for part in [25, 24] {
        assert_eq!(tell(&mut stories, released(MS, 0, &vec![1; part])).id, Some(1));
    }
}

#[test]
fn what_never_comes_out_is_forgotten() {
    let mut stories = Stories::default();
    tell(&mut stories, folded(&[("up", MS, 0)], b"abc"));
    assert_eq!(stories.forget(NOW + GIVEN_UP), 0);
    assert_eq!((stories.forget(NOW + MS + GIVEN_UP), stories.held()), (1, 0));
}

/// IEEE 802.1Q: the tag follows the addresses.
#[test]
fn a_tag_that_was_taken_off_is_put_back() {
    let mut tagged = folded(&[("up", MS, 0)], &[9; 20]);
    tagged.seen.sighting.vlan = u32::from(0x8100u16.to_be()) << 16 | 0x2007;
    let shown = tell(&mut Stories::default(), tagged);
    assert_eq!(shown.length, 24);
    assert_eq!(shown.bytes[10..18], [9, 9, 0x81, 0, 0x20, 7, 9, 9]);
}

#[test]
fn times_and_reasons_are_words() {
    assert_eq!(
        [999, 1000, 1_500_000, 2_000_000_000].map(time),
        ["999 ns", "1.000 us", "1.500 ms", "2.000 s"]
    );
    assert_eq!(reason(Event::Down as u32), "down");
}
