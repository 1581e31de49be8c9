//! Overlap up to which the natural partitioning is better: Tables 5 and 7, for w loops of l paths with as many
//! requests each (but for the first row).
//!
//! With x = sqrt(w sqrt(w)), lambda the number of paths of w loops together, and l_c of a loop's l paths shared:
//!
//! ```text
//! any requests     l / lambda <= 1/x            single from l / lambda >= 1/sqrt(w)     Corollary 4.1
//! core paths       l_c / l <= (w - x)/(w - 1)   lambda = w (l - l_c) + l_c              4.3
//! shifting paths   l_c / l <= 2 (w - x)/(w - 1)     lambda = w (l - l_c/2) + l_c/2          4.3
//! admissible       l_c / l <= c, sqrt(3/2)(1 - c)(1 - c/3) = 1                          Theorem 6
//! ```
//!
//! By the alternative measure (5.4) sqrt(w) stands in the place of x (Table 7). Table 7 prints the first measure's row
//! of core paths with 2 w for w; its own 0.36 for three loops, and Table 5, say w.

use serde::Serialize;

/// The thresholds for one number of loops.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Thresholds {
    /// w.
    pub loops: u32,
    /// l / lambda, however the requests are spread.
    pub equal_loops: Range,
    /// l_c / l where all loops share the same l_c paths.
    pub core_paths: Range,
    /// l_c / l where each loop shares l_c / 2 paths with either neighbor.
    pub shifting_paths: Natural,
    /// l_c / l against every admissible partitioning, for any number of loops.
    pub admissible: Natural,
    /// By the alternative measure.
    pub alternative: Alternative,
}

/// Where the natural and where the single partitioning is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Natural up to this overlap.
    pub natural_at_most: f64,
    /// Single from this overlap on.
    pub single_at_least: f64,
}

/// Where the natural partitioning is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Natural {
    /// Natural up to this overlap; above 1 always.
    pub natural_at_most: f64,
}

/// The thresholds of the alternative measure (Table 7).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// l / lambda.
    pub equal_loops: Natural,
    /// l_c / l.
    pub core_paths: Natural,
}

impl Thresholds {
    /// For w loops, at least 2.
    #[must_use]
    pub fn of(loops: u32) -> Self {
        let w = f64::from(loops);
        let (root, x) = (w.sqrt(), (w * w.sqrt()).sqrt());
        let core = |growth: f64| (w - growth) / (w - 1.0);
        let natural = |natural_at_most| Natural { natural_at_most };
        Self {
            loops,
            equal_loops: Range {
                natural_at_most: 1.0 / x,
                single_at_least: 1.0 / root,
            },
            core_paths: Range {
                natural_at_most: core(x),
                single_at_least: core(root),
            },
            shifting_paths: natural(2.0 * core(x)),
            // (1 - c)(1 - c/3) = sqrt(2/3), the smaller root.
            admissible: natural(2.0 - (1.0 + 3.0 * (2.0_f64 / 3.0).sqrt()).sqrt()),
            alternative: Alternative {
                equal_loops: natural(1.0 / root),
                core_paths: natural(core(root)),
            },
        }
    }
}
