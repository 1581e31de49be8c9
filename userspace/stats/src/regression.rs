//! A straight line through points, by least squares.
//!
//! Model: y = intercept + slope x + e, with errors e independent, of equal variance, normal for the
//! intervals. r² is the share of y's variance that the line explains.
//! What is lacking: errors in x, weights, curvature; look at the residuals before believing it.

use serde::Serialize;

use crate::{
    Estimate,
    estimate::{EstimateError, check_confidence},
    sample::student_t,
};

/// A fitted line with its standard errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Rise of y per unit of x.
    pub slope: f64,
    /// y at x = 0.
    pub intercept: f64,
    /// Standard error of the slope; absent for two points, which any line fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slope_error: Option<f64>,
    /// Standard error of the intercept; absent for two points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intercept_error: Option<f64>,
    /// Coefficient of determination, 0 to 1; absent where y does not vary at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r_squared: Option<f64>,
    /// Number of points.
    pub points: usize,
}

/// Why no line can be fitted.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RegressionError {
    /// A line needs two points.
    #[error("{0} point(s); a line needs at least 2")]
    TooFew(usize),
    /// One coordinate is NaN or infinite.
    #[error("point {index} is ({x}, {y}); both coordinates must be finite")]
    NotFinite {
        /// Position in the list, from 0.
        index: usize,
        /// Its x.
        x: f64,
        /// Its y.
        y: f64,
    },
    /// All points have the same x.
    #[error("every point has x = {0}; a slope needs at least two different values")]
    NoSpread(f64),
}

impl Line {
    /// The least-squares line through `(x, y)` points.
    pub fn fit(points: &[(f64, f64)]) -> Result<Self, RegressionError> {
        if let Some((index, &(x, y))) = points
            .iter()
            .enumerate()
            .find(|(_, (x, y))| !x.is_finite() || !y.is_finite())
        {
            return Err(RegressionError::NotFinite { index, x, y });
        }
        if points.len() < 2 {
            return Err(RegressionError::TooFew(points.len()));
        }
        let n = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / n;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / n;
        // Sums of squares about the means: stable where the textbook formula cancels.
        let spread_x: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let spread_y: f64 = points.iter().map(|(_, y)| (y - mean_y).powi(2)).sum();
        let together: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        if points.iter().all(|(x, _)| *x == points[0].0) || spread_x == 0.0 {
            return Err(RegressionError::NoSpread(points[0].0));
        }
        let slope = together / spread_x;
        let intercept = mean_y - slope * mean_x;
        let residuals: f64 = points
            .iter()
            .map(|(x, y)| (y - intercept - slope * x).powi(2))
            .sum();
        let residual_error = if points.len() > 2 {
            (residuals / (n - 2.0)).sqrt()
        } else {
            0.0
        };
        let slope_error = residual_error / spread_x.sqrt();
        let intercept_error = residual_error * (1.0 / n + mean_x * mean_x / spread_x).sqrt();
        Ok(Self {
            slope,
            intercept,
            slope_error: (points.len() > 2).then_some(slope_error),
            intercept_error: (points.len() > 2).then_some(intercept_error),
            r_squared: (spread_y > 0.0).then(|| (1.0 - residuals / spread_y).clamp(0.0, 1.0)),
            points: points.len(),
        })
    }

    /// The line's y at `x`.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// The slope's interval; `None` for two points, which leave no degree of freedom.
    pub fn slope_interval(&self, confidence: f64) -> Result<Option<Estimate>, EstimateError> {
        check_confidence(confidence)?;
        Ok(self.slope_error.map(|error| {
            let half = student_t((self.points - 2) as f64, confidence) * error;
            Estimate {
                point: self.slope,
                lower: self.slope - half,
                upper: self.slope + half,
                confidence,
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn norris_of_the_nist_reference_data() {
        // NIST StRD "Norris" (linear, lower difficulty): certified values.
        let points = [
            (0.2, 0.1),
            (337.4, 338.8),
            (118.2, 118.1),
            (884.6, 888.0),
            (10.1, 9.2),
            (226.5, 228.1),
            (666.3, 668.5),
            (996.3, 998.5),
            (448.6, 449.1),
            (777.0, 778.9),
            (558.2, 559.2),
            (0.4, 0.3),
            (0.6, 0.1),
            (775.5, 778.1),
            (666.9, 668.8),
            (338.0, 339.3),
            (447.5, 448.9),
            (11.6, 10.8),
            (556.0, 557.7),
            (228.1, 228.3),
            (995.8, 998.0),
            (887.6, 888.8),
            (120.2, 119.6),
            (0.3, 0.3),
            (0.3, 0.6),
            (556.8, 557.6),
            (339.1, 339.3),
            (887.2, 888.0),
            (999.0, 998.5),
            (779.0, 778.9),
            (11.1, 10.2),
            (118.3, 117.6),
            (229.2, 228.9),
            (669.1, 668.4),
            (448.9, 449.2),
            (0.5, 0.2),
        ];
        let line = Line::fit(&points).unwrap();
        assert!((line.intercept - -0.262_323_073_774_029).abs() < 1e-10);
        assert!((line.slope - 1.002_116_818_020_45).abs() < 1e-12);
        assert!((line.intercept_error.unwrap() - 0.232_818_234_301_152).abs() < 1e-10);
        assert!((line.slope_error.unwrap() - 0.429_796_848_199_937e-3).abs() < 1e-12);
        assert!((line.r_squared.unwrap() - 0.999_993_745_883_712).abs() < 1e-12);
    }

    #[test]
    fn two_points_have_a_line_but_no_error() {
        let line = Line::fit(&[(1.0, 3.0), (2.0, 5.0)]).unwrap();
        assert_eq!((line.slope, line.intercept, line.slope_error), (2.0, 1.0, None));
        assert_eq!(line.slope_interval(0.95), Ok(None));
    }

    #[test]
    fn refuses_what_has_no_line() {
        assert_eq!(Line::fit(&[(1.0, 1.0)]), Err(RegressionError::TooFew(1)));
        assert_eq!(
            Line::fit(&[(1.0, 1.0), (1.0, 2.0)]),
            Err(RegressionError::NoSpread(1.0))
        );
        assert!(matches!(
            Line::fit(&[(1.0, 1.0), (f64::NAN, 2.0)]),
            Err(RegressionError::NotFinite { index: 1, .. })
        ));
        assert_eq!(Line::fit(&[(1.0, 4.0), (2.0, 4.0)]).unwrap().r_squared, None);
    }

    proptest! {
        #[test]
        fn finds_the_line_that_made_the_points(slope in -1e3..1e3_f64, intercept in -1e3..1e3_f64,
                                               xs in prop::collection::btree_set(-1000..1000_i32, 2..50)) {
            let points: Vec<_> =
                xs.iter().map(|x| (f64::from(*x), intercept + slope * f64::from(*x))).collect();
            let line = Line::fit(&points).unwrap();
            prop_assert!((line.slope - slope).abs() < 1e-6);
            prop_assert!((line.at(0.0) - intercept).abs() < 1e-3);
        }
    }
}
