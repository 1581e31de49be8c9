//! What super-packets in tunnels occupy a server for.

use crate::support::{
    Context, Rig,
    packet::{TCP, UDP, V4, V6, ethernet, tcp, udp},
    run,
};
use perturb_common::{abi::Direction, units::Ticks};
use perturb_dataplane::{
    programs::{LoadError, Pacer, Program},
    tunnels::{Passed, Tunnels, TunnelsError},
};
use perturb_verdict::{or_end, root, skipped};

/// What `clock` is occupied for.
const TICK: Ticks = Ticks(64);
/// The state of `clock` says when a packet arrived.
const PROFILE: &str = "version: 1
servers: { clock: { gap: 1ns }, link: { bandwidth: 1Gbit/s } }
classes: [{ name: all, match: {}, egress: [clock, link] }]
";

/// What the bytes that a tunnel carries in segments are on the wire: each has all headers, outer and inner.
#[test]
fn super_packets_in_tunnels_repeat_all_headers() {
    const PAYLOAD: usize = 2900;
    const SIZE: usize = 1000;
    let Some(mut rig) = Rig::new(PROFILE, Pacer::Fq) else {
        return;
    };
    let mut charge = |frame: &[u8]| {
        rig.forget_states();
        let context = Context {
            gso_size: SIZE as u32,
            gso_segs: PAYLOAD.div_ceil(SIZE) as u32,
            ..Context::default()
        };
        let ran = rig.send(Direction::Egress, frame, context);
        ((ran.context.tstamp - rig.state("clock").free / TICK.0) / 8) as usize
    };
    // What is inside: TCP with 12 bytes of options, or UDP.
    let mut segment = tcp(40_000, 2049, 32 + PAYLOAD);
    segment[12] = 8 << 4;
    let inner = [(TCP, segment, 32), (UDP, udp(40_000, 2049, 8 + PAYLOAD), 8)];
    for (protocol, upper, own) in inner {
        let v4 = V4::new([10, 0, 0, 1], [10, 0, 0, 2], protocol, upper.clone());
        let v6 = V6::new([1; 8], [2; 8], protocol, upper);
        for (number, kind, packet, ip) in [(4, 0x0800, v4.bytes(), 20), (41, 0x86dd, v6.bytes(), 40)] {
            let bridged = |tags: &[u16]| ethernet(tags, kind, &packet);
            let in_udp = |port: u16, header: &[u8], carried: &[u8]| {
                let mut datagram = udp(50_000, port, 8);
                datagram.extend(header);
                datagram.extend(carried);
                let length = (datagram.len() as u16).to_be_bytes();
                datagram[4..6].copy_from_slice(&length);
                (UDP, datagram)
            };
            let [high, low] = u16::to_be_bytes(kind);
            let gre = |header: &[u8], carried: &[u8]| (47u8, [header, carried].concat());
            let vxlan = [8, 0, 0, 0, 0, 0, 7, 0];
            let with_options = [&[2, 0, 0x65, 0x58, 0, 0, 7, 0][..], &[0; 8]].concat();
            let tunnels = [
                ("ip in ip", (number, packet.clone()), 0),
                ("vxlan", in_udp(4789, &vxlan, &bridged(&[])), 8 + 8 + 14),
                (
                    "vxlan, any port, a tag",
                    in_udp(8472, &vxlan, &bridged(&[0x8100])),
                    8 + 8 + 18,
                ),
                (
                    "geneve",
                    in_udp(6081, &[0, 0, 0x65, 0x58, 0, 0, 7, 0], &bridged(&[])),
                    8 + 8 + 14,
                ),
                (
                    "geneve with options",
                    in_udp(6081, &with_options, &bridged(&[])),
                    8 + 16 + 14,
                ),
                (
                    "geneve of ip",
                    in_udp(6081, &[0, 0, high, low, 0, 0, 7, 0], &packet),
                    8 + 8,
                ),
                ("gre", gre(&[0, 0, high, low], &packet), 4),
                (
                    "gre, key and number",
                    gre(&[0x30, 0, high, low, 0, 0, 0, 7, 0, 0, 0, 1], &packet),
                    12,
                ),
                ("gretap", gre(&[0, 0, 0x65, 0x58], &bridged(&[])), 4 + 14),
            ];
            for (name, (outer, carried), between) in tunnels {
                let wrapped = V4::new([192, 0, 2, 1], [192, 0, 2, 2], outer, carried.clone());
                let six = V6::new([3; 8], [4; 8], outer, carried);
                for (frame, below) in [(wrapped.frame(), 34), (six.frame(), 54)] {
                    let headers = below + between + ip + own;
                    assert_eq!(frame.len(), headers + PAYLOAD, "{name}");
                    let on_the_wire: usize = vec![1; PAYLOAD]
                        .chunks(SIZE)
                        .map(|part| headers + part.len())
                        .sum();
                    assert_eq!(charge(&frame), on_the_wire, "{name}, {protocol} over {kind:x}");
                }
                // A tunnel of a program's own, over `UDP_SEGMENT`: what is inside ends with its segment.
                if outer == UDP {
                    let mut frame = wrapped.frame();
                    let length = 34 + between + if kind == 0x0800 { 2 } else { 4 };
                    frame[length..length + 2].copy_from_slice(&500u16.to_be_bytes());
                    let data = frame.len() - 42;
                    assert_eq!(
                        charge(&frame),
                        frame.len() + (data.div_ceil(SIZE) - 1) * 42,
                        "{name}"
                    );
                }
            }
        }
    }
}

