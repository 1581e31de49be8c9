//! Properties of the prediction on random message-passing programs.

use proptest::prelude::*;

use super::bus::{Collisions, Scope};
use super::input::BusScenario;
use super::placement::ProcessName;
use super::table::Table;
use super::*;

/// A program that cannot deadlock: messages are created in one order, and every process receives after
/// what it has sent before in that order.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) processes: u32,
    pub(super) events: Vec<Event>,
}

pub(super) fn message(number: usize) -> MessageId {
    MessageId::of_number(number as u64)
}

/// Steps of (from, to, cpu of the sender, cpu of the receiver, bytes); CPU times are multiples of 1/4, so
/// that sums are exact.
pub(super) fn program(processes: u32) -> impl Strategy<Value = Program> {
    let step = (
        0..processes,
        0..processes,
        0_u32..40,
        0_u32..40,
        0_u32..5000,
        any::<u64>(),
    );
    proptest::collection::vec(step, 1..40).prop_map(move |steps| {
        let mut streams = vec![Vec::new(); processes as usize];
        for (number, (from, to, cpu_from, cpu_to, bytes, _)) in steps.iter().copied().enumerate() {
            let quarter = |cpu: u32| f64::from(cpu) / 4.0;
            let mut add =
                |process: u32, cpu, kind| streams[process as usize].push((number, process, cpu, kind));
            if from == to {
                add(from, quarter(cpu_from), Kind::Compute);
            } else {
                let bytes = f64::from(bytes);
                add(
                    from,
                    quarter(cpu_from),
                    Kind::Send {
                        message: message(number),
                        bytes,
                        to: None,
                    },
                );
                add(to, quarter(cpu_to), Kind::StartRecv { message: None });
                add(
                    to,
                    quarter(cpu_from % 3),
                    Kind::EndRecv {
                        message: message(number),
                    },
                );
            }
        }
        // Interleave the streams in a random order that keeps each of them.
        let mut order: Vec<usize> = (0..streams.len())
            .flat_map(|s| vec![s; streams[s].len()])
            .collect();
        for index in (1..order.len()).rev() {
            let draw = steps[index % steps.len()].5.wrapping_mul(index as u64 + 1) >> 7;
            order.swap(index, draw as usize % (index + 1));
        }
        let mut next = vec![0; streams.len()];
        let events = order
            .iter()
            .enumerate()
            .map(|(line, &stream)| {
                let (_, process, cpu, kind) = streams[stream][next[stream]];
                next[stream] += 1;
                Event {
                    process,
                    cpu,
                    kind,
                    line: line as u64 + 1,
                }
            })
            .collect();
        Program { processes, events }
    })
}

pub(super) fn scenario(groups: &[u32], remote: f64, per_byte: f64) -> Scenario {
    let count = groups.iter().max().unwrap() + 1;
    let members = (0..count).map(|group| {
        let names = (0..groups.len()).filter(|process| groups[*process] == group);
        (
            1.0,
            names.map(|process| ProcessName::Number(process as u64)).collect(),
        )
    });
    // Indices follow the groups' order, so map back to the program's numbers by `moved`.
    let named = Placement::new(members.collect::<Vec<_>>()).unwrap();
    let identity =
        Placement::new([(1.0, (0..groups.len() as u64).map(ProcessName::Number).collect())]).unwrap();
    let placement = identity.moved(groups.to_vec(), named.speeds().to_vec());
    let points = |base: f64| {
        let point = |size: f64, time: f64| table::Point {
            size: perturb_quantity::ByteSize(size),
            time: perturb_quantity::Micros(time),
        };
        Table::new(
            "test",
            &[point(0.0, base), point(1024.0, base + 1024.0 * per_byte)],
        )
        .unwrap()
    };
    Scenario {
        placement,
        local: Some(points(remote / 4.0)),
        remote: Some(points(remote)),
        bus: None,
        overhead: None,
        scheduler: None,
    }
}

pub(super) fn run(program: &Program, scenario: &Scenario) -> (Prediction, Vec<Report>, Counters) {
    let mut predictor = Predictor::new(scenario);
    let mut reports = Vec::new();
    for event in &program.events {
        predictor.push(*event).unwrap();
        while let Some(report) = predictor.advance() {
            reports.push(report);
        }
    }
    predictor.end_of_events();
    while let Some(report) = predictor.advance() {
        reports.push(report);
    }
    (predictor.finish().unwrap(), reports, predictor.counters())
}

