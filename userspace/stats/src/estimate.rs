//! A point with its interval.
//!
//! Model: `lower <= point <= upper`, and repeated experiments would cover the true value in the
//! share `confidence` of cases, under the assumptions of the method that made the estimate.

use serde::{Deserialize, Serialize};

/// A point estimate and the interval that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The best single value.
    pub point: f64,
    /// Lower end of the interval.
    pub lower: f64,
    /// Upper end of the interval.
    pub upper: f64,
    /// The coverage the interval really has, between 0 and 1. Distribution-free intervals of small
    /// samples cover less than was asked for, and say so here.
    pub confidence: f64,
}

impl Estimate {
    /// Half the width of the interval.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.upper - self.lower) / 2.0
    }

    /// Half the width of the interval over the point; `None` at a point of 0.
    #[must_use]
    pub fn relative_half_width(&self) -> Option<f64> {
        (self.point != 0.0).then(|| (self.half_width() / self.point).abs())
    }

    /// Whether `value` lies inside the interval.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        (self.lower..=self.upper).contains(&value)
    }
}

/// Why an interval cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum EstimateError {
    /// The confidence is not a proper fraction.
    #[error("confidence is {0}; it must lie between 0 and 1, both excluded (0.95 is usual)")]
    Confidence(f64),
    /// The quantile is not a fraction.
    #[error("quantile is {0}; it must lie between 0 and 1 (0.99 for the 99th percentile)")]
    Quantile(f64),
    /// Too few resamples for the tails of the bootstrap distribution.
    #[error("{resamples} bootstrap resamples; at least {needed} are needed for this confidence")]
    Resamples {
        /// What was asked for.
        resamples: usize,
        /// The fewest that leave a point in each tail.
        needed: usize,
    },
}

pub(crate) fn check_confidence(confidence: f64) -> Result<(), EstimateError> {
    if confidence > 0.0 && confidence < 1.0 {
        Ok(())
    } else {
        Err(EstimateError::Confidence(confidence))
    }
}

pub(crate) fn check_quantile(quantile: f64) -> Result<(), EstimateError> {
    if (0.0..=1.0).contains(&quantile) {
        Ok(())
    } else {
        Err(EstimateError::Quantile(quantile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths() {
        let estimate = Estimate {
            point: 10.0,
            lower: 9.0,
            upper: 12.0,
            confidence: 0.95,
        };
        assert_eq!(estimate.half_width(), 1.5);
        assert_eq!(estimate.relative_half_width(), Some(0.15));
        assert!(estimate.contains(9.0) && estimate.contains(12.0) && !estimate.contains(12.1));
        assert_eq!(
            Estimate {
                point: 0.0,
                ..estimate
            }
            .relative_half_width(),
            None
        );
    }
}
