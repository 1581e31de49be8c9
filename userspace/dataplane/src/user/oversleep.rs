//! How late sleeps usually end on this machine.
//!
//! Model: how late a sleep ends is a random variable whose distribution depends on its length (the longer it is,
//! the deeper the processor, or the virtual machine, sleeps too) and drifts. For each octave of lengths [`Oversleep`]
//! follows the quantile 3/4 by stochastic approximation (Robbins and Monro 1951): a step up when a sleep ended later
//! than the estimate, a third of it down when it did not. A thread that wakes up earlier by the estimate is late one
//! time in four, and polls for a while otherwise: never for more than a quarter of the time.

/// Octaves of lengths, from a microsecond to half a second.
const OCTAVES: usize = 20;
/// What is assumed before anything is known, nanoseconds.
const ASSUMED: u64 = 50_000;
/// Nobody polls longer than this for sleeps that end late, nanoseconds.
const MOST: u64 = 500_000;
/// A step is this part of the estimate,
const STEP_PART: u64 = 16;
/// and this at least, nanoseconds.
const LEAST_STEP: u64 = 300;

/// The usual lateness of sleeps, by octave of their length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Oversleep {
    usual: [u64; OCTAVES],
}

impl Default for Oversleep {
    fn default() -> Self {
        let mut usual = [ASSUMED; OCTAVES];
        for (octave, usual) in usual.iter_mut().enumerate() {
            *usual = (*usual).min(most(octave));
        }
        Self { usual }
    }
}

impl Oversleep {
    /// Nanoseconds that three of four sleeps of about `length` nanoseconds do not exceed.
    pub(super) fn usual(&self, length: u64) -> u64 {
        self.usual[octave(length)]
    }

    /// A sleep that was to last until `length` nanoseconds later ended `late`.
    pub(super) fn learn(&mut self, length: u64, late: u64) {
        let octave = octave(length);
        let usual = &mut self.usual[octave];
        let step = (*usual / STEP_PART).max(LEAST_STEP);
        *usual = if late > *usual {
            (*usual + step).min(most(octave))
        } else {
            usual.saturating_sub(step / 3)
        };
    }
}

fn octave(length: u64) -> usize {
    let microseconds = (length / 1_000).max(1);
    (microseconds.ilog2() as usize).min(OCTAVES - 1)
}

/// A quarter of the shortest sleep of an octave.
fn most(octave: usize) -> u64 {
    (1_000 << octave).min(4 * MOST) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: u64 = 10_000_000;

    #[test]
    fn follows_the_third_quartile() {
        let mut oversleep = Oversleep::default();
        let mut state = 1u64;
        let mut late = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Uniform in 0..80 us: the third quartile is 60 us.
            (state >> 33) % 80_000
        };
        let mean = (0..20_000)
            .map(|_| {
                oversleep.learn(LENGTH, late());
                oversleep.usual(LENGTH)
            })
            .sum::<u64>()
            / 20_000;
        assert!(mean.abs_diff(60_000) < 5_000, "{mean}");
        assert_eq!(
            oversleep.usual(LENGTH / 4),
            Oversleep::default().usual(LENGTH / 4),
            "another octave learned"
        );
    }

    #[test]
    fn is_bounded_and_forgets() {
        for length in [0, 1_000, 100_000, LENGTH, u64::MAX] {
            let mut oversleep = Oversleep::default();
            for _ in 0..10_000 {
                oversleep.learn(length, u64::MAX);
            }
            assert!(oversleep.usual(length) <= (length / 4).clamp(250, MOST));
            for _ in 0..10_000 {
                oversleep.learn(length, 0);
            }
            assert!(oversleep.usual(length) < LEAST_STEP);
        }
    }
}
