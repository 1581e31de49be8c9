//! Which class a packet falls into, end to end: headers, classifier, flow cache, in both directions
//! and for both pacers, against a reference that reads the headers by itself and takes the first
//! class whose condition holds.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
};

use crate::support::{
    Context, Rig,
    cgroup::Own,
    headers::Reader,
    oracle::{CONDITIONS, DIRECTIONS, Verdict, both_pacers},
    packet::{TCP, UDP, V4, V6, ethernet, tcp, udp},
};
use perturb_common::abi::{Direction, Event};
use perturb_verdict::skipped;

const V6_A: [u16; 8] = [0x2001, 0xdb8, 1, 0, 0, 0, 0, 1];
const V6_B: [u16; 8] = [0x2001, 0xdb8, 2, 0, 0, 0, 0, 2];
const V6_C: [u16; 8] = [0xfd00, 0, 0, 0, 0, 0, 0, 3];

/// Frames that between them touch every condition, with what they are.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let v4 = |protocol, payload| V4::new([192, 0, 2, 1], [192, 0, 2, 2], protocol, payload);
    let v6 = |protocol, payload| V6::new(V6_C, V6_C, protocol, payload);
    let mut frames = vec![
        ("TCP to 22", v4(TCP, tcp(40_000, 22, 20)).frame()),
        ("TCP from 22", v4(TCP, tcp(22, 40_000, 20)).frame()),
        ("TCP to 2049", v4(TCP, tcp(700, 2049, 40)).frame()),
        ("TCP from 2049", v4(TCP, tcp(2049, 700, 40)).frame()),
        ("TCP over IPv6 to 2049", v6(TCP, tcp(700, 2049, 40)).frame()),
        ("other TCP", v4(TCP, tcp(1, 2, 20)).frame()),
        ("UDP from 999", v4(UDP, udp(999, 9, 8)).frame()),
        ("UDP from 1000", v4(UDP, udp(1000, 9, 8)).frame()),
        ("UDP from 1999", v4(UDP, udp(1999, 9, 8)).frame()),
        ("UDP from 2000", v4(UDP, udp(2000, 9, 8)).frame()),
        ("UDP to 53", v4(UDP, udp(9, 53, 8)).frame()),
        ("UDP to 4999", v4(UDP, udp(9, 4999, 8)).frame()),
        ("UDP to 5001", v4(UDP, udp(9, 5001, 8)).frame()),
        ("UDP to 5002", v4(UDP, udp(9, 5002, 8)).frame()),
        ("UDP-Lite to 22", v4(136, udp(9, 22, 8)).frame()),
        ("DCCP to 22", v4(33, udp(9, 22, 16)).frame()),
        ("SCTP", v4(132, udp(9, 9, 12)).frame()),
        ("SCTP to 22", v4(132, udp(9, 22, 12)).frame()),
        ("ICMP", v4(1, vec![8, 0, 0, 0, 0, 22, 0, 22]).frame()),
        (
            "GRE with ports 22 where it has none",
            v4(47, udp(22, 22, 8)).frame(),
        ),
        (
            "to 10.1/16",
            V4::new([10, 0, 255, 255], [10, 1, 0, 0], TCP, tcp(1, 2, 20)).frame(),
        ),
        (
            "from 10.1/16",
            V4::new([10, 1, 255, 255], [10, 2, 0, 0], TCP, tcp(1, 2, 20)).frame(),
        ),
        (
            "from 10.2.3.127",
            V4::new([10, 2, 3, 127], [1, 1, 1, 1], TCP, tcp(1, 2, 20)).frame(),
        ),
        (
            "from 10.2.3.128",
            V4::new([10, 2, 3, 128], [1, 1, 1, 1], TCP, tcp(1, 2, 20)).frame(),
        ),
        (
            "to 10.2.3.0",
            V4::new([1, 1, 1, 1], [10, 2, 3, 0], TCP, tcp(1, 2, 20)).frame(),
        ),
        (
            "from 2001:db8:1::",
            V6::new(V6_A, V6_C, TCP, tcp(1, 2, 20)).frame(),
        ),
        ("to 2001:db8:1::", V6::new(V6_C, V6_A, TCP, tcp(1, 2, 20)).frame()),
        (
            "from 2001:db8:2::",
            V6::new(V6_B, V6_C, TCP, tcp(1, 2, 20)).frame(),
        ),
        ("to 2001:db8:2::", V6::new(V6_C, V6_B, TCP, tcp(1, 2, 20)).frame()),
        ("ICMPv6", v6(58, vec![128, 0, 0, 0]).frame()),
        ("nothing next", v6(59, vec![]).frame()),
        ("UDP over IPv6", v6(UDP, udp(9, 9, 8)).frame()),
        ("ARP", ethernet(&[], 0x0806, &[0; 28])),
        ("LLDP", ethernet(&[], 0x88cc, &[0; 40])),
        ("experimental", ethernet(&[], 0x88b5, &[0; 40])),
        ("802.3", ethernet(&[], 0x0040, &[0; 64])),
        ("nothing behind the MAC addresses", ethernet(&[], 0x88b6, &[])),
    ];
    for (what, tos) in [
        ("EF", 46 << 2),
        ("EF with ECN", 46 << 2 | 3),
        ("almost EF", 47 << 2),
    ] {
        let mut packet = v4(TCP, tcp(1, 22, 20));
        packet.tos = tos;
        frames.push((what, packet.frame()));
        let mut packet = v6(TCP, tcp(1, 22, 20));
        packet.class = tos;
        frames.push((what, packet.frame()));
    }
    for options in [1, 5, 10] {
        let mut packet = v4(TCP, tcp(9, 22, 20));
        packet.options = options;
        frames.push(("options before TCP to 22", packet.frame()));
    }
    frames
}

