//! The recursion's arithmetic. Time is counted in ticks of 1/64 ns, so that the rounding of a 64-byte packet at 100 Gbit/s
//! (5.12 ns) stays below 0.3 % and never accumulates; a `u64` of ticks spans nine years of CLOCK_MONOTONIC. Whatever does
//! not fit saturates.

use super::word::{SPLIT, TICK_SHIFT, Word};

/// A duration in ticks of 1/64 ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(transparent)]
pub struct Ticks(pub Word);

/// An instant of CLOCK_MONOTONIC in ticks of 1/64 ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(transparent)]
pub struct Instant(pub Word);

/// LogGP's G = 1/bandwidth, in units of 2^-20 ns per byte; at most [`GapPerByte::MAX`] (16.7 ms per
/// byte, 477 bit/s), larger values count as that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(transparent)]
pub struct GapPerByte(pub Word);

impl Ticks {
    /// No limit.
    pub const MAX: Self = Self(Word::MAX);

    /// Sum, saturating: a delay beyond what `u64` holds is beyond every horizon anyway.
    #[inline(always)]
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Instant {
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
    pub const MAX: Self = Self(Word::MAX >> SPLIT);

    /// Time to transmit `bytes`, saturating. Split at 2^20 bytes so that both products fit 64 bits:
    /// the BPF target has no 128-bit multiplication. From 2^34 bytes on it is [`Ticks::MAX`], whatever G.
    #[inline(always)]
    #[must_use]
    pub const fn transmit(self, bytes: Word) -> Ticks {
        let per_byte = if self.0 > Self::MAX.0 { Self::MAX.0 } else { self.0 };
        let low = (bytes & ((1 << SPLIT) - 1)) * per_byte; // < 2^20 * 2^44
        let low = low >> (SPLIT - TICK_SHIFT);
        let blocks = bytes >> SPLIT;
        if blocks == 0 {
            return Ticks(low);
        }
        // 2^20 bytes take `per_byte` ns.
        if blocks >= 1 << (SPLIT - TICK_SHIFT) {
            return Ticks::MAX;
        }
        Ticks(saturating_shl(blocks * per_byte, TICK_SHIFT).saturating_add(low))
    }
}

/// `value << shift`, or the largest number if bits would be lost; `shift` is a constant above 0 and below the word's bits.
#[inline(always)]
pub(crate) const fn saturating_shl(value: Word, shift: u32) -> Word {
    if value >> (Word::BITS - shift) != 0 {
        Word::MAX
    } else {
        value << shift
    }
}

/// `a * b`, saturating, without 128-bit arithmetic and for any input.
#[inline(always)]
#[must_use]
pub const fn saturating_mul(a: Word, b: Word) -> Word {
    const HALF: u32 = Word::BITS / 2;
    const LOW: Word = Word::MAX >> HALF;
    let (high_a, low_a) = (a >> HALF, a & LOW);
    let (high_b, low_b) = (b >> HALF, b & LOW);
    if high_a == 0 && high_b == 0 {
        return low_a * low_b;
    }
    if high_a != 0 && high_b != 0 {
        return Word::MAX;
    }
    // Exactly one high half is set: (high * low_other) << half + low * low.
    let cross = if high_a != 0 {
        high_a * low_b
    } else {
        high_b * low_a
    };
    saturating_shl(cross, HALF).saturating_add(low_a * low_b)
}
