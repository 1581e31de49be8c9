//! Packets that no sane host sends: they pass, counted, or are classified by what can be read of
//! them; never anything else. Truncations at every length, lengths that lie, endless chains, and a
//! long run of random mutations, each against the reference.

use crate::support::{
    Context, PASS, REDIRECT,
    choices::Choices,
    headers,
    oracle::{DIRECTIONS, Verdict, both_pacers},
    packet::{TCP, UDP, V4, V6, ethernet, tcp, udp},
    run,
};
use perturb_common::abi::{Direction, Event};

/// Mutated packets that are tried, for each pacer.
const MUTATIONS: u64 = 120_000;
/// The smallest frame the kernel runs a program on: an Ethernet header.
const MIN_FRAME: usize = 14;
/// The longest linear frame it runs a program on, about: a page less head- and tailroom.
const LONG_FRAME: usize = 3400;

const A: [u16; 8] = [0x2001, 0xdb8, 1, 0, 0, 0, 0, 1];
const B: [u16; 8] = [0xfd00, 0, 0, 0, 0, 0, 0, 3];

/// The frame, behind a tag if it is IP with less than a header: newer kernels run no program on
/// such a packet without a tag. (`tests/interface.rs` sends them for real.)
fn runnable(frame: &[u8]) -> Vec<u8> {
    match (&frame[12..14], frame.len()) {
        ([8, 0], 14..34) | ([0x86, 0xdd], 14..54) => {
            let ethertype = u16::from_be_bytes([frame[12], frame[13]]);
            ethernet(&[0x8100], ethertype, &frame[14..])
        }
        _ => frame.to_vec(),
    }
}

/// Well-formed packets with all that the parser knows: what mutations start from.
fn seeds() -> Vec<Vec<u8>> {
    let v4 = V4::new([192, 0, 2, 1], [10, 1, 2, 2], TCP, tcp(5, 22, 32));
    let v6 = V6::new(A, B, UDP, udp(1000, 53, 24));
    let mut seeds = vec![
        v4.frame(),
        v6.frame(),
        V4 {
            options: 10,
            ..v4.clone()
        }
        .frame(),
        V4 {
            fragment: 0x2000,
            id: 9,
            ..v4.clone()
        }
        .frame(),
        V4 {
            fragment: 0x0003,
            id: 9,
            ..v4.clone()
        }
        .frame(),
        V4 {
            protocol: 1,
            ..v4.clone()
        }
        .frame(),
        V6 {
            extensions: vec![V6::fragment(9, 0, true)],
            ..v6.clone()
        }
        .frame(),
        V6 {
            extensions: vec![V6::extension(0, 0), V6::fragment(9, 5, true)],
            ..v6.clone()
        }
        .frame(),
        V6 {
            extensions: vec![
                V6::extension(0, 1),
                V6::extension(43, 0),
                V6::authentication(12),
                V6::extension(60, 2),
            ],
            ..v6.clone()
        }
        .frame(),
        V6 {
            extensions: vec![V6::extension(60, 0); 7],
            ..v6.clone()
        }
        .frame(),
        ethernet(&[], 0x0806, &[0; 28]),
    ];
    for tags in [&[0x8100u16][..], &[0x88a8, 0x8100], &[0x8100, 0x8100, 0x8100]] {
        seeds.push(ethernet(tags, 0x0800, &v4.bytes()));
        seeds.push(ethernet(tags, 0x86dd, &v6.bytes()));
    }
    seeds
}

#[test]
fn truncated_at_every_length() {
    both_pacers(|pair| {
        for seed in seeds() {
            for len in MIN_FRAME..=seed.len() {
                for direction in DIRECTIONS {
                    pair.check("truncated", direction, &runnable(&seed[..len]), 0);
                }
            }
        }
        assert!(pair.rig.event(Event::Malformed) > 1000);
    });
}