/// IPv6 with extension headers before what is to be classified.
fn extended() -> Vec<(&'static str, Vec<u8>)> {
    let packet = |extensions: Vec<(u8, Vec<u8>)>| {
        let mut packet = V6::new(V6_C, V6_C, TCP, tcp(9, 22, 20));
        packet.extensions = extensions;
        packet.frame()
    };
    let e = V6::extension;
    vec![
        ("hop by hop", packet(vec![e(0, 0)])),
        ("hop by hop, 3 units", packet(vec![e(0, 2)])),
        ("routing", packet(vec![e(43, 4)])),
        ("destination options", packet(vec![e(60, 1)])),
        ("mobility", packet(vec![e(135, 0)])),
        ("host identity", packet(vec![e(139, 0)])),
        ("shim6", packet(vec![e(140, 0)])),
        ("authentication", packet(vec![V6::authentication(12)])),
        (
            "all of them",
            packet(vec![e(0, 0), e(60, 1), e(43, 2), V6::authentication(4), e(60, 0)]),
        ),
        ("seven", packet(vec![e(60, 0); 7])),
        ("eight: too many", packet(vec![e(60, 0); 8])),
        ("fifty: too many", packet(vec![e(60, 0); 50])),
        ("atomic fragment", packet(vec![V6::fragment(7, 0, false)])),
    ]
}

#[test]
fn first_match_of_every_kind() {
    both_pacers(|pair| {
        let mut seen = BTreeSet::new();
        for (what, frame) in frames().iter().chain(&extended()) {
            for direction in DIRECTIONS {
                if let Verdict::Class(class) = pair.check(what, direction, frame, 0) {
                    seen.insert(class);
                }
                pair.check("marked", direction, frame, 0xabcd_1234);
                pair.check("almost marked", direction, frame, 0xabcd_1235);
            }
        }
        // All but that of the mark.
        assert_eq!(
            seen.len(),
            CONDITIONS.len() - 1,
            "a class without a frame: only {seen:?}"
        );
    });
}

#[test]
fn behind_tags() {
    const CUSTOMER: u16 = 0x8100;
    const SERVICE: u16 = 0x88a8;
    both_pacers(|pair| {
        for tags in [
            &[CUSTOMER][..],
            &[SERVICE],
            &[SERVICE, CUSTOMER],
            &[CUSTOMER, CUSTOMER],
            &[CUSTOMER; 3],
            &[SERVICE; 40],
        ] {
            for (what, frame) in frames().iter().chain(&extended()) {
                let ethertype = u16::from_be_bytes([frame[12], frame[13]]);
                let tagged = ethernet(tags, ethertype, &frame[14..]);
                let headers = pair.reader.read(&tagged, 0, Direction::Egress);
                // A third tag is what the packet is: not IP.
                assert!(tags.len() < 3 || headers.is_ok_and(|headers| !headers.is_ip()));
                pair.check(what, Direction::Egress, &tagged, 0);
                pair.check(what, Direction::Ingress, &tagged, 0);
            }
        }
    });
}

