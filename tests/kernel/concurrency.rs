//! Several CPUs send at once: no occupancy is lost, no packet's index is given twice, no counter
//! misses a packet.
//!
//! Each thread runs the same program again and again, pinned to a CPU of its own if there are enough.
//! `free` of a server that is never idle must grow by exactly packets times occupancy. A server that
//! reads and writes its state plainly, in Rust threads, must fail the same check.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use perturb_clock::now;
use perturb_common::{
    abi::{Attachment, Direction, Event, ServerState},
    departure::{Load, Outcome, Server, departure},
    queue::{CODEL, PIE},
    units::{Instant, MonoNanos, Nanos},
};
use perturb_dataplane::{jit, programs::Pacer};
use perturb_verdict::skipped;
use support::{
    LOOPBACK, Rig,
    packet::{UDP, V4, udp},
};

/// Packets that each thread sends.
fn packets_per_thread() -> u64 {
    if jit::compiles() { 40_000 } else { 4000 }
}

/// Threads: more than CPUs, so that they also preempt each other.
fn threads() -> usize {
    thread::available_parallelism().unwrap().get().clamp(2, 16) + 1
}

fn frame() -> Vec<u8> {
    V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(7, 9, 80)).frame()
}

/// Runs `work` in all threads at once.
fn at_once(work: impl Fn(usize) + Sync) {
    let cpus: Vec<usize> = {
        let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
        (0..CpuSet::count())
            .filter(|&cpu| set.is_set(cpu).unwrap_or(false))
            .collect()
    };
    let start = std::sync::Barrier::new(threads());
    thread::scope(|scope| {
        for index in 0..threads() {
            let (work, start, cpus) = (&work, &start, &cpus);
            scope.spawn(move || {
                let mut set = CpuSet::new();
                set.set(cpus[index % cpus.len()]).unwrap();
                sched_setaffinity(Pid::from_raw(0), &set).unwrap();
                start.wait();
                work(index);
            });
        }
    });
}

/// Sends packets in all threads. A run that holds the packet tags it, and the next one lets it pass:
/// of 2n runs n are packets. One that drops it leaves it as it is.
fn send(program: &SchedClassifier, runs: u64) {
    // In pieces: the threads take turns at the lead.
    send_in_pieces(program, runs, 1000);
}

/// As [`send`], so many runs of each packet. From the third run on it brings the stamp along that it was given.
fn send_in_pieces(program: &SchedClassifier, runs: u64, repeat: u32) {
    let frame = frame();
    at_once(|_| {
        for _ in 0..runs / u64::from(repeat) {
            let options = TestRunOptions {
                data_in: Some(&frame),
                repeat,
                ..TestRunOptions::default()
            };
            program.test_run(options).unwrap();
        }
    });
}

/// A rig whose packets are held nowhere, so that the device does not serialize the CPUs.
fn rig(profile: &str) -> Option<Rig> {
    let mut rig = Rig::new(profile, Pacer::Fq)?;
    rig.attach(
        LOOPBACK,
        Attachment {
            target: LOOPBACK,
            hold: 0x7fff_ff00,
            split: 0,
            rank: 0,
        },
    );
    Some(rig)
}

fn server(keys: &str) -> String {
    format!(
        "version: 1\nservers: {{ s: {{ {keys} }} }}\nclasses:\n  - {{ name: all, match: {{}}, egress: [s] }}\n"
    )
}

#[test]
fn no_occupancy_is_lost() {
    let Some(mut rig) = rig(&server("gap: 10us, bandwidth: 1Gbit/s, latency: 1ms")) else {
        return;
    };
    // Busy from the first packet to the last: each run takes far less than its occupancy.
    let start = MonoNanos(now() + 1_000_000_000).instant();
    rig.set_state(
        "s",
        ServerState {
            free: start.0,
            ..ServerState::default()
        },
    );
    let runs = packets_per_thread() * 2;
    send(rig.capture(Direction::Egress), runs);
    let packets = runs / 2 * threads() as u64;
    // 10 us and 114 bytes at 1 Gbit/s.
    let occupancy = Nanos(10_000 + 912).ticks();
    let added = Instant(rig.state("s").free).since(start);
    assert_eq!(
        added.0,
        packets * occupancy.0,
        "{} packets' worth of occupancy",
        added.0 / occupancy.0
    );
    let counters = rig.counters(1);
    assert_eq!(
        (counters.servers[0].packets, counters.servers[0].bytes),
        (packets, packets * 114)
    );
    assert_eq!(counters.servers[0].busy, added.0);
    let class = counters.classes[0][0];
    assert_eq!(
        (class.packets, class.segments, class.bytes, class.dropped),
        (packets, packets, packets * 114, 0)
    );
    eprintln!(
        "{packets} packets on {} threads, {} outlasted the retries",
        threads(),
        rig.event(Event::Contention)
    );
}

#[test]
fn indices_are_unique() {
    let total = packets_per_thread() * threads() as u64;
    // Every 97th packet from the first half of them.
    let nth: Vec<String> = (1..=total / 2 / 97).map(|k| (k * 97).to_string()).collect();
    let Some(mut rig) = rig(&server(&format!(
        "latency: 1ms, loss: {{ nth: [{}] }}",
        nth.join(", ")
    ))) else {
        return;
    };
    send(rig.capture(Direction::Egress), packets_per_thread());
    let class = rig.counters(1).classes[0][0];
    // An index given twice would lose a packet more, one left out a packet less.
    assert_eq!(rig.event(Event::NthLoss), nth.len() as u64);
    assert_eq!(class.dropped, nth.len() as u64);
    assert_eq!(rig.state("s").arrivals, class.packets);
    // A held packet takes two runs, a lost one takes one.
    let runs = 2 * (class.packets - class.dropped) + class.dropped;
    assert!(
        total.abs_diff(runs) <= packets_per_thread() / 1000 * threads() as u64,
        "{runs} of {total} runs"
    );
}