#[test]
fn lengths_that_lie() {
    both_pacers(|pair| {
        let v4 = V4::new([192, 0, 2, 1], [10, 1, 2, 2], UDP, udp(9, 22, 12));
        for first in 0..=255 {
            let mut frame = v4.frame();
            frame[14] = first; // Version and header length.
            let verdict = pair.check("IHL", Direction::Egress, &frame, 0);
            let sound = first >> 4 == 4 && first & 15 >= 5;
            // A header that reaches beyond the frame has no ports.
            assert_eq!(
                verdict == Verdict::Malformed,
                !sound || first & 15 > 7,
                "{first:#x}"
            );
            let mut frame = V6::new(A, B, UDP, udp(9, 22, 12)).frame();
            frame[14] = first;
            pair.check("version", Direction::Egress, &frame, 0);
        }
        for length in [0, 1, 19, 20, 65_535u16] {
            let mut frame = v4.frame();
            frame[16..18].copy_from_slice(&length.to_be_bytes());
            pair.check("total length", Direction::Ingress, &frame, 0);
        }
        for more in 0..=255 {
            let mut packet = V6::new(A, B, TCP, tcp(9, 22, 20));
            packet.extensions = vec![V6::extension(0, more)];
            pair.check("long extension", Direction::Egress, &packet.frame(), 0);
            let mut frame = packet.frame();
            frame.truncate(80); // The length says more than there is.
            pair.check("extension beyond the end", Direction::Egress, &frame, 0);
            packet.extensions = vec![(51, packet.extensions[0].1.clone())];
            pair.check("authentication header", Direction::Egress, &packet.frame(), 0);
        }
    });
}

#[test]
fn endless_chains() {
    both_pacers(|pair| {
        for kind in [0, 43, 44, 51, 60, 135, 139, 140] {
            // A header that names itself as the next, for as far as the frame goes.
            let mut payload = Vec::new();
            for _ in 0..300 {
                payload.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
            }
            let packet = V6::new(A, B, kind, payload);
            let verdict = pair.check("endless", Direction::Egress, &packet.frame(), 0);
            assert_eq!(verdict, Verdict::Malformed, "{kind}");
        }
        for tags in 0..200 {
            let frame = ethernet(
                &vec![0x8100; tags],
                0x0800,
                &V4::new([1; 4], [2; 4], TCP, tcp(1, 2, 20)).bytes(),
            );
            pair.check("tags", Direction::Ingress, &frame, 0);
        }
    });
}

#[test]
fn short_and_long() {
    both_pacers(|pair| {
        for direction in DIRECTIONS {
            for ethertype in [0x0800, 0x86dd, 0x8100, 0x88a8, 0x0806, 0, 0xffff] {
                pair.check("empty", direction, &runnable(&ethernet(&[], ethertype, &[])), 0);
            }
            // Below that the kernel has no packet to run a program on.
            for len in 0..MIN_FRAME {
                assert!(run(pair.rig.capture(direction), &vec![0; len], Context::default()).is_err());
            }
            for len in [1500, 2000, LONG_FRAME] {
                pair.check(
                    "long",
                    direction,
                    &V4::new([1; 4], [2; 4], UDP, udp(9, 22, len)).frame(),
                    0,
                );
            }
        }
    });
}

