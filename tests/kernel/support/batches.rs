//! Costs of packets: batches of runs of several cases by turns, each of which must have done what its case says.

use std::{fs::OpenOptions, io::Write as _, iter::zip};

use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions};
use perturb_common::{
    abi::{Attachment, Direction, EVENTS, Event},
    network::Network,
    timeline::{Rate, Segment},
    units::{GapPerByte, Nanos},
};
use perturb_dataplane::{
    maps::Sightings,
    programs::{Pacer, Program},
};

use super::{Context, LOOPBACK, PASS, REDIRECT, Rig};

/// Runs in a batch: short enough that most batches are not preempted.
const BATCH: u32 = 256;
/// Runs before it, which bring its data into the caches.
const BEFORE: u32 = 16;
/// No interface has this index.
pub(crate) const NOWHERE: u32 = 0x7fff_ff00;

/// What the programs do with a case's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The idle program's.
    None,
    /// No class has them.
    Pass,
    /// All servers serve them, and they are held.
    Held,
    /// The same, but some are lost.
    Lossy,
}

/// A thing that is measured.
pub(crate) struct Case {
    name: String,
    rig: usize,
    direction: Direction,
    frame: Vec<u8>,
    /// Where packets are held.
    hold: u32,
    pub(crate) fate: Fate,
    /// What a packet is beside its frame.
    pub(crate) context: Context,
    /// What `perturb capture` would read, taken after each batch.
    pub(crate) sightings: Option<Sightings>,
    /// Mean time of a run by batch, ns.
    batches: Vec<f64>,
}

impl Case {
    /// Runs that a packet which is held takes in a batch: with fq the next one finds its tag.
    fn takes(&self, pacer: Pacer) -> u32 {
        let tagged = pacer == Pacer::Fq && matches!(self.fate, Fate::Held | Fate::Lossy);
        if tagged { 2 } else { 1 }
    }

    /// Panics if these runs, which end with `verdict`, were not what the case says.
    fn check(&self, pacer: Pacer, before: &Seen, after: &Seen, verdict: i32) {
        let runs = u64::from(BEFORE + BATCH);
        let grown = |event: Event| after.events[event as usize] - before.events[event as usize];
        let mut events = [0; EVENTS as usize];
        for (sum, (before, after)) in zip(&mut events, zip(before.events, after.events)) {
            *sum = after - before;
        }
        let mut expected = [0; EVENTS as usize];
        let (full, lost) = (grown(Event::Captured), grown(Event::Loss));
        match self.fate {
            Fate::None => {}
            Fate::Pass => expected[Event::Unmatched as usize] = runs,
            Fate::Held | Fate::Lossy => {
                expected[Event::Captured as usize] = full;
                expected[Event::Loss as usize] = lost;
                if self.hold == NOWHERE {
                    expected[Event::HoldFull as usize] = full - lost;
                }
            }
        }
        let name = &self.name;
        assert_eq!(events, expected, "{name}: {full} packets captured in {runs} runs");
        if matches!(self.fate, Fate::None | Fate::Pass) {
            assert_eq!(verdict, PASS, "{name}");
            return;
        }
        if self.fate == Fate::Held {
            assert_eq!((full, lost), (runs / u64::from(self.takes(pacer)), 0), "{name}");
            let last = if pacer == Pacer::Fq { PASS } else { REDIRECT };
            assert_eq!(verdict, last, "{name}");
        } else {
            // What is lost is not tagged: the next run is a packet of its own.
            let tagged = full - lost;
            assert!(
                lost * 20 < full && (runs..=runs + 2).contains(&(full + tagged)),
                "{name}: {lost} of {full} lost in {runs} runs"
            );
        }
        for (before, after) in zip(&before.servers, &after.servers) {
            assert_eq!((after.0 - before.0, after.1 - before.1), (full, 0), "{name}");
        }
    }
}

/// What the counters say at one time.
struct Seen {
    events: [u64; EVENTS as usize],
    /// Packets, and those that found no room.
    servers: Vec<(u64, u64)>,
}

impl Seen {
    fn of(rig: &Rig) -> Self {
        let maps = rig.loader.maps();
        let mut events = [0; EVENTS as usize];
        for (sum, event) in zip(&mut events, 0..) {
            *sum = maps.events.get(&event, 0).unwrap().iter().sum();
        }
        // Of a network's servers only those on the way between two hosts serve.
        let alone = rig.tables.settings.network == Network::default() && rig.tables.paths.len() == 1;
        let names = rig.tables.server_names.iter().filter(|_| alone);
        let servers = names.map(|name| {
            let counters = maps.server_counters.get(&rig.slot(name), 0).unwrap();
            counters
                .iter()
                .map(|cpu| (cpu.0.packets, cpu.0.tail_drops))
                .fold((0, 0), |sum, cpu| (sum.0 + cpu.0, sum.1 + cpu.1))
        });
        let servers = servers.collect();
        Self { events, servers }
    }
}

/// All rigs and cases of a measurement. The first case is the idle program.
#[derive(Default)]
pub(crate) struct Bench {
    pub(crate) rigs: Vec<Rig>,
    pub(crate) cases: Vec<Case>,
}

