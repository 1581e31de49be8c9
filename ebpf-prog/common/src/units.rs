//! Units as types. Time inside the recursion is counted in ticks of 1/64 ns, so that the rounding
//! of a 64-byte packet at 100 Gbit/s (5.12 ns) stays below 0.3 % and never accumulates; a `u64` of
//! ticks spans nine years of CLOCK_MONOTONIC.

/// log2 of the number of ticks in a nanosecond.
pub const TICK_SHIFT: u32 = 6;

/// A duration in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Nanos(pub u64);

/// An instant of CLOCK_MONOTONIC in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct MonoNanos(pub u64);

/// A duration in ticks of 1/64 ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Ticks(pub u64);

/// An instant of CLOCK_MONOTONIC in ticks of 1/64 ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Instant(pub u64);

/// LogGP's G = 1/bandwidth, in units of 2^-20 ns per byte; at most [`GapPerByte::MAX`] (16.7 ms per
/// byte, 477 bit/s), larger values count as that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct GapPerByte(pub u64);

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
    /// No limit.
    pub const MAX: Self = Self(u64::MAX);

    /// The same duration in whole nanoseconds, rounded down.
    #[inline(always)]
    #[must_use]
    pub const fn nanos(self) -> Nanos {
        Nanos(self.0 >> TICK_SHIFT)
    }

    /// Sum, saturating: a delay beyond what `u64` holds is beyond every horizon anyway.
    #[inline(always)]
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Instant {
    /// The same instant in whole nanoseconds, rounded up: rounding never makes a packet leave early.
    #[inline(always)]
    #[must_use]
    pub const fn ceil_nanos(self) -> MonoNanos {
        MonoNanos((self.0 >> TICK_SHIFT) + ((self.0 & ((1 << TICK_SHIFT) - 1)) != 0) as u64)
    }

    /// This instant plus a duration, saturating.
    #[inline(always)]
    #[must_use]
    pub const fn after(self, delay: Ticks) -> Self {
        Self(self.0.saturating_add(delay.0))
    }

    /// Time since `earlier`; zero if `earlier` is later.
    #[inline(always)]
    #[must_use]
    pub const fn since(self, earlier: Self) -> Ticks {
        Ticks(self.0.saturating_sub(earlier.0))
    }

    /// The later of the two.
    #[inline(always)]
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.0 > other.0 { self } else { other }
    }
}

impl GapPerByte {
    /// The largest value the arithmetic carries.
    pub const MAX: Self = Self((1 << 44) - 1);

    /// G of a rate in bytes per second, rounded to nearest; 0 (infinitely fast) for a rate of 0,
    /// which stands for "no bandwidth given".
    #[must_use]
    pub const fn from_bytes_per_sec(rate: u64) -> Self {
        if rate == 0 {
            return Self(0);
        }
        let unit = 1_000_000_000u64 << 20; // 2^-20 ns in a second
        let value = unit / rate + (unit % rate >= rate / 2 + rate % 2) as u64;
        if value > Self::MAX.0 {
            Self::MAX
        } else if value == 0 {
            Self(1)
        } else {
            Self(value)
        }
    }

    /// Time to transmit `bytes`, saturating. Split at 2^20 bytes so that both products fit 64 bits:
    /// the BPF target has no 128-bit multiplication.
    #[inline(always)]
    #[must_use]
    pub const fn transmit(self, bytes: u64) -> Ticks {
        let per_byte = if self.0 > Self::MAX.0 { Self::MAX.0 } else { self.0 };
        let low = (bytes & 0xf_ffff) * per_byte; // < 2^20 * 2^44
        let low = low >> (20 - TICK_SHIFT);
        let blocks = bytes >> 20;
        if blocks == 0 {
            return Ticks(low);
        }
        // 2^20 bytes take `per_byte` ns.
        if blocks >= 1 << 14 {
            return Ticks::MAX;
        }
        Ticks(saturating_shl(blocks * per_byte, TICK_SHIFT).saturating_add(low))
    }
}

/// `value << shift`, or `u64::MAX` if bits would be lost; `shift` is a constant below 64.
#[inline(always)]
pub(crate) const fn saturating_shl(value: u64, shift: u32) -> u64 {
    if value >> (64 - shift) != 0 {
        u64::MAX
    } else {
        value << shift
    }
}

/// `a * b`, saturating, without 128-bit arithmetic and for any input.
#[inline(always)]
#[must_use]
pub const fn saturating_mul(a: u64, b: u64) -> u64 {
    let (high_a, low_a) = (a >> 32, a & 0xffff_ffff);
    let (high_b, low_b) = (b >> 32, b & 0xffff_ffff);
    if high_a == 0 && high_b == 0 {
        return low_a * low_b;
    }
    if high_a != 0 && high_b != 0 {
        return u64::MAX;
    }
    // Exactly one high half is set: (high * low_other) << 32 + low * low.
    let cross = if high_a != 0 {
        high_a * low_b
    } else {
        high_b * low_a
    };
    saturating_shl(cross, 32).saturating_add(low_a * low_b)
}
