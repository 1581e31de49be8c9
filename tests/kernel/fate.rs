//! What is left to chance is not: loss, jitter, duplication and corruption are those that
//! `perturb_common::fate` gives for the seed, the server and the packet's index, packet for packet,
//! and the same in a second run. Marks, copies and flipped bits arrive where packets are held.

use std::ops::Range;

use crate::support::{
    Context, Ran, Rig,
    packet::{TCP, UDP, V4, V6, checksum, tcp, udp},
};
use perturb_common::{
    abi::{
        Direction, Event, SERVER_BURST, SERVER_KEEP_ORDER, SERVER_SPARES, SERVER_TIES, ServerConfig,
        ServerState,
    },
    departure::{Load, Outcome, departure},
    fate::{Chance, JITTER_ENTRIES, Purpose, draw, jitter_ticks},
    tables::Tables,
    ties::{Chances, Memory, TIE_DRIFT, Tied, quantile},
    units::{Instant, MonoNanos},
};
use perturb_dataplane::programs::Pacer;

const PACKETS: u64 = 2000;
/// What `clock` is occupied for; see `tests/departure.rs`.
const TICK: u64 = 64;

/// What stands behind `;` in the keys of the server are keys of its timeline's step in an hour.
fn profile(seed: u64, keys: &str) -> String {
    let (keys, step) = keys.split_once(';').unwrap_or((keys, ""));
    let timeline = match step {
        "" => String::new(),
        step => format!("timeline: {{ steps: [{{ at: 1h, server: s,{step} }}] }}\n"),
    };
    format!(
        "version: 1\nseed: {seed}\nservers:\n  clock: {{ gap: 1ns }}\n  s: {{ {keys} }}\n\
         classes:\n  - {{ name: all, match: {{}}, egress: [clock, s], ingress: [clock, s] }}\n{timeline}"
    )
}

fn frame() -> Vec<u8> {
    V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(7, 9, 200)).frame()
}

/// The byte of the frame that has DSCP and ECN.
const CLASS: usize = 15;

/// Sets the ECN field of [`frame`].
fn set_ecn(frame: &mut [u8], ecn: u8) {
    let mut packet = V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(7, 9, 200));
    packet.tos = ecn;
    const HEADER: Range<usize> = 14..34;
    frame[HEADER].copy_from_slice(&packet.frame()[HEADER]);
}

/// What becomes of a packet at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Dropped(Event),
    Departs {
        at: MonoNanos,
        copies: u64,
        corrupted: Option<(usize, u8)>,
        marked: bool,
    },
}

/// One server in Rust.
#[derive(Default)]
struct Reference {
    free: Instant,
    last: Instant,
    index: u64,
    memory: Memory,
}

