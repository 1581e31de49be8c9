//! Servers whose queue has a law: what the programs do to packets equals `perturb_common`'s recursion and law folded in Rust over the
//! same tables, packet for packet. What the law says beside RFC 8289's pseudocode and RFC 8033's is in `ebpf-prog/common/tests/queue`.

use std::{
    thread,
    time::{self, Duration},
};

use crate::{
    support::{
        Context, REDIRECT, Rig,
        choices::Choices,
        oracle::DIRECTIONS,
        packet::{UDP, V4, V6, udp},
    },
    timeline::laid,
};
use perturb_clock::now;
use perturb_common::{
    abi::{Event, ServerConfig, ServerState, Sojourns, histogram::bucket},
    departure::{Load, Outcome, departure},
    fate::Chance,
    queue::{CODEL, Head, PIE, STEP, State, Verdict, catch_up, judge, spacing},
    timeline::{End, Gate, Hints, Laid, Rate, Room, Segment, Start, Step, Timeline},
    units::{GapPerByte, Instant, MonoNanos, Nanos, Ticks},
};
use perturb_dataplane::programs::Pacer;

/// The first server says when a packet arrived: it is occupied for a nanosecond.
pub(crate) fn profile(name: &str, keys: &str) -> String {
    format!(
        "version: 1\nservers:\n  clock: {{ gap: 1ns }}\n  {name}: {{ {keys} }}\n\
         classes:\n  - {{ name: all, match: {{}}, egress: [clock, {name}], ingress: [clock, {name}] }}\n"
    )
}

/// Times are multiples of `scale`, and the bandwidth a share, so that a queue builds on a slow machine, too.
fn random_keys(choices: &mut Choices, scale: u64) -> String {
    let flag = |choices: &mut Choices| choices.below(2) == 0;
    let us = |choices: &mut Choices, most| scale * (1 + choices.below(most));
    let law = if choices.below(4) == 0 {
        // More than a packet takes.
        let min = 100 * scale + us(choices, 200);
        format!(
            "kind: red, min: {min}us, max: {}us, probability: {}%, ecn: {}, adaptive: {}",
            min + us(choices, 400),
            1 + choices.below(50),
            flag(choices),
            flag(choices)
        )
    } else if choices.below(3) == 0 {
        // Updates are at least 1 ms apart.
        format!(
            "kind: pie, target: {}us, t_update: {}us, max_burst: {}us, ecn: {}, mark_ecnth: {}%, derandomize: {}",
            us(choices, 300),
            1000 + choices.below(500),
            choices.below(3) * scale * 1000,
            flag(choices),
            choices.below(100),
            flag(choices)
        )
    } else if choices.below(4) == 0 {
        format!(
            "kind: step, threshold: {}us, l4s: {}",
            us(choices, 400),
            flag(choices)
        )
    } else {
        let threshold = match choices.below(3) {
            0 => format!(", ce_threshold: {}us", us(choices, 2000)),
            1 => format!(", ce_threshold: {}B", 1 + choices.below(30_000)),
            _ => String::new(),
        };
        format!(
            "kind: codel, target: {}us, interval: {}us, ecn: {}{threshold}",
            us(choices, 300),
            us(choices, 1000),
            flag(choices)
        )
    };
    let room = match choices.below(4) {
        0 => format!(", buffer: {}us", scale * (500 + choices.below(3000))),
        1 => format!(", buffer: {} packets", 5 + choices.below(40)),
        _ => String::new(),
    };
    format!(
        "bandwidth: {}kbit/s, latency: {}us{room}, queue: {{ {law} }}",
        (100_000 + choices.below(400_000)) / scale,
        choices.below(3000)
    )
}

/// The server in Rust.
#[derive(Default)]
struct Reference {
    free: Instant,
    state: State,
    /// If it changes.
    changes: Option<(Laid, Hints)>,
    /// When those that were admitted have been transmitted.
    admitted: Vec<Instant>,
    seen: [u64; 4],
    tail: u64,
    /// Of those that it let pass, by how long they waited.
    waits: Sojourns,
}

