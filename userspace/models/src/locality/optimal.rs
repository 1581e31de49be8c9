//! The partitioning of greatest locality.
//!
//! L = sqrt(Q) / W is not additive, but Q is for a given W. The exact search keeps, for every prefix
//! and every W it can have, the greatest Q: O(n^2) stretches times the n values of W, O(n^3) time and
//! O(n^2) memory, so it is used up to [`EXACT_REQUESTS`] requests. (Maximizing Q - mu W instead would
//! be faster, but finds only the corners of the convex hull of (W, Q), and L is quasi-concave: its
//! maximum can lie between corners.)
//!
//! Longer sequences are searched: the exact method over a limited number of candidate cuts (those of
//! the natural and of the path-limited partitionings), the best of the simple partitionings, then
//! single cuts moved, removed or added while L grows. The result comes with a bound that no
//! partitioning exceeds: with t_i = n_i/w_i,
//!
//! ```text
//! L = sqrt(sum t_i^2) / sum w_i <= sum t_i / sum w_i <= max t_i / w_i = max n_i / w_i^2
//! ```
//!
//! and the largest n for a given w is the longest stretch with at most w paths.

use super::Sums;
use super::sequence::{Distinct, Sequence};
use super::{Partition, partition::Partitioning};

/// The longest sequence that is solved exactly.
pub const EXACT_REQUESTS: usize = 512;

/// Candidate cuts for longer sequences.
const CANDIDATE_CUTS: usize = 400;

/// Requests that one pass of the search may look at, over all moves.
const SEARCH_BUDGET: usize = 200_000_000;

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// The index after each partition's last request.
    pub ends: Vec<usize>,
    /// No partitioning is better than this; `None` if `ends` are exact.
    pub bound: Option<f64>,
}

/// The best partitioning: exact up to `exact` requests, searched beyond. `natural` are the ends of the
/// natural partitioning, from which the search starts.
#[must_use]
pub fn optimal(sequence: &Sequence, natural: &[usize], exact: usize) -> Optimum {
    let requests = sequence.len();
    if requests <= exact {
        let cuts: Vec<usize> = (1..=requests).collect();
        return Optimum {
            ends: best_over(sequence, &cuts),
            bound: None,
        };
    }
    let mut best: Option<(f64, Vec<usize>)> = None;
    let mut consider = |ends: Vec<usize>| {
        let found = Partitioning::from_ends(sequence, ends);
        let locality = found.sums().locality();
        if best.as_ref().is_none_or(|(known, _)| locality > *known) {
            best = Some((locality, found.ends));
        }
    };
    consider(vec![requests]);
    consider(natural.to_vec());
    if natural.len() <= CANDIDATE_CUTS {
        consider(best_over(sequence, natural));
    }
    consider(best_over(sequence, &even_cuts(requests, natural)));
    let (_, ends) = best.unwrap_or((0.0, vec![requests]));
    let ends = improved(sequence, ends);
    let bound = upper_bound(sequence);
    Optimum {
        ends,
        bound: Some(bound),
    }
}

/// Natural cuts thinned out, filled up with evenly spaced ones.
fn even_cuts(requests: usize, natural: &[usize]) -> Vec<usize> {
    let half = CANDIDATE_CUTS / 2;
    let step = natural.len().div_ceil(half).max(1);
    let mut cuts: Vec<usize> = natural.iter().copied().step_by(step).collect();
    cuts.extend((1..=half).map(|index| (requests as u128 * index as u128 / half as u128) as usize));
    cuts.push(requests);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.retain(|cut| *cut > 0);
    cuts
}

/// The best partitioning whose cuts are among `cuts` (ascending, the last is the sequence's length).
fn best_over(sequence: &Sequence, cuts: &[usize]) -> Vec<usize> {
    // best[j]: for each W, (Q, previous cut + 1, W before) of the best partitioning of the first j blocks.
    #[derive(Clone, Copy)]
    struct State {
        paths: u64,
        squares: f64,
        from: u32,
        from_state: u32,
    }
    let starts: Vec<usize> = [0].into_iter().chain(cuts.iter().copied()).collect();
    let mut best: Vec<Vec<State>> = vec![vec![State {
        paths: 0,
        squares: 0.0,
        from: 0,
        from_state: 0,
    }]];
    let mut distinct = Distinct::new(sequence.paths());
    let mut table: Vec<Option<State>> = Vec::new();
    for to in 1..starts.len() {
        table.clear();
        for from in (0..to).rev() {
            for &path in &sequence.requests()[starts[from]..starts[from + 1]] {
                distinct.add(path);
            }
            let partition = distinct.partition();
            let squares = partition.reuse() * partition.reuse();
            for (from_state, state) in best[from].iter().enumerate() {
                let paths = state.paths + partition.paths;
                let candidate = State {
                    paths,
                    squares: state.squares + squares,
                    from: from as u32,
                    from_state: from_state as u32,
                };
                let slot = paths as usize;
                if slot >= table.len() {
                    table.resize(slot + 1, None);
                }
                if table[slot].is_none_or(|known| candidate.squares > known.squares) {
                    table[slot] = Some(candidate);
                }
            }
        }
        distinct.finish();
        // A state with more paths and no more squares is of no use to any continuation.
        let mut kept: Vec<State> = Vec::new();
        for state in table.iter().flatten() {
            if kept.last().is_none_or(|last| state.squares > last.squares) {
                kept.push(*state);
            }
        }
        best.push(kept);
    }
    let mut at = starts.len() - 1;
    let locality = |state: &State| {
        Sums {
            squares: state.squares,
            paths: state.paths,
            ..Sums::default()
        }
        .locality()
    };
    let Some((mut index, _)) = best[at]
        .iter()
        .enumerate()
        .max_by(|a, b| locality(a.1).total_cmp(&locality(b.1)))
    else {
        return vec![sequence.len()];
    };
    let mut ends = Vec::new();
    while at > 0 {
        ends.push(starts[at]);
        let state = best[at][index];
        (at, index) = (state.from as usize, state.from_state as usize);
    }
    ends.reverse();
    ends
}