impl Reference {
    fn cross(&mut self, config: &ServerConfig, tables: &Tables, arrival: Instant, frame: &[u8]) -> Fate {
        // netem's `packet_time_ns`.
        let framing = &config.framing;
        let mut bytes = (frame.len() as i64 + i64::from(framing.packet_overhead)) as u64;
        if framing.cell_size > 0 {
            bytes = bytes.div_ceil(framing.cell_size.into()) * u64::from(framing.cell_bytes);
        }
        let load = Load { bytes, segments: 1 };
        let Outcome::Served(service) = departure(&config.server, self.free, arrival, load) else {
            panic!("these servers have no buffer");
        };
        // What occupies nothing is never busy.
        if config.server.gap.0 != 0 || config.server.per_byte.0 != 0 {
            self.free = service.free;
        }
        let index = self.index;
        self.index += 1;
        let draw = |purpose| draw(config.salt, 0, index, purpose);
        let loss = draw(Purpose::Loss);
        let spares = config.flags & SERVER_SPARES != 0 && frame[CLASS] & 3 != 0;
        let numbered = tables.nth.iter().any(|nth| nth.index == index + 1);
        if numbered && !spares {
            return Fate::Dropped(Event::NthLoss);
        }
        let damage = draw(Purpose::Damage);
        let tied = if config.flags & SERVER_TIES != 0 {
            self.tied(config, tables, draw, service.free)
        } else {
            let mut tied = u64::from(config.loss.hit((loss >> 32) as u32)) * Tied::LOST;
            if config.flags & SERVER_BURST != 0 && !numbered {
                let bad = config.burst.step(self.memory.0 & 3 == 1, draw(Purpose::Burst));
                self.memory.0 = u64::from(bad);
                if config.burst.lost(bad, loss as u32) {
                    tied = Tied::LOST_IN_BURST;
                }
            }
            tied |= u64::from(config.duplicate.hit((damage >> 32) as u32)) * Tied::DUPLICATED;
            tied |= u64::from(config.corrupt.hit(damage as u32)) * Tied::CORRUPTED;
            Tied(tied).with(draw(Purpose::Jitter) as usize % JITTER_ENTRIES)
        };
        let is = |what| tied.0 & what != 0;
        let lost = is(Tied::LOST) || is(Tied::LOST_IN_BURST);
        if lost && !spares {
            return Fate::Dropped(if is(Tied::LOST_IN_BURST) {
                Event::BurstLoss
            } else {
                Event::Loss
            });
        }
        let mut time = service.next;
        if is(Tied::AHEAD) {
            time = service.free;
        } else if let Some(table) = tables.jitter.get(config.jitter_table as usize) {
            let entry = table.entries[tied.entry() % JITTER_ENTRIES];
            let ticks = jitter_ticks(config.jitter_scale, entry);
            time = Instant(time.0.saturating_add_signed(ticks)).max(service.free);
            if config.flags & SERVER_KEEP_ORDER != 0 {
                time = time.max(self.last);
                self.last = time;
            }
        }
        let corrupted = is(Tied::CORRUPTED).then(|| {
            let place = draw(Purpose::Bit);
            let span = (frame.len() as u32 - 12).min(1024);
            (12 + ((place >> 32) as u32 % span) as usize, 1 << (place & 7))
        });
        let copies = 1 + u64::from(is(Tied::DUPLICATED));
        Fate::Departs {
            at: time.ceil_nanos(),
            copies,
            corrupted,
            marked: lost || numbered,
        }
    }

    /// The fate that depends on those before; `tests/ties` of `perturb-common` looks at it as a process.
    fn tied(
        &mut self,
        config: &ServerConfig,
        tables: &Tables,
        draw: impl Fn(Purpose) -> u64,
        served: Instant,
    ) -> Tied {
        let chances = Chances {
            loss: config.loss,
            duplicate: config.duplicate,
            corrupt: config.corrupt,
            burst: config.burst,
        };
        let (tied, memory) = config.ties.decide(self.memory, &chances, &draw);
        self.memory = memory;
        let jitter = draw(Purpose::Jitter);
        let entry = jitter as usize % JITTER_ENTRIES;
        if config.ties.kinds & TIE_DRIFT == 0 {
            return tied.with(entry);
        }
        let table = |number: u32| &tables.jitter[number as usize].entries;
        let fresh = table(config.ties.normal)[entry];
        self.memory = config.ties.drift(memory, served.0, fresh, (jitter >> 32) as u32);
        tied.with(quantile(self.memory, |entry| {
            table(config.ties.cumulative)[entry]
        }))
    }
}

/// What the program did with a packet.
fn observed(rig: &Rig, ran: &Ran, sent: &[u8], before: &[u64; 5]) -> Fate {
    let after = drops_and_copies(rig);
    let grown = |event: usize| after[event] - before[event];
    for (index, event) in [Event::Loss, Event::BurstLoss, Event::NthLoss]
        .into_iter()
        .enumerate()
    {
        if grown(index) == 1 {
            return Fate::Dropped(event);
        }
    }
    let marked = grown(4) == 1;
    let mut expected = sent.to_owned();
    if marked {
        set_ecn(&mut expected, 3);
    }
    let mut differences = (12..sent.len()).filter(|&at| ran.data[at] != expected[at]);
    let corrupted = differences.next().map(|at| (at, ran.data[at] ^ expected[at]));
    assert_eq!(differences.next(), None, "one bit at most");
    Fate::Departs {
        at: MonoNanos(rig.departure(ran)),
        copies: 1 + grown(3),
        corrupted,
        marked,
    }
}

