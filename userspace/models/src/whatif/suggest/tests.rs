use super::*;
use crate::whatif::event::{Kind, MessageId};
use crate::whatif::placement::{Placement, ProcessName};
use crate::whatif::table::Table;

fn scenario(processes: u64, remote: f64) -> Scenario {
    let groups = (0..processes).map(|process| (1.0, vec![ProcessName::Number(process)]));
    Scenario {
        placement: Placement::new(groups).unwrap(),
        local: Some(Table::constant(0.0)),
        remote: Some(Table::constant(remote)),
        bus: None,
        overhead: None,
        scheduler: None,
    }
}

fn compute(process: u32, cpu: f64) -> Event {
    Event {
        process,
        cpu,
        kind: Kind::Compute,
        line: 1,
    }
}

fn task(speeds: &[f64], budget: u64) -> Task {
    Task {
        speeds: speeds.to_vec(),
        budget,
        best: 3,
        seed: 1,
    }
}

#[test]
fn counts_set_partitions() {
    // Stirling numbers: 5 processes on 2 alike processors have S(5,1) + S(5,2) = 16 placements.
    let events: Vec<Event> = (0..5).map(|process| compute(process, 1.0)).collect();
    let found = suggest(
        &scenario(5, 1.0),
        &events,
        &task(&[1.0, 1.0], 1_000_000),
        &|_, _| (),
    )
    .unwrap();
    assert_eq!((found.tried, found.exhaustive), (16, true));
    // Processors that differ are told apart: 2^5.
    let found = suggest(
        &scenario(5, 1.0),
        &events,
        &task(&[1.0, 2.0], 1_000_000),
        &|_, _| (),
    )
    .unwrap();
    assert_eq!((found.tried, found.exhaustive), (32, true));
}

#[test]
fn balances_load_and_keeps_talkers_together() {
    let times = [7.0, 5.0, 4.0, 4.0];
    let events: Vec<Event> = (0..4)
        .map(|process| compute(process, times[process as usize]))
        .collect();
    let found = suggest(
        &scenario(4, 1.0),
        &events,
        &task(&[1.0, 1.0], 1_000_000),
        &|_, _| (),
    )
    .unwrap();
    assert_eq!(found.ranked[0].program_time, 11.0, "{found:?}");
    // With a far network, ping-pong partners share a processor.
    let mut events = Vec::new();
    for (a, b) in [(0, 2), (1, 3)] {
        let message = MessageId::of_number(u64::from(a));
        let send = Kind::Send {
            message,
            bytes: 0.0,
            to: None,
        };
        events.push(Event {
            process: a,
            cpu: 1.0,
            kind: send,
            line: 1,
        });
        events.push(Event {
            process: b,
            cpu: 0.0,
            kind: Kind::EndRecv { message },
            line: 2,
        });
        events.push(compute(b, 1.0));
    }
    let found = suggest(
        &scenario(4, 100.0),
        &events,
        &task(&[1.0, 1.0], 1_000_000),
        &|_, _| (),
    )
    .unwrap();
    assert_eq!(found.ranked[0].groups, [0, 1, 0, 1]);
    assert_eq!(found.ranked[0].program_time, 2.0);
}

#[test]
fn the_search_finds_what_enumeration_finds() {
    let events: Vec<Event> = (0..9_u32)
        .map(|process| compute(process, f64::from(process * process % 7 + 1)))
        .collect();
    let all = suggest(
        &scenario(9, 1.0),
        &events,
        &task(&[1.0, 1.0, 2.0], 10_000_000),
        &|_, _| (),
    )
    .unwrap();
    let some = suggest(
        &scenario(9, 1.0),
        &events,
        &task(&[1.0, 1.0, 2.0], 9 * 1500),
        &|_, _| (),
    )
    .unwrap();
    assert!(all.exhaustive && !some.exhaustive);
    assert!(some.tried <= 1500 && some.tried < all.tried);
    assert!(some.ranked[0].program_time <= all.ranked[0].program_time * 1.02);
}

#[test]
fn refusals() {
    let events = [compute(0, 1.0)];
    assert_eq!(
        suggest(&scenario(1, 0.0), &events, &task(&[], 1), &|_, _| ()),
        Err(SuggestError::NoProcessors)
    );
    let speed = suggest(&scenario(1, 0.0), &events, &task(&[0.0], 1), &|_, _| ());
    assert_eq!(speed, Err(SuggestError::Speed { speed: 0.0 }));
    let mut bare = scenario(2, 0.0);
    bare.local = None;
    assert_eq!(
        suggest(&bare, &events, &task(&[1.0], 1), &|_, _| ()),
        Err(SuggestError::NoLocal)
    );
}
