//! Units as types: nanoseconds outside of the recursion, [ticks](crate::ticks) inside.

use crate::ticks::saturating_shl;
pub use crate::{
    ticks::{GapPerByte, Instant, Ticks, saturating_mul},
    word::TICK_SHIFT,
};

/// A duration in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Nanos(pub u64);

/// An instant of CLOCK_MONOTONIC in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct MonoNanos(pub u64);

impl Nanos {
    /// The same duration in ticks, saturating.
    #[inline(always)]
    #[must_use]
    pub const fn ticks(self) -> Ticks {
        Ticks(saturating_shl(self.0, TICK_SHIFT))
    }
}

impl MonoNanos {
    /// The same instant in ticks, saturating.
    #[inline(always)]
    #[must_use]
    pub const fn instant(self) -> Instant {
        Instant(saturating_shl(self.0, TICK_SHIFT))
    }
}

impl Ticks {
    /// The same duration in whole nanoseconds, rounded down.
    #[inline(always)]
    #[must_use]
    pub const fn nanos(self) -> Nanos {
        Nanos(self.0 >> TICK_SHIFT)
    }
}

impl Instant {
    /// The same instant in whole nanoseconds, rounded up: rounding never makes a packet leave early.
    #[inline(always)]
    #[must_use]
    pub const fn ceil_nanos(self) -> MonoNanos {
        MonoNanos((self.0 >> TICK_SHIFT) + ((self.0 & ((1 << TICK_SHIFT) - 1)) != 0) as u64)
    }
}

impl GapPerByte {
    /// G of a rate in bits per second, rounded to nearest; a rate of 0 counts as 1 bit/s.
    #[must_use]
    pub const fn from_bits_per_sec(rate: u64) -> Self {
        /// At 1 bit/s 8 bits take so many units of 2^-20 ns.
        const UNITS: u64 = 8_000_000_000 << 20;
        let rate = if rate == 0 { 1 } else { rate };
        let value = UNITS / rate + (UNITS % rate >= rate.div_ceil(2)) as u64;
        if value > Self::MAX.0 {
            Self::MAX
        } else if value == 0 {
            Self(1)
        } else {
            Self(value)
        }
    }
}