/// Changes the rate of this server, its own first; sometimes it is stopped, or down.
fn random_changes(choices: &mut Choices, config: &ServerConfig, scale: u64) -> Timeline {
    let own = config.server.per_byte.0;
    let mut at = 0;
    let segments = (0..2 + choices.below(20)).map(|index| {
        let begins = Ticks(at);
        at += Nanos(1000 * (1 + scale * choices.below(2000))).ticks().0;
        Segment {
            at: begins,
            gap: config.server.gap,
            rate: match choices.below(8) {
                0 if index != 0 => Rate::Stopped,
                _ => Rate::PerByte(GapPerByte(own / 2 + choices.below(2 * own))),
            },
            latency: config.server.latency,
            room: match config.server.buffer {
                Ticks::MAX => Room::Unlimited,
                time => Room::Wait(time),
            },
            loss: Chance::NEVER,
            jitter_scale: 0,
            gate: if choices.below(20) == 0 {
                Gate::Drop
            } else {
                Gate::Open
            },
        }
    });
    let segments = segments.collect();
    Timeline {
        start: Start::Apply,
        segments,
        end: End::Loop(Ticks(at)),
    }
}

/// What becomes of a packet: its departure, and whether it is marked; or `None`.
type Fate = Option<(MonoNanos, bool)>;

impl Reference {
    fn fold(&mut self, config: &ServerConfig, arrival: Instant, load: Load, ecn: u32) -> Fate {
        let (next, marked) = self.serve(config, arrival, load, ecn)?;
        Some((next.ceil_nanos(), marked))
    }

    /// The same, to the tick.
    fn serve(
        &mut self,
        config: &ServerConfig,
        arrival: Instant,
        load: Load,
        ecn: u32,
    ) -> Option<(Instant, bool)> {
        let there = self.admitted.iter().filter(|&&left| left > arrival).count();
        if config.ring_len != 0 && there >= config.ring_len as usize {
            self.tail += 1;
            return None;
        }
        let own = config.law.small_takes(config.server.gap, config.server.per_byte);
        catch_up(&config.law, &mut self.state, self.free, arrival, own);
        let (outcome, small) = match &mut self.changes {
            None => (departure(&config.server, self.free, arrival, load), own),
            Some((laid, hints)) => {
                let step = Step::new(laid.course, config.server.horizon, arrival, load, *hints);
                let outcome = step.outcome(&*laid, self.free).unwrap();
                *hints = step.hints.get();
                (outcome, step.small_takes(&*laid, &config.law).unwrap_or(own))
            }
        };
        let service = match outcome {
            Outcome::Served(service) => service,
            Outcome::Down => return None,
            _ => {
                self.tail += 1;
                return None;
            }
        };
        let head = Head {
            start: arrival.after(service.backlog),
            sojourn: service.backlog,
            idle: arrival.since(self.free),
            small,
            ecn,
            salt: config.salt,
        };
        let verdict = judge(&config.law, &mut self.state, head, spacing);
        self.seen[verdict as usize] += 1;
        if verdict == Verdict::Drop {
            return None;
        }
        self.waits.packets[bucket(service.backlog.nanos().0) as usize] += 1;
        self.free = service.free;
        self.admitted.push(service.free);
        Some((service.next, verdict != Verdict::Pass))
    }
}

pub(crate) fn frame(version: u64, ecn: u32, len: usize) -> Vec<u8> {
    let class = 46 << 2 | ecn as u8;
    if version == 4 {
        V4 {
            tos: class,
            ..V4::new([10, 0, 0, 1], [10, 0, 0, 2], UDP, udp(7, 9, len - 34))
        }
        .frame()
    } else {
        V6 {
            class,
            ..V6::new([1; 8], [2; 8], UDP, udp(7, 9, len - 54))
        }
        .frame()
    }
}