/// Index of `lo`.
const LOOPBACK: u32 = 1;
/// TC_ACT_UNSPEC, and TC_ACT_SHOT.
const PASS: i32 = -1;
const DROP: i32 = 2;

/// Each packet on the wire counts, of super-packets too, and of those that nobody has counted yet.
#[test]
fn packets_on_the_wire_are_counted_at_the_ends_of_tunnels() {
    const PAYLOAD: usize = 2900;
    const SIZE: u32 = 1000;
    or_end!(root());
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
    let mut tunnels = match Tunnels::new() {
        Err(TunnelsError::Load(LoadError::NotEmbedded)) => {
            return skipped("perturb was built without its eBPF programs");
        }
        other => other.unwrap(),
    };
    tunnels.count("lo", LOOPBACK, false).unwrap();
    let mut passes = |program, frame: &[u8], gso| counted(&mut tunnels, program, frame, gso);
    let sent = |sent| (PASS, Passed { sent, received: 0 });
    let received = |received| (PASS, Passed { sent: 0, received });
    let [no_ip, small] = [
        ethernet(&[], 0x88cc, &[0; 60]),
        V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(1, 2, 8)).frame(),
    ];
    // What nobody would hear is not sent.
    assert_eq!(passes(Program::Sent, &small, (0, 0)), (DROP, Passed::default()));
    assert_eq!(passes(Program::Received, &no_ip, (0, 0)), received(1));
    for frame in [&no_ip, &small] {
        assert_eq!(passes(Program::Sent, frame, (0, 0)), sent(1));
    }
    let mut segment = tcp(40_000, 2049, 32 + PAYLOAD);
    segment[12] = 8 << 4;
    for (protocol, upper) in [(TCP, segment), (UDP, udp(40_000, 2049, 8 + PAYLOAD))] {
        let v4 = V4::new([10, 0, 0, 1], [10, 0, 0, 2], protocol, upper.clone()).frame();
        let v6 = V6::new([1; 8], [2; 8], protocol, upper).frame();
        for frame in [v4, v6] {
            assert_eq!(
                passes(Program::Sent, &frame, (SIZE, 7)),
                sent(7),
                "as the kernel counts"
            );
            assert_eq!(
                passes(Program::Sent, &frame, (SIZE, 0)),
                sent(3),
                "by its headers"
            );
            assert_eq!(passes(Program::Received, &frame, (SIZE, 0)), received(3));
        }
    }
    tunnels.close().unwrap();
    let mut passes = |program| counted(&mut tunnels, program, &small, (0, 0));
    assert_eq!(passes(Program::Sent), (DROP, Passed::default()));
    assert_eq!(passes(Program::Received), received(1));
}

/// What a program does with a packet at the loopback's end, and what it counts.
fn counted(
    tunnels: &mut Tunnels,
    program: Program,
    frame: &[u8],
    (gso_size, gso_segs): (u32, u32),
) -> (i32, Passed) {
    let context = Context {
        gso_size,
        gso_segs,
        ..Context::default()
    };
    let before = tunnels.passed(LOOPBACK).unwrap();
    let program = tunnels.programs().program(program).unwrap();
    let action = run(program, frame, context).unwrap().action;
    let after = tunnels.passed(LOOPBACK).unwrap();
    let more = Passed {
        sent: after.sent - before.sent,
        received: after.received - before.received,
    };
    (action, more)
}
