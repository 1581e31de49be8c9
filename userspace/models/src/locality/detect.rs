//! Loops found in a raw sequence.
//!
//! A loop is a stretch that repeats its body at least twice. From each position the periods tried
//! are the distances to the next occurrences of the same path; the one whose whole iterations reach
//! furthest is taken, and the search goes on behind it. So the outermost loop is found before the
//! loops inside its body, and a partial last iteration is left to what follows.
//!
//! What it lacks: a loop whose first path occurs more than [`CANDIDATES`] times in its body, one whose
//! iterations differ, and the source's idea of where an iteration begins (rotations are alike).
//! Time: O(n) for the links; a position costs at most [`CANDIDATES`] comparisons that fail early, and
//! a long comparison is remembered by its period, so that it is not made again from every position
//! inside it. 10^7 requests take about a second.

use std::collections::HashMap;
use std::ops::Range;

/// Occurrences of a path that are tried as the beginning of the second iteration.
pub const CANDIDATES: usize = 64;

/// The loops, in order and disjoint.
#[must_use]
pub fn loops(requests: &[u32]) -> Vec<Range<usize>> {
    let next = next_occurrences(requests);
    let mut mismatches = Mismatches::default();
    let mut loops = Vec::new();
    let mut at = 0;
    while at < requests.len() {
        match longest_from(requests, &next, &mut mismatches, at) {
            Some(end) => {
                loops.push(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
    loops
}

/// For each request the index of the next one of the same path, or the sequence's length.
fn next_occurrences(requests: &[u32]) -> Vec<u32> {
    let paths = requests.iter().max().map_or(0, |largest| *largest as usize + 1);
    let mut last = vec![requests.len() as u32; paths];
    let mut next = vec![0; requests.len()];
    for (index, &path) in requests.iter().enumerate().rev() {
        next[index] = last[path as usize];
        last[path as usize] = index as u32;
    }
    next
}

/// Where long comparisons ended, by period: from any position inside such a comparison the next one
/// with the same period ends at the same request.
#[derive(Default)]
struct Mismatches(HashMap<usize, usize>);

impl Mismatches {
    /// Comparisons shorter than this are made again rather than remembered.
    const WORTH: usize = 256;
    const MOST: usize = 4096;

    /// The number of requests from `second` on that equal those `period` before them.
    fn matching(&mut self, requests: &[u32], second: usize, period: usize) -> usize {
        if let Some(end) = self.0.get(&period).filter(|end| **end >= second) {
            return end - second;
        }
        let matching = requests[second - period..]
            .iter()
            .zip(&requests[second..])
            .take_while(|(a, b)| a == b)
            .count();
        if matching >= Self::WORTH {
            if self.0.len() >= Self::MOST {
                self.0.clear();
            }
            self.0.insert(period, second + matching);
        }
        matching
    }
}

/// The end of the loop from `at` that reaches furthest in whole iterations.
fn longest_from(requests: &[u32], next: &[u32], mismatches: &mut Mismatches, at: usize) -> Option<usize> {
    let mut best: Option<(usize, usize)> = None; // period, end of the whole iterations
    let mut second = next[at] as usize;
    for _ in 0..CANDIDATES {
        let period = second - at;
        if second + period > requests.len() {
            break;
        }
        // A multiple of a period that already covers it repeats the same stretch.
        let covered = best.is_some_and(|(known, end)| period.is_multiple_of(known) && second + period <= end);
        if !covered && requests[second + period - 1] == requests[second - 1] {
            let matching = mismatches.matching(requests, second, period);
            let end = second + matching / period * period;
            if matching >= period && best.is_none_or(|(_, reached)| end > reached) {
                best = Some((period, end));
            }
        }
        second = next[second] as usize;
        if second >= requests.len() {
            break;
        }
    }
    best.map(|(_, end)| end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locality::parse;

    fn detected(text: &str) -> Vec<Range<usize>> {
        parse(text)
            .map(|document| loops(document.sequence.requests()))
            .unwrap_or_default()
    }

    #[test]
    fn loops_of_the_notation_are_found_again() {
        for text in [
            "(1 2 3 3)^20 (4 5 6 6)^20",
            "(3 3 1 2)^5",
            "((1 2)^3 (3 4)^5)^10",
            "(1 2)^10 (1 3)^10",
            "((1 2)^2 3)^4 (9)^7",
        ] {
            let document = parse(text).unwrap();
            assert_eq!(loops(document.sequence.requests()), document.loops, "{text}");
        }
    }

    #[test]
    fn stretches_between_loops_are_left_alone() {
        assert_eq!(detected("9 1 2 3 1 2 3 1 2 3 8 8"), [1..10, 10..12]);
        assert_eq!(detected("1 2 3 4 5"), []);
        assert_eq!(detected("1 2 2 3 3 3 1 4"), [1..3, 3..6]);
        assert_eq!(detected("1 2 1 2 1 7 7"), [0..4, 5..7]);
    }
}