#[test]
fn admissions_are_counted() {
    let Some(mut rig) = rig(&server("gap: 1us, buffer: 64 packets")) else {
        return;
    };
    send(rig.capture(Direction::Egress), packets_per_thread());
    let counters = rig.counters(1);
    let class = counters.classes[0][0];
    assert_eq!(rig.state("s").beside[0], counters.servers[0].packets);
    assert_eq!(
        class.packets,
        counters.servers[0].packets + counters.servers[0].tail_drops
    );
    assert_eq!(rig.event(Event::PacketLimit), class.dropped);
    assert!(class.dropped > 0);
}

/// Each packet is judged under the lock, or counted as one that was not; nobody keeps the lock.
#[test]
fn laws_judge_one_packet_at_a_time() {
    one_at_a_time("kind: codel, target: 2us, interval: 5us");
    one_at_a_time("kind: pie, target: 2us, t_update: 1ms, max_burst: 0s");
    one_at_a_time("kind: red, min: 1ms, max: 20s");
}

fn one_at_a_time(queue: &str) {
    let keys = &format!("bandwidth: 100Mbit/s, queue: {{ {queue} }}");
    let Some(mut rig) = rig(&server(keys)) else { return };
    // However slowly packets come, they wait.
    rig.set_state(
        "s",
        ServerState {
            free: MonoNanos(now() + 8_000_000_000).instant().0,
            ..ServerState::default()
        },
    );
    send(rig.capture(Direction::Egress), packets_per_thread());
    let counters = rig.counters(1);
    let (server, class) = (counters.servers[0], counters.classes[0][0]);
    assert_eq!(class.packets, server.packets + server.early_drops);
    assert_eq!(rig.event(Event::EarlyDrop), class.dropped);
    assert!(class.dropped > 100, "{} dropped", class.dropped);
    // 114 bytes at 100 Mbit/s: what was dropped, took no time.
    assert_eq!(server.busy, server.packets * Nanos(9120).ticks().0);
    let slot = rig.slot("s");
    let mut queue = rig.loader.maps().queues.get(&slot, 0).unwrap().0;
    assert_eq!(queue.lock, 0);
    if queue.state.kind == u64::from(CODEL) {
        // It entered once, and never left: a state that two had at once lacks a drop.
        let codel = queue.state.codel();
        assert_eq!((u64::from(codel.count), codel.last), (server.early_drops, 1));
    } else {
        // A state that two had at once lacks a packet.
        let judged = match queue.state.kind == u64::from(PIE) {
            true => queue.state.pie().arrivals,
            false => queue.state.red().arrivals,
        };
        assert!(judged <= class.packets && judged + rig.event(Event::Contention) >= class.packets);
    }
    eprintln!(
        "{} of {} dropped, {} outlasted the retries",
        class.dropped,
        class.packets,
        rig.event(Event::Contention)
    );
}

#[test]
fn order_is_kept() {
    let keys = "latency: 5ms, jitter: { distribution: normal, stddev: 1ms }";
    let Some(mut rig) = rig(&server(keys)) else { return };
    let start = now();
    // A packet that has a stamp already enters at that time.
    send_in_pieces(rig.capture(Direction::Egress), packets_per_thread(), 2);
    let state = rig.state("s");
    assert_eq!(state.arrivals, rig.counters(1).servers[0].packets);
    // No departure lies before the last in order, and that is no further than the jitter reaches.
    let last = state.last / 64;
    assert!(
        (start..now() + 15_000_000).contains(&last),
        "last departure {last}"
    );
}

/// The check of `no_occupancy_is_lost`, on servers in Rust: it passes the sound one and fails the
/// one that this project must not have.
#[test]
fn broken_server_is_caught() {
    if thread::available_parallelism().unwrap().get() < 2 {
        return skipped("there is one processor");
    }
    let server = Server {
        gap: Nanos(10_000).ticks(),
        ..Server::IDLE
    };
    let load = Load {
        bytes: 100,
        segments: 1,
    };
    let next = |free| match departure(&server, Instant(free), Instant(0), load) {
        Outcome::Served(service) => service.free.0,
        outcome => panic!("{outcome:?}"),
    };
    let rounds = 2_000_000;
    let total = |step: &(dyn Fn(&AtomicU64) + Sync)| {
        let free = AtomicU64::new(0);
        at_once(|_| (0..rounds).for_each(|_| step(&free)));
        free.into_inner()
    };
    let exact = rounds * threads() as u64 * server.gap.0;
    let sound = total(&|free| {
        let mut seen = free.load(Relaxed);
        while let Err(now) = free.compare_exchange(seen, next(seen), Relaxed, Relaxed) {
            seen = now;
        }
    });
    assert_eq!(sound, exact);
    let broken = total(&|free| free.store(next(free.load(Relaxed)), Relaxed));
    assert!(
        broken < exact,
        "plain reads and writes lost nothing: the threads did not run at once"
    );
    let lost = 100.0 * (exact - broken) as f64 / exact as f64;
    eprintln!("plain reads and writes lose {lost:.1} % of the occupancy");
}
