//! What a partitioning costs on a time-multiplexed network, and how well L foretells it (fig. 3).
//!
//! The network is circuit switched and multiplexed m ways: its state is a cycle of m slots, each of
//! which realizes one path (paths in one slot without conflict count as one). Before a partition the
//! network is loaded with the partition's working set; during it every request waits for its slot.
//!
//! ```text
//! K  fixed cost of loading a network state
//! E  cost of establishing one path
//! A  time of one slot; a request on a cycle of m slots takes m A
//! cost of partition i = K c_i + E e_i + A m n_i
//! ```
//!
//! c_i is the number of loads and e_i of paths established. A working set that fits (w_i <= m) is
//! loaded once: c_i = 1, e_i = w_i. One that does not fit is served m paths at a time, and a request
//! for a path that is not loaded replaces the path used longest ago: c_i - 1 and e_i - m are then the
//! misses after the first load.
//!
//! Reading taken: the paper's text leaves the roles of E and A to its predecessor (Salisbury and
//! Melhem, IPPS 1997); this is the linear cost with a load term per partition, an establishment term
//! per path and a slot time per request. What it lacks: overlap of loading and transfer.

use serde::Serialize;

use super::partition::Partitioning;
use super::sequence::Sequence;

/// K, E, A and m.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// K, the fixed cost of loading a network state.
    pub load: f64,
    /// E, the cost of establishing a path.
    pub establish: f64,
    /// A, the time of a slot.
    pub slot: f64,
    /// m, the number of slots, at least 1.
    pub slots: u64,
}

/// A parameter out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NetworkError {
    /// K, E or A is negative or not finite.
    #[error("{name} = {value}: must be finite and not negative")]
    Cost {
        /// K, E or A.
        name: &'static str,
        /// The value.
        value: f64,
    },
    /// m = 0.
    #[error("m = 0: the network needs at least one slot")]
    NoSlots,
}

impl Network {
    /// Checks the parameters.
    ///
    /// # Errors
    /// When a cost is negative or not finite, or there is no slot.
    pub fn new(load: f64, establish: f64, slot: f64, slots: u64) -> Result<Self, NetworkError> {
        for (name, value) in [("K", load), ("E", establish), ("A", slot)] {
            if !value.is_finite() || value < 0.0 {
                return Err(NetworkError::Cost { name, value });
            }
        }
        if slots == 0 {
            return Err(NetworkError::NoSlots);
        }
        Ok(Self {
            load,
            establish,
            slot,
            slots,
        })
    }

    /// The cost of a program's communication under a partitioning.
    #[must_use]
    pub fn cost(&self, sequence: &Sequence, partitioning: &Partitioning) -> Cost {
        let mut cost = Cost::default();
        let mut recent = Recent::new(sequence.paths());
        for (range, partition) in partitioning.ranges().zip(&partitioning.partitions) {
            cost.loads += 1;
            if partition.paths <= self.slots {
                cost.established += partition.paths;
            } else {
                let misses = recent.misses(&sequence.requests()[range], self.slots);
                cost.established += misses;
                cost.loads += misses - self.slots;
            }
            cost.requests += partition.requests;
        }
        cost.total = self.load * cost.loads as f64
            + self.establish * cost.established as f64
            + self.slot * self.slots as f64 * cost.requests as f64;
        cost
    }
}

/// What it costs, and of what it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// In the unit of K, E and A.
    pub total: f64,
    /// Loads of a network state.
    pub loads: u64,
    /// Paths established.
    pub established: u64,
    /// Requests served.
    pub requests: u64,
}

/// Paths in the order of their last use, as a doubly linked list over the path indices: a replacement
/// is O(1) whatever the number of slots.
struct Recent {
    newer: Vec<u32>,
    older: Vec<u32>,
    loaded: Vec<bool>,
}

impl Recent {
    fn new(paths: usize) -> Self {
        // The last index is the list's head and tail.
        let mut list = Self {
            newer: vec![0; paths + 1],
            older: vec![0; paths + 1],
            loaded: vec![false; paths],
        };
        list.clear();
        list
    }

    fn clear(&mut self) {
        let head = self.loaded.len();
        let mut path = self.older[head] as usize;
        while path != head && self.loaded.get(path).copied().unwrap_or(false) {
            self.loaded[path] = false;
            path = self.older[path] as usize;
        }
        self.newer[head] = head as u32;
        self.older[head] = head as u32;
    }

    fn unlink(&mut self, path: usize) {
        let (newer, older) = (self.newer[path] as usize, self.older[path] as usize);
        self.older[newer] = older as u32;
        self.newer[older] = newer as u32;
    }

