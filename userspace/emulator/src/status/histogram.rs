//! Histograms of times, as the programs count them.

use perturb_common::abi::histogram::bound;

use super::{Lateness, Sojourn};

/// Packets by [`perturb_common::abi::histogram::bucket`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram(Vec<u64>);

/// A histogram as metrics have it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// How many packets there were of at most so long, us, and longer than the bucket before allows; what is longer than all bounds
    /// last.
    pub buckets: Vec<(f64, u64)>,
    /// All their times, each packet's by its upper bound.
    pub sum_us: f64,
}

impl Histogram {
    pub(super) fn new(packets: &[u64]) -> Self {
        Self(packets.into())
    }

    /// What came to it since an earlier look.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before = earlier.0.iter().copied().chain(std::iter::repeat(0));
        let counts = self.0.iter().zip(before);
        Self(counts.map(|(now, before)| now.saturating_sub(before)).collect())
    }

    /// The packets' number, if there are any.
    fn total(&self) -> Option<u64> {
        Some(self.0.iter().sum()).filter(|&total: &u64| total > 0)
    }

    /// So large a share of `total` packets take at most this, us.
    fn quantile(&self, total: u64, share: f64) -> f64 {
        let wanted = (total as f64 * share).ceil() as u64;
        let mut seen = 0;
        let found = (0..).zip(&self.0).find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        found.map_or(f64::INFINITY, |(bucket, _)| bound(bucket) as f64 / 1e3)
    }

    fn spread(&self) -> Spread {
        let (mut buckets, mut sum, mut packets) = (Vec::new(), 0.0, 0);
        let last = self.0.len().saturating_sub(1);
        for (bucket, &count) in (0..).zip(&self.0) {
            sum += count as f64 * bound(bucket) as f64;
            packets += count;
            // Bounds at powers of two, from 1 us on.
            if bucket as usize == last {
                buckets.push((f64::INFINITY, packets));
            } else if bucket % 8 == 7 && bound(bucket) > 1000 {
                buckets.push((bound(bucket) as f64 / 1e3, std::mem::take(&mut packets)));
            }
        }
        Spread {
            buckets,
            sum_us: sum / 1e3,
        }
    }

    /// How late packets left that it counts, if there are any.
    pub(super) fn lateness(&self, lead_us: f64) -> Option<Lateness> {
        let total = self.total()?;
        Some(Lateness {
            p50_us: self.quantile(total, 0.5),
            p99_us: self.quantile(total, 0.99),
            max_us: self.quantile(total, 1.0),
            lead_us,
            spread: self.spread(),
        })
    }

    /// How long packets waited that it counts, if there are any.
    pub(super) fn sojourn(&self) -> Option<Sojourn> {
        let total = self.total()?;
        Some(Sojourn {
            p50_us: self.quantile(total, 0.5),
            p95_us: self.quantile(total, 0.95),
            p99_us: self.quantile(total, 0.99),
            max_us: self.quantile(total, 1.0),
            spread: self.spread(),
        })
    }
}

#[cfg(test)]
mod tests {
    use perturb_common::abi::{BUCKETS, histogram::bucket};

    use super::Histogram;

    fn of(times_ns: &[u64]) -> Histogram {
        let mut packets = [0; BUCKETS as usize];
        for &time in times_ns {
            packets[bucket(time) as usize] += 1;
        }
        Histogram::new(&packets)
    }

    /// Quantiles are upper bounds, to an eighth; of what came between two looks, by that alone.
    #[test]
    fn quantiles_bound_what_was_counted() {
        let earlier: Vec<u64> = vec![1_000_000_000; 50];
        let times: Vec<u64> = (1..=100).map(|ms| ms * 1_000_000).collect();
        let now = of(&[&*earlier, &*times].concat());
        assert_eq!(of(&[]).sojourn(), None);
        let between = now.since(&of(&earlier)).sojourn();
        assert_eq!(between, of(&times).sojourn());
        let Some(sojourn) = between else {
            panic!("nothing was counted");
        };
        for (quantile, exact) in [
            (sojourn.p50_us, 50e3),
            (sojourn.p95_us, 95e3),
            (sojourn.p99_us, 99e3),
            (sojourn.max_us, 100e3),
        ] {
            assert!(
                quantile >= exact && quantile < exact * 1.125,
                "{quantile} for {exact}"
            );
        }
        let counted: u64 = sojourn.spread.buckets.iter().map(|(_, packets)| packets).sum();
        assert_eq!(counted, 100);
        assert!((5050e3..5050e3 * 1.125).contains(&sojourn.spread.sum_us));
        // A server that began anew has counted less than before.
        assert_eq!(of(&earlier).since(&now).sojourn(), None);
    }
}