fn ecn_of(frame: &[u8]) -> u32 {
    u32::from(if frame[14] >> 4 == 4 {
        frame[15] & 3
    } else {
        frame[15] >> 4 & 3
    })
}

/// How many times 20 us a packet takes here, from one run of the programs to the next: 1 or more.
pub(crate) fn slowness(rig: &mut Rig) -> u64 {
    const PACKETS: u32 = 100;
    let began = time::Instant::now();
    for _ in 0..PACKETS {
        rig.send(DIRECTIONS[0], &frame(4, 0, 800), Context::default());
    }
    let each = began.elapsed() / PACKETS;
    (each.as_micros() as u64).div_ceil(20).max(1)
}

/// Packets by verdict, of CoDel and step, of PIE, and of RED.
type Seen = [[u64; 4]; 3];

fn often_enough(seen: &Seen) -> bool {
    let [codel, pie, red] = seen;
    let at_least =
        |seen: &[u64; 4], least: [u64; 4]| seen.iter().zip(least).all(|(&seen, least)| seen >= least);
    at_least(codel, [5000, 200, 300, 400])
        && at_least(pie, [1000, 100, 0, 300])
        && at_least(red, [1000, 20, 20, 20])
}

#[test]
fn verdicts_equal_the_law() {
    let mut choices = Choices::new(5);
    let (mut seen, mut changed) = (Seen::default(), 0);
    for pacer in [Pacer::Fq, Pacer::User] {
        let Some(mut rig) = Rig::spacious(&profile("first", "gap: 1ns"), pacer) else {
            return;
        };
        // How a queue builds depends on the machine: it goes on until each verdict was seen often enough.
        for round in 0..400 {
            if round >= 50 && often_enough(&seen) {
                break;
            }
            // Anew in each round: others use the machine, too, and rates are such that packets queue.
            rig.load(&profile("first", "gap: 1ns"));
            let scale = slowness(&mut rig);
            let (name, keys) = (format!("s{round}"), random_keys(&mut choices, scale));
            rig.load(&profile(&name, &keys));
            rig.forget_states();
            let config = rig.tables.servers[1];
            let mut reference = Reference::default();
            if choices.below(3) == 0 {
                let mut tables = rig.tables.clone();
                tables.timelines = vec![random_changes(&mut choices, &config, scale)];
                tables.servers[1].timeline = 0;
                rig.loader.restart_clock();
                rig.load_tables(tables);
                rig.forget_states();
                reference.changes = Some((laid(&rig), Hints::default()));
                changed += 1;
            }
            let mut packets = 300;
            if config.law.kind == PIE && config.server.buffer == Ticks::MAX && config.ring_len == 0 {
                // So long that its probability soon is one.
                packets = 1200;
                reference.free = MonoNanos(now() + choices.below(2_000_000_000)).instant();
                let free = reference.free.0;
                rig.set_state(
                    &name,
                    ServerState {
                        free,
                        ..ServerState::default()
                    },
                );
            }
            for _ in 0..packets {
                if choices.below(100) == 0 {
                    // The queue drains, or nearly.
                    thread::sleep(Duration::from_micros(scale * choices.below(3000)));
                }
                let (direction, ecn) = (*choices.pick(&DIRECTIONS), choices.below(4) as u32);
                let len = 80 + choices.below(1434) as usize;
                let sent = frame(*choices.pick(&[4, 6]), ecn, len);
                let ran = rig.send(direction, &sent, Context::default());
                assert_eq!(ran.action, REDIRECT);
                let arrival = MonoNanos((rig.state("clock").free - 64) / 64 + 1).instant();
                let load = Load {
                    bytes: len as u64,
                    segments: 1,
                };
                match reference.fold(&config, arrival, load, ecn) {
                    Some((departure, marked)) => {
                        assert_eq!(rig.departure(&ran), departure.0, "{keys}");
                        assert_eq!(ecn_of(&ran.data), if marked { 3 } else { ecn }, "{keys}");
                    }
                    // A packet that is dropped bears no stamp.
                    None => assert!(ran.context.tstamp == 0 && ran.data[..2] == [2, 0], "{keys}"),
                }
            }
            let slot = rig.slot(&name);
            let queue = rig.loader.maps().queues.get(&slot, 0).unwrap().0;
            if config.law.kind > STEP {
                assert_eq!((queue.lock, queue.state), (0, reference.state), "{keys}");
            }
            let waits = rig.loader.maps().sojourns.get(&slot, 0).unwrap().0;
            assert_eq!(waits, reference.waits, "{keys}");
            let counters = rig.counters(1).servers[1];
            let [passed, marks, marks_above, drops] = reference.seen;
            assert_eq!(
                [
                    counters.packets,
                    counters.marks,
                    counters.marks_above,
                    counters.early_drops,
                    counters.tail_drops
                ],
                [
                    passed + marks + marks_above,
                    marks,
                    marks_above,
                    drops,
                    reference.tail
                ],
                "{keys}"
            );
            for (all, own) in seen[config.law.kind.saturating_sub(CODEL) as usize]
                .iter_mut()
                .zip(reference.seen)
            {
                *all += own;
            }
        }
        assert_eq!(rig.event(Event::NotEcnCapable), 0);
    }
    eprintln!("passed, marked, marked above the threshold, dropped; by pie, by red: {seen:?}");
    assert!(changed > 20 && often_enough(&seen));
}