fn drops_and_copies(rig: &Rig) -> [u64; 5] {
    [
        Event::Loss,
        Event::BurstLoss,
        Event::NthLoss,
        Event::Duplicated,
        Event::Marked,
    ]
    .map(|event| rig.event(event))
}

const FATES: [&str; 22] = [
    "loss: 5%",
    "bandwidth: 1Gbit/s, framing: { packet_overhead: 40, cell_size: 48, cell_overhead: 5 }, loss: 2%",
    "bandwidth: 20Gbit/s, framing: { without_ethernet: true, packet_overhead: 5 }, duplicate: 3%",
    "loss: { gilbert_elliott: { p: 2%, r: 30%, bad_loss: 90%, good_loss: 1% }, nth: [1, 7, 8, 1999], random: 1% }",
    "gap: 1us, latency: 5ms, jitter: { distribution: pareto-normal, scale: 1ms }",
    "latency: 1ms, jitter: { distribution: normal, stddev: 3ms, reorder: true }",
    "bandwidth: 1Gbit/s, duplicate: 10%, corrupt: 10%",
    "latency: 2ms, jitter: 1ms, loss: 2%, duplicate: 3%, corrupt: 4%, gap: 2us",
    "loss: { random: 20%, correlation: 60%, gilbert_elliott: { p: 5%, r: 30%, bad_loss: 90% }, nth: [3, 9] }",
    "loss: { state: { p13: 3%, p31: 30%, p32: 20%, p23: 40%, p14: 2% } }, latency: 1ms",
    "duplicate: { probability: 10%, correlation: 70% }, corrupt: { probability: 20%, correlation: 30% }, gap: 1us",
    "latency: 5ms, jitter: { distribution: pareto, scale: 1ms, correlation: 80% }, gap: 3us",
    "latency: 5ms, jitter: { distribution: normal, stddev: 1ms, time_constant: 5ms, reorder: true }, gap: 90us",
    "latency: 5ms, jitter: 1ms, reorder: { probability: 40%, correlation: 50%, gap: 3 }, loss: 10%, gap: 2us",
    "loss: { random: 10%, gilbert_elliott: { p: 2%, r: 30% }, nth: [1, 2, 7, 8, 1999], ecn: true }, duplicate: 5%, corrupt: 5%",
    "loss: { random: 20%, correlation: 60%, ecn: true }, latency: 1ms, jitter: { scale: 100us, correlation: 80% }, gap: 1us",
    "queue: { kind: step, threshold: 1s }, loss: { random: 10%, ecn: true }, latency: 5ms, gap: 2us",
    "loss: { random: 10%, ecn: true }, gap: 2us; loss: 1%",
    // The other ways to a fate.
    "scope: flow, loss: { random: 20%, ecn: true }, latency: 5ms, gap: 2us",
    "scope: flow, loss: { random: 20%, correlation: 60%, ecn: true }, jitter: { scale: 1ms, time_constant: 1ms }, latency: 5ms, gap: 2us",
    "queue: { kind: step, threshold: 1s }, loss: { random: 20%, correlation: 60% }, latency: 5ms, jitter: { scale: 1ms, correlation: 80% }, gap: 2us",
    "loss: { random: 20%, correlation: 60% }, latency: 5ms, jitter: { scale: 1ms, time_constant: 1ms }, gap: 2us; loss: 1%",
];

