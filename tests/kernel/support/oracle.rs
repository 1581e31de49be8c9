//! A profile whose classes tell themselves apart by their delay, and the program and the reference
//! side by side on it.

use std::{
    fmt::{Display, Write as _},
    net::{IpAddr, Ipv4Addr},
};

use perturb_clock::now;
use perturb_common::abi::{Direction, Event};
use perturb_dataplane::programs::Pacer;

use super::{
    Context, PASS, REDIRECT, Rig,
    headers::{Headers, Malformed, Reader},
};

/// The condition of a class: as the profile says it, and as Rust.
pub(crate) type Condition = (&'static str, fn(&Headers) -> bool);

/// In order of precedence.
pub(crate) const CONDITIONS: &[Condition] = &[
    ("fwmark: 0xabcd1234", |h| h.mark == 0xabcd_1234),
    ("dscp: ef", |h| h.dscp == Some(46)),
    ("non_ip: true, ethertype: arp", |h| h.ethertype == 0x0806),
    ("port: 22", |h| h.ports.is_some_and(|(a, b)| a == 22 || b == 22)),
    ("protocol: tcp, local_port: 2049", |h| {
        h.protocol == Some(6) && h.side_ports().is_some_and(|(local, _)| local == 2049)
    }),
    ("protocol: tcp, remote_port: 2049", |h| {
        h.protocol == Some(6) && h.side_ports().is_some_and(|(_, remote)| remote == 2049)
    }),
    ("protocol: udp, source_port: 1000-1999", |h| {
        h.protocol == Some(17) && h.ports.is_some_and(|(source, _)| (1000..=1999).contains(&source))
    }),
    ("protocol: udp, destination_port: [53, 5000-5001]", |h| {
        h.protocol == Some(17)
            && h.ports
                .is_some_and(|(_, to)| to == 53 || to == 5000 || to == 5001)
    }),
    ("family: ipv4, remote: 10.1.0.0/16", |h| {
        h.sides().is_some_and(|(_, remote)| within4(remote, [10, 1], 16))
    }),
    ("local: 10.2.3.0/25", |h| {
        h.sides()
            .is_some_and(|(local, _)| within4(local, [10, 2], 16) && below4(local, 3, 128))
    }),
    ("source: \"2001:db8:1::/48\"", |h| {
        h.addresses
            .is_some_and(|(source, _)| within6(source, [0x2001, 0xdb8, 1]))
    }),
    ("address: \"2001:db8:2::/48\"", |h| {
        h.addresses
            .is_some_and(|(a, b)| within6(a, [0x2001, 0xdb8, 2]) || within6(b, [0x2001, 0xdb8, 2]))
    }),
    ("protocol: sctp", |h| h.protocol == Some(132)),
    ("protocol: [icmp, icmpv6]", |h| matches!(h.protocol, Some(1 | 58))),
    ("family: ipv6, protocol: 59", |h| {
        h.ethertype == 0x86dd && h.protocol == Some(59)
    }),
    ("protocol: udp", |h| h.protocol == Some(17)),
    ("family: ipv6", |h| h.ethertype == 0x86dd),
    ("ethertype: 0x88b5", |h| h.ethertype == 0x88b5),
    ("non_ip: true", |h| !h.is_ip()),
];

fn within4(address: IpAddr, net: [u8; 2], bits: u32) -> bool {
    let IpAddr::V4(address) = address else {
        return false;
    };
    let net = Ipv4Addr::new(net[0], net[1], 0, 0);
    (address.to_bits() ^ net.to_bits()) >> (32 - bits) == 0
}

fn below4(address: IpAddr, third: u8, limit: u8) -> bool {
    matches!(address, IpAddr::V4(address) if address.octets()[2] == third && address.octets()[3] < limit)
}

fn within6(address: IpAddr, net: [u16; 3]) -> bool {
    matches!(address, IpAddr::V6(address) if address.segments()[..3] == net)
}

/// Delay of class i, ns.
fn delay(class: usize) -> u64 {
    (class as u64 + 1) * 100_000_000
}

pub(crate) fn profile() -> String {
    let mut text = String::from("version: 1\nservers:\n");
    for class in 0..CONDITIONS.len() {
        writeln!(text, "  s{class}: {{ latency: {}ns }}", delay(class)).unwrap();
    }
    text.push_str("classes:\n");
    for (class, (condition, _)) in CONDITIONS.iter().enumerate() {
        writeln!(
            text,
            "  - {{ name: c{class}, match: {{ {condition} }}, egress: [s{class}], ingress: [s{class}] }}"
        )
        .unwrap();
    }
    text
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Malformed,
    Unmatched,
    Class(usize),
    /// Not the class that was expected.
    OtherClass,
}

pub(crate) fn expected(headers: &Result<Headers, Malformed>) -> Verdict {
    match headers {
        Err(Malformed) => Verdict::Malformed,
        Ok(headers) => CONDITIONS
            .iter()
            .position(|(_, holds)| holds(headers))
            .map_or(Verdict::Unmatched, Verdict::Class),
    }
}

/// A rig with the reference beside it.
pub(crate) struct Pair {
    pub(crate) rig: Rig,
    pub(crate) pacer: Pacer,
    pub(crate) reader: Reader,
    /// Malformed and unmatched packets so far.
    passed: [u64; 2],
}

impl Pair {
    pub(crate) fn new(pacer: Pacer) -> Option<Self> {
        Some(Self {
            rig: Rig::new(&profile(), pacer)?,
            pacer,
            reader: Reader::default(),
            passed: [0; 2],
        })
    }

    /// What the program did, read off its action, its stamp and, where the packet carries none, the
    /// counter of the class that is expected.
    fn observe(&mut self, direction: Direction, frame: &[u8], mark: u32, expected: Verdict) -> Verdict {
        let suspect = match expected {
            Verdict::Class(class) if self.hides_departure(frame) => Some(class as u32),
            _ => None,
        };
        let count = |rig: &Rig| suspect.map(|class| rig.packets(class, direction));
        let before = count(&self.rig);
        let start = now();
        let ran = self.rig.send(
            direction,
            frame,
            Context {
                mark,
                ..Context::default()
            },
        );
        match ran.action {
            PASS => self.reason_to_pass(),
            REDIRECT => match (self.rig.departure(&ran), before) {
                (0, Some(before)) if count(&self.rig) == Some(before + 1) => expected,
                (0, _) => Verdict::OtherClass,
                (departure, _) => class_of(departure, [start, now()], expected),
            },
            action => panic!("action {action} for {frame:02x?}"),
        }
    }

    /// Which counter has grown by one.
    fn reason_to_pass(&mut self) -> Verdict {
        let passed = [Event::Malformed, Event::Unmatched].map(|event| self.rig.event(event));
        let before = std::mem::replace(&mut self.passed, passed);
        match [passed[0] - before[0], passed[1] - before[1]] {
            [1, 0] => Verdict::Malformed,
            [0, 1] => Verdict::Unmatched,
            other => panic!("passed, and counted {other:?}"),
        }
    }

    /// fq's stamp takes IP alone. What is not IP, or has a tag in the data, has it in a slot.
    fn hides_departure(&self, frame: &[u8]) -> bool {
        matches!(self.pacer, Pacer::Fq) && !matches!(frame[12..14], [8, 0] | [0x86, 0xdd])
    }

    /// The same verdict from both, twice: classified, then from the flow cache.
    pub(crate) fn check(&mut self, what: &str, direction: Direction, frame: &[u8], mark: u32) -> Verdict {
        self.compare(&format_args!("{what} at first"), direction, frame, mark);
        self.compare(&format_args!("{what} from the cache"), direction, frame, mark)
    }

    /// The same verdict from both.
    pub(crate) fn check_once(&mut self, direction: Direction, frame: &[u8], mark: u32) -> Verdict {
        self.compare(&"mutation", direction, frame, mark)
    }

    fn compare(&mut self, what: &dyn Display, direction: Direction, frame: &[u8], mark: u32) -> Verdict {
        let headers = self.reader.read(frame, mark, direction);
        let expected = expected(&headers);
        let observed = self.observe(direction, frame, mark, expected);
        assert_eq!(
            observed, expected,
            "{what}: {direction:?}, {headers:x?}, {frame:02x?}"
        );
        expected
    }
}

/// The class with a delay that a packet can have had which was sent between two instants: the expected
/// one, if the machine stalled in between and there are several.
fn class_of(departure: u64, sent: [u64; 2], expected: Verdict) -> Verdict {
    let [least, most] = [sent[1], sent[0]].map(|sent| departure.saturating_sub(sent));
    let mut possible = (0..CONDITIONS.len())
        .filter(|&class| (least..=most).contains(&delay(class)))
        .map(Verdict::Class);
    match possible.clone().any(|class| class == expected) {
        true => expected,
        false => possible
            .next()
            .unwrap_or_else(|| panic!("a delay of {least} to {most} ns is no class's")),
    }
}

pub(crate) fn both_pacers(test: impl Fn(&mut Pair)) {
    for pacer in [Pacer::Fq, Pacer::User] {
        let Some(mut pair) = Pair::new(pacer) else { return };
        test(&mut pair);
    }
}

pub(crate) const DIRECTIONS: [Direction; 2] = [Direction::Egress, Direction::Ingress];