/// Adaptive RED moves max_p by the clock, while its queue is full and while it is empty.
#[test]
fn max_p_moves_by_the_clock() {
    let mut choices = Choices::new(6);
    // Of 8 Mbit/s a packet of 1 kB takes 1 ms.
    let keys = "bandwidth: 8Mbit/s, queue: { kind: red, min: 5ms, max: 100ms, burst: 30, adaptive: true }";
    let Some(mut rig) = Rig::spacious(&profile("s", keys), Pacer::Fq) else {
        return;
    };
    rig.forget_states();
    let config = rig.tables.servers[1];
    let mut reference = Reference::default();
    let (mut grown, mut fallen, mut last) = (0, 0, 0);
    for round in 0..40 {
        for _ in 0..if round < 20 { 200 } else { 4 } {
            let ran = rig.send(DIRECTIONS[0], &frame(4, 0, 1000), Context::default());
            let arrival = MonoNanos((rig.state("clock").free - 64) / 64 + 1).instant();
            let load = Load {
                bytes: 1000,
                segments: 1,
            };
            match reference.fold(&config, arrival, load, 0) {
                Some((departure, _)) => assert_eq!(rig.departure(&ran), departure.0, "{round}"),
                None => assert_eq!(ran.context.tstamp, 0, "{round}"),
            }
            let slot = rig.slot("s");
            let queue = rig.loader.maps().queues.get(&slot, 0).unwrap().0;
            assert_eq!(queue.state, reference.state, "{round}");
            let max_p = reference.state.red().max_p;
            grown += u32::from(max_p > last && last != 0);
            fallen += u32::from(max_p < last);
            last = max_p;
        }
        thread::sleep(Duration::from_millis(
            20 + choices.below(if round < 20 { 100 } else { 600 }),
        ));
    }
    eprintln!(
        "max_p grew {grown} times and fell {fallen}: {:?}; now {last}",
        reference.seen
    );
    assert!(grown > 0 && fallen > 3);
}

