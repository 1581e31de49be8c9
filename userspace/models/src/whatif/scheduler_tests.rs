//! Properties of predictions with a scheduler, on random message-passing programs.

use proptest::prelude::*;

use super::property_tests::{Program, grouping, program, run, scenario};
use super::round_robin::{Scheduler, Wakeup};
use super::*;

fn scheduled(scenario: Scenario, quantum: f64, wakeup: Wakeup) -> Scenario {
    ticking(scenario, quantum, 0.0, wakeup)
}

fn ticking(mut scenario: Scenario, quantum: f64, tick: f64, wakeup: Wakeup) -> Scenario {
    scenario.scheduler = Some(Scheduler {
        quantum,
        tick,
        wakeup,
    });
    scenario
}

fn wakeup() -> impl Strategy<Value = Wakeup> {
    any::<bool>().prop_map(|preempts| if preempts { Wakeup::Preempt } else { Wakeup::Queue })
}

/// The same events, one process after the other.
fn by_process(program: &Program) -> Program {
    let mut sorted = program.clone();
    sorted.events.sort_by_key(|event| event.process);
    sorted
}

proptest! {
    #[test]
    fn one_process_per_processor_has_no_use_for_it(program in program(5), latency in 0_u32..100, wakeup in wakeup()) {
        let shared = scenario(&[0, 1, 2, 3, 4], f64::from(latency), 0.25);
        let (without, ..) = run(&program, &shared);
        let (with, ..) = run(&program, &scheduled(shared, 4.0, wakeup));
        prop_assert!((with.program_time - without.program_time).abs() <= 1e-9 * without.program_time.max(1.0));
    }

    #[test]
    fn a_processor_never_idles_while_somebody_can_run(program in program(4), quantum in 1_u32..50, tick in 0_u32..20, wakeup in wakeup()) {
        let scenario = ticking(scenario(&[0, 0, 0, 0], 0.0, 0.0), f64::from(quantum) / 4.0, f64::from(tick), wakeup);
        let (found, ..) = run(&program, &scenario);
        let total: f64 = program.events.iter().map(|event| event.cpu).sum();
        prop_assert!((found.program_time - total).abs() <= 1e-9 * total.max(1.0), "{} {total}", found.program_time);
    }

    #[test]
    fn bounds_and_order_hold(program in program(5), groups in grouping(), latency in 0_u32..50, quantum in 1_u32..50, tick in 0_u32..20, wakeup in wakeup()) {
        let scenario = ticking(scenario(&groups, f64::from(latency), 0.01), f64::from(quantum) / 4.0, f64::from(tick), wakeup);
        let (found, reports, counters) = run(&program, &scenario);
        prop_assert_eq!((counters.held, counters.in_flight), (0, 0));
        let mut busy = vec![0.0; scenario.placement.speeds().len()];
        for event in &program.events {
            busy[groups[event.process as usize] as usize] += event.cpu;
        }
        for (clock, busy) in found.group_time.iter().zip(busy) {
            prop_assert!(*clock >= busy - 1e-6);
        }
        prop_assert!(reports.windows(2).all(|pair| pair[1].time >= pair[0].time - 1e-9));
        // What the events' order between processes is changes nothing.
        let (other, ..) = run(&by_process(&program), &scenario);
        prop_assert_eq!(found, other);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn shorter_and_shorter_quanta_are_equal_shares(program in program(5), groups in grouping(), latency in 0_u32..50, wakeup in wakeup()) {
        let shared = scenario(&groups, f64::from(latency), 0.01);
        let (limit, ..) = run(&program, &shared);
        let quantum = 1.0 / 256.0;
        let (found, ..) = run(&program, &scheduled(shared, quantum, wakeup));
        // Each event may be late or early by a round of the queue.
        let bound = quantum * f64::from(program.processes) * program.events.len() as f64;
        prop_assert!((found.program_time - limit.program_time).abs() <= bound, "{} {}", found.program_time, limit.program_time);
    }
}

#[test]
fn overheads_occupy_both_processors() {
    let table = table::Table::constant;
    let mut scenario = scenario(&[0, 1], 10.0, 0.0);
    let event = |process, cpu, kind| Event {
        process,
        cpu,
        kind,
        line: 1,
    };
    let message = MessageId::of_number(1);
    let send = Kind::Send {
        message,
        bytes: 0.0,
        to: Some(1),
    };
    let program = |own: f64| Program {
        processes: 2,
        events: vec![
            event(0, 1.0, send),
            event(0, 5.0, Kind::Exit),
            event(1, own, Kind::StartRecv { message: None }),
            event(1, 0.0, Kind::EndRecv { message }),
        ],
    };
    assert_eq!(run(&program(0.0), &scenario).0.group_time, [6.0, 11.0]);
    scenario.overhead = Some(input::Overhead {
        send: table(3.0),
        receive: table(2.0),
    });
    // One that waits has the message after the same one-way time; one that is late still has to receive it.
    assert_eq!(run(&program(0.0), &scenario).0.group_time, [9.0, 11.0]);
    assert_eq!(run(&program(20.0), &scenario).0.group_time, [9.0, 22.0]);
}

#[test]
fn a_long_slice_hides_no_waiting() {
    // Processes 0 and 1 share a processor; 0 sends to 2 after 1, which answers at once, and then computes for 1.
    let scenario = scenario(&[0, 0, 1], 1.0, 0.0);
    let message = MessageId::of_number;
    let event = |process, cpu, kind| Event {
        process,
        cpu,
        kind,
        line: 1,
    };
    let send = |number, to| Kind::Send {
        message: message(number),
        bytes: 0.0,
        to: Some(to),
    };
    let take = |number| Kind::EndRecv {
        message: message(number),
    };
    let program = Program {
        processes: 3,
        events: vec![
            event(0, 1.0, send(1, 2)),
            event(0, 0.0, take(2)),
            event(0, 1.0, Kind::Exit),
            event(1, 10.0, Kind::Exit),
            event(2, 0.0, take(1)),
            event(2, 0.0, send(2, 0)),
        ],
    };
    // Shares: sent at 2, answered at 4 when 1 has 7 left, both compute until 6, the rest takes until 12.
    let time = |scenario: &Scenario| run(&program, scenario).0;
    let exit = |scenario: &Scenario, process: u32| {
        let (_, reports, _) = run(&program, scenario);
        let last = |report: &&Report| report.event.process == process;
        reports.iter().rfind(last).map(|report| report.time)
    };
    assert_eq!(
        (time(&scenario).program_time, exit(&scenario, 0)),
        (12.0, Some(6.0))
    );
    // Slices of 4: sent at 1, the answer is there at 3, but 1 has the processor from 1 to 5.
    let queued = scheduled(scenario.clone(), 4.0, Wakeup::Queue);
    assert_eq!((time(&queued).program_time, exit(&queued, 0)), (12.0, Some(6.0)));
    // It takes the processor at 3.
    let preempting = scheduled(scenario.clone(), 4.0, Wakeup::Preempt);
    assert_eq!(exit(&preempting, 0), Some(4.0));
    // One slice is longer than all: 1 is done first.
    let whole = scheduled(scenario, 100.0, Wakeup::Queue);
    assert_eq!((time(&whole).program_time, exit(&whole, 0)), (12.0, Some(12.0)));
}
