//! Decision functions: whether a change of a partitioning raises its locality.
//!
//! The paper derives such functions for adjacent loops (its eq. (6)–(13)). All of them compare L
//! before and after, and with L = sqrt(Q) / W (see the parent module) they have one form: a change
//! from (Q, W) to (Q', W') is worth it if
//!
//! ```text
//! D = Q' W^2 - Q W'^2 > 0
//! ```
//!
//! Reading taken: the functions below are the cases of this form for two adjacent partitions, numbered
//! in the order in which the cases arise, with the rest of the program's sums (Q_0, W_0) included where
//! the paper speaks of a program of two loops only; pass [`Sums::default`] for that case. Positive means
//! that the change, as the function's name says it, raises L.
//!
//! Symbols: n requests and w paths of a loop, c paths that both loops use.

use super::{Partition, Sums};

/// Two adjacent loops and what they share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loops {
    /// The first loop.
    pub first: Partition,
    /// The second loop.
    pub second: Partition,
    /// c, the number of paths in both; at most the smaller of their w.
    pub shared: u64,
}

impl Loops {
    /// Both loops as one partition.
    #[must_use]
    pub fn joined(self) -> Partition {
        Partition {
            requests: self.first.requests + self.second.requests,
            paths: (self.first.paths + self.second.paths).saturating_sub(self.shared),
        }
    }
}

/// D of the module's head: positive if `after` has the greater locality. Scaled by the larger W^2, so
/// that the size is comparable between programs.
#[must_use]
pub fn gain(before: Sums, after: Sums) -> f64 {
    let scale = before.paths.max(after.paths).max(1) as f64;
    let (before_w, after_w) = (before.paths as f64 / scale, after.paths as f64 / scale);
    after.squares * before_w * before_w - before.squares * after_w * after_w
}

/// (6) Two loops without a common path: keep them apart. Never negative for a program of these two
/// loops: by Cauchy and Schwarz n_1 + n_2 = t_1 w_1 + t_2 w_2 <= sqrt(Q) (w_1 + w_2).
#[must_use]
pub fn keep_disjoint_apart(rest: Sums, first: Partition, second: Partition) -> f64 {
    keep_apart(
        rest,
        Loops {
            first,
            second,
            shared: 0,
        },
    )
}

/// (7) Two loops that share c paths: keep them apart.
#[must_use]
pub fn keep_apart(rest: Sums, loops: Loops) -> f64 {
    gain(
        rest.with(loops.joined()),
        rest.with(loops.first).with(loops.second),
    )
}

/// (8) Two loops over the same paths: join them. Always positive for a program of these two loops.
#[must_use]
pub fn join_same_paths(rest: Sums, paths: u64, first_requests: u64, second_requests: u64) -> f64 {
    let first = Partition {
        requests: first_requests,
        paths,
    };
    let second = Partition {
        requests: second_requests,
        paths,
    };
    -keep_apart(
        rest,
        Loops {
            first,
            second,
            shared: paths,
        },
    )
}

/// (9) One loop: cut it between two iterations, `head` requests before the cut.
#[must_use]
pub fn cut_between_iterations(rest: Sums, body: Partition, head: u64) -> f64 {
    let head = Partition {
        requests: head.min(body.requests),
        paths: body.paths,
    };
    let tail = Partition {
        requests: body.requests - head.requests,
        paths: body.paths,
    };
    gain(rest.with(body), rest.with(head).with(tail))
}

/// What moving one request over the cut between two loops does to their working sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The request's path is new to the loop that gets it.
    pub grows: bool,
    /// It was the last request of its path in the loop that loses it.
    pub shrinks: bool,
}

/// (11) Move the second loop's leading request to the first loop.
#[must_use]
pub fn move_to_first(rest: Sums, loops: Loops, effect: Move) -> f64 {
    let first = Partition {
        requests: loops.first.requests + 1,
        paths: loops.first.paths + u64::from(effect.grows),
    };
    let second = Partition {
        requests: loops.second.requests.saturating_sub(1),
        paths: loops.second.paths.saturating_sub(u64::from(effect.shrinks)),
    };
    gain(
        rest.with(loops.first).with(loops.second),
        rest.with(first).with(second),
    )
}

/// (12) Move the first loop's trailing request to the second loop.
#[must_use]
pub fn move_to_second(rest: Sums, loops: Loops, effect: Move) -> f64 {
    let mirrored = Loops {
        first: loops.second,
        second: loops.first,
        shared: loops.shared,
    };
    move_to_first(rest, mirrored, effect)
}
