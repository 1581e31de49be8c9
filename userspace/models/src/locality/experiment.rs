//! Random programs: does less locality mean costlier communication (5.2)?
//!
//! A program has n loops. One iteration of a loop makes |T| requests over l paths, and there are r iterations,
//! all drawn as uniform integers from the paper's ranges. Locality is that of the natural partitioning, cost that of
//! one-partition multiplexing ([`super::cost`]); overlap between loops enters neither, so that no sequence is made.
//!
//! The paper reports Pearson's coefficient, 0.60 to 0.80 for most of its sets, each made "using various
//! additional restrictions", which it does not print, on a network that it does not print either.

use std::ops::RangeInclusive;

use perturb_common::fate::{Purpose, draw};
use serde::Serialize;

use super::cost::{Network, pearson};
use super::notation::Document;
use super::partition::{Method, Partitioning};
use super::{Partition, measure};

/// n, unless it is fixed.
const LOOPS: RangeInclusive<u64> = 1..=20;
/// |T|.
const REQUESTS: RangeInclusive<u64> = 32..=960;
/// The least l; the greatest is |T|.
const LEAST_PATHS: u64 = 32;
/// r.
const ITERATIONS: RangeInclusive<u64> = 3000..=3500;

/// What the experiment found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Experiment {
    /// Programs drawn.
    pub programs: u32,
    /// Pearson's coefficient of cost and 1/L; absent where one of them does not vary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<f64>,
    /// The programs.
    pub points: Vec<Point>,
}

/// One random program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its loops.
    pub loops: Vec<Loop>,
    /// L of the natural partitioning.
    pub locality: f64,
    /// On the experiment's network, with one-partition multiplexing.
    pub cost: f64,
}

/// One of its loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Loop {
    /// |T|, requests of one iteration.
    pub requests: u64,
    /// l, distinct paths.
    pub paths: u64,
    /// r.
    pub iterations: u64,
}

impl Point {
    /// A program of these loops.
    fn of(loops: Vec<Loop>, network: &Network) -> Self {
        let natural: Vec<Partition> = loops
            .iter()
            .map(|found| Partition {
                requests: found.requests * found.iterations,
                paths: found.paths,
            })
            .collect();
        Self {
            loops,
            locality: measure(&natural).locality,
            cost: network.cost(&natural).total,
        }
    }
}

/// Draws `programs` programs of `loops` loops, or of 1 to 20 if that is absent.
#[must_use]
pub fn run(network: &Network, programs: u32, loops: Option<u32>, seed: u64) -> Experiment {
    let points: Vec<Point> = (0..programs)
        .map(|program| Point::of(random_loops(seed, u64::from(program), loops), network))
        .collect();
    let pairs: Vec<(f64, f64)> = points
        .iter()
        .map(|point| (point.cost, 1.0 / point.locality))
        .collect();
    Experiment {
        programs,
        correlation: pearson(&pairs),
        points,
    }
}

fn random_loops(seed: u64, program: u64, loops: Option<u32>) -> Vec<Loop> {
    let mut drawn = 0;
    let mut within = |range: RangeInclusive<u64>| {
        drawn += 1;
        range.start() + draw(seed, program, drawn, Purpose::Jitter) % (range.end() - range.start() + 1)
    };
    let count = loops.map_or_else(|| within(LOOPS), u64::from);
    (0..count)
        .map(|_| {
            let requests = within(REQUESTS);
            Loop {
                requests,
                paths: within(LEAST_PATHS..=requests),
                iterations: within(ITERATIONS),
            }
        })
        .collect()
}

/// The methods that a program is partitioned by for a network of m paths.
fn methods(paths: u64) -> Vec<Method> {
    let mut limits = vec![1, 2, paths.div_ceil(2), paths];
    limits.sort_unstable();
    limits.dedup();
    let mut methods = vec![Method::Single, Method::Natural, Method::Grouped(2)];
    methods.extend(limits.into_iter().map(Method::Paths));
    methods
}

/// A document's partitionings and what they cost: (method, L, requests per unit of cost).
#[must_use]
pub fn points(document: &Document, network: &Network) -> Vec<(Method, f64, f64)> {
    let point = |method: Method| {
        let partitioning = Partitioning::by(method, document).ok()?;
        let cost = network.cost(&partitioning.partitions);
        (cost.total > 0.0).then(|| {
            (
                method,
                partitioning.locality().locality,
                cost.requests as f64 / cost.total,
            )
        })
    };
    methods(network.paths).into_iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locality::parse;

    #[test]
    fn programs_are_within_the_printed_ranges() {
        let network = Network::new(100.0, 1.0, 8).unwrap();
        let found = run(&network, 1000, None, 1);
        assert_eq!(found, run(&network, 1000, None, 1));
        assert_ne!(found.points, run(&network, 1000, None, 2).points);
        let loops = || found.points.iter().flat_map(|point| &point.loops);
        let span =
            |pick: fn(&Loop) -> u64| (loops().map(pick).min().unwrap(), loops().map(pick).max().unwrap());
        // Some ten thousand loops come close to every end of a range.
        let (least, most) = span(|found| found.requests);
        assert!(
            (32..35).contains(&least) && (955..=960).contains(&most),
            "{least} {most}"
        );
        assert_eq!(span(|found| found.iterations), (3000, 3500));
        assert!(loops().all(|found| (32..=found.requests).contains(&found.paths)));
        let counts = |count: usize| {
            found
                .points
                .iter()
                .filter(|point| point.loops.len() == count)
                .count()
        };
        assert_eq!((1..=20).map(counts).sum::<usize>(), 1000);
        assert!((1..=20).all(|count| (25..=75).contains(&counts(count))));
        assert!(
            run(&network, 50, Some(3), 1)
                .points
                .iter()
                .all(|point| point.loops.len() == 3)
        );
    }

    #[test]
    fn a_point_is_its_sequence_s_natural_partitioning() {
        let network = Network::new(100.0, 2.0, 2).unwrap();
        let loops = vec![
            Loop {
                requests: 4,
                paths: 3,
                iterations: 20,
            },
            Loop {
                requests: 2,
                paths: 2,
                iterations: 30,
            },
        ];
        let document = parse("(1 2 3 3)^20 (4 5)^30").unwrap();
        let natural = Partitioning::by(Method::Natural, &document).unwrap();
        let found = Point::of(loops, &network);
        assert_eq!(found.locality, natural.locality().locality);
        assert_eq!(found.cost, network.cost(&natural.partitions).total);
    }

    #[test]
    fn the_correlation_is_as_printed() {
        // 0.60 to 0.80 for sets of programs of as many loops, more for one loop. With n from 1 to 20 and no further
        // restriction it is lower.
        let network = Network::new(1000.0, 1.0, 16).unwrap();
        let of = |loops| run(&network, 1000, loops, 1).correlation.unwrap();
        assert!(of(Some(1)) > 0.8, "{}", of(Some(1)));
        for loops in 2..=10 {
            let found = of(Some(loops));
            assert!((0.6..=0.8).contains(&found), "{loops}: {found}");
        }
        assert!((0.4..0.6).contains(&of(None)), "{}", of(None));
    }

    #[test]
    fn nothing_that_varies_is_no_correlation() {
        let network = Network::new(100.0, 0.0, 8).unwrap();
        assert_eq!(run(&network, 10, Some(3), 1).correlation, None);
        assert_eq!(run(&network, 1, None, 1).correlation, None);
    }
}
