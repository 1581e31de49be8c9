//! Every value arrives, and what does not belong is found.

use super::*;
use crate::mesh::on_loopback;

const SHORT: Remap = Remap {
    style: Style::Synchronous,
    mapping: Mapping::Random,
    span: None,
    iterations: 20,
    message: 46,
    send: Duration::from_micros(200),
    receive: Duration::from_micros(400),
    per_byte: Duration::ZERO,
    seed: 1,
};

/// What the first of so many processes on the loopback network says.
fn all(remap: Remap, count: usize) -> Result<Outcome, PatternError> {
    let outcomes = on_loopback(count, |rank, addresses| run(&remap, rank, addresses));
    outcomes
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map(|outcomes| outcomes[0])
}

#[test]
fn every_value_comes_where_it_should() {
    let styles = [Style::Synchronous, Style::Asynchronous, Style::Long];
    let mappings = [Mapping::Random, Mapping::Linear, Mapping::Perfect];
    for style in styles {
        for mapping in mappings {
            let message = if style == Style::Long { 3000 } else { 46 };
            let remap = Remap {
                style,
                mapping,
                message,
                ..SHORT
            };
            let found = all(remap, 4).unwrap().remap.unwrap();
            assert_eq!(found.values, 4 * 20, "{remap:?}");
            // Nobody shares a processor with another one's sends: an iteration takes at least its own.
            assert!(found.interval_us >= 200.0, "{remap:?}: {found:?}");
        }
    }
}

#[test]
fn a_round_trip_takes_both_overheads_twice() {
    let remap = Remap {
        mapping: Mapping::Perfect,
        ..SHORT
    };
    let found = all(remap, 2).unwrap().remap.unwrap();
    assert!(found.interval_us >= 1200.0, "{found:?}");
}

#[test]
fn a_value_that_never_comes_ends_the_program() {
    let ends = on_loopback(2, |rank, addresses| {
        let remap = Remap {
            style: Style::Asynchronous,
            mapping: Mapping::Perfect,
            // The second process sends one less than the first expects.
            iterations: SHORT.iterations - rank as u32,
            ..SHORT
        };
        run_within(Duration::from_secs(1), &remap, rank, addresses)
    });
    assert!(
        matches!(ends[0], Err(PatternError::Mesh(MeshError::Silence))),
        "{ends:?}"
    );
}

#[test]
fn a_message_is_one_packet_or_goes_in_parts() {
    let remap = Remap {
        message: 65_508,
        ..SHORT
    };
    let refused = all(remap, 2);
    // The loopback network's MTU would permit one byte more.
    assert!(
        matches!(
            refused,
            Err(PatternError::TooLong {
                message: 65_508,
                most: 65_507
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn what_comes_to_another_is_no_value_of_its() {
    let process = (0..3)
        .find(|process| SHORT.destination(*process, 0, 4) != Some(3))
        .unwrap();
    let mut ledger = Ledger::of(&SHORT, 3, 4);
    let came = |number, value| Beginning {
        sort: Sort::Value,
        from: process as u16,
        part: 0,
        number,
        value,
    };
    let misplaced = ledger.came(&SHORT, came(0, SHORT.value(process, 0)));
    assert!(matches!(misplaced, Err(PatternError::Misplaced { .. })));
    let own = (1..20)
        .find(|number| SHORT.destination(process, *number, 4) == Some(3))
        .unwrap();
    assert!(ledger.came(&SHORT, came(own, 7)).is_err());
    let last = Beginning {
        part: u32::MAX,
        ..came(own, SHORT.value(process, own))
    };
    assert!(ledger.came(&SHORT, last).is_err());
    assert!(ledger.came(&SHORT, came(own, SHORT.value(process, own))).unwrap());
    assert!(ledger.came(&SHORT, came(own, SHORT.value(process, own))).is_err());
}

#[test]
fn a_perfect_mapping_needs_pairs() {
    let remap = Remap {
        mapping: Mapping::Perfect,
        ..SHORT
    };
    assert!(matches!(all(remap, 3), Err(PatternError::NoNeighbor)));
}

#[test]
fn destinations_are_spread_and_never_the_sender() {
    for mapping in [Mapping::Random, Mapping::Linear] {
        let remap = Remap { mapping, ..SHORT };
        let mut counts = [0; 8];
        for from in 0..8 {
            for number in 0..700 {
                let to = remap.destination(from, number, 8).unwrap();
                assert_ne!(to, from);
                counts[to] += 1;
            }
        }
        assert!(
            counts.iter().all(|count| (600..800).contains(count)),
            "{mapping:?}: {counts:?}"
        );
    }
}

#[test]
fn a_span_bounds_the_distance_on_both_sides() {
    for (span, expected) in [
        (1, vec![1, 7]),
        (2, vec![1, 2, 6, 7]),
        (4, (1..8).collect::<Vec<_>>()),
    ] {
        let remap = Remap {
            span: Some(span),
            ..SHORT
        };
        let mut seen: Vec<usize> = (0..200)
            .map(|number| (remap.destination(3, number, 8).unwrap() + 5) % 8)
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, expected, "{span}");
    }
}
