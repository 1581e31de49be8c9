//! Histograms of times: how late packets left, and how long they waited at servers whose law judges them.

/// Buckets of a histogram: eight to each power of two, the first eight for 0 to 7 ns; what is longer than the last one's
/// lower bound (8.6 s) counts there.
pub const BUCKETS: u32 = 256;

/// Packets by how long they waited at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "alloc", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C)]
pub struct Sojourns {
    /// By [`bucket`] of the wait in ns.
    pub packets: [u64; BUCKETS as usize],
}

impl Default for Sojourns {
    fn default() -> Self {
        Self {
            packets: [0; BUCKETS as usize],
        }
    }
}

/// The bucket that counts a packet of so many ns.
#[inline(always)]
#[must_use]
pub const fn bucket(nanos: u64) -> u32 {
    if nanos >> 33 != 0 {
        return BUCKETS - 1;
    }
    // The position of the highest bit above bit 3, by halving: leading_zeros would expand to far more here.
    let mut exponent = 0;
    let mut rest = nanos;
    if rest >> 19 != 0 {
        exponent += 16;
        rest >>= 16;
    }
    if rest >> 11 != 0 {
        exponent += 8;
        rest >>= 8;
    }
    if rest >> 7 != 0 {
        exponent += 4;
        rest >>= 4;
    }
    if rest >> 5 != 0 {
        exponent += 2;
        rest >>= 2;
    }
    if rest >> 4 != 0 {
        exponent += 1;
        rest >>= 1;
    }
    // Below 8 ns there is one bucket per ns; above, three bits after the highest.
    exponent * 8 + rest as u32
}

/// The time, ns, that a bucket's packets do not exceed.
#[must_use]
pub const fn bound(bucket: u32) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let exponent = bucket / 8 - 1;
    let rest = bucket as u64 % 8 + 8;
    ((rest + 1) << exponent) - 1
}
