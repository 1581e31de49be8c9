//! Packets between private hosts against the exact simulation of the same packets.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use perturb_clock as clock;
use perturb_common::{departure::Load, units::MonoNanos};
use perturb_emulator::prepared::Prepared;
use perturb_verdict::{bound, conclude, thrice};

use crate::{
    Network, PORT, address, early_us,
    servers::{Fate, Order, Packet, simulate},
};

/// Slow NICs before a faster trunk, unequal latencies, small buffers.
const TREE: &str = "
servers: { nic: { bandwidth: 8Mbit/s } }
topology:
  kind: tree
  egress: [nic]
  levels:
    - { bandwidth: 20Mbit/s, latency: 1ms, buffer: 30kB }
    - { bandwidth: 11Mbit/s, latency: 3ms, buffer: 12kB }
";
const PAYLOAD: usize = 1000;
const FRAME: u64 = PAYLOAD as u64 + 42;
/// How long hosts send.
const TRAFFIC: Duration = Duration::from_millis(2500);

/// When a host sends to whom: bursts, steady streams, and traffic that stays below a switch.
fn plan(host: usize) -> Vec<(Duration, usize)> {
    let every = |period: u64, burst: usize, to: usize| {
        let period = Duration::from_micros(period);
        let bursts = (TRAFFIC.as_micros() / period.as_micros()) as u32;
        (0..bursts).flat_map(move |number| (0..burst).map(move |_| (period * number, to)))
    };
    let mut all: Vec<(Duration, usize)> = match host {
        0 => every(61_000, 30, 2).collect(),
        1 => every(2_300, 1, 3).chain(every(97_000, 10, 0)).collect(),
        2 => every(3_100, 1, 0).collect(),
        _ => every(83_000, 25, 1).chain(every(5_300, 1, 2)).collect(),
    };
    all.sort();
    all
}

/// What was sent, and what arrived: by sender and number.
struct Observed {
    /// When, CLOCK_MONOTONIC ns, and to whom.
    sent: Vec<Vec<(u64, usize)>>,
    received: HashMap<(u64, u64), u64>,
}

fn send_and_receive(network: &Network) -> Observed {
    let hosts = network.lab.hosts.len();
    let ready = std::sync::Barrier::new(hosts);
    let all = network.in_each(|host| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let receiver = socket.try_clone().unwrap();
        ready.wait();
        let start = Instant::now() + Duration::from_millis(20);
        thread::scope(|scope| {
            let receiving = scope.spawn(move || {
                let mut received = Vec::new();
                let mut buffer = [0; PAYLOAD];
                while start.elapsed() < TRAFFIC + Duration::from_millis(500) {
                    let Ok(_) = receiver.recv(&mut buffer) else {
                        continue;
                    };
                    let now = clock::now();
                    let word = |from: usize| u64::from_ne_bytes(buffer[from..from + 8].try_into().unwrap());
                    received.push(((word(0), word(8)), now));
                }
                received
            });
            let mut payload = [0; PAYLOAD];
            let mut sent = Vec::new();
            payload[..8].copy_from_slice(&(host as u64).to_ne_bytes());
            for (number, (at, to)) in (0u64..).zip(plan(host)) {
                thread::sleep((start + at).saturating_duration_since(Instant::now()));
                payload[8..16].copy_from_slice(&number.to_ne_bytes());
                sent.push((clock::now(), to));
                socket.send_to(&payload, (address(to), PORT)).unwrap();
            }
            (sent, receiving.join().unwrap())
        })
    });
    let (sent, received): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    Observed {
        sent,
        received: received.into_iter().flatten().collect(),
    }
}

/// Differences between what was observed and the exact simulation of the same packets.
struct Errors {
    /// Of delivered packets, ns, sorted.
    times: Vec<u64>,
    /// Delivered here and dropped there, or the other way round.
    fates: usize,
    packets: usize,
    dropped: usize,
    /// Not delivered here.
    lost: usize,
    /// The least that a delivered packet took, less what it takes alone, microseconds.
    least_us: f64,
}

