//! A small seeded generator, so that everything drawn at random can be drawn again.
//!
//! Model: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
//! OOPSLA 2014): a counter stepped by the golden ratio, then mixed. Period 2^64, equidistributed.
//! Assumption: the numbers steer resampling and workloads. It is not for secrets.

/// A deterministic source of random numbers.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Uniform in 0..bound, without the bias of a remainder beyond 2^-64 (Lemire's multiplication).
    /// A bound of 0 gives 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Puts the items into an order of which each is as likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// Exponentially distributed with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.fraction()).ln()
    }

    /// An independent generator, for a part of the work that must not depend on the rest.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self(self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_sequence_of_seed_1234567() {
        // First outputs of the authors' reference implementation.
        let mut random = SplitMix64::new(1_234_567);
        let seen = [random.bits(), random.bits(), random.bits()];
        assert_eq!(
            seen,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn moments() {
        let mut random = SplitMix64::new(7);
        let draws = 200_000;
        let exponential = (0..draws).map(|_| random.exponential(3.0)).sum::<f64>() / f64::from(draws);
        assert!((exponential - 3.0).abs() < 0.03, "{exponential}");
        let mut counts = [0_u32; 7];
        for _ in 0..draws {
            counts[random.below(7) as usize] += 1;
        }
        assert!(
            counts
                .iter()
                .all(|count| (f64::from(*count) * 7.0 / f64::from(draws) - 1.0).abs() < 0.03)
        );
        assert_eq!(random.below(0), 0);
    }
}
