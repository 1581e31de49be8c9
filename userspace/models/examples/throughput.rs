//! Throughput of the streaming models per second of CPU time, as JSON lines: `cargo run --release --example throughput -- [EVENTS]`.
//!
//! * whatif: 1000 processes on 250 processors, in rounds of compute, send to a partner, receive from it;
//!   events per second, and the most ever held (the bound on memory).
//! * whatif from text: the same events read from JSON lines.
//! * locality: 10^7 requests, loops detected, cut naturally and by paths.

use std::time::Instant;

use perturb_models::locality::{Document, Method, Partitioning, Sequence};
use perturb_models::whatif::bus::{Collisions, Scope};
use perturb_models::whatif::input::BusScenario;
use perturb_models::whatif::placement::ProcessName;
use perturb_models::whatif::table::Table;
use perturb_models::whatif::{
    Event, Kind, LineReader, MessageId, Placement, PredictionError, Predictor, Scenario,
};

const PROCESSES: u32 = 1000;
const GROUPS: u32 = 250;
const ROUND: u64 = 4;

fn main() -> Result<(), PredictionError> {
    let events = std::env::args()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(10_000_000);
    for bus in [
        None,
        Some(BusScenario {
            bandwidth: Some(1e12),
            scope: Scope::Shared,
            collisions: None as Option<Collisions>,
        }),
    ] {
        whatif(events, bus)?;
    }
    text(events.min(10_000_000))?;
    locality(10_000_000);
    Ok(())
}

fn scenario(bus: Option<BusScenario>) -> Scenario {
    let share = PROCESSES / GROUPS;
    let groups = (0..GROUPS).map(|group| {
        let members = (0..share).map(|member| ProcessName::Number(u64::from(group * share + member)));
        (1.0, members.collect())
    });
    Scenario {
        placement: Placement::new(groups).unwrap_or_default(),
        local: Some(Table::constant(1.0)),
        remote: Some(Table::constant(20.0)),
        bus,
        overhead: None,
        scheduler: None,
    }
}

/// The `number`-th event: process after process, `ROUND` events each. In round r a process exchanges
/// messages with the one whose number differs in bit r mod 9, so that none runs far ahead.
fn event(number: u64) -> Event {
    let (step, turn) = (number % ROUND, number / ROUND);
    let process = (turn % u64::from(PROCESSES)) as u32;
    let round = turn / u64::from(PROCESSES);
    let partner = process ^ (1 << (round % 9));
    let message = |sender: u32| MessageId::of_number(round * u64::from(PROCESSES) + u64::from(sender));
    let kind = match step {
        _ if partner >= PROCESSES => Kind::Compute,
        0 => Kind::Compute,
        1 => Kind::Send {
            message: message(process),
            bytes: 1024.0,
            to: Some(partner),
        },
        2 => Kind::StartRecv { message: None },
        _ => Kind::EndRecv {
            message: message(partner),
        },
    };
    Event {
        process,
        cpu: f64::from(process % 7 + 1),
        kind,
        line: number + 1,
    }
}

/// CPU time of this thread so far, in seconds, where the kernel tells: a core's throughput must not
/// depend on what else the machine does.
fn cpu_seconds() -> Option<f64> {
    let nanos: f64 = std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()?
        .split(' ')
        .next()?
        .parse()
        .ok()?;
    Some(nanos / 1e9)
}

/// A stopwatch of CPU time, or of wall time where that is unknown.
struct Stopwatch(Instant, Option<f64>);

impl Stopwatch {
    fn start() -> Self {
        Self(Instant::now(), cpu_seconds())
    }

    fn seconds(&self) -> f64 {
        match (self.1, cpu_seconds()) {
            (Some(start), Some(end)) => end - start,
            _ => self.0.elapsed().as_secs_f64(),
        }
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

fn whatif(events: u64, bus: Option<BusScenario>) -> Result<(), PredictionError> {
    let with_bus = bus.is_some();
    let mut predictor = Predictor::new(&scenario(bus));
    let start = Stopwatch::start();
    for number in 0..events {
        predictor.push(event(number))?;
        while predictor.advance().is_some() {}
    }
    predictor.end_of_events();
    while predictor.advance().is_some() {}
    let seconds = start.seconds();
    println!(
        "{{\"bench\": \"whatif\", \"bus\": {with_bus}, \"processes\": {PROCESSES}, \"events\": {events}, \
         \"events_per_s\": {:.0}, \"most_held\": {}, \"peak_kib\": {}, \"program_time_us\": {}}}",
        events as f64 / seconds,
        predictor.counters().most_held,
        resident_kib(),
        predictor.prediction().program_time
    );
    Ok(())
}

fn text(events: u64) -> Result<(), PredictionError> {
    let mut lines = Vec::new();
    for number in 0..events {
        let event = event(number);
        let message = match event.kind {
            Kind::Send { message, .. } => {
                format!(", \"message\": {}, \"bytes\": 1024", message.hash_value() >> 1)
            }
            Kind::EndRecv { message } => format!(", \"message\": {}", message.hash_value() >> 1),
            _ => String::new(),
        };
        let line = format!(
            "{{\"process\": {}, \"type\": \"{}\", \"cpu_us\": {}.5{message}}}\n",
            event.process,
            event.kind.name(),
            event.cpu
        );
        lines.extend_from_slice(line.as_bytes());
    }
    let scenario = scenario(None);
    let mut predictor = Predictor::new(&scenario);
    let mut reader = LineReader::new();
    let start = Stopwatch::start();
    for line in lines.split(|byte| *byte == b'\n') {
        match reader.read(line, &scenario.placement) {
            Ok(Some(event)) => predictor.push(event)?,
            Ok(None) => {}
            Err(error) => eprintln!("{error}"),
        }
        while predictor.advance().is_some() {}
    }
    let seconds = start.seconds();
    println!(
        "{{\"bench\": \"whatif-text\", \"events\": {events}, \"bytes\": {}, \"events_per_s\": {:.0}}}",
        lines.len(),
        events as f64 / seconds
    );
    Ok(())
}

fn locality(requests: u32) {
    // Loops of 50 iterations over 16 paths, 12,500 of them.
    let sequence: Vec<u32> = (0..requests)
        .map(|index| (index / 800 * 7 + index % 16) % 4096)
        .collect();
    let document = Document {
        sequence: Sequence::new(sequence, Vec::new()),
        ..Document::default()
    };
    for method in [
        Method::Single,
        Method::Paths(16),
        Method::Natural,
        Method::Grouped(64),
        Method::Optimal,
    ] {
        let start = Stopwatch::start();
        let Ok(partitioning) = Partitioning::by(method, &document) else {
            continue;
        };
        println!(
            "{{\"bench\": \"locality\", \"method\": \"{method}\", \"requests\": {requests}, \"seconds\": {:.3}, \
             \"partitions\": {}, \"locality\": {:.6}, \"bound\": {}}}",
            start.seconds(),
            partitioning.partitions.len(),
            partitioning.locality().locality,
            partitioning
                .bound
                .filter(|bound| bound.is_finite())
                .map_or("null".to_owned(), |bound| bound.to_string()),
        );
    }
}