    fn push(&mut self, path: usize) {
        let head = self.loaded.len();
        let newest = self.older[head] as usize;
        self.newer[path] = head as u32;
        self.older[path] = newest as u32;
        self.newer[newest] = path as u32;
        self.older[head] = path as u32;
    }

    /// Requests for paths that are not loaded, with `slots` of them loaded at most.
    fn misses(&mut self, requests: &[u32], slots: u64) -> u64 {
        let head = self.loaded.len();
        let (mut misses, mut loaded) = (0, 0);
        for &path in requests {
            let path = path as usize;
            if self.loaded[path] {
                self.unlink(path);
            } else {
                misses += 1;
                if loaded == slots {
                    let oldest = self.newer[head] as usize;
                    self.unlink(oldest);
                    self.loaded[oldest] = false;
                } else {
                    loaded += 1;
                }
                self.loaded[path] = true;
            }
            self.push(path);
        }
        self.clear();
        misses
    }
}

/// How L and the cost go together over several partitionings of programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Correlation {
    /// (L, requests per unit of cost) of every case.
    pub points: Vec<(f64, f64)>,
    /// Pearson's coefficient between log L and log(requests per cost).
    pub linear: f64,
    /// Spearman's rank coefficient.
    pub rank: f64,
}

/// The correlation over the given points; `None` with fewer than three, or if one of the two does not
/// vary.
#[must_use]
pub fn correlation(points: Vec<(f64, f64)>) -> Option<Correlation> {
    let logs: Vec<(f64, f64)> = points.iter().map(|(l, rate)| (l.ln(), rate.ln())).collect();
    let ranked: Vec<(f64, f64)> = ranks(points.iter().map(|point| point.0))
        .into_iter()
        .zip(ranks(points.iter().map(|point| point.1)))
        .collect();
    if points.len() < 3 {
        return None;
    }
    Some(Correlation {
        linear: pearson(&logs)?,
        rank: pearson(&ranked)?,
        points,
    })
}

fn pearson(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in points {
        xx += (x - mean_x) * (x - mean_x);
        yy += (y - mean_y) * (y - mean_y);
        xy += (x - mean_x) * (y - mean_y);
    }
    let scale = (xx * yy).sqrt();
    (scale > 0.0 && scale.is_finite()).then(|| xy / scale)
}

/// Ranks from 0, ties sharing their mean rank.
fn ranks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let tied = order[start..]
            .iter()
            .take_while(|index| values[**index] == values[order[start]])
            .count();
        for index in &order[start..start + tied] {
            ranks[*index] = start as f64 + (tied - 1) as f64 / 2.0;
        }
        start += tied;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locality::{Method, parse};

    fn cost(text: &str, method: Method, network: Network) -> Cost {
        let document = parse(text).unwrap();
        let partitioning = Partitioning::by(method, &document).unwrap();
        network.cost(&document.sequence, &partitioning)
    }

    #[test]
    fn a_working_set_that_fits_is_loaded_once() {
        let network = Network::new(100.0, 10.0, 1.0, 4).unwrap();
        let found = cost("(1 2 3 4)^40", Method::Natural, network);
        assert_eq!(
            found,
            Cost {
                total: 100.0 + 40.0 + 4.0 * 160.0,
                loads: 1,
                established: 4,
                requests: 160
            }
        );
        let found = cost("(1 2)^10 (3 4)^10", Method::Natural, network);
        assert_eq!((found.loads, found.established), (2, 4));
    }

    #[test]
    fn a_loop_over_one_path_too_many_misses_every_time() {
        let network = Network::new(1.0, 1.0, 1.0, 3).unwrap();
        let found = cost("(1 2 3 4)^5", Method::Single, network);
        assert_eq!((found.loads, found.established), (18, 20));
        // The same loop with the fourth path used rarely misses little.
        let found = cost("(1 2 3)^5 4", Method::Single, network);
        assert_eq!((found.loads, found.established), (2, 4));
    }

    #[test]
    fn parameters_are_checked() {
        assert_eq!(Network::new(1.0, 1.0, 1.0, 0), Err(NetworkError::NoSlots));
        assert!(Network::new(-1.0, 1.0, 1.0, 1).is_err());
        assert!(Network::new(1.0, f64::NAN, 1.0, 1).is_err());
    }

    #[test]
    fn perfect_correlation_and_none() {
        let line = correlation((1..10).map(|x| (f64::from(x), 2.0 * f64::from(x))).collect()).unwrap();
        assert!((line.linear - 1.0).abs() < 1e-12 && (line.rank - 1.0).abs() < 1e-12);
        assert_eq!(correlation(vec![(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(correlation(vec![(1.0, 1.0), (2.0, 2.0)]), None);
    }
}