#[test]
fn fragments_follow_their_first() {
    both_pacers(|pair| {
        let mut id = 0;
        for direction in DIRECTIONS {
            for (first_is_seen, port) in [(true, 22), (false, 22), (true, 23)] {
                id += 1;
                let v4 = |fragment, payload| {
                    let packet = V4::new([192, 0, 2, 1], [192, 0, 2, 2], UDP, payload);
                    V4 {
                        id,
                        fragment,
                        ..packet
                    }
                    .frame()
                };
                let v6 = |offset, more, payload| {
                    let packet = V6::new(V6_C, V6_C, UDP, payload);
                    V6 {
                        extensions: vec![V6::fragment(id.into(), offset, more)],
                        ..packet
                    }
                    .frame()
                };
                let before = pair.rig.event(Event::FragmentUnknown);
                if first_is_seen {
                    pair.check("first", direction, &v4(0x2000, udp(9, port, 64)), 0);
                    pair.check("first", direction, &v6(0, true, udp(9, port, 64)), 0);
                }
                // What looks like ports in a later fragment is payload.
                let payload = udp(1500, 53, 64);
                let middle = pair.check("middle", direction, &v4(0x2008, payload.clone()), 0);
                pair.check("middle", direction, &v6(8, true, payload.clone()), 0);
                pair.check("last", direction, &v4(0x0010, payload.clone()), 0);
                pair.check("last", direction, &v6(16, false, payload), 0);
                let orphans = pair.rig.event(Event::FragmentUnknown) - before;
                // Four fragments, each twice.
                assert_eq!(orphans, if first_is_seen { 0 } else { 8 });
                let ssh = CONDITIONS
                    .iter()
                    .position(|&(text, _)| text == "port: 22")
                    .unwrap();
                assert_eq!(middle == Verdict::Class(ssh), first_is_seen && port == 22);
            }
        }
    });
}

#[test]
fn reference_says_what_the_standards_say() {
    let mut reader = Reader::default();
    let mut packet = V6::new(V6_A, V6_B, TCP, tcp(5, 6, 20));
    packet.class = 0xb8;
    packet.extensions = vec![V6::extension(0, 1), V6::authentication(12)];
    let headers = reader.read(&packet.frame(), 3, Direction::Ingress).unwrap();
    assert_eq!(headers.ports, Some((5, 6)));
    assert_eq!(headers.dscp, Some(46));
    assert_eq!(headers.side_ports(), Some((6, 5)));
    assert_eq!(headers.sides().unwrap().0, IpAddr::V6(Ipv6Addr::from(V6_B)));
    let mut packet = V4::new([1, 2, 3, 4], [5, 6, 7, 8], UDP, udp(7, 8, 8));
    packet.options = 10;
    let headers = reader.read(&packet.frame(), 0, Direction::Egress).unwrap();
    assert_eq!((headers.ports, headers.protocol), (Some((7, 8)), Some(UDP)));
}

/// Of this process's packets while it is in the cgroup; a socket that is made elsewhere is no cgroup's of the profile.
#[test]
fn a_cgroup_is_that_of_the_socket() {
    let Some(own) = Own::enter() else {
        return skipped("no cgroup can be made here");
    };
    let profile = "version: 1\nservers: { s0: { latency: 1ms } }\n\
                   classes: [{ name: own, match: {}, egress: [s0], ingress: [s0] }]\n";
    let Some(mut rig) = own.rig(profile) else { return };
    let frame = V4::new([192, 0, 2, 1], [192, 0, 2, 2], UDP, udp(9, 53, 8)).frame();
    let sends = |rig: &mut Rig| {
        rig.send(Direction::Egress, &frame, Context::default());
        (rig.event(Event::Captured), rig.event(Event::Unmatched))
    };
    assert_eq!(sends(&mut rig), (1, 0));
    drop(own);
    assert_eq!(sends(&mut rig), (1, 1));
}
