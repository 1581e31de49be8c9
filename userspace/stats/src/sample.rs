//! A sample: at least two observations, none of them NaN or infinite, checked once.
//!
//! Model: n independent observations x of one quantity, kept in order: x(1) <= ... <= x(n).
//! Quantiles interpolate linearly between order statistics (definition 7 of Hyndman and Fan, "Sample
//! quantiles in statistical packages", The American Statistician 50(4), 1996).
//! What is lacking: the order of observation (no autocorrelation, no trend), and weights.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use crate::{
    Estimate, SplitMix64,
    estimate::{EstimateError, check_confidence, check_quantile},
};

/// At least two finite observations, sorted.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample(Vec<f64>);

/// Why a list of numbers is not a sample.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A sample has spread, so it has two points.
    #[error("{0} observation(s); at least 2 are needed, repeat the measurement")]
    TooFew(usize),
    /// One of the observations is not a number.
    #[error("observation {index} is {value}; every observation must be finite")]
    NotFinite {
        /// Position in the list, from 0.
        index: usize,
        /// The offending value.
        value: f64,
    },
}

impl Sample {
    /// Checks and sorts the observations.
    pub fn new(mut observations: Vec<f64>) -> Result<Self, SampleError> {
        if let Some((index, &value)) = observations
            .iter()
            .enumerate()
            .find(|(_, value)| !value.is_finite())
        {
            return Err(SampleError::NotFinite { index, value });
        }
        if observations.len() < 2 {
            return Err(SampleError::TooFew(observations.len()));
        }
        observations.sort_by(f64::total_cmp);
        Ok(Self(observations))
    }

    /// The observations in ascending order.
    #[must_use]
    pub fn sorted(&self) -> &[f64] {
        &self.0
    }

    /// Number of observations, n >= 2.
    #[expect(clippy::len_without_is_empty, reason = "a sample is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest observation.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.0[0]
    }

    /// The largest observation.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    /// Arithmetic mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        mean(&self.0)
    }

    /// Standard deviation of the population, estimated with n - 1.
    #[must_use]
    pub fn standard_deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.0.iter().map(|x| (x - mean).powi(2)).sum();
        (squares / (self.0.len() - 1) as f64).sqrt()
    }

    /// Standard error of the mean.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        self.standard_deviation() / (self.0.len() as f64).sqrt()
    }

    /// The value below which the share `quantile` of the observations lies.
    pub fn quantile(&self, quantile: f64) -> Result<f64, EstimateError> {
        check_quantile(quantile)?;
        Ok(interpolated(&self.0, quantile))
    }

    /// The middle observation.
    #[must_use]
    pub fn median(&self) -> f64 {
        interpolated(&self.0, 0.5)
    }

    /// The middle half's width.
    #[must_use]
    pub fn interquartile_range(&self) -> f64 {
        interpolated(&self.0, 0.75) - interpolated(&self.0, 0.25)
    }

    /// The mean with Student's interval: exact for normal observations, good for many of any kind.
    pub fn mean_interval(&self, confidence: f64) -> Result<Estimate, EstimateError> {
        check_confidence(confidence)?;
        let mean = self.mean();
        let half = student_t((self.0.len() - 1) as f64, confidence) * self.standard_error();
        Ok(Estimate {
            point: mean,
            lower: mean - half,
            upper: mean + half,
            confidence,
        })
    }

    /// The median with a distribution-free interval.
    pub fn median_interval(&self, confidence: f64) -> Result<Estimate, EstimateError> {
        self.quantile_interval(0.5, confidence)
    }

    /// A quantile with the narrowest symmetric-in-rank interval between order statistics that
    /// covers it with at least `confidence`, whatever the distribution: the number of observations
    /// below the true quantile is binomial. A small sample may not reach it even from its least to
    /// its greatest; then that range is returned with the coverage it has.
    pub fn quantile_interval(&self, quantile: f64, confidence: f64) -> Result<Estimate, EstimateError> {
        check_quantile(quantile)?;
        check_confidence(confidence)?;
        let n = self.0.len();
        let below = Binomial::new(quantile, n as u64).map_err(|_| EstimateError::Quantile(quantile))?;
        // P(x(l) < q <= x(u)) = P(l <= below < u), with ranks from 1. Grow around the middle.
        let middle = (quantile * n as f64) as usize;
        let (mut low, mut high) = (middle.clamp(1, n), (middle + 1).clamp(1, n));
        let coverage =
            |low: usize, high: usize| (below.cdf(high as u64 - 1) - below.cdf(low as u64 - 1)).max(0.0);
        while coverage(low, high) < confidence && (low > 1 || high < n) {
            low = (low - 1).max(1);
            high = (high + 1).min(n);
        }
        let point = interpolated(&self.0, quantile);
        Ok(Estimate {
            point,
            lower: self.0[low - 1].min(point),
            upper: self.0[high - 1].max(point),
            confidence: coverage(low, high),
        })
    }

    /// Any statistic with its percentile bootstrap interval (Efron 1979): `resamples` samples of
    /// the same size are drawn with replacement, the same ones for the same seed. The statistic gets
    /// sorted observations.
    pub fn bootstrap(
        &self,
        statistic: impl Fn(&[f64]) -> f64,
        confidence: f64,
        resamples: usize,
        seed: u64,
    ) -> Result<Estimate, EstimateError> {
        check_confidence(confidence)?;
        let needed = (2.0 / (1.0 - confidence)).ceil() as usize;
        if resamples < needed {
            return Err(EstimateError::Resamples { resamples, needed });
        }
        let mut random = SplitMix64::new(seed);
        let mut drawn = vec![0.0; self.0.len()];
        let mut values: Vec<f64> = (0..resamples)
            .map(|_| {
                for slot in &mut drawn {
                    *slot = self.0[random.below(self.0.len() as u64) as usize];
                }
                drawn.sort_by(f64::total_cmp);
                statistic(&drawn)
            })
            .collect();
        values.sort_by(f64::total_cmp);
        let tail = (1.0 - confidence) / 2.0;
        let point = statistic(&self.0);
        Ok(Estimate {
            point,
            lower: interpolated(&values, tail).min(point),
            upper: interpolated(&values, 1.0 - tail).max(point),
            confidence,
        })
    }
}