/// The longest path through the program, processes never sharing: relaxed until nothing changes.
fn critical_path(program: &Program, scenario: &Scenario) -> f64 {
    let mut arrivals = std::collections::HashMap::new();
    loop {
        let mut clocks = vec![0.0_f64; program.processes as usize];
        let before = arrivals.clone();
        for process in 0..program.processes {
            for event in program.events.iter().filter(|event| event.process == process) {
                let clock = &mut clocks[process as usize];
                match event.kind {
                    Kind::EndRecv { message } => {
                        *clock = clock.max(arrivals.get(&message).copied().unwrap_or(0.0)) + event.cpu;
                    }
                    Kind::Send { message, bytes, .. } => {
                        *clock += event.cpu;
                        arrivals.insert(message, *clock + scenario.remote.as_ref().unwrap().time(bytes));
                    }
                    _ => *clock += event.cpu,
                }
            }
        }
        if arrivals == before {
            return clocks.into_iter().fold(0.0, f64::max);
        }
    }
}

pub(super) fn grouping() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(0_u32..3, 5).prop_map(|mut groups| {
        groups[0] = 0;
        // Every group up to the largest has a member.
        let mut used: Vec<u32> = groups.clone();
        used.sort_unstable();
        used.dedup();
        groups
            .iter()
            .map(|group| used.iter().position(|known| known == group).unwrap() as u32)
            .collect()
    })
}

