//! Servers whose packets leave in slots: what the programs do to packets equals `perturb_common`'s recursion and slots folded in Rust
//! over the same tables, packet for packet. What the slots say beside netem's is in `ebpf-prog/common/tests/grants`.

use std::{thread, time::Duration};

use crate::{
    queue::{frame, profile, slowness},
    support::{Context, REDIRECT, Rig, choices::Choices, oracle::DIRECTIONS},
};
use perturb_common::{
    abi::{Event, NONE, ServerConfig},
    departure::{Load, Outcome, departure},
    grants::State,
    tables::Tables,
    units::{Instant, MonoNanos, Nanos},
};
use perturb_dataplane::programs::Pacer;

/// Packets of a server that are lost behind it.
const LOST: &[u64] = &[3, 4, 50, 51, 52, 200];

/// Times are multiples of `scale`, so that packets share slots on a slow machine, too.
fn random_keys(choices: &mut Choices, scale: u64) -> String {
    let us = |choices: &mut Choices, most| scale * (1 + choices.below(most));
    let between = match choices.below(4) {
        0 => format!("min: {}us", us(choices, 400)),
        1 => {
            let min = us(choices, 200);
            format!("min: {min}us, max: {}us", min + us(choices, 400))
        }
        other => format!(
            "distribution: {}, delay: {}us, jitter: {}us",
            ["uniform", "normal", "pareto", "pareto-normal"][(choices.below(2) + 2 * (other - 2)) as usize],
            us(choices, 300),
            us(choices, 200)
        ),
    };
    let packets = match choices.below(3) {
        0 => String::new(),
        _ => format!(", packets: {}", 1 + choices.below(9)),
    };
    let bytes = match choices.below(3) {
        0 => format!(", bytes: {}B", 1 + choices.below(9000)),
        _ => String::new(),
    };
    let room = match choices.below(3) {
        0 => format!(", buffer: {} packets", 2 + choices.below(20)),
        _ => String::new(),
    };
    let rate = match choices.below(3) {
        0 => format!(
            ", bandwidth: {}kbit/s",
            (100_000 + choices.below(400_000)) / scale
        ),
        _ => String::new(),
    };
    let loss = match choices.below(5) {
        0 => format!(", loss: {{ nth: {LOST:?} }}"),
        // Its fates hang together, and all are lost.
        1 => ", loss: { random: 100%, correlation: 50% }".to_owned(),
        _ => String::new(),
    };
    format!(
        "latency: {}us{room}{rate}{loss}, slot: {{ {between}{packets}{bytes} }}",
        choices.below(3000)
    )
}

/// The server in Rust.
#[derive(Default)]
struct Reference {
    free: Instant,
    state: State,
    /// When those that were admitted have left, or will.
    admitted: Vec<Instant>,
    full: u64,
    late: u64,
    lost: u64,
    /// Packets that waited for a slot, and that left with the one ahead.
    waited: u64,
    shared: u64,
}

impl Reference {
    fn fold(
        &mut self,
        config: &ServerConfig,
        tables: &Tables,
        arrival: Instant,
        load: Load,
    ) -> Option<MonoNanos> {
        let there = self.admitted.iter().filter(|&&left| left > arrival).count();
        if config.ring_len != 0 && there >= config.ring_len as usize {
            self.full += 1;
            return None;
        }
        let Outcome::Served(service) = departure(&config.server, self.free, arrival, load) else {
            self.full += 1;
            return None;
        };
        if config.server.per_byte.0 != 0 {
            self.free = service.free;
        }
        let grants = &config.grants;
        let latest = arrival.after(config.server.horizon);
        let (leaves, in_time) = grants.leaves(&mut self.state, service.free, load, latest, |number| {
            let entry = |place: usize| tables.jitter[grants.table as usize].entries[place];
            grants.drawn(config.salt, number, entry)
        });
        if !in_time {
            self.late += 1;
            return None;
        }
        self.waited += u64::from(leaves > service.free);
        self.shared += u64::from(self.admitted.last() == Some(&leaves));
        self.admitted.push(leaves);
        let number = self.admitted.len() as u64;
        if config.loss.0 != 0 || config.flags & perturb_common::abi::SERVER_NTH != 0 && LOST.contains(&number)
        {
            self.lost += 1;
            return None;
        }
        Some(service.next.after(leaves.since(service.free)).ceil_nanos())
    }
}

#[test]
fn packets_leave_in_their_slots() {
    let mut choices = Choices::new(11);
    let [
        mut waited,
        mut shared,
        mut full,
        mut late,
        mut lost,
        mut drawn,
        mut changing,
    ] = [0; 7];
    for pacer in [Pacer::Fq, Pacer::User] {
        let Some(mut rig) = Rig::spacious(&profile("first", "gap: 1ns"), pacer) else {
            return;
        };
        for round in 0..60 {
            // Anew in each round: others use the machine, too.
            rig.load(&profile("first", "gap: 1ns"));
            let scale = slowness(&mut rig);
            let (name, keys) = (format!("s{round}"), random_keys(&mut choices, scale));
            let mut text = profile(&name, &keys);
            if choices.below(3) == 0 {
                // One that changes crosses another way, and has not changed yet.
                text += &format!("timeline: {{ steps: [{{ at: 1h, server: {name}, latency: 9ms }}] }}\n");
                changing += 1;
            }
            rig.load(&text);
            if choices.below(4) == 0 {
                let mut tables = rig.tables.clone();
                tables.servers[1].server.horizon = Nanos(1000 * scale * (100 + choices.below(900))).ticks();
                rig.load_tables(tables);
            }
            rig.forget_states();
            let config = rig.tables.servers[1];
            let tables = rig.tables.clone();
            let mut reference = Reference::default();
            for _ in 0..250 {
                if choices.below(40) == 0 {
                    thread::sleep(Duration::from_micros(scale * choices.below(1500)));
                }
                let len = 80 + choices.below(1434) as usize;
                let sent = frame(*choices.pick(&[4, 6]), 0, len);
                let ran = rig.send(*choices.pick(&DIRECTIONS), &sent, Context::default());
                assert_eq!(ran.action, REDIRECT);
                let arrival = MonoNanos((rig.state("clock").free - 64) / 64 + 1).instant();
                let load = Load {
                    bytes: len as u64,
                    segments: 1,
                };
                match reference.fold(&config, &tables, arrival, load) {
                    Some(departure) => assert_eq!(rig.departure(&ran), departure.0, "{text}"),
                    // A packet that is dropped bears no stamp.
                    None => assert!(ran.context.tstamp == 0 && ran.data[..2] == [2, 0], "{text}"),
                }
            }
            let slot = rig.slot(&name);
            let granted = rig.loader.maps().grants.get(&slot, 0).unwrap().0;
            assert_eq!((granted.lock, granted.state), (0, reference.state), "{text}");
            let counters = rig.counters(1).servers[1];
            assert_eq!(
                [counters.tail_drops, counters.losses],
                [reference.full + reference.late, reference.lost],
                "{text}"
            );
            drawn += u64::from(config.grants.table != NONE);
            waited += reference.waited;
            shared += reference.shared;
            full += reference.full;
            late += reference.late;
            lost += reference.lost;
        }
        assert_eq!(rig.event(Event::Contention), 0);
    }
    eprintln!(
        "{waited} waited, {shared} left with the one ahead, {full} found no room, {late} would have left too late, {lost} were lost"
    );
    assert!(drawn > 60 && changing > 20);
    assert!(waited > 10_000 && shared > 2000 && full > 200 && late > 20 && lost > 1000);
}