/// The middle one of values in any order, of two the mean; `None` of nothing. It needs no [`Sample`]: one value is its own.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| interpolated(&sorted, 0.5))
}

/// Student's t for a two-sided interval.
pub(crate) fn student_t(degrees_of_freedom: f64, confidence: f64) -> f64 {
    // With at least one degree of freedom the distribution exists.
    StudentsT::new(0.0, 1.0, degrees_of_freedom)
        .map_or(f64::INFINITY, |t| t.inverse_cdf(0.5 + confidence / 2.0))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn interpolated(sorted: &[f64], quantile: f64) -> f64 {
    let place = quantile * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(values: &[f64]) -> Sample {
        Sample::new(values.to_vec()).unwrap()
    }

    #[test]
    fn refuses_what_is_no_sample() {
        assert_eq!(Sample::new(vec![1.0]), Err(SampleError::TooFew(1)));
        assert!(matches!(
            Sample::new(vec![1.0, f64::NAN]),
            Err(SampleError::NotFinite { index: 1, .. })
        ));
        assert!(matches!(
            Sample::new(vec![f64::INFINITY, 1.0]),
            Err(SampleError::NotFinite { index: 0, .. })
        ));
    }

    #[test]
    fn quantiles_of_one_to_ten() {
        let sample = sample(&[10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
        assert_eq!(sample.median(), 5.5);
        assert_eq!(sample.quantile(0.25), Ok(3.25));
        assert_eq!(sample.quantile(1.0), Ok(10.0));
        assert_eq!(sample.quantile(1.1), Err(EstimateError::Quantile(1.1)));
        assert!((sample.standard_deviation() - 3.027_650).abs() < 1e-6);
    }

    #[test]
    fn medians() {
        let medians = [&[3.0, 1.0, 2.0][..], &[4.0, 1.0, 2.0, 3.0], &[7.0], &[]].map(median);
        assert_eq!(medians, [Some(2.0), Some(2.5), Some(7.0), None]);
    }

    #[test]
    fn student_interval_of_a_textbook_sample() {
        // Student's sleep data (Biometrika 1908), drug 2: mean 2.33, s = 2.0022, t(9) = 2.262.
        let sleep = sample(&[1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]);
        let interval = sleep.mean_interval(0.95).unwrap();
        assert!((interval.point - 2.33).abs() < 1e-9);
        assert!((interval.lower - 0.8977).abs() < 1e-3, "{interval:?}");
        assert!((interval.upper - 3.7623).abs() < 1e-3, "{interval:?}");
    }

    #[test]
    fn order_statistics_of_the_median() {
        // For n = 10 the ranks 2 and 9 cover the median with 1 - 2 * 11/1024 = 97.85 %.
        let ten = sample(&(1..=10).map(f64::from).collect::<Vec<_>>());
        let interval = ten.median_interval(0.95).unwrap();
        assert_eq!((interval.lower, interval.upper), (2.0, 9.0));
        assert!((interval.confidence - 0.978_515_625).abs() < 1e-9);
        // Two points cover it with one half only, and say so.
        let two = sample(&[1.0, 2.0]).median_interval(0.95).unwrap();
        assert!((two.confidence - 0.5).abs() < 1e-9);
    }

    #[test]
    fn order_statistics_cover_as_promised() {
        let mut random = SplitMix64::new(11);
        let (true_median, trials) = (2.0_f64.ln(), 2_000);
        let covered = (0..trials)
            .filter(|_| {
                let drawn = sample(&(0..40).map(|_| random.exponential(1.0)).collect::<Vec<_>>());
                drawn.median_interval(0.95).unwrap().contains(true_median)
            })
            .count();
        let share = covered as f64 / f64::from(trials);
        assert!((0.94..=0.985).contains(&share), "coverage {share}");
    }

    #[test]
    fn bootstrap_agrees_with_student_on_a_mean() {
        let mut random = SplitMix64::new(3);
        let drawn = sample(&(0..400).map(|_| random.fraction()).collect::<Vec<_>>());
        let student = drawn.mean_interval(0.95).unwrap();
        let bootstrap = drawn.bootstrap(mean, 0.95, 2_000, 5).unwrap();
        assert!((bootstrap.half_width() / student.half_width() - 1.0).abs() < 0.1);
        assert_eq!(bootstrap, drawn.bootstrap(mean, 0.95, 2_000, 5).unwrap());
        assert!(matches!(
            drawn.bootstrap(mean, 0.99, 10, 5),
            Err(EstimateError::Resamples { resamples: 10, .. })
        ));
    }

    proptest! {
        #[test]
        fn an_interval_encloses_its_point(values in prop::collection::vec(-1e9..1e9_f64, 2..200),
                                          quantile in 0.0..=1.0_f64) {
            let sample = Sample::new(values).unwrap();
            let interval = sample.quantile_interval(quantile, 0.9).unwrap();
            prop_assert!(interval.lower <= interval.point && interval.point <= interval.upper);
            prop_assert!(sample.min() <= interval.lower && interval.upper <= sample.max());
        }
    }
}
