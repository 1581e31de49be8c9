//! A network of 1024 hosts: its lists of servers get into the kernel's maps in a moment, and a packet crosses what lies
//! between its hosts.

use std::{fmt::Write as _, time::Instant};

use crate::support::{
    Context, PASS, REDIRECT, Rig,
    choices::Choices,
    compiled,
    packet::{UDP, V4, V6, udp},
};
use perturb_clock::now;
use perturb_common::{
    abi::{Direction, Event, NETWORK},
    network::Pair,
};
use perturb_dataplane::programs::Pacer;

/// A tree whose edges of height h take 2^(h+1) us, for hosts 10.0.x.y and fd00::i.
fn profile(levels: u32, hosts: u32) -> String {
    let mut text = String::from(
        "version: 1\nservers: { nic: { latency: 1ms } }\ntopology:\n  kind: tree\n  egress: [nic]\n  levels:\n",
    );
    for height in 1..=levels {
        writeln!(text, "    - {{ latency: {}us }}", 2 << height).unwrap();
    }
    text.push_str("hosts:\n");
    for host in 0..hosts {
        writeln!(
            text,
            "  n{host}: [10.0.{}.{}, 'fd00::{host:x}']",
            host >> 8,
            host & 255
        )
        .unwrap();
    }
    text
}

fn frame(from: u32, to: u32, v4: bool) -> Vec<u8> {
    if v4 {
        let address = |host: u32| [10, 0, (host >> 8) as u8, host as u8];
        V4::new(address(from), address(to), UDP, udp(7, 9, 300)).frame()
    } else {
        let address = |host: u32| [0xfd00, 0, 0, 0, 0, 0, 0, host as u16];
        V6::new(address(from), address(to), UDP, udp(7, 9, 300)).frame()
    }
}

/// Names of the servers that a packet has crossed since the last call.
fn crossed(rig: &Rig, before: &mut Vec<u64>) -> Vec<String> {
    let counters = rig.counters(1);
    let packets: Vec<u64> = counters.servers.iter().map(|server| server.packets).collect();
    let names = rig.tables.server_names.iter();
    let grown = packets.iter().zip(before.iter()).zip(names);
    let names = grown
        .filter(|((now, before), _)| now > before)
        .map(|(_, name)| name.clone())
        .collect();
    *before = packets;
    names
}

/// What lies between two hosts, by name.
fn between(from: u32, to: u32) -> Vec<String> {
    let edge = |host: u32, height: u32, way: &str| {
        let leaves = 1 << (height - 1);
        let first = host / leaves * leaves + 1;
        match leaves {
            1 => format!("h{first}-{way}"),
            _ => format!("h{first}..h{}-{way}", first + leaves - 1),
        }
    };
    let height = Pair { from, to }.height();
    let mut names = vec![format!("h{}-nic", from + 1)];
    for height in 1..=height {
        names.push(edge(from, height, "up"));
        names.push(edge(to, height, "down"));
    }
    names.sort();
    names
}

#[test]
fn packets_cross_what_lies_between_their_hosts() {
    for pacer in [Pacer::Fq, Pacer::User] {
        let Some(mut rig) = Rig::spacious("{ version: 1, latency: 1s }", pacer) else {
            return;
        };
        let mut tables = compiled(&profile(10, 1024));
        assert_eq!(tables.classes.last().unwrap().path[0], NETWORK);
        // Whole paths at once: the hold device of these tests lets nothing out.
        for path in &mut tables.paths {
            path.cuts = 0;
        }
        rig.load_tables(tables);
        let mut before: Vec<u64> = rig
            .counters(1)
            .servers
            .iter()
            .map(|server| server.packets)
            .collect();
        let mut choices = Choices::new(1);
        for packet in 0..40u32 {
            let from = choices.below(1024) as u32;
            // Near and far.
            let to = from ^ (1 + choices.below(1 << (packet % 10)) as u32);
            let frame = frame(from, to, packet % 2 == 0);
            for _ in 0..2 {
                let start = now();
                let ran = rig.send(Direction::Egress, &frame, Context::default());
                assert_eq!(ran.action, REDIRECT, "{from} to {to}");
                let mut names = crossed(&rig, &mut before);
                names.sort();
                assert_eq!(names, between(from, to), "{from} to {to}");
                let height = Pair { from, to }.height();
                let latency = 1_000_000 + 2 * (1..=height).map(|height| 1000 * (2 << height)).sum::<u64>();
                let departure = rig.departure(&ran);
                assert!(
                    (start + latency..=now() + latency).contains(&departure),
                    "{from} to {to}"
                );
            }
        }
    }
}

#[test]
fn strangers_and_ones_own_addresses_pass() {
    let Some(mut rig) = Rig::spacious("{ version: 1, latency: 1s }", Pacer::Fq) else {
        return;
    };
    rig.load_tables(compiled(&profile(7, 100)));
    let mut unmatched = 0;
    for (from, to) in [(0, 100), (100, 0), (5, 5), (2000, 3000)] {
        for v4 in [true, false] {
            let ran = rig.send(Direction::Egress, &frame(from, to, v4), Context::default());
            unmatched += 1;
            assert_eq!(
                (ran.action, rig.event(Event::Unmatched)),
                (PASS, unmatched),
                "{from} to {to}"
            );
        }
    }
    // Only the sender folds.
    let ran = rig.send(Direction::Ingress, &frame(1, 2, true), Context::default());
    assert_eq!((ran.action, rig.packets(0, Direction::Ingress)), (PASS, 1));
    let ran = rig.send(Direction::Egress, &frame(1, 2, true), Context::default());
    assert_eq!(
        (ran.action, rig.packets(0, Direction::Egress)),
        (REDIRECT, 0),
        "held before the second server"
    );
    // Another network takes effect at once, for flows that are known, too.
    rig.load_tables(compiled(&profile(9, 500)));
    let ran = rig.send(Direction::Egress, &frame(5, 450, true), Context::default());
    assert_eq!(ran.action, REDIRECT);
    rig.load("{ version: 1 }");
    let ran = rig.send(Direction::Egress, &frame(1, 2, true), Context::default());
    assert_eq!(ran.action, PASS);
}

/// From the text into the kernel. What is written out pair by pair for 64 hosts is the control.
#[test]
fn a_thousand_hosts_are_in_force_in_a_moment() {
    let Some(mut rig) = Rig::spacious("{ version: 1, latency: 1s }", Pacer::Fq) else {
        return;
    };
    let mut load = |text: &str| {
        let start = Instant::now();
        rig.load_tables(compiled(text));
        start.elapsed()
    };
    let control = load(&profile(6, 64));
    let all = load(&profile(10, 1024));
    let again = load(&profile(10, 1024));
    eprintln!("1024 hosts in force after {all:?}, again after {again:?}; 64 pair by pair after {control:?}");
    assert!(all < 10 * control, "{all:?}, 64 hosts pair by pair {control:?}");
}
