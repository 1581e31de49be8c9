//! The correlation experiment of fig. 3: does a greater L mean cheaper communication?
//!
//! Random programs of loops are partitioned by every method; each case gives a point (L, requests per
//! unit of cost) with the cost of [`super::cost`]. Reading taken: the paper prints a figure, not the
//! programs behind it; here a program has 1 to 4 loops of 5 to 50 iterations over 2 to 8 paths, of which
//! every fourth is one that an earlier loop uses too.

use perturb_common::fate::{Purpose, draw};
use serde::Serialize;

use super::cost::{Correlation, Network, correlation};
use super::notation::Document;
use super::partition::{Method, Partitioning};
use super::sequence::Sequence;

/// What the experiment found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Experiment {
    /// Programs tried.
    pub programs: u32,
    /// Over all programs and methods.
    pub overall: Correlation,
    /// Mean of Spearman's coefficient over the methods of one program: does L order the partitionings of
    /// a program by their cost? Programs for which it is not defined are left out.
    pub mean_rank_within_program: f64,
}

/// The methods that a program is partitioned by on a network of m slots.
#[must_use]
pub fn methods(slots: u64) -> Vec<Method> {
    let mut limits = vec![1, 2, slots.div_ceil(2), slots];
    limits.sort_unstable();
    limits.dedup();
    let mut methods = vec![Method::Single, Method::Natural, Method::Grouped(slots)];
    methods.extend(limits.into_iter().filter(|limit| *limit > 0).map(Method::Paths));
    methods
}

/// A document's partitionings and what they cost: (method, L, requests per unit of cost).
#[must_use]
pub fn points(document: &Document, network: &Network) -> Vec<(Method, f64, f64)> {
    let point = |method: Method| {
        let partitioning = Partitioning::by(method, document).ok()?;
        let cost = network.cost(&document.sequence, &partitioning);
        (cost.total > 0.0).then(|| {
            (
                method,
                partitioning.locality().locality,
                cost.requests as f64 / cost.total,
            )
        })
    };
    methods(network.slots).into_iter().filter_map(point).collect()
}

/// Runs the experiment; `None` if nothing varies (no programs, or a network without costs).
#[must_use]
pub fn run(network: &Network, programs: u32, seed: u64) -> Option<Experiment> {
    let (mut all, mut ranks) = (Vec::new(), Vec::new());
    for program in 0..programs {
        let document = random_program(seed, u64::from(program));
        let points: Vec<(f64, f64)> = points(&document, network)
            .into_iter()
            .map(|(_, locality, rate)| (locality, rate))
            .collect();
        all.extend(points.iter().copied());
        ranks.extend(correlation(points).map(|found| found.rank));
    }
    let overall = correlation(all)?;
    let mean_rank_within_program = ranks.iter().sum::<f64>() / ranks.len().max(1) as f64;
    Some(Experiment {
        programs,
        overall,
        mean_rank_within_program,
    })
}

fn random_program(seed: u64, program: u64) -> Document {
    let mut drawn = 0;
    let mut below = |bound: u64| {
        drawn += 1;
        draw(seed, program, drawn, Purpose::Jitter) % bound
    };
    let (mut requests, mut loops, mut paths) = (Vec::new(), Vec::new(), 0_u64);
    for _ in 0..=below(4) {
        let (length, iterations) = (2 + below(7), 5 + below(46));
        let body: Vec<u32> = (0..length)
            .map(|_| {
                if paths > 0 && below(4) == 0 {
                    below(paths) as u32
                } else {
                    paths += 1;
                    paths as u32 - 1
                }
            })
            .collect();
        let start = requests.len();
        requests.extend(body.repeat(iterations as usize));
        loops.push(start..requests.len());
    }
    Document {
        sequence: Sequence::new(requests, Vec::new()),
        loops,
        cuts: None,
        method: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locality_foretells_the_cost() {
        let network = Network::new(100.0, 10.0, 1.0, 8).unwrap();
        let found = run(&network, 100, 1).unwrap();
        assert!(
            found.overall.linear > 0.5 && found.mean_rank_within_program > 0.5,
            "{found:?}"
        );
        assert_eq!(found.overall.points.len(), 700);
        assert_eq!(run(&network, 100, 1), Some(found));
    }

    #[test]
    fn without_costs_of_loading_there_is_nothing_to_foretell() {
        let network = Network::new(0.0, 0.0, 1.0, 8).unwrap();
        assert_eq!(run(&network, 10, 1), None);
        assert_eq!(run(&network, 0, 1), None);
    }
}