/// Single cuts moved by one, or removed, while L grows and the budget lasts.
fn improved(sequence: &Sequence, mut ends: Vec<usize>) -> Vec<usize> {
    let requests = sequence.requests();
    let mut distinct = Distinct::new(sequence.paths());
    let mut count = |range: std::ops::Range<usize>| {
        for &path in &requests[range] {
            distinct.add(path);
        }
        distinct.finish()
    };
    let mut budget = SEARCH_BUDGET;
    let mut sums = Partitioning::from_ends(sequence, ends.clone()).sums();
    let mut improves = true;
    while improves && budget > 0 {
        improves = false;
        let mut cut = 0;
        while cut + 1 < ends.len() {
            let start = if cut == 0 { 0 } else { ends[cut - 1] };
            let (middle, end) = (ends[cut], ends[cut + 1]);
            let cost = (end - start) * 4;
            if cost > budget {
                return ends;
            }
            budget -= cost;
            let rest = without(without(sums, count(start..middle)), count(middle..end));
            let mut best = (sums.locality(), middle, sums);
            for position in [middle - 1, middle + 1, start] {
                let candidate = if position <= start || position >= end {
                    (rest.with(count(start..end)), start)
                } else {
                    (
                        rest.with(count(start..position)).with(count(position..end)),
                        position,
                    )
                };
                // A change below the rounding error of Q would loop for ever.
                if candidate.0.locality() > best.0 * (1.0 + 1e-12) {
                    best = (candidate.0.locality(), candidate.1, candidate.0);
                }
            }
            if best.1 == middle {
                cut += 1;
                continue;
            }
            improves = true;
            sums = best.2;
            if best.1 == start {
                ends.remove(cut);
            } else {
                ends[cut] = best.1;
            }
        }
    }
    ends
}

fn without(sums: Sums, partition: Partition) -> Sums {
    let reuse = partition.reuse();
    Sums {
        partitions: sums.partitions - 1,
        squares: sums.squares - reuse * reuse,
        paths: sums.paths - partition.paths,
        path_squares: sums.path_squares - (partition.paths as f64).powi(2),
    }
}

/// The bound of the module's head: the maximum over w of (longest stretch with at most w paths) / w^2.
/// Beyond w = 64 the values of w grow by a quarter, which loosens the bound by at most 1.25^2 there.
#[must_use]
pub fn upper_bound(sequence: &Sequence) -> f64 {
    let mut bound = 0.0_f64;
    let mut paths = 1_usize;
    let mut below = 0_usize;
    loop {
        let longest = longest_with(sequence, paths);
        let least = (below + 1) as f64;
        bound = bound.max(longest as f64 / (least * least));
        if longest == sequence.len() || (sequence.len() as f64) <= bound * (paths as f64).powi(2) {
            return bound;
        }
        below = paths;
        paths = if paths < 64 { paths + 1 } else { paths + paths / 4 };
    }
}

/// The longest stretch with at most `limit` distinct paths.
fn longest_with(sequence: &Sequence, limit: usize) -> usize {
    let requests = sequence.requests();
    let mut uses = vec![0_u32; sequence.paths()];
    let (mut start, mut distinct, mut longest) = (0, 0, 0);
    for (index, &path) in requests.iter().enumerate() {
        distinct += usize::from(uses[path as usize] == 0);
        uses[path as usize] += 1;
        while distinct > limit {
            let left = &mut uses[requests[start] as usize];
            *left -= 1;
            distinct -= usize::from(*left == 0);
            start += 1;
        }
        longest = longest.max(index + 1 - start);
    }
    longest
}
