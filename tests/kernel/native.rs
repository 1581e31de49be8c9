//! The same programs, in the kernel and compiled for this processor: the same packets get the same stamps, marks, damage and
//! drops, and leave the same counters, to the nanosecond and the bit.
//!
//! Each reads the clock by itself. So every path begins with a server that is free again at a time that the test sets, in both,
//! before each packet.

use std::fmt::Write as _;

use perturb_clock::now;
use perturb_common::{
    abi::{Attachment, Direction, EVENTS, Event, ServerState},
    units::MonoNanos,
};
use perturb_dataplane::{
    counters::Counters,
    loader::Loader,
    maps::Wire,
    native::{self, Frame, Program, Seat, Verdict},
    programs::Pacer,
    room::Room,
};

use crate::support::{
    Context, LOOPBACK, REDIRECT, Rig,
    choices::Choices,
    oracle::DIRECTIONS,
    packet::{TCP, UDP, V4, V6, tcp, udp},
};

/// Interface index of the native programs' hold device.
const HOLD: u32 = 77;

/// The programs in this process.
struct Native {
    loader: Loader,
    seat: Seat,
    // The seat's memory.
    _tables: native::Tables,
}

impl Native {
    fn new(rig: &Rig) -> Self {
        let file = native::unnamed().unwrap();
        let tables = native::Tables::new(file, &Room::of(&rig.tables), 2, false).unwrap();
        let mut loader = Loader::new(tables.maps().unwrap()).unwrap();
        loader.load(&rig.tables).unwrap();
        loader.set_lease(u64::MAX).unwrap();
        let attachment = Attachment {
            target: LOOPBACK,
            hold: HOLD,
            split: 0,
            rank: 0,
        };
        loader.maps_mut().attach(LOOPBACK, attachment).unwrap();
        Self {
            loader,
            seat: tables.seat(1),
            _tables: tables,
        }
    }

    /// Captures a packet: when it leaves, or 0 if it was dropped, and its bytes then.
    fn send(&mut self, direction: Direction, data: &[u8], context: Context) -> (u64, Vec<u8>) {
        // Two bytes off a word, and in two pieces, as long packets are.
        let mut buffer = [&[0; 2], data].concat();
        let (first, rest) = buffer[2..].split_at_mut(data.len().min(256));
        let mut frame = Frame::new(first, rest);
        frame.skb.ifindex = LOOPBACK;
        frame.skb.protocol = u16::from_ne_bytes([first[12], first[13]]).into();
        (frame.skb.mark, frame.skb.gso_size) = (context.mark, context.gso_size);
        // SAFETY: `_tables` keeps the memory, and nobody else has this seat.
        let verdict = unsafe { native::run(&self.seat, Program::Capture(direction), &mut frame) };
        assert_eq!(verdict, Verdict::Redirect);
        let is_held = frame.redirected.device == HOLD;
        assert!(is_held || frame.redirected.device == 0);
        let departure = if is_held { frame.skb.tstamp } else { 0 };
        (departure, buffer.split_off(2))
    }

    fn set_state(&mut self, server: &str, state: ServerState) {
        let slot = self.loader.slots().of(server).unwrap();
        self.loader.maps_mut().states.set(slot, Wire(state), 0).unwrap();
    }

    fn counters(&self, rig: &Rig) -> Counters {
        let slots: Vec<u32> = rig
            .tables
            .server_names
            .iter()
            .map(|name| rig.slot(name))
            .collect();
        Counters::read(self.loader.maps(), 1, &slots).unwrap()
    }
}

