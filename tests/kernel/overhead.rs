//! The overhead: which packets burn it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use perturb_clock::now;
use perturb_common::abi::Direction;
use perturb_dataplane::programs::Pacer;
use support::{
    Context, Rig,
    packet::{TCP, UDP, V4, V6, ethernet, tcp, udp},
    run,
};

const A: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2];
/// Bytes of a TCP header without options.
const HEADER: usize = 20;
/// Where its flags are.
const FLAGS: usize = 13;
const ACK: u8 = 0x10;
/// What each packet costs, ns: more than a program takes without it.
const OVERHEAD: u64 = 1_000_000;
/// Runs of which the shortest counts: another program may interrupt any.
const RUNS: usize = 20;

/// A TCP segment with these flags and so much data.
fn segment(flags: u8, data: usize) -> Vec<u8> {
    let mut segment = tcp(1000, 2000, HEADER + data);
    segment[FLAGS] = flags;
    segment
}

fn v4(payload: Vec<u8>) -> V4 {
    V4::new([192, 0, 2, 1], [192, 0, 2, 2], TCP, payload)
}

/// Frames of nothing but an acknowledgment: also padded, with options of either header, behind a tag.
fn acknowledgments() -> Vec<(&'static str, Vec<u8>)> {
    let bare = v4(segment(ACK, 0));
    let mut padded = bare.frame();
    padded.resize(60, 0);
    let mut options = segment(ACK, 12);
    options[12] = 8 << 4;
    let mut tagged = ethernet(&[0x8100], 0x0800, &bare.bytes());
    tagged.resize(64, 0);
    let v6 = V6::new(A, B, TCP, segment(ACK, 0));
    vec![
        ("bare", bare.frame()),
        ("padded", padded),
        ("with TCP's options", v4(options.clone()).frame()),
        (
            "with IP's options",
            V4 {
                options: 3,
                ..bare.clone()
            }
            .frame(),
        ),
        ("behind a tag", tagged),
        ("IPv6", v6.frame()),
        (
            "IPv6 with an extension",
            V6 {
                extensions: vec![V6::extension(0, 1)],
                ..v6
            }
            .frame(),
        ),
        ("IPv6 with TCP's options", V6::new(A, B, TCP, options).frame()),
    ]
}

/// All others.
fn others() -> Vec<(&'static str, Vec<u8>)> {
    let mut byte = v4(segment(ACK, 1)).frame();
    byte.resize(60, 0);
    vec![
        ("a byte of data, padded", byte),
        ("data", v4(segment(ACK | 8, 1000)).frame()),
        ("SYN", v4(segment(2, 0)).frame()),
        ("SYN and ACK", v4(segment(2 | ACK, 0)).frame()),
        ("FIN", v4(segment(1 | ACK, 0)).frame()),
        ("RST", v4(segment(4, 0)).frame()),
        ("data, IPv6", V6::new(A, B, TCP, segment(ACK, 1)).frame()),
        (
            "a fragment",
            V4 {
                fragment: 0x2000,
                id: 7,
                ..v4(segment(ACK, 0))
            }
            .frame(),
        ),
        (
            "UDP",
            V4::new([192, 0, 2, 1], [192, 0, 2, 2], UDP, udp(1000, 2000, 8)).frame(),
        ),
        ("not IP", ethernet(&[], 0x88b5, &[0; 46])),
    ]
}

/// The least time that a program takes for a frame, ns.
fn least(rig: &mut Rig, direction: Direction, frame: &[u8]) -> u64 {
    let program = rig.capture(direction);
    let took = (0..RUNS).map(|_| {
        let before = now();
        run(program, frame, Context::default()).unwrap();
        now() - before
    });
    took.min().unwrap()
}

#[test]
fn acknowledgments_are_free_if_the_profile_says_so() {
    let profile = |acknowledgments: &str| {
        format!(
            "{{ version: 1, overhead: {{ send: {OVERHEAD}ns, receive: {OVERHEAD}ns{acknowledgments} }}, classes: \
             [{{ name: all, match: {{}}, egress: [], ingress: [] }}] }}"
        )
    };
    let Some(mut rig) = Rig::new(&profile(", acknowledgments: free"), Pacer::User) else {
        return;
    };
    for direction in [Direction::Egress, Direction::Ingress] {
        for (what, frame) in acknowledgments() {
            let took = least(&mut rig, direction, &frame);
            assert!(took < OVERHEAD, "{what}, {direction:?}: {took} ns");
        }
        for (what, frame) in others() {
            let took = least(&mut rig, direction, &frame);
            assert!(took >= OVERHEAD, "{what}, {direction:?}: {took} ns");
        }
    }
    rig.load(&profile(""));
    for (what, frame) in acknowledgments() {
        let took = least(&mut rig, Direction::Egress, &frame);
        assert!(took >= OVERHEAD, "{what}, charged: {took} ns");
    }
}
