//! The distribution of many durations in bounded memory.
//!
//! Model: high dynamic range buckets (Tene's HdrHistogram) over 1 ns to 1 hour with three
//! significant digits, so any quantile is within 0.1 % of the true one. The sum is kept exactly, so
//! the mean has no bucket error. Durations beyond an hour are counted in the last bucket, and
//! [`Histogram::saturated`] says how many.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::estimate::{EstimateError, check_quantile};

const HIGHEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Durations, counted.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: hdrhistogram::Histogram<u64>,
    sum_ns: u128,
    saturated: u64,
}

/// How many durations fell into one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The bucket's representative duration.
    pub ns: u64,
    /// Durations in it.
    pub count: u64,
}

/// Why a histogram cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum HistogramError {
    /// The bucket layout was refused.
    #[error("histogram of 1 ns to {HIGHEST_NS} ns with {DIGITS} digits")]
    Layout(#[from] hdrhistogram::CreationError),
}

impl Histogram {
    /// No durations yet. Takes its 260 KiB at once and never more.
    pub fn new() -> Result<Self, HistogramError> {
        let buckets = hdrhistogram::Histogram::new_with_bounds(1, HIGHEST_NS, DIGITS)?;
        Ok(Self {
            buckets,
            sum_ns: 0,
            saturated: 0,
        })
    }

    /// Counts one duration. Zero counts as 1 ns in the quantiles.
    pub fn record(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.record_ns(ns, 1);
    }

    /// Puts in buckets that [`Histogram::iter`] gave out.
    pub fn extend(&mut self, buckets: impl IntoIterator<Item = Bucket>) {
        for bucket in buckets {
            self.record_ns(bucket.ns, bucket.count);
        }
    }

    /// Adds all that another histogram has.
    pub fn merge(&mut self, other: &Self) {
        for value in other.buckets.iter_recorded() {
            self.buckets
                .saturating_record_n(value.value_iterated_to(), value.count_at_value());
        }
        self.sum_ns += other.sum_ns;
        self.saturated += other.saturated;
    }

    /// How many durations were counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.buckets.len()
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// How many lay beyond one hour, and are counted as one hour in the quantiles.
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// The mean; `None` of nothing.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        let count = u128::from(self.len());
        (count > 0).then(|| Duration::from_nanos(u64::try_from(self.sum_ns / count).unwrap_or(u64::MAX)))
    }

    /// The quantile (0.99 for the 99th percentile); `None` of nothing.
    pub fn quantile(&self, quantile: f64) -> Result<Option<Duration>, EstimateError> {
        check_quantile(quantile)?;
        Ok((!self.is_empty()).then(|| Duration::from_nanos(self.buckets.value_at_quantile(quantile))))
    }

    /// The longest duration, to the bucket; `None` of nothing.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        (!self.is_empty()).then(|| Duration::from_nanos(self.buckets.max()))
    }

    /// The filled buckets in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Bucket> {
        self.buckets.iter_recorded().map(|value| Bucket {
            ns: value.value_iterated_to(),
            count: value.count_at_value(),
        })
    }

    fn record_ns(&mut self, ns: u64, count: u64) {
        self.sum_ns += u128::from(ns) * u128::from(count);
        if ns > HIGHEST_NS {
            self.saturated += count;
        }
        self.buckets.saturating_record_n(ns.clamp(1, HIGHEST_NS), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new().unwrap();
        for ns in durations {
            histogram.record(Duration::from_nanos(ns));
        }
        histogram
    }

    #[test]
    fn nothing_has_no_mean() {
        let none = Histogram::new().unwrap();
        assert_eq!(
            (none.mean(), none.max(), none.quantile(0.5).unwrap()),
            (None, None, None)
        );
    }

    #[test]
    fn quantiles_are_within_a_thousandth_over_nine_decades() {
        for scale in [1_u64, 1_000, 1_000_000, 1_000_000_000] {
            let histogram = of((1..=1000).map(|value| value * scale));
            for (quantile, value) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
                let seen = histogram.quantile(quantile).unwrap().unwrap().as_nanos() as f64 / scale as f64;
                assert!((seen / value - 1.0).abs() < 2e-3, "{quantile} at {scale}: {seen}");
            }
            assert_eq!(
                histogram.mean().unwrap().as_nanos(),
                500_500 * u128::from(scale) / 1000
            );
        }
    }

    #[test]
    fn a_day_saturates_and_says_so() {
        let histogram = of([86_400_000_000_000, 1]);
        assert_eq!(histogram.saturated(), 1);
        assert_eq!(histogram.len(), 2);
    }

    #[test]
    fn merging_and_buckets_lose_nothing() {
        let (mut left, right) = (of([10, 20, 5_000_000]), of([30, 40_000_000_000]));
        left.merge(&right);
        assert_eq!(left.len(), 5);
        assert_eq!(
            left.mean().unwrap().as_nanos(),
            (10 + 20 + 5_000_000 + 30 + 40_000_000_000_u128) / 5
        );
        let mut copy = Histogram::new().unwrap();
        copy.extend(left.iter());
        assert_eq!(copy.len(), left.len());
        assert_eq!(copy.quantile(0.5).unwrap(), left.quantile(0.5).unwrap());
    }
}