#[test]
fn fates_are_those_of_the_seed() {
    for pacer in [Pacer::Fq, Pacer::User] {
        // The room for instances is made at the start.
        let instances = FATES.into_iter().find(|keys| keys.contains("scope")).unwrap();
        let Some(mut rig) = Rig::new(&profile(1, instances), pacer) else {
            return;
        };
        for keys in FATES {
            rig.load(&profile(7, keys));
            rig.forget_states();
            let config = rig.tables.servers[1];
            let mut reference = Reference::default();
            let marks = rig.counters(1).servers[1].loss_marks;
            let mut kinds = [0; 5];
            let mut frame = frame();
            for number in 0..PACKETS {
                // A checksum that a flipped bit must not repair.
                frame[50] = frame[50].wrapping_add(1);
                if keys.contains("ecn") {
                    set_ecn(&mut frame, (number % 4) as u8);
                }
                let before = drops_and_copies(&rig);
                let ran = rig.send(Direction::Egress, &frame, Context::default());
                let arrival = Instant(rig.state("clock").free);
                let fate = reference.cross(&config, &rig.tables, arrival, &frame);
                assert_eq!(
                    observed(&rig, &ran, &frame, &before),
                    fate,
                    "{keys}, packet {}",
                    reference.index
                );
                match fate {
                    Fate::Dropped(_) => kinds[0] += 1,
                    Fate::Departs {
                        copies,
                        corrupted,
                        marked,
                        ..
                    } => {
                        kinds[4] += u64::from(marked);
                        kinds[1] += 1;
                        kinds[2] += copies - 1;
                        kinds[3] += u64::from(corrupted.is_some());
                    }
                }
            }
            assert!(
                kinds[1] > PACKETS / 2 && kinds[0] + kinds[2] + kinds[3] > 0 || keys.contains("jitter"),
                "{keys}: {kinds:?}"
            );
            // A quarter of the packets are not ECN-capable.
            let spares = keys.contains("ecn");
            assert_eq!(kinds[4] > kinds[0] && kinds[0] > 20, spares, "{keys}: {kinds:?}");
            assert_eq!(rig.counters(1).servers[1].loss_marks - marks, kinds[4], "{keys}");
        }
    }
}

/// Packets that come late, and earlier than the one before; and changes of the profile, of which what was remembered stays.
#[test]
fn fates_remember_through_pauses_and_changes() {
    const STEPS: [(&str, u64); 5] = [
        (
            "latency: 5ms, jitter: { distribution: normal, stddev: 1ms, time_constant: 20ms, reorder: true }, loss: { random: 30%, correlation: 80% }",
            300,
        ),
        (
            "latency: 5ms, loss: { gilbert_elliott: { p: 0.01%, r: 1% } }",
            100,
        ),
        (
            "latency: 5ms, loss: { state: { p13: 50%, p31: 10%, p32: 80%, p23: 10% } }",
            100,
        ),
        (
            "latency: 5ms, loss: { random: 100%, correlation: 99.9%, gilbert_elliott: { p: 0.01%, r: 1% } }",
            100,
        ),
        (
            "latency: 5ms, loss: { random: 50%, correlation: 90% }, reorder: { probability: 50%, correlation: 90% }",
            200,
        ),
    ];
    for pacer in [Pacer::Fq, Pacer::User] {
        let Some(mut rig) = Rig::new(&profile(1, STEPS[0].0), pacer) else {
            return;
        };
        rig.forget_states();
        let mut reference = Reference::default();
        let (mut sent, mut latest) = (0, 0);
        for (keys, packets) in STEPS {
            rig.load(&profile(7, keys));
            let config = rig.tables.servers[1];
            let mut lost = 0;
            for number in 0..packets {
                // Half a second ahead of the clock or more: 100 us apart, every third one 250 us early, and 270 ms behind 150 of them.
                sent += 1;
                let pause = if sent % 150 == 0 { 270_000_000 } else { 100_000 };
                latest = (latest + pause).max(perturb_clock::now() + 500_000_000);
                let early = if number % 3 == 2 { 250_000 } else { 0 };
                let free = (latest - early) * TICK;
                rig.set_state(
                    "clock",
                    ServerState {
                        free,
                        ..ServerState::default()
                    },
                );
                let before = drops_and_copies(&rig);
                let ran = rig.send(Direction::Egress, &frame(), Context::default());
                let arrival = Instant(rig.state("clock").free);
                let fate = reference.cross(&config, &rig.tables, arrival, &frame());
                assert_eq!(
                    observed(&rig, &ran, &frame(), &before),
                    fate,
                    "{keys}, packet {number}"
                );
                lost += u64::from(matches!(fate, Fate::Dropped(_)));
            }
            match config.loss {
                Chance::ALWAYS => assert_eq!(lost, packets),
                // Nobody asked for a burst: one begins once in ten thousand packets.
                Chance::NEVER if config.flags & SERVER_BURST != 0 => assert_eq!(lost, 0, "{keys}"),
                _ => assert!(lost > 0, "{keys}"),
            }
        }
    }
}