impl Errors {
    fn of(prepared: &Prepared, observed: &Observed) -> Self {
        let tables = &prepared.tables;
        let servers: Vec<_> = tables.servers.iter().map(|server| server.server).collect();
        let path = |from: usize, to: usize| -> Vec<usize> {
            let name = format!("h{}-h{}", from + 1, to + 1);
            let class = tables
                .class_names
                .iter()
                .position(|class| *class == name)
                .unwrap();
            let path = &tables.paths[tables.classes[class].path[0] as usize];
            path.servers[..path.len as usize]
                .iter()
                .map(|&server| server as usize)
                .collect()
        };
        let mut packets: Vec<((u64, u64), Packet)> = Vec::new();
        for (from, sent) in observed.sent.iter().enumerate() {
            for (number, &(time, to)) in (0u64..).zip(sent) {
                let packet = Packet {
                    entry: MonoNanos(time).instant(),
                    load: Load {
                        bytes: FRAME,
                        segments: 1,
                    },
                    path: path(from, to),
                };
                packets.push(((from as u64, number), packet));
            }
        }
        packets.sort_by_key(|(_, packet)| packet.entry);
        let (names, packets): (Vec<_>, Vec<_>) = packets.into_iter().unzip();
        let fates = simulate(&servers, &packets, Order::Arrival);
        let mut errors = Self {
            times: Vec::new(),
            fates: 0,
            packets: packets.len(),
            dropped: 0,
            lost: 0,
            least_us: f64::INFINITY,
        };
        for ((name, packet), fate) in names.iter().zip(&packets).zip(fates) {
            let received = observed.received.get(name);
            let alone = simulate(&servers, std::slice::from_ref(packet), Order::Arrival);
            match (alone.as_slice(), received) {
                ([Fate::Delivered(alone)], Some(&received)) => {
                    let over = received as f64 - alone.ceil_nanos().0 as f64;
                    errors.least_us = errors.least_us.min(over / 1e3);
                }
                _ => errors.lost += 1,
            }
            match (fate, received) {
                (Fate::Delivered(time), Some(&received)) => {
                    errors.times.push(received.abs_diff(time.ceil_nanos().0));
                }
                (Fate::Dropped(_), None) => errors.dropped += 1,
                _ => errors.fates += 1,
            }
        }
        errors.times.sort_unstable();
        errors
    }

    fn quantile_us(&self, share: f64) -> f64 {
        self.times[((self.times.len() - 1) as f64 * share) as usize] as f64 / 1e3
    }
}

/// With legs, packets leave when the exact simulation says and the same ones are dropped, but for what the machine
/// itself adds; folded at once, they are many milliseconds off. The coarse run is the emulator that must be caught.
#[test]
fn departures_are_those_of_the_exact_simulation() {
    conclude(thrice(departures));
}

fn departures() -> Result<Option<String>> {
    let mut found = Vec::new();
    for coarse in [false, true] {
        let network = Network::new(TREE, 4, coarse)?;
        let observed = send_and_receive(&network);
        let errors = Errors::of(&network.prepared, &observed);
        println!(
            "    figure: {}: {} packets, {} dropped by both, {} by one only; error of the others {:.0} us (50 %), \
             {:.0} us (90 %), {:.0} us (99 %), {:.0} us (all); {:.0} us at least",
            if coarse { "coarse" } else { "legs" },
            errors.packets,
            errors.dropped,
            errors.fates,
            errors.quantile_us(0.5),
            errors.quantile_us(0.9),
            errors.quantile_us(0.99),
            errors.quantile_us(1.0),
            errors.least_us
        );
        // However busy the machine: packets arrive, and none is faster than through a tree that is empty.
        assert!(
            errors.lost * 2 < errors.packets,
            "{} packets are lost",
            errors.lost
        );
        assert!(errors.least_us >= -early_us(6), "{} us early", -errors.least_us);
        found.push(errors);
    }
    let [legs, coarse] = found.as_slice() else {
        unreachable!()
    };
    bound!(
        legs.quantile_us(0.5) < 1000.0,
        "median {:.0} us",
        legs.quantile_us(0.5)
    );
    bound!(
        legs.fates * 20 < legs.packets,
        "{} packets fared differently",
        legs.fates
    );
    bound!(
        coarse.quantile_us(0.9) > 2.0 * legs.quantile_us(0.9) || coarse.fates > 2 * legs.fates,
        "error of 90 %: folding at once is as good"
    );
    Ok(None)
}
