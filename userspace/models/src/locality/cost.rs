//! What a partitioning costs on a time-multiplexed network (5.2), and how well L foretells it (Fig. 3).
//!
//! The network is circuit switched. Its state provides m paths at once; K states are multiplexed in time, a
//! cycle of K A. With *one-partition multiplexing* K is as large as a partition's paths need, so that its network
//! state is loaded once, and a request waits half a cycle on average, less where several share it:
//!
//! ```text
//! K_i  = ceil(|M_i| / m)
//! cost = sum over partitions of E + A K_i |P_i| / (2 m)
//! ```
//!
//! What it lacks: overlap of loading and transfer, and other multiplexing degrees.

use perturb_stats::rank_correlation;
use serde::Serialize;

use super::Partition;

pub use perturb_stats::correlation as pearson;

/// E, A and m.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// E, the time to load a network state.
    pub load: f64,
    /// A, the cycle time of a state in the multiplexed sequence, in the unit of E.
    pub cycle: f64,
    /// m, the number of paths at once, at least 1.
    pub paths: u64,
}

/// A parameter out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NetworkError {
    /// E or A is negative or not finite.
    #[error("{name} = {value}: must be finite and not negative")]
    Cost {
        /// E or A.
        name: &'static str,
        /// The value.
        value: f64,
    },
    /// m = 0.
    #[error("m = 0: the network needs at least one path")]
    NoPaths,
}

impl Network {
    /// Checks the parameters.
    ///
    /// # Errors
    /// When a cost is negative or not finite, or there is no path.
    pub fn new(load: f64, cycle: f64, paths: u64) -> Result<Self, NetworkError> {
        for (name, value) in [("E", load), ("A", cycle)] {
            if !value.is_finite() || value < 0.0 {
                return Err(NetworkError::Cost { name, value });
            }
        }
        if paths == 0 {
            return Err(NetworkError::NoPaths);
        }
        Ok(Self { load, cycle, paths })
    }

    /// K_i, the multiplexing degree that holds all paths of a partition.
    #[must_use]
    pub fn multiplexing(&self, partition: Partition) -> u64 {
        partition.paths.div_ceil(self.paths)
    }

    /// The cost of a program's communication under a partitioning.
    #[must_use]
    pub fn cost(&self, partitions: &[Partition]) -> Cost {
        let mut cost = Cost::default();
        for partition in partitions {
            cost.loads += 1;
            cost.established += partition.paths;
            cost.requests += partition.requests;
            let multiplexing = self.multiplexing(*partition) as f64;
            cost.total +=
                self.load + self.cycle * multiplexing * partition.requests as f64 / (2.0 * self.paths as f64);
        }
        cost
    }
}

/// What it costs, and of what it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// In the unit of E and A.
    pub total: f64,
    /// Loads of a network state: one per partition.
    pub loads: u64,
    /// Paths that the loaded states provide: the sum of the working sets' sizes.
    pub established: u64,
    /// Requests served.
    pub requests: u64,
}

/// How two quantities go together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Correlation {
    /// Pearson's coefficient between their logarithms.
    pub linear: f64,
    /// Spearman's rank coefficient.
    pub rank: f64,
}

/// The correlation over points of positive coordinates, here L and the requests per unit of cost; `None` with
/// fewer than three, or if one of the two does not vary.
#[must_use]
pub fn correlation(points: &[(f64, f64)]) -> Option<Correlation> {
    if points.len() < 3 {
        return None;
    }
    let logs: Vec<(f64, f64)> = points.iter().map(|(l, rate)| (l.ln(), rate.ln())).collect();
    Some(Correlation {
        linear: pearson(&logs)?,
        rank: rank_correlation(points)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locality::{Method, Partitioning, parse};

    fn partitions(text: &str, method: Method) -> Vec<Partition> {
        Partitioning::by(method, &parse(text).unwrap())
            .unwrap()
            .partitions
    }

    /// 5.2, one request at a time: a path is in one of the K states of m paths, its state comes once in every K A,
    /// and a request comes at any time of that cycle. Each of the m paths of a state serves its own requests, so that
    /// the network gets through m of them in the time that one waits.
    fn simulated(network: &Network, partitions: &[Partition]) -> f64 {
        let mut total = 0.0;
        for partition in partitions {
            let states = (0..partition.paths)
                .map(|path| path / network.paths)
                .max()
                .unwrap()
                + 1;
            let period = states as f64 * network.cycle;
            let steps = 1000;
            let mut waited = 0.0;
            for request in 0..partition.requests {
                let opens = (request % partition.paths / network.paths) as f64 * network.cycle;
                let came = ((request * 617) % steps) as f64 / steps as f64 * period;
                waited += (opens - came).rem_euclid(period);
            }
            total += network.load + waited / network.paths as f64;
        }
        total
    }

    #[test]
    fn the_cost_is_a_load_per_partition_and_half_a_cycle_per_request() {
        let network = Network::new(100.0, 2.0, 3).unwrap();
        // K = 2 for four paths, 1 for three.
        let found = network.cost(&partitions("(1 2 3 4)^40 (1 2 3)^10", Method::Natural));
        let expected = 200.0 + 2.0 * 2.0 * 160.0 / 6.0 + 2.0 * 30.0 / 6.0;
        assert!((found.total - expected).abs() < 1e-9, "{found:?}");
        assert_eq!((found.loads, found.established, found.requests), (2, 7, 190));
    }

    #[test]
    fn the_printed_cost_is_what_requests_wait() {
        for paths in [1, 2, 3, 4, 8] {
            let network = Network::new(50.0, 2.0, paths).unwrap();
            for text in ["(1 2 3 4 5 6)^500", "(1 2)^1000 (3 4 5 6 7)^800 8"] {
                let partitions = partitions(text, Method::Natural);
                let (found, seen) = (network.cost(&partitions).total, simulated(&network, &partitions));
                assert!(
                    (found / seen - 1.0).abs() < 0.02,
                    "{text}, m = {paths}: {found} {seen}"
                );
            }
        }
    }

    #[test]
    fn parameters_are_checked() {
        assert_eq!(Network::new(1.0, 1.0, 0), Err(NetworkError::NoPaths));
        assert!(Network::new(-1.0, 1.0, 1).is_err());
        assert!(Network::new(1.0, f64::NAN, 1).is_err());
    }

    #[test]
    fn perfect_correlation_and_none() {
        let line: Vec<(f64, f64)> = (1..10).map(|x| (f64::from(x), 2.0 * f64::from(x))).collect();
        let found = correlation(&line).unwrap();
        assert!((found.linear - 1.0).abs() < 1e-12 && (found.rank - 1.0).abs() < 1e-12);
        assert!((pearson(&line).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(correlation(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(correlation(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(pearson(&[(1.0, 1.0)]), None);
    }
}