/// Indices of the packets that are lost.
fn losses(rig: &mut Rig, seed: u64) -> Vec<u64> {
    rig.load(&profile(seed, "loss: 1%"));
    rig.forget_states();
    (0..PACKETS)
        .filter(|_| {
            rig.send(Direction::Egress, &frame(), Context::default())
                .context
                .tstamp
                == 0
        })
        .collect()
}

#[test]
fn same_seed_same_losses() {
    let Some(mut rig) = Rig::new(&profile(1, FATES[0]), Pacer::Fq) else {
        return;
    };
    let first = losses(&mut rig, 5);
    assert_eq!(first, losses(&mut rig, 5));
    assert_ne!(first, losses(&mut rig, 6));
    // 1 % of 2000: binomial, 99.99 % of the time within 4 standard deviations of 20.
    assert!((3..=38).contains(&first.len()), "{} lost", first.len());
}

#[test]
fn duplicates_leave_twice() {
    let Some(mut rig) = Rig::new(&profile(1, "duplicate: 100%"), Pacer::Fq) else {
        return;
    };
    rig.sink.drain();
    for packet in 1..=20 {
        rig.send(Direction::Egress, &frame(), Context::default());
        assert_eq!(rig.sink.next().unwrap(), frame());
        assert_eq!(rig.sink.next().unwrap(), frame());
        assert_eq!(rig.event(Event::Duplicated), packet);
    }
    assert_eq!(rig.sink.try_next(), None);
}

/// Above a backlog ECN-capable packets are marked; the checksum of IPv4 follows.
#[test]
fn backlog_marks_congestion() {
    let Some(mut rig) = Rig::new(&profile(1, "bandwidth: 1Mbit/s, ecn: 10ms"), Pacer::Fq) else {
        return;
    };
    let v4 = |tos| {
        V4 {
            tos,
            ..V4::new([10, 0, 0, 1], [10, 0, 0, 2], TCP, tcp(7, 9, 200))
        }
        .frame()
    };
    let v6 = |class| {
        V6 {
            class,
            ..V6::new([1; 8], [2; 8], TCP, tcp(7, 9, 200))
        }
        .frame()
    };
    // 1.9 ms each: the first six wait for 9.4 ms at most.
    for packet in 0..12u64 {
        let sent = v4(2);
        let data = rig.send(Direction::Egress, &sent, Context::default()).data;
        assert_eq!(data[15], if packet < 6 { 2 } else { 3 }, "packet {packet}");
        assert_eq!(checksum(&data[14..34]), 0);
        assert_eq!(data[34..], sent[34..]);
    }
    assert_eq!(
        (rig.event(Event::Marked), rig.event(Event::NotEcnCapable)),
        (6, 0)
    );
    let data = rig
        .send(Direction::Ingress, &v6(46 << 2 | 1), Context::default())
        .data;
    assert_eq!([data[14], data[15]], [0x60 | 46 >> 2, (46 << 2 | 3) << 4]);
    assert_eq!(rig.event(Event::Marked), 7);
    // Who does not understand the mark does not get it.
    let sent = v4(0);
    assert_eq!(rig.send(Direction::Egress, &sent, Context::default()).data, sent);
    assert_eq!(
        (rig.event(Event::Marked), rig.event(Event::NotEcnCapable)),
        (7, 1)
    );
}

/// Jitter that may not reorder never lets a packet leave before an earlier one, and the smallest
/// departure is the end of the service.
#[test]
fn jitter_keeps_order_unless_told_otherwise() {
    let Some(mut rig) = Rig::new(&profile(1, FATES[0]), Pacer::Fq) else {
        return;
    };
    for (reorder, keys) in [(false, ""), (true, ", reorder: true")] {
        rig.load(&profile(
            3,
            &format!("latency: 1ms, jitter: {{ distribution: normal, stddev: 2ms{keys} }}"),
        ));
        rig.forget_states();
        let mut overtakes = 0;
        let mut last = 0;
        for _ in 0..500 {
            let stamp = rig
                .send(Direction::Egress, &frame(), Context::default())
                .context
                .tstamp;
            let arrival = rig.state("clock").free.div_ceil(TICK);
            assert!(stamp >= arrival);
            overtakes += u32::from(stamp < last);
            last = stamp;
        }
        assert_eq!(overtakes > 0, reorder, "{overtakes} of 500 overtook");
    }
}
