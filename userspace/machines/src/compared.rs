//! Clocks of machines, compared by round trips, so that timelines begin together.

use std::time::Duration;

/// What a clock that nobody keeps gains or loses: a quartz's 100 ppm.
const DRIFT_PPM: u64 = 100;

/// A machine's CLOCK_REALTIME beside that of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compared {
    /// By how much it is ahead, ns.
    pub ahead: i64,
    /// By how much that may be wrong: half of the shortest round trip.
    pub error: Duration,
    /// Whether somebody keeps it.
    pub is_kept: bool,
}

/// It is not known how far apart timelines are at their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drift;

impl Compared {
    /// By one question: this clock before it and after the answer, and what the other clock said, ns.
    pub(crate) fn by(before: u64, said: u64, after: u64, is_kept: bool) -> Self {
        Self {
            ahead: said.wrapping_sub(before.midpoint(after)).cast_signed(),
            error: Duration::from_nanos(after.saturating_sub(before).div_ceil(2)),
            is_kept,
        }
    }

    /// An instant of this machine's clock by that one.
    pub(crate) const fn there(&self, instant: u64) -> u64 {
        instant.saturating_add_signed(self.ahead)
    }

    /// How far from their time timelines may be that last so long; `None` is for ever.
    ///
    /// # Errors
    /// When nobody keeps the clock, and they last for ever.
    pub fn apart(&self, length: Option<Duration>) -> Result<Duration, Drift> {
        match length {
            _ if self.is_kept => Ok(self.error),
            Some(length) => Ok(self.error + length / 1_000_000 * DRIFT_PPM as u32),
            None => Err(Drift),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_clock_is_as_far_as_the_round_trip_says() {
        let compared = Compared::by(1_000_000, 5_000_150, 1_000_200, false);
        assert_eq!(
            (compared.ahead, compared.error),
            (4_000_050, Duration::from_nanos(100))
        );
        assert_eq!(compared.there(2_000_000), 6_000_050);
        let behind = Compared::by(9_000, 1_000, 9_001, true);
        assert_eq!((behind.ahead, behind.there(10_000)), (-8_000, 2_000));
        let hour = Some(Duration::from_secs(3600));
        let drift = Duration::from_nanos(100) + Duration::from_millis(360);
        assert_eq!(compared.apart(hour), Ok(drift));
        assert_eq!(compared.apart(None), Err(Drift));
        assert_eq!(behind.apart(None), Ok(Duration::from_nanos(1)));
    }
}