proptest! {
    #[test]
    fn one_process_per_processor_is_the_critical_path(program in program(5), latency in 0_u32..100) {
        let scenario = scenario(&[0, 1, 2, 3, 4], f64::from(latency), 0.25);
        let (found, _, counters) = run(&program, &scenario);
        let path = critical_path(&program, &scenario);
        prop_assert!((found.program_time - path).abs() <= 1e-9 * path.max(1.0), "{} {path}", found.program_time);
        prop_assert_eq!(counters.held, 0);
        prop_assert_eq!(counters.reported, program.events.len() as u64);
    }

    #[test]
    fn one_processor_without_latency_is_the_sum(program in program(4)) {
        let scenario = scenario(&[0, 0, 0, 0], 0.0, 0.0);
        let (found, ..) = run(&program, &scenario);
        let total: f64 = program.events.iter().map(|event| event.cpu).sum();
        prop_assert!((found.program_time - total).abs() <= 1e-9 * total.max(1.0));
    }

    #[test]
    fn more_latency_never_predicts_less_time(program in program(5), base in 0_u32..50, more in 1_u32..50) {
        let at = |latency: u32| run(&program, &scenario(&[0, 1, 2, 3, 4], f64::from(latency), 0.01)).0.program_time;
        prop_assert!(at(base + more) >= at(base));
    }

    #[test]
    fn a_prediction_lies_between_its_bounds(program in program(5), groups in grouping(), latency in 0_u32..50) {
        let scenario = scenario(&groups, f64::from(latency), 0.01);
        let (found, reports, _) = run(&program, &scenario);
        let mut busy = vec![0.0; scenario.placement.speeds().len()];
        let mut all = 0.0;
        for event in &program.events {
            busy[groups[event.process as usize] as usize] += event.cpu;
            all += event.cpu;
            if let Kind::Send { bytes, .. } = event.kind {
                all += scenario.remote.as_ref().unwrap().time(bytes);
            }
        }
        for (clock, busy) in found.group_time.iter().zip(busy) {
            prop_assert!(*clock >= busy - 1e-6);
        }
        prop_assert!(found.program_time <= all + 1e-6);
        // Time never runs backwards, and no message arrives before it was sent.
        prop_assert!(reports.windows(2).all(|pair| pair[1].time >= pair[0].time - 1e-9));
        let mut sent = std::collections::HashMap::new();
        for report in &reports {
            match report.event.kind {
                Kind::Send { message, .. } => { sent.insert(message, report.time); }
                Kind::EndRecv { message } => prop_assert!(report.time >= sent[&message]),
                _ => {}
            }
        }
    }

    #[test]
    fn the_order_of_arrival_changes_nothing(program in program(4), groups in proptest::collection::vec(0_u32..2, 4), bus in any::<bool>()) {
        prop_assume!(groups.contains(&0) && groups.contains(&1));
        let mut scenario = scenario(&groups, 3.0, 0.01);
        scenario.bus = bus.then_some(BusScenario { bandwidth: Some(2e6), scope: Scope::Shared, collisions: None });
        let (found, ..) = run(&program, &scenario);
        let mut sorted = program.clone();
        sorted.events.sort_by_key(|event| event.process);
        let (other, ..) = run(&sorted, &scenario);
        prop_assert_eq!(found, other);
    }

    #[test]
    fn to_say_what_is_awaited_changes_nothing(program in program(5), groups in grouping(), bus in any::<bool>()) {
        let mut scenario = scenario(&groups, 3.0, 0.01);
        scenario.bus = bus.then_some(BusScenario { bandwidth: Some(2e6), scope: Scope::Shared, collisions: None });
        let mut told = program.clone();
        for place in 0..told.events.len() {
            let (process, later) = (told.events[place].process, &program.events[place + 1..]);
            if let Kind::StartRecv { message } = &mut told.events[place].kind {
                *message = later.iter().find(|event| event.process == process).and_then(|event| match event.kind {
                    Kind::EndRecv { message } => Some(message),
                    _ => None,
                });
            }
        }
        let order = |reports: &[Report]| reports.iter().map(|report| (report.event.line, report.time)).collect::<Vec<_>>();
        let ((found, reports, counters), (other, others, more)) = (run(&program, &scenario), run(&told, &scenario));
        prop_assert_eq!((found, order(&reports), counters.reported), (other, order(&others), more.reported));
        prop_assert!(more.held == 0 && more.in_flight == 0 && more.most_held <= counters.most_held);
    }

    #[test]
    fn a_bus_without_limit_is_no_bus(program in program(5), groups in grouping(), latency in 0_u32..50) {
        let mut scenario = scenario(&groups, f64::from(latency), 0.01);
        let (without, ..) = run(&program, &scenario);
        scenario.bus = Some(BusScenario { bandwidth: None, scope: Scope::Shared, collisions: None });
        let (with, ..) = run(&program, &scenario);
        prop_assert_eq!(without, with);
    }

    #[test]
    fn links_help_over_a_bus_and_never_over_none(program in program(4)) {
        let mut scenario = scenario(&[0, 1, 2, 3], 1.0, 0.0);
        let (without, ..) = run(&program, &scenario);
        let with = |scope| BusScenario { bandwidth: Some(1e6), scope, collisions: None };
        scenario.bus = Some(with(Scope::Host));
        let (links, ..) = run(&program, &scenario);
        prop_assert!(links.program_time >= without.program_time - 1e-6);
        scenario.bus = Some(with(Scope::Shared));
        let (bus, ..) = run(&program, &scenario);
        prop_assert!(bus.program_time >= links.program_time - 1e-6);
    }

    #[test]
    fn a_slower_bus_or_collisions_never_help_one_process_per_processor(program in program(4)) {
        // In the order in which sends are reported a single sender's bus is FIFO; with one sender and one
        // receiver per message the arrival times only grow.
        let mut scenario = scenario(&[0, 1, 2, 3], 1.0, 0.0);
        let (without, ..) = run(&program, &scenario);
        scenario.bus = Some(BusScenario { bandwidth: Some(1e6), scope: Scope::Shared, collisions: None });
        let (with, ..) = run(&program, &scenario);
        prop_assert!(with.program_time >= without.program_time - 1e-6);
        let collisions = Some(Collisions::new(5.0, 16, 3));
        scenario.bus = Some(BusScenario { bandwidth: Some(1e6), scope: Scope::Shared, collisions });
        let (colliding, ..) = run(&program, &scenario);
        prop_assert!(colliding.program_time >= without.program_time - 1e-6);
        prop_assert_eq!(run(&program, &scenario).0, colliding);
    }

    #[test]
    fn twice_the_speed_is_half_the_time_without_latency(program in program(4)) {
        let mut scenario = scenario(&[0, 0, 1, 1], 0.0, 0.0);
        let (slow, ..) = run(&program, &scenario);
        scenario.placement = scenario.placement.moved(vec![0, 0, 1, 1], vec![2.0, 2.0]);
        let (fast, ..) = run(&program, &scenario);
        prop_assert!((slow.program_time - 2.0 * fast.program_time).abs() <= 1e-9 * slow.program_time.max(1.0));
    }
}