#[test]
fn super_packets() {
    both_pacers(|pair| {
        let frame = V4::new([1; 4], [2; 4], TCP, tcp(9, 22, 3000)).frame();
        for (gso_size, gso_segs) in [(1, 3000), (500, 6), (1448, 3), (65_535, 1), (0, 7), (1448, 0)] {
            let context = Context {
                gso_size,
                gso_segs,
                ..Context::default()
            };
            for direction in DIRECTIONS {
                assert_eq!(pair.rig.send(direction, &frame, context).action, REDIRECT);
            }
        }
        // A TCP header that claims to be longer than the packet, or shorter than a TCP header.
        for offset in 0..16u8 {
            let mut frame = V4::new([1; 4], [2; 4], TCP, tcp(9, 22, 40)).frame();
            frame[14 + 20 + 12] = offset << 4;
            let context = Context {
                gso_size: 10,
                gso_segs: 4,
                ..Context::default()
            };
            assert_eq!(pair.rig.send(Direction::Egress, &frame, context).action, REDIRECT);
        }
        // A super-packet of TCP whose header is cut off behind the ports.
        let frame = V4::new([1; 4], [2; 4], TCP, tcp(9, 22, 20)[..8].to_vec()).frame();
        let context = Context {
            gso_size: 10,
            gso_segs: 4,
            ..Context::default()
        };
        let before = pair.rig.event(Event::Malformed);
        assert_eq!(pair.rig.send(Direction::Egress, &frame, context).action, PASS);
        assert_eq!(pair.rig.event(Event::Malformed), before + 1);
    });
}

fn mutate(choices: &mut Choices, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = choices.pick(seeds).clone();
    for _ in 0..choices.below(6) {
        let len = frame.len() as u64;
        match choices.below(7) {
            // Bytes that the parser looks at are few and in front.
            0 => frame[choices.below(len.min(64)) as usize] ^= 1 << choices.below(8),
            1 => frame[choices.below(len) as usize] = choices.below(256) as u8,
            2 => {
                frame[choices.below(len.min(90)) as usize] =
                    *choices.pick(&[0, 6, 17, 43, 44, 51, 58, 59, 60, 0xff]);
            }
            3 => frame.truncate((choices.below(len) as usize).max(MIN_FRAME)),
            4 => {
                // A piece of another packet.
                let other = choices.pick(seeds);
                let from = choices.below(other.len() as u64) as usize;
                let at = choices.below(len) as usize;
                for (to, &byte) in frame[at..].iter_mut().zip(&other[from..]) {
                    *to = byte;
                }
            }
            5 => {
                let ethertype = *choices.pick(&[0x0800u16, 0x86dd, 0x8100, 0x88a8]);
                frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
            }
            _ => {
                let at = choices.below(len) as usize;
                let more = vec![choices.below(256) as u8; choices.below(16) as usize];
                frame.splice(at..at, more);
            }
        }
        if frame.len() < MIN_FRAME {
            frame.resize(MIN_FRAME, 0);
        }
    }
    runnable(&frame)
}

#[test]
fn mutations() {
    both_pacers(|pair| {
        let seeds = seeds();
        let mut malformed = 0;
        let mut choices = Choices::new(1);
        for _ in 0..MUTATIONS {
            let frame = mutate(&mut choices, &seeds);
            let direction = *choices.pick(&DIRECTIONS);
            let mark = *choices.pick(&[0, 0, 0xabcd_1234]);
            malformed += u64::from(pair.check_once(direction, &frame, mark) == Verdict::Malformed);
        }
        // The mutations reach both sides.
        assert!(
            (MUTATIONS / 20..MUTATIONS * 19 / 20).contains(&malformed),
            "{malformed} malformed"
        );
        assert_eq!(pair.rig.event(Event::Malformed), malformed);
        for event in [
            Event::Inconsistent,
            Event::HoldFull,
            Event::NoInstance,
            Event::Horizon,
            Event::Contention,
        ] {
            assert_eq!(pair.rig.event(event), 0, "{event:?}");
        }
    });
}

#[test]
fn broken_reader_is_caught() {
    // What this test is worth: a reader that takes IHL for granted differs within a few mutations.
    let seeds = seeds();
    let mut choices = Choices::new(1);
    let (mut sound, mut broken) = (headers::Reader::default(), headers::Reader::default());
    let differs = (0..1000).any(|_| {
        let mut frame = mutate(&mut choices, &seeds);
        let truth = sound.read(&frame, 0, Direction::Egress);
        if frame[12..14] == [8, 0] && frame.len() > 14 {
            frame[14] = 0x45;
        }
        broken.read(&frame, 0, Direction::Egress) != truth
    });
    assert!(differs);
}
