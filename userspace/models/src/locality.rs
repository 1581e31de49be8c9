//! Communication locality (Salisbury, Chen and Melhem, "Modeling Communication Locality in
//! Multiprocessors", J. Parallel and Distributed Computing 56, 1999).
//!
//! A program's communication is a sequence of requests; each names a *path* (a source and a
//! destination, or any label). A *partitioning* cuts the sequence into p contiguous partitions;
//! partition i has n_i requests over w_i distinct paths, its *working set*.
//!
//! ```text
//! spatial   S = p / (w_1 + ... + w_p)                         (1)  small working sets
//! temporal  T = sqrt((n_1/w_1)^2 + ... + (n_p/w_p)^2) / p     (2)  paths used again and again
//! locality  L = S T                                           (3)
//! ```
//!
//! p cancels: L = sqrt(Q) / W with Q = sum (n_i/w_i)^2 and W = sum w_i, which makes a move of a cut an
//! O(1) change.
//!
//! The *alternative* measure (5.4) takes the root of the mean square of the w_i for their mean, so that it
//! finds smaller working sets:
//!
//! ```text
//! spatial   S' = p / sqrt(w_1^2 + ... + w_p^2)
//! L' = S' T = sqrt(Q) / sqrt(sum w_i^2)
//! ```
//!
//! What the model lacks: time between requests, message sizes, conflicts between paths.

use serde::Serialize;

pub mod cost;
pub mod decision;
pub mod detect;
pub mod experiment;
pub mod notation;
pub mod optimal;
pub mod partition;
pub mod sequence;
pub mod thresholds;

#[cfg(test)]
mod published_tests;
#[cfg(test)]
mod theorem_tests;

pub use notation::{Document, NotationError, Problem, parse};
pub use partition::{Method, PartitionError, Partitioning};
pub use sequence::Sequence;

/// One partition: its requests and the size of its working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Partition {
    /// n_i, the number of requests.
    pub requests: u64,
    /// w_i, the number of distinct paths.
    pub paths: u64,
}

impl Partition {
    /// n_i / w_i, the mean number of uses of a path.
    #[must_use]
    pub fn reuse(self) -> f64 {
        if self.paths == 0 {
            0.0
        } else {
            self.requests as f64 / self.paths as f64
        }
    }
}

/// The locality of a partitioning.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Locality {
    /// L, eq. (3).
    pub locality: f64,
    /// S, eq. (1).
    pub spatial: f64,
    /// T, eq. (2).
    pub temporal: f64,
    /// L', by the alternative measure of spatial locality (5.4).
    pub alternative: f64,
}

/// The sums that determine the locality of a partitioning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// p, the number of partitions.
    pub partitions: u64,
    /// Q, the sum of (n_i/w_i)^2.
    pub squares: f64,
    /// W, the sum of w_i.
    pub paths: u64,
    /// The sum of w_i^2.
    pub path_squares: f64,
}

impl Sums {
    /// These sums with one more partition.
    #[must_use]
    pub fn with(self, partition: Partition) -> Self {
        let reuse = partition.reuse();
        Self {
            partitions: self.partitions + 1,
            squares: self.squares + reuse * reuse,
            paths: self.paths + partition.paths,
            path_squares: self.path_squares + (partition.paths as f64).powi(2),
        }
    }

    /// L = sqrt(Q) / W; 0 without requests.
    #[must_use]
    pub fn locality(self) -> f64 {
        if self.paths == 0 {
            0.0
        } else {
            self.squares.sqrt() / self.paths as f64
        }
    }

    /// All measures; zeros without requests.
    #[must_use]
    pub fn measures(self) -> Locality {
        if self.paths == 0 {
            return Locality {
                locality: 0.0,
                spatial: 0.0,
                temporal: 0.0,
                alternative: 0.0,
            };
        }
        let (partitions, paths) = (self.partitions as f64, self.paths as f64);
        Locality {
            locality: self.locality(),
            spatial: partitions / paths,
            temporal: self.squares.sqrt() / partitions,
            alternative: self.squares.sqrt() / self.path_squares.sqrt(),
        }
    }
}

/// Eq. (1)–(3) and the alternative, for partitions given by their counts.
#[must_use]
pub fn measure(partitions: &[Partition]) -> Locality {
    partitions
        .iter()
        .copied()
        .fold(Sums::default(), Sums::with)
        .measures()
}
