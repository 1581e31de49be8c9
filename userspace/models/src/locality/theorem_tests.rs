//! The paper's lemmas, theorems and properties on random sequences, counterexamples where they fail, and the
//! optimum against brute force.

use proptest::prelude::*;

use super::decision::Decision;
use super::optimal::{optimal, upper_bound};
use super::thresholds::Thresholds;
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
            // sum w_i lies between the root of sum w_i^2 and the root of p times that.
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
    fn lemma_1_a_split_without_common_paths_gains(rest in program(), first in counts(), second in counts()) {
        let joined = Partition { requests: first.requests + second.requests, paths: first.paths + second.paths };
        let (apart, together) = (rest.with(first).with(second).measures(), rest.with(joined).measures());
        prop_assert!(apart.locality > together.locality);
        // 5.4: so it does by the alternative measure.
        prop_assert!(apart.alternative > together.alternative);
    }

    #[test]
    fn lemma_2_a_join_with_a_superset_gains(rest in program(), first in counts(), second in counts()) {
        // (4), M_1 within M_2.
        prop_assume!(first.paths <= second.paths);
        let ratio = second.paths as f64 / first.paths as f64;
        prop_assume!(2.0 * second.requests as f64 / first.requests as f64 >= ratio * ratio - 1.0);
        let joined = Partition { requests: first.requests + second.requests, paths: second.paths };
        let (apart, together) = (rest.with(first).with(second).measures(), rest.with(joined).measures());
        prop_assert!(together.locality > apart.locality);
        prop_assert!(together.alternative > apart.alternative);
    }

    #[test]
    fn theorem_3_a_loop_of_enough_iterations_is_one_partition(body in proptest::collection::vec(0_u32..3, 1..6)) {
        // (5); r up to 45, the sequence up to 225 requests.
        let mut uses = [0_usize; 3];
        body.iter().for_each(|path| uses[*path as usize] += 1);
        let (most, paths) = (uses.iter().max().unwrap(), uses.iter().filter(|count| **count > 0).count());
        let iterations = (most * paths).pow(2).div_ceil(body.len());
        let document = document(body.repeat(iterations));
        let single = Partitioning::by(Method::Single, &document).unwrap().locality().locality;
        let best = Partitioning::by(Method::Optimal, &document).unwrap().locality().locality;
        prop_assert!(best <= single * (1.0 + 1e-12), "{iterations}: {single} {best}");
    }

    #[test]
    fn corollary_3_1_disjoint_loops_of_enough_iterations_are_the_natural_partitions(sizes in proptest::collection::vec((1_u32..5, 0_usize..4), 1..4)) {
        let (mut requests, mut ends, mut path) = (Vec::new(), Vec::new(), 0);
        for (paths, more) in sizes {
            // Distinct paths: r >= l.
            requests.extend((path..path + paths).collect::<Vec<u32>>().repeat(paths as usize + more));
            path += paths;
            ends.push(requests.len());
        }
        let document = document(requests);
        let natural = Partitioning::from_ends(&document.sequence, ends).locality().locality;
        let best = Partitioning::by(Method::Optimal, &document).unwrap().locality().locality;
        prop_assert!(best <= natural * (1.0 + 1e-12), "{natural} {best}");
    }

    #[test]
    fn theorem_4_d_is_the_ratio_of_both_measures(requests in sequence(6, 60)) {
        // (6) on a real sequence, both localities measured.
        let document = document(requests);
        let natural = Partitioning::by(Method::Natural, &document).unwrap();
        let single = Partitioning::by(Method::Single, &document).unwrap();
        let found = Decision::of(&natural.partitions, single.partitions[0].paths);
        let (natural, single) = (natural.locality(), single.locality());
        prop_assert!((found.d / (natural.locality / single.locality) - 1.0).abs() < 1e-12);
        prop_assert!((found.d_alternative / (natural.alternative / single.alternative) - 1.0).abs() < 1e-12);
        // (7), (8).
        prop_assert!(!found.natural_always || found.d >= 1.0 - 1e-12);
        prop_assert!(!found.single_always || found.d <= 1.0 + 1e-12);
    }

    #[test]
    fn theorem_4_s_bounds_are_reached(paths in proptest::collection::vec(1_u64..30, 1..5), overlap in 0.0_f64..1.0) {
        let (most, sum) = (*paths.iter().max().unwrap(), paths.iter().sum::<u64>());
        let all = most + ((sum - most) as f64 * overlap) as u64;
        let decide = |requests: &dyn Fn(u64, usize) -> u64| {
            let loops: Vec<Partition> = paths
                .iter()
                .enumerate()
                .map(|(index, paths)| Partition { requests: requests(*paths, index), paths: *paths })
                .collect();
            Decision::of(&loops, all)
        };
        // (10): the least d is where a loop's requests are as the square of its paths. (7) holds if it is 1 or more.
        let least = decide(&|paths, _| paths * paths);
        prop_assert_eq!(least.natural_always, least.d >= 1.0 - 1e-12, "{:?}", least);
        // The greatest d is where the loop of fewest paths has all requests. (8) holds if it is 1 or less.
        let fewest = paths.iter().enumerate().min_by_key(|(_, paths)| **paths).unwrap().0;
        let greatest = decide(&|_, index| if index == fewest { 1 << 40 } else { 0 });
        prop_assert_eq!(greatest.single_always, greatest.d <= 1.0 + 1e-12, "{:?}", greatest);
        for shares in [[1, 1, 1, 1, 1], [5, 1, 3, 1, 9], [1, 8, 1, 9, 2]] {
            let found = decide(&|_, index| shares[index]);
            prop_assert!(least.d <= found.d + 1e-12 && found.d <= greatest.d + 1e-12);
        }
    }

    #[test]
    fn properties_l1_to_l3(first in 1_u64..20, second in 1_u64..20, body in 1_u64..40, iterations in 2_u64..50) {
        let partition = |requests, paths| Partition { requests, paths };
        let locality = |partitions: &[Partition]| measure(partitions).locality;
        // L1: T_1 and T_2 as two loops of r iterations, or as one.
        let apart = [partition(first * iterations, first), partition(second * iterations, second)];
        let together = [partition((first + second) * iterations, first + second)];
        prop_assert!(locality(&apart) > locality(&together));
        // L2: as many requests over fewer paths.
        let (fewer, more) = (first.min(second), first.max(second));
        prop_assume!(fewer < more);
        let requests = body * iterations;
        prop_assert!(locality(&[partition(requests, fewer)]) > locality(&[partition(requests, more)]));
        // L3: more of the requests in the loop of fewer paths, from the minimum of (10) on.
        let total = 10_000;
        let least = total * fewer * fewer / (fewer * fewer + more * more) + 1;
        let of = |inner: u64| locality(&[partition(inner, fewer), partition(total - inner, more)]);
        prop_assert!((least..total).step_by(500).all(|inner| of(inner + 1) > of(inner)));
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
fn corollary_4_2_fails_for_a_short_program() {
    // Two loops that overlap, both with the iterations of Theorem 3 (r >= (k l)^2 / |T|), and d >= 1: the corollary
    // says natural. The second loop's first request in the first partition is better.
    let document = parse("(1)^6 (1 2 3)^3").unwrap();
    let natural = Partitioning::by(Method::Natural, &document).unwrap();
    let found = Decision::of(&natural.partitions, 3);
    assert!((found.d - 1.006).abs() < 5e-4, "{found:?}");
    let moved = Partitioning::from_ends(&document.sequence, vec![7, 15]);
    let locality = |partitioning: &Partitioning| partitioning.locality().locality;
    assert!((locality(&natural) - 1.677).abs() < 5e-4 && (locality(&moved) - 1.873).abs() < 5e-4);
    // (2 1 3)^25 (1 4 5)^25, where a moved request beats the natural partitioning, too, is no counterexample: d < 1,
    // and the single partitioning that the corollary names there is the best.
    let document = parse("(2 1 3)^25 (1 4 5)^25").unwrap();
    let natural = Partitioning::by(Method::Natural, &document).unwrap();
    assert!(Decision::of(&natural.partitions, 5).d < 1.0);
    let best = |method| locality(&Partitioning::by(method, &document).unwrap());
    assert_eq!(best(Method::Optimal), best(Method::Single));
}

#[test]
fn the_bound_of_distinct_paths_is_not_that_of_one_path_partitions() {
    // 4.1 and Table 7: a loop of l distinct paths is one partition if r^3 > l. That is when it beats one path each;
    // from l of about 2 r^2 + 2 r on, its last request alone beats it.
    let single = |paths: u32, times: usize| {
        let document = document((0..paths).collect::<Vec<u32>>().repeat(times));
        let best = |method| Partitioning::by(method, &document).unwrap().locality();
        (
            best(Method::Single),
            best(Method::Paths(1)),
            best(Method::Optimal),
        )
    };
    for (paths, times) in [(7, 2), (24, 3), (8, 2), (27, 3), (28, 3)] {
        let (one, each, _) = single(paths, times);
        let enough = times.pow(3) >= paths as usize;
        assert_eq!(
            one.locality >= each.locality * (1.0 - 1e-12),
            enough,
            "{paths} {times}"
        );
    }
    let (one, _, best) = single(24, 3);
    assert!(best.locality <= one.locality * (1.0 + 1e-12));
    let (one, _, best) = single(25, 3);
    assert!(best.locality > one.locality * 1.001, "{one:?} {best:?}");
    // By the alternative measure (Table 7): r >= l.
    for (paths, times) in [(4, 4), (4, 5), (5, 4), (9, 8)] {
        let (one, each, _) = single(paths, times);
        assert_eq!(
            one.alternative >= each.alternative * (1.0 - 1e-12),
            times >= paths as usize
        );
    }
}

/// Every way to group loops: their numbers per group.
fn groupings(loops: usize) -> Vec<Vec<u64>> {
    (0_u32..1 << (loops - 1))
        .map(|cuts| {
            let mut groups = vec![1];
            for cut in 0..loops - 1 {
                if cuts >> cut & 1 == 1 {
                    groups.push(1);
                } else if let Some(last) = groups.last_mut() {
                    *last += 1;
                }
            }
            groups
        })
        .collect()
}

/// 4.3: where some w loops are one partition, no other w loops are several.
fn admissible(groups: &[u64]) -> bool {
    let ends: Vec<u64> = groups
        .iter()
        .scan(0, |end, size| {
            *end += size;
            Some(*end)
        })
        .collect();
    let cut = |at: u64| at == 0 || ends.contains(&at);
    let loops: u64 = groups.iter().sum();
    groups.iter().filter(|size| **size > 1).all(|size| {
        (0..=loops - size).all(|start| {
            let inside = (start + 1..start + size).any(cut);
            !(cut(start) && cut(start + size) && inside)
        })
    })
}

/// L by both measures of n loops of 1000 paths, `shared` of them by the overlap named, in groups.
fn grouped(groups: &[u64], paths: impl Fn(u64) -> u64) -> Locality {
    let partitions: Vec<Partition> = groups
        .iter()
        .map(|size| Partition {
            requests: size * 1_000_000,
            paths: paths(*size),
        })
        .collect();
    measure(&partitions)
}

#[test]
fn thresholds_are_where_the_measures_are_equal() {
    // Tables 5 and 7: w loops in one group against the natural partitioning, on either side of each threshold.
    for loops in 2..12_u32 {
        let found = Thresholds::of(loops);
        let w = u64::from(loops);
        let natural = vec![1; loops as usize];
        let gain = |paths: &dyn Fn(u64) -> u64| {
            let (apart, together) = (grouped(&natural, paths), grouped(&[w], paths));
            (
                apart.locality / together.locality,
                apart.alternative / together.alternative,
            )
        };
        let core = |share: f64| {
            let shared = (share * 1000.0).round() as u64;
            gain(&|size| size * (1000 - shared) + shared)
        };
        let shifting = |share: f64| {
            let shared = (share * 500.0).round() as u64;
            gain(&|size| size * (1000 - shared) + shared)
        };
        let threshold = found.core_paths.natural_at_most;
        assert!(
            core(threshold - 0.01).0 > 1.0 && core(threshold + 0.01).0 < 1.0,
            "{found:?}"
        );
        let threshold = found.alternative.core_paths.natural_at_most;
        assert!(
            core(threshold - 0.01).1 > 1.0 && core(threshold + 0.01).1 < 1.0,
            "{found:?}"
        );
        let threshold = found.shifting_paths.natural_at_most;
        assert!(shifting((threshold - 0.01).min(1.0)).0 > 1.0, "{found:?}");
        assert!(
            threshold > 0.99 || shifting(threshold + 0.01).0 < 1.0,
            "{found:?}"
        );
        // Corollary 4.1, its bounds being those of (7) and (8): equal loops, any requests.
        let decision = |share: f64| {
            let loops = vec![
                Partition {
                    requests: 1,
                    paths: 1000
                };
                loops as usize
            ];
            Decision::of(&loops, (1000.0 / share).round() as u64)
        };
        let Thresholds {
            equal_loops,
            alternative,
            ..
        } = found;
        assert!(decision(equal_loops.natural_at_most - 0.005).natural_always);
        assert!(!decision(equal_loops.natural_at_most + 0.005).natural_always);
        assert!(!decision(equal_loops.single_at_least - 0.005).single_always);
        assert!(decision(equal_loops.single_at_least + 0.005).single_always);
        assert!(decision(alternative.equal_loops.natural_at_most - 0.005).d_alternative > 1.0);
        assert!(decision(alternative.equal_loops.natural_at_most + 0.005).d_alternative < 1.0);
    }
    // Table 7 prints 2 w for w in the core row: at w = 3 that is 1.86, and its own example says 0.36.
    let (x, found) = (
        27.0_f64.sqrt().sqrt(),
        Thresholds::of(3).core_paths.natural_at_most,
    );
    assert!((found - 0.36).abs() < 0.005 && ((6.0 - x) / 2.0 - 1.86).abs() < 0.005);
}

#[test]
fn theorem_6_natural_is_the_best_admissible_partitioning() {
    let shared = (Thresholds::of(2).admissible.natural_at_most * 1000.0) as u64;
    let core = |shared: u64| move |size: u64| size * (1000 - shared) + shared;
    for loops in 2..=12 {
        let natural = grouped(&vec![1; loops], core(shared)).locality;
        for groups in groupings(loops) {
            // Lemma 5 says at most 2n/3 partitions; a single loop at either end makes it (2n + 1)/3.
            let fewer = admissible(&groups) && groups.len() < loops;
            assert!(!fewer || 3 * groups.len() <= 2 * loops + 1, "{groups:?}");
            assert!(
                !fewer || grouped(&groups, core(shared)).locality < natural,
                "{groups:?}"
            );
        }
    }
    // One pair and single loops are not admissible, and beat the natural partitioning before a pair everywhere does.
    let one_pair = [2, 1, 1, 1, 1, 1];
    assert!(!admissible(&one_pair) && admissible(&[2, 2, 2]) && admissible(&[2, 2, 1]));
    // The counterexample to Lemma 5: 3 partitions of 4 loops.
    assert!(admissible(&[1, 2, 1]));
    // 4.3's example: with 4 paths, 2 of them shared, three loops are best as one; with 1 shared, apart.
    let example = |shared: u64, groups: &[u64]| grouped(groups, |size| size * (4 - shared) + shared).locality;
    assert!(example(2, &[3]) > example(2, &[1, 1, 1]) && example(2, &[3]) > example(2, &[2, 1]));
    assert!(example(1, &[3]) < example(1, &[1, 1, 1]));
}