impl Bench {
    pub(crate) fn rig(&mut self, profile: &str, pacer: Pacer, flows: u32) -> Option<usize> {
        Some(self.add(Rig::with_flows(profile, pacer, flows)?))
    }

    pub(crate) fn add(&mut self, rig: Rig) -> usize {
        self.rigs.push(rig);
        self.rigs.len() - 1
    }

    /// With a server that does the same all the time, in a million steps over and over; packets come some hundred nanoseconds
    /// apart. In the first rig their hints are right; in the second each comes in another step, far from the last one's; in the
    /// third they wait, for other steps than those in which they come.
    pub(crate) fn million_steps(&mut self, profile: &str) -> Option<[usize; 3]> {
        for (step, gap) in [(1_000_000, 1), (10, 1), (1_000_000, 10_000)] {
            let same = Segment {
                gap: Nanos(gap).ticks(),
                rate: Rate::PerByte(GapPerByte::from_bits_per_sec(1_000_000_000_000)),
                ..Segment::IDLE
            };
            let rig = Rig::stepping(profile, Pacer::Fq, Nanos(step).ticks(), |_| same)?;
            self.rigs.push(rig);
        }
        Some([3, 2, 1].map(|before| self.rigs.len() - before))
    }

    /// The program that does nothing: what the others' costs are counted from.
    pub(crate) fn idle(&mut self, rig: usize, frame: Vec<u8>) -> usize {
        let case = self.case("idle", rig, Direction::Egress, frame, NOWHERE);
        self.cases[case].fate = Fate::None;
        case
    }

    /// Packets that are held in a device.
    pub(crate) fn case(
        &mut self,
        name: &str,
        rig: usize,
        direction: Direction,
        frame: Vec<u8>,
        hold: u32,
    ) -> usize {
        self.cases.push(Case {
            name: name.to_owned(),
            rig,
            direction,
            frame,
            hold,
            fate: Fate::Held,
            context: Context::default(),
            sightings: None,
            batches: Vec::new(),
        });
        self.cases.len() - 1
    }

    pub(crate) fn measure(&mut self, rounds: u32) {
        for _ in 0..rounds {
            for case in &mut self.cases {
                let rig = &mut self.rigs[case.rig];
                rig.attach(
                    LOOPBACK,
                    Attachment {
                        target: LOOPBACK,
                        hold: case.hold,
                        split: 0,
                        rank: 0,
                    },
                );
                let before = Seen::of(rig);
                let program = match case.fate {
                    Fate::None => rig.programs.program(Program::Idle).unwrap(),
                    _ => rig.capture(case.direction),
                };
                batch(program, &case.frame, &case.context, BEFORE);
                let (time, verdict) = batch(program, &case.frame, &case.context, BATCH);
                case.batches.push(time);
                if let Some(sightings) = &mut case.sightings {
                    let told = std::iter::from_fn(|| sightings.take()).count() as u32;
                    assert_eq!(told * case.takes(rig.pacer), BEFORE + BATCH, "{}", case.name);
                }
                case.check(rig.pacer, &before, &Seen::of(rig), verdict);
            }
        }
    }

    /// Quartiles of the cost above the idle program, ns.
    pub(crate) fn cost(&self, case: usize) -> [f64; 3] {
        let idle = self.idle_time();
        let case = &self.cases[case];
        let takes = f64::from(case.takes(self.rigs[case.rig].pacer));
        quartiles(&case.batches).map(|value| takes * (value - idle))
    }

    pub(crate) fn median(&self, case: usize) -> f64 {
        self.cost(case)[1]
    }

    /// Of a run of the idle program, ns.
    pub(crate) fn idle_time(&self) -> f64 {
        quartiles(&self.cases[0].batches)[1]
    }

    pub(crate) fn print(&self) {
        println!("idle program: {:.1} ns per run", self.idle_time());
        println!(
            "{:<52} {:>8} {:>8} {:>8}  (ns over it: quartiles)",
            "", "25 %", "50 %", "75 %"
        );
        for (index, case) in self.cases.iter().enumerate().skip(1) {
            let [low, mid, high] = self.cost(index);
            println!("{:<52} {low:>8.1} {mid:>8.1} {high:>8.1}", case.name);
            record(&format!(
                "{{\"case\": \"{}\", \"ns\": [{low:.1}, {mid:.1}, {high:.1}]}}",
                case.name
            ));
        }
    }
}

/// Adds a line to the file of results, if one was asked for.
pub(crate) fn record(line: &str) {
    if let Some(path) = std::env::var_os("PERTURB_COST_JSON") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

/// Mean time of a run in a batch, ns, and the verdict of the last one.
pub(crate) fn batch(program: &SchedClassifier, frame: &[u8], context: &Context, repeat: u32) -> (f64, i32) {
    let options = TestRunOptions {
        data_in: Some(frame),
        ctx_in: Some(context.bytes()),
        repeat,
        ..TestRunOptions::default()
    };
    let result = program.test_run(options).unwrap();
    (
        result.duration.as_nanos() as f64,
        result.return_value.cast_signed(),
    )
}

pub(crate) fn quartiles(values: &[f64]) -> [f64; 3] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| sorted[(sorted.len() - 1) * quarter / 4])
}
