//! Properties of the measure on random sequences: the paper's lemmas and theorems as far as eq.
//! (1)–(3) imply them, and the optimum against brute force.

use proptest::prelude::*;

use super::decision::{self, Loops, Move};
use super::optimal::{optimal, upper_bound};
use super::*;

fn document(requests: Vec<u32>) -> Document {
    Document {
        sequence: Sequence::new(requests, Vec::new()),
        ..Document::default()
    }
}

fn counts() -> impl Strategy<Value = Partition> {
    (1_u64..40, 1_u64..200).prop_map(|(paths, extra)| Partition {
        requests: paths + extra - 1,
        paths,
    })
}

fn program() -> impl Strategy<Value = Sums> {
    proptest::collection::vec(counts(), 0..5)
        .prop_map(|loops| loops.into_iter().fold(Sums::default(), Sums::with))
}

/// A random sequence in loops, so that it has locality to find.
fn sequence(paths: u32, longest: usize) -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec((proptest::collection::vec(0..paths, 1..4), 1_usize..5), 1..4).prop_map(
        move |loops| {
            let mut requests: Vec<u32> = loops
                .into_iter()
                .flat_map(|(body, times)| body.repeat(times))
                .collect();
            requests.truncate(longest);
            requests
        },
    )
}

proptest! {
    #[test]
    fn a_single_partition_is_n_over_w_squared(requests in sequence(6, 60)) {
        let document = document(requests);
        let found = Partitioning::by(Method::Single, &document).unwrap();
        let Partition { requests, paths } = found.partitions[0];
        let expected = requests as f64 / (paths * paths) as f64;
        prop_assert!((found.locality().locality - expected).abs() < 1e-12 * expected);
        // With one partition both means are the same.
        prop_assert!((found.locality().alternative - expected).abs() < 1e-12 * expected);
    }

    #[test]
    fn measures_are_bounded_and_consistent(requests in sequence(6, 60), limit in 1_u64..6) {
        let document = document(requests);
        for method in [Method::Single, Method::Natural, Method::Paths(limit), Method::Grouped(limit)] {
            let found = Partitioning::by(method, &document).unwrap();
            let Locality { locality, spatial, temporal, alternative } = found.locality();
            prop_assert!(spatial > 0.0 && spatial <= 1.0);
            prop_assert!((locality - spatial * temporal).abs() <= 1e-12 * locality);
            // The norm is at most the sum, and at least the sum over the root of p.
            prop_assert!(locality <= alternative * (1.0 + 1e-12));
            let partitions = found.partitions.len() as f64;
            prop_assert!(alternative <= locality * partitions.sqrt() * (1.0 + 1e-12));
            prop_assert!(locality <= upper_bound(&document.sequence) * (1.0 + 1e-12));
            prop_assert_eq!(found.partitions.iter().map(|p| p.requests).sum::<u64>(), document.sequence.len() as u64);
            if let Method::Paths(limit) = method {
                prop_assert!(found.partitions.iter().all(|partition| partition.paths <= limit));
            }
        }
    }

    #[test]
    fn disjoint_loops_are_kept_apart(first in counts(), second in counts()) {
        prop_assert!(decision::keep_disjoint_apart(Sums::default(), first, second) >= -1e-9);
    }

    #[test]
    fn a_loop_is_never_cut_between_iterations(body in counts(), rest in program(), head in 0.0_f64..1.0) {
        let head = (head * body.requests as f64) as u64;
        prop_assume!(head > 0 && head < body.requests);
        prop_assert!(decision::cut_between_iterations(rest, body, head) <= 1e-9);
        let joined = decision::join_same_paths(rest, body.paths, head, body.requests - head);
        prop_assert!(joined >= -1e-9);
    }

    #[test]
    fn natural_is_the_best_union_of_disjoint_loops(loops in proptest::collection::vec(counts(), 2..6)) {
        // Joining any two adjacent disjoint loops of a program lowers L, whatever the rest.
        let sums = loops.iter().copied().fold(Sums::default(), Sums::with);
        for pair in loops.windows(2) {
            let joined = Loops { first: pair[0], second: pair[1], shared: 0 }.joined();
            let rest = loops.iter().copied().fold(Sums::default(), Sums::with);
            let after = Sums {
                partitions: rest.partitions - 1,
                squares: rest.squares - pair[0].reuse().powi(2) - pair[1].reuse().powi(2) + joined.reuse().powi(2),
                reuse: 0.0,
                paths: rest.paths,
            };
            prop_assert!(after.locality() <= sums.locality() * (1.0 + 1e-12));
        }
    }

    #[test]
    fn decisions_agree_with_the_measure(requests in sequence(4, 40), cut in 0.0_f64..1.0) {
        // (7), (11) and (12) on a real sequence: the sign is that of the difference of L.
        let document = document(requests);
        let length = document.sequence.len();
        prop_assume!(length >= 3);
        let cut = 1 + ((length - 2) as f64 * cut) as usize;
        let apart = Partitioning::from_ends(&document.sequence, vec![cut, length]);
        let single = Partitioning::by(Method::Single, &document).unwrap();
        let shared = apart.partitions[0].paths + apart.partitions[1].paths - single.partitions[0].paths;
        let loops = Loops { first: apart.partitions[0], second: apart.partitions[1], shared };
        let gained = apart.locality().locality - single.locality().locality;
        let decision = decision::keep_apart(Sums::default(), loops);
        prop_assert!(gained.abs() < 1e-9 || (gained > 0.0) == (decision > 0.0), "{gained} {decision}");
        if cut + 1 < length {
            let moved = Partitioning::from_ends(&document.sequence, vec![cut + 1, length]);
            let effect = Move {
                grows: moved.partitions[0].paths > apart.partitions[0].paths,
                shrinks: moved.partitions[1].paths < apart.partitions[1].paths,
            };
            let gained = moved.locality().locality - apart.locality().locality;
            let decision = decision::move_to_first(Sums::default(), loops, effect);
            prop_assert!(gained.abs() < 1e-9 || (gained > 0.0) == (decision > 0.0), "{gained} {decision}");
        }
        if cut > 1 {
            let moved = Partitioning::from_ends(&document.sequence, vec![cut - 1, length]);
            let effect = Move {
                grows: moved.partitions[1].paths > apart.partitions[1].paths,
                shrinks: moved.partitions[0].paths < apart.partitions[0].paths,
            };
            let gained = moved.locality().locality - apart.locality().locality;
            let decision = decision::move_to_second(Sums::default(), loops, effect);
            prop_assert!(gained.abs() < 1e-9 || (gained > 0.0) == (decision > 0.0), "{gained} {decision}");
        }
    }

    #[test]
    fn the_exact_optimum_is_that_of_brute_force(requests in sequence(4, 11)) {
        let document = document(requests);
        let length = document.sequence.len();
        let mut best = 0.0_f64;
        for cuts in 0_u32..1 << (length - 1) {
            let ends = (1..length).filter(|end| cuts >> (end - 1) & 1 == 1).chain([length]).collect();
            best = best.max(Partitioning::from_ends(&document.sequence, ends).locality().locality);
        }
        let found = Partitioning::by(Method::Optimal, &document).unwrap();
        prop_assert!((found.locality().locality - best).abs() <= 1e-12 * best);
        prop_assert_eq!(found.bound, None);
    }

    #[test]
    fn the_search_lies_between_natural_and_the_exact_optimum(requests in sequence(5, 60)) {
        let document = document(requests);
        let natural = Partitioning::by(Method::Natural, &document).unwrap();
        let exact = Partitioning::by(Method::Optimal, &document).unwrap().locality().locality;
        let searched = optimal(&document.sequence, &natural.ends, 0);
        let found = Partitioning::from_ends(&document.sequence, searched.ends).locality().locality;
        prop_assert!(found >= natural.locality().locality * (1.0 - 1e-12));
        prop_assert!(found <= exact * (1.0 + 1e-12));
        prop_assert!(exact <= searched.bound.unwrap() * (1.0 + 1e-12));
    }

    #[test]
    fn detected_loops_repeat_their_body(requests in sequence(5, 60)) {
        let mut reached = 0;
        for span in detect::loops(&requests) {
            prop_assert!(span.start >= reached && span.end <= requests.len());
            reached = span.end;
            let stretch = &requests[span];
            let repeats = (1..=stretch.len() / 2)
                .any(|period| stretch.len() % period == 0 && stretch.iter().skip(period).eq(stretch[..stretch.len() - period].iter()));
            prop_assert!(repeats, "{stretch:?}");
        }
    }
}

#[test]
fn corollary_4_2_is_not_exact() {
    // Two loops that share a path: moving the shared request over the cut beats the natural
    // partitioning, by a hundredth of a percent.
    let document = parse("(2 1 3)^25 (1 4 5)^25").unwrap();
    let natural = Partitioning::by(Method::Natural, &document).unwrap();
    assert_eq!(natural.ends, [75, 150]);
    let moved = Partitioning::from_ends(&document.sequence, vec![76, 150]);
    let gained = moved.locality().locality / natural.locality().locality - 1.0;
    assert!(gained > 5e-5 && gained < 2e-4, "{gained}");
    let loops = Loops {
        first: natural.partitions[0],
        second: natural.partitions[1],
        shared: 1,
    };
    let effect = Move {
        grows: false,
        shrinks: false,
    };
    assert!(decision::move_to_first(Sums::default(), loops, effect) > 0.0);
}
