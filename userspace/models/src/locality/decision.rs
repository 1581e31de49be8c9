//! When the natural partitioning is better than the single one: Theorem 4, for any number of loops.
//!
//! Loop i has l_i paths and the share u_i of all requests; lambda is the number of paths of all loops together.
//!
//! ```text
//! d = L(natural) / L(single) = lambda^2 / sum l_i * sqrt(sum (u_i / l_i)^2)     (6), for two loops (11)
//! natural is better whatever u   if  lambda^2 >= sum l_i * sqrt(sum l_i^2)       (7), (12)
//! single is better whatever u    if  lambda^2 <= sum l_i * min l_i               (8), (13)
//! ```
//!
//! d is least where u_i = l_i^2 / sum l_j^2 (10). By the alternative measure (5.4) the sum of the l_i becomes the
//! root of the sum of their squares.
//!
//! Theorem 4 compares two partitionings. Corollary 4.2 says that for two loops that overlap the better one of
//! them is the best of all; that is not so: `(1)^6 (1 2 3)^3` has d = 1.006 and enough iterations, L = 1.677 natural, but
//! 1.873 with the second loop's first request in the first partition.

use serde::Serialize;

use super::Partition;

/// Whether a program's loops are better kept apart or together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// d (6): above 1 the natural partitioning has the greater locality, below 1 the single one.
    pub d: f64,
    /// (7): natural, however the requests are spread over the loops.
    pub natural_always: bool,
    /// (8): single, however the requests are spread over the loops.
    pub single_always: bool,
    /// d by the alternative measure (5.4).
    pub d_alternative: f64,
}

impl Decision {
    /// For the partitions of the natural partitioning, at least one, and the number of paths of all loops together.
    #[must_use]
    pub fn of(natural: &[Partition], paths: u64) -> Self {
        let requests: u64 = natural.iter().map(|partition| partition.requests).sum();
        let spread: f64 = natural
            .iter()
            .map(|partition| (partition.reuse() / requests as f64).powi(2))
            .sum();
        let sum: u64 = natural.iter().map(|partition| partition.paths).sum();
        let squares: u128 = natural
            .iter()
            .map(|partition| u128::from(partition.paths).pow(2))
            .sum();
        let least = natural.iter().map(|partition| partition.paths).min().unwrap_or(0);
        let all = u128::from(paths);
        let scale = (paths as f64).powi(2) * spread.sqrt();
        Self {
            d: scale / sum as f64,
            // Squared, so that equality is exact; a sum too large for the type is larger than lambda^4.
            natural_always: all.saturating_pow(4) >= u128::from(sum).pow(2).saturating_mul(squares),
            single_always: all * all <= u128::from(sum) * u128::from(least),
            d_alternative: scale / (squares as f64).sqrt(),
        }
    }
}
