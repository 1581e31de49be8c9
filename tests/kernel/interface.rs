//! Frames on a real interface, for what `BPF_PROG_TEST_RUN` does not take: less than an IP header,
//! 9000 bytes and more, data in pages, packets without a socket.

use std::net::UdpSocket;

use crate::support::{
    Rig,
    headers::Reader,
    packet::{TCP, UDP, V4, V6, ethernet, tcp, udp},
    pair,
    sink::Sink,
};
use perturb_common::abi::{Attachment, Direction, Event};
use perturb_dataplane::{
    attach::{Attached, Clsact, Side},
    netlink::Netlink,
    programs::{Pacer, Program},
};

/// A veth pair: perturb is at `here`, the test at both ends.
struct Wire {
    rig: Rig,
    here: Sink,
    there: Sink,
    _captures: [Attached; 2],
}

impl Wire {
    fn new(profile: &str, pacer: Pacer) -> Option<Self> {
        let mut rig = Rig::new(profile, pacer)?;
        let mut netlink = Netlink::open().unwrap();
        let [here, there] = pair(&mut netlink, ["here", "there"]);
        rig.attach(
            here,
            Attachment {
                target: here,
                hold: rig.hold,
                split: 0,
                rank: 0,
            },
        );
        Clsact::ensure(&mut netlink, here).unwrap().forget();
        let captures = [
            Attached::new(&mut rig.programs, Program::Egress, "here", Side::Egress).unwrap(),
            Attached::new(&mut rig.programs, Program::Ingress, "here", Side::Ingress).unwrap(),
        ];
        let (here, there) = (Sink::new(here).unwrap(), Sink::new(there).unwrap());
        Some(Self {
            rig,
            here,
            there,
            _captures: captures,
        })
    }

    /// Sends a frame through the interface and returns what came into the hold device.
    fn send(&self, direction: Direction, frame: &[u8]) -> Option<Vec<u8>> {
        self.rig.sink.drain();
        match direction {
            Direction::Egress => self.here.send(frame).unwrap(),
            Direction::Ingress => self.there.send(frame).unwrap(),
        }
        self.rig.sink.try_next()
    }
}

const DIRECTIONS: [Direction; 2] = [Direction::Egress, Direction::Ingress];
const EVERYTHING: &str = "version: 1\nlatency: 1s\n";

#[test]
fn truncated_frames() {
    for pacer in [Pacer::Fq, Pacer::User] {
        let Some(wire) = Wire::new(EVERYTHING, pacer) else {
            return;
        };
        let v4 = V4::new([192, 0, 2, 1], [192, 0, 2, 2], TCP, tcp(1, 2, 20)).frame();
        let v6 = V6::new([1; 8], [2; 8], UDP, udp(1, 2, 8)).frame();
        for direction in DIRECTIONS {
            for frame in [&v4, &v6] {
                // The kernel itself transmits no frame without a payload.
                for len in 15..=frame.len() {
                    let frame = &frame[..len];
                    let sound = Reader::default().read(frame, 0, direction).is_ok();
                    let before = wire.rig.event(Event::Malformed);
                    let held = wire.send(direction, frame);
                    assert_eq!(
                        held.is_some(),
                        sound,
                        "{pacer:?} {direction:?} {len} of {frame:02x?}"
                    );
                    assert_eq!(wire.rig.event(Event::Malformed) - before, u64::from(!sound));
                    if let Some(held) = held {
                        // The user pacer keeps its ticket in the addresses.
                        assert_eq!(held[12..], frame[12..]);
                    }
                }
            }
        }
    }
}

#[test]
fn jumbo_frames() {
    for pacer in [Pacer::Fq, Pacer::User] {
        let Some(wire) = Wire::new(EVERYTHING, pacer) else {
            return;
        };
        for len in [1500, 9000, 16_000, 60_000] {
            for direction in DIRECTIONS {
                let frame = V4::new([192, 0, 2, 1], [192, 0, 2, 2], UDP, udp(1, 2, len - 20)).frame();
                assert_eq!(
                    wire.send(direction, &frame).map(|held| held.len()),
                    Some(len + 14)
                );
                let frame = ethernet(&[], 0x88b5, &vec![7; len]);
                assert_eq!(
                    wire.send(direction, &frame).map(|held| held.len()),
                    Some(len + 14)
                );
            }
        }
    }
}

/// A datagram from a socket, larger than the kernel makes in one piece: headers and data lie apart.
#[test]
fn data_in_pages() {
    let Some(wire) = Wire::new(EVERYTHING, Pacer::Fq) else {
        return;
    };
    let mut netlink = Netlink::open().unwrap();
    let link = netlink.link("here").unwrap().unwrap();
    netlink
        .add_address(link.index, "198.51.100.1".parse().unwrap(), 24)
        .unwrap();
    netlink
        .add_neighbor(link.index, "198.51.100.2".parse().unwrap(), [2, 0, 0, 0, 0, 2])
        .unwrap();
    let socket = UdpSocket::bind("198.51.100.1:7000").unwrap();
    for len in [100usize, 9000, 20_000, 60_000] {
        wire.rig.sink.drain();
        socket.send_to(&vec![9; len], "198.51.100.2:7001").unwrap();
        let held = wire.rig.sink.next().unwrap();
        assert_eq!(held.len(), 14 + 20 + 8 + len);
        assert!(held[42..].iter().all(|&byte| byte == 9));
    }
    let counters = wire.rig.counters(1).classes[0][0];
    assert_eq!((counters.packets, counters.dropped), (4, 0));
    assert_eq!(wire.rig.event(Event::Malformed), 0);
}
