//! NF look-up tables: one-way message time over message size.
//!
//! Linear between two sizes; outside, the nearest segment is continued, but never below zero. A table
//! of one size is constant.

use perturb_quantity::{ByteSize, Micros};
use serde::Deserialize;

/// One measured point.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Message size.
    pub size: ByteSize,
    /// One-way time.
    pub time: Micros,
}

/// A table that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TableError {
    /// No points.
    #[error("network.{name}: the table is empty; give at least one `{{size: 0B, time: 20us}}`")]
    Empty {
        /// `local`, `remote`, or `overhead.` and what it is of.
        name: &'static str,
    },
    /// Two times for one size.
    #[error("network.{name}: size {size} B is given twice; give one time per size")]
    Duplicate {
        /// `local`, `remote`, or `overhead.` and what it is of.
        name: &'static str,
        /// The size in bytes.
        size: f64,
    },
}

/// A look-up table with ascending sizes, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    points: Vec<(f64, f64)>,
}

impl Table {
    /// From points in any order; `name` is for errors.
    ///
    /// # Errors
    /// When there is no point or a size is given twice.
    pub fn new(name: &'static str, points: &[Point]) -> Result<Self, TableError> {
        let mut points: Vec<(f64, f64)> = points.iter().map(|point| (point.size.0, point.time.0)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if points.is_empty() {
            return Err(TableError::Empty { name });
        }
        if let Some(pair) = points.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(TableError::Duplicate {
                name,
                size: pair[0].0,
            });
        }
        Ok(Self { points })
    }

    /// A table that takes `time` µs whatever the size.
    #[must_use]
    pub fn constant(time: f64) -> Self {
        Self {
            points: vec![(0.0, time)],
        }
    }

    /// The one-way time of a message of `bytes`, in µs.
    #[must_use]
    pub fn time(&self, bytes: f64) -> f64 {
        let above = self.points.partition_point(|point| point.0 < bytes);
        // The segment that ends at the first size not below; outside, the outermost one.
        let Some(high) = self
            .points
            .len()
            .checked_sub(1)
            .map(|last| above.clamp(1.min(last), last))
        else {
            return 0.0;
        };
        if high == 0 {
            return self.points[0].1;
        }
        let ((low_size, low), (high_size, high)) = (self.points[high - 1], self.points[high]);
        let time = low + (high - low) * ((bytes - low_size) / (high_size - low_size));
        time.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(points: &[(f64, f64)]) -> Table {
        let points: Vec<Point> = points
            .iter()
            .map(|(size, time)| Point {
                size: ByteSize(*size),
                time: Micros(*time),
            })
            .collect();
        Table::new("remote", &points).unwrap()
    }

    #[test]
    fn interpolates_and_continues() {
        let table = table(&[(200.0, 30.0), (100.0, 10.0), (400.0, 40.0)]);
        for (bytes, time) in [
            (100.0, 10.0),
            (150.0, 20.0),
            (200.0, 30.0),
            (300.0, 35.0),
            (400.0, 40.0),
            (600.0, 50.0),
            (75.0, 5.0),
            (0.0, 0.0),
        ] {
            assert!(
                (table.time(bytes) - time).abs() < 1e-12,
                "{bytes} B: {}",
                table.time(bytes)
            );
        }
    }

    #[test]
    fn one_point_is_constant() {
        let table = table(&[(8.0, 3.0)]);
        assert_eq!(
            (table.time(0.0), table.time(8.0), table.time(1e9)),
            (3.0, 3.0, 3.0)
        );
        assert_eq!(Table::constant(3.0).time(5.0), 3.0);
    }

    #[test]
    fn refusals() {
        assert_eq!(Table::new("local", &[]), Err(TableError::Empty { name: "local" }));
        let twice = Point {
            size: ByteSize(1.0),
            time: Micros(1.0),
        };
        assert_eq!(
            Table::new("local", &[twice, twice]),
            Err(TableError::Duplicate {
                name: "local",
                size: 1.0
            })
        );
    }
}