/// Two laws on a path, of which the second sees what the first lets pass, unmarked: a packet is marked when it has crossed both.
#[test]
fn two_laws_on_a_path_judge_one_after_the_other() {
    let Some(mut rig) = Rig::spacious(&profile("first", "gap: 1ns"), Pacer::Fq) else {
        return;
    };
    let scale = slowness(&mut rig);
    let us = |time: u64| format!("{}us", time * scale);
    let codel = format!("kind: codel, target: {}, interval: {}", us(1000), us(2000));
    let red = format!(
        "kind: red, min: {}, max: {}, burst: 9, ecn: true",
        us(2000),
        us(30_000)
    );
    let [fast, slow] =
        [20_000, 15_000].map(|kbit| format!("bandwidth: {}kbit/s, latency: 1ms", kbit / scale));
    rig.load(&format!(
        "version: 1\nservers:\n  clock: {{ gap: 1ns }}\n  a: {{ {fast}, queue: {{ {codel} }} }}\n  \
         b: {{ {slow}, queue: {{ {red} }} }}\n\
         classes:\n  - {{ name: all, match: {{}}, egress: [clock, a, b], ingress: [] }}\n"
    ));
    rig.forget_states();
    let [first, second] = [1, 2].map(|server: usize| rig.tables.servers[server]);
    let [mut a, mut b] = [Reference::default(), Reference::default()];
    for number in 0..3000 {
        let ecn = number % 3;
        let ran = rig.send(DIRECTIONS[0], &frame(4, ecn, 1000), Context::default());
        let arrival = MonoNanos((rig.state("clock").free - 64) / 64 + 1).instant();
        let load = Load {
            bytes: 1000,
            segments: 1,
        };
        let fate = a
            .serve(&first, arrival, load, ecn)
            .and_then(|(next, _)| b.fold(&second, next, load, ecn));
        match fate {
            Some((departure, marked)) => {
                assert_eq!(rig.departure(&ran), departure.0, "{number}");
                assert_eq!(ecn_of(&ran.data), if marked { 3 } else { ecn }, "{number}");
            }
            None => assert_eq!(ran.context.tstamp, 0, "{number}"),
        }
    }
    eprintln!("{:?} and {:?}", a.seen, b.seen);
    assert!(a.seen[Verdict::Drop as usize] > 10 && b.seen[0] > 100);
    assert!(b.seen[1] + b.seen[2] > 10 && b.seen[Verdict::Drop as usize] > 10);
}

/// A new profile that keeps the server keeps what its law remembers; another server's slot is clean.
#[test]
fn a_law_keeps_its_memory_over_an_update() {
    let keys = "bandwidth: 10Mbit/s, queue: { kind: codel, target: 2ms, interval: 1us }";
    let Some(mut rig) = Rig::new(&profile("s", keys), Pacer::Fq) else {
        return;
    };
    let state = |rig: &Rig, server: &str| {
        let slot = rig.slot(server);
        rig.loader.maps().queues.get(&slot, 0).unwrap().0.state
    };
    let count = |mut state: State| state.codel().count;
    for _ in 0..20 {
        rig.send(DIRECTIONS[0], &frame(4, 0, 1000), Context::default());
    }
    let before = state(&rig, "s");
    assert!(count(before) > 2 && rig.event(Event::EarlyDrop) > 2, "{before:?}");
    rig.load(&profile("s", &keys.replace("10Mbit", "11Mbit")));
    assert_eq!(state(&rig, "s"), before);
    // One that was away begins anew, behind a queue that marks without memory, too.
    for between in [
        "bandwidth: 10Mbit/s",
        "bandwidth: 10Mbit/s, queue: { kind: step, threshold: 1ms }",
        "bandwidth: 10Mbit/s, queue: { kind: pie }",
    ] {
        rig.send(DIRECTIONS[0], &frame(4, 0, 1000), Context::default());
        assert_ne!(state(&rig, "s"), State::default());
        rig.load(&profile("s", between));
        rig.load(&profile("s", keys));
        assert_eq!(state(&rig, "s"), State::default());
        for _ in 0..20 {
            rig.send(DIRECTIONS[0], &frame(4, 0, 1000), Context::default());
        }
    }
    let waits = |rig: &Rig, server: &str| {
        let slot = rig.slot(server);
        rig.loader.maps().sojourns.get(&slot, 0).unwrap().0
    };
    assert_ne!(waits(&rig, "s"), Sojourns::default());
    rig.load(&profile("other", keys));
    rig.load(&profile("third", keys));
    assert_eq!(state(&rig, "third"), State::default());
    assert_eq!(waits(&rig, "third"), Sojourns::default());
}