/// Keys of servers that do all there is to do.
fn random_server(choices: &mut Choices) -> String {
    let law = |keys| format!("queue: {{ {keys} }}");
    let more = match choices.below(10) {
        0 => "scope: host, jitter: { distribution: normal, stddev: 1ms }".into(),
        1 => "scope: flow, latency: 3ms, loss: 10%".into(),
        2 => "loss: { nth: [3, 5, 40] }, corrupt: 5%".into(),
        3 => "buffer: 5 packets".into(),
        4 => "buffer: 30KiB, latency: 200us".into(),
        5 => law("kind: codel, target: 100us, interval: 1ms, ecn: true"),
        6 => law("kind: red, min: 100us, max: 500us, probability: 30%, ecn: true"),
        7 => law("kind: step, threshold: 100us"),
        8 => law("kind: pie, target: 100us, t_update: 1ms, max_burst: 0us"),
        _ => "gap: 20us, duplicate: 10%".into(),
    };
    format!("bandwidth: {}Mbit/s, {more}", 20 + choices.below(1_000))
}

fn profile(servers: &[String]) -> String {
    let mut text = String::from("version: 1\nseed: 7\nservers:\n  first: { gap: 1ns }\n");
    let mut path = String::from("first");
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

fn frame(choices: &mut Choices) -> (Vec<u8>, u32) {
    let port = 1000 + choices.below(4) as u16;
    let length = choices.below(3000) as usize;
    let (host, ecn) = (1 + choices.below(3) as u8, choices.below(4) as u8);
    if choices.below(2) == 0 {
        let mut packet = V4::new([10, 0, 0, 1], [10, 0, 0, host], TCP, tcp(port, 80, 20 + length));
        packet.tos = ecn;
        let size = if length > 1448 { 1448 } else { 0 };
        (packet.frame(), size)
    } else {
        let address = |low| [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(low)];
        let packet = V6::new(address(host), address(9), UDP, udp(port, 80, 8 + length));
        (packet.frame(), 0)
    }
}

#[test]
fn decisions_are_those_of_the_kernels_programs() {
    const PROFILES: u64 = 12;
    const PACKETS: u64 = 150;
    let (mut held, mut dropped, mut marked) = (0, 0, 0);
    for number in 0..PROFILES {
        let mut choices = Choices::new(number + 1);
        let servers: Vec<String> = (0..=choices.below(4))
            .map(|_| random_server(&mut choices))
            .collect();
        let text = profile(&servers);
        let Some(mut rig) = Rig::new(&text, Pacer::Fq) else {
            return;
        };
        let mut own = Native::new(&rig);
        let mut free = now() + 500_000_000;
        for packet in 0..PACKETS {
            let (data, gso_size) = frame(&mut choices);
            free += choices.below(400_000);
            let state = ServerState {
                free: MonoNanos(free).instant().0,
                ..ServerState::default()
            };
            rig.set_state("first", state);
            own.set_state("first", state);
            let direction = *choices.pick(&DIRECTIONS);
            let context = Context {
                gso_size,
                ..Context::default()
            };
            let ran = rig.send(direction, &data, context);
            assert_eq!(ran.action, REDIRECT);
            let (departure, bytes) = own.send(direction, &data, context);
            let at = format!("packet {packet} of\n{text}");
            assert_eq!(departure, rig.departure(&ran), "{at}");
            assert_eq!(bytes, ran.data, "{at}");
            held += u64::from(departure != 0);
            dropped += u64::from(departure == 0);
            marked += u64::from(bytes != data);
        }
        let (mut native, mut kernel) = (own.counters(&rig), rig.counters(1));
        // How long packets waited for the first server depends on when they came.
        for counters in [&mut native, &mut kernel] {
            for class in counters.classes.iter_mut().flatten() {
                class.delay = 0;
            }
            counters.servers.remove(0);
        }
        assert_eq!(native.classes, kernel.classes, "{text}");
        assert_eq!(native.servers, kernel.servers, "{text}");
        // A veth in the kernel refuses what no device could cut.
        let refused = Event::HoldFull as usize;
        for event in (0..EVENTS as usize).filter(|&event| event != refused) {
            assert_eq!(
                native.events[event], kernel.events[event],
                "event {event} of\n{text}"
            );
        }
    }
    assert!(
        held > 500 && dropped > 50 && marked > 5,
        "{held} {dropped} {marked}"
    );
}
