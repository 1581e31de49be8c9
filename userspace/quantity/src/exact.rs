//! What the emulator obeys: whole numbers of the smallest step that perturb tells apart, read and printed exactly.

use std::fmt;

use crate::grammar::{Dimension, part, quantity, unit};

/// Spans of time; base unit µs.
pub(crate) static TIME: Dimension = Dimension {
    what: "a duration",
    offered: "ns, us, ms, s, min, h",
    example: "20ms",
    step: "1ns",
    steps: 1_000,
    units: &[
        unit("s", 1_000_000),
        unit("ms", 1_000),
        unit("us", 1),
        part("ns", 1, 1_000),
        unit("min", 60_000_000),
        unit("h", 3_600_000_000),
        unit("\u{b5}s", 1),
        unit("\u{3bc}s", 1),
    ],
};

/// Bandwidths; base unit bytes per second.
pub(crate) static RATE: Dimension = Dimension {
    what: "a bandwidth",
    offered: "bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s, B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s",
    example: "100Mbit/s",
    step: "1bit/s",
    steps: 8,
    units: &[
        unit("Mbit/s", 125_000),
        unit("Gbit/s", 125_000_000),
        unit("kbit/s", 125),
        unit("MB/s", 1_000_000),
        unit("GB/s", 1_000_000_000),
        unit("kB/s", 1_000),
        part("bit/s", 1, 8),
        unit("Tbit/s", 125_000_000_000),
        unit("Kbit/s", 125),
        unit("B/s", 1),
        unit("TB/s", 1_000_000_000_000),
        unit("KB/s", 1_000),
        unit("KiB/s", 1 << 10),
        unit("MiB/s", 1 << 20),
        unit("GiB/s", 1 << 30),
        unit("B/us", 1_000_000),
        unit("B/\u{b5}s", 1_000_000),
        unit("B/\u{3bc}s", 1_000_000),
    ],
};

/// Amounts of data; base unit bytes.
pub(crate) static SIZE: Dimension = Dimension {
    what: "a size",
    offered: "B, kB, MB, GB (powers of 1000), KiB, MiB, GiB (powers of 1024)",
    example: "64KiB",
    step: "1B",
    steps: 1,
    units: &[
        unit("B", 1),
        unit("KiB", 1 << 10),
        unit("MiB", 1 << 20),
        unit("GiB", 1 << 30),
        unit("kB", 1_000),
        unit("MB", 1_000_000),
        unit("GB", 1_000_000_000),
        unit("KB", 1_000),
    ],
};

/// Parts of a whole; base unit 1.
pub(crate) static SHARE: Dimension = Dimension {
    what: "a percentage",
    offered: "%",
    example: "0.1%",
    step: "0.0000001%",
    steps: 1_000_000_000,
    units: &[part("%", 1, 100)],
};

/// A span of time in whole nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(pub(crate) u64);

quantity!(Duration, TIME, |text| TIME
    .exact(text)
    .map(|(steps, _)| Self(steps)));

impl Duration {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// A duration of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A duration of `millis` milliseconds.
    pub const fn from_millis(millis: u32) -> Self {
        Self(millis as u64 * 1_000_000)
    }

    /// Whole nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The sum, at most `u64::MAX` ns (584 years, beyond every horizon).
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        Self::from_nanos(duration.0)
    }
}

/// At most `u64::MAX` ns.
impl From<std::time::Duration> for Duration {
    fn from(duration: std::time::Duration) -> Self {
        Self(duration.as_nanos().try_into().unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TIME.print(f, self.0, reached(&TIME, self.0, &["s", "ms", "us", "ns"]))
    }
}

/// A bandwidth in whole bits per second. It remembers whether it was written in bytes, and prints likewise;
/// comparison ignores that.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub(crate) bits_per_second: u64,
    pub(crate) in_bytes: bool,
}

quantity!(Rate, RATE, |text| {
    let (bits_per_second, unit) = RATE.exact(text)?;
    // Ten decimals of a GiB/s may still be a whole number of bits but not of bytes: then bits print exactly.
    Ok(Self {
        bits_per_second,
        in_bytes: unit.name.contains('B') && bits_per_second % 8 == 0,
    })
});

impl Rate {
    /// A rate of `bits_per_second` bit/s.
    pub const fn from_bits_per_second(bits_per_second: u64) -> Self {
        Self {
            bits_per_second,
            in_bytes: false,
        }
    }

    /// Whole bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.bits_per_second
    }

    /// The time `bytes` take at this rate, rounded up to a nanosecond; at a rate of zero, forever.
    pub const fn time_of(self, bytes: u64) -> Duration {
        if self.bits_per_second == 0 {
            return Duration(u64::MAX);
        }
        let nanos = (bytes as u128 * 8_000_000_000).div_ceil(self.bits_per_second as u128);
        Duration(if nanos > u64::MAX as u128 {
            u64::MAX
        } else {
            nanos as u64
        })
    }

    /// The whole bytes this rate carries in `time`.
    pub const fn bytes_in(self, time: Duration) -> u64 {
        let bytes = self.bits_per_second as u128 * time.0 as u128 / 8_000_000_000;
        if bytes > u64::MAX as u128 {
            u64::MAX
        } else {
            bytes as u64
        }
    }
}

impl PartialEq for Rate {
    fn eq(&self, other: &Self) -> bool {
        self.bits_per_second == other.bits_per_second
    }
}

impl Eq for Rate {}

impl PartialOrd for Rate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rate {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bits_per_second.cmp(&other.bits_per_second)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = if self.in_bytes {
            ["TB/s", "GB/s", "MB/s", "kB/s", "B/s"]
        } else {
            ["Tbit/s", "Gbit/s", "Mbit/s", "kbit/s", "bit/s"]
        };
        // Nothing is nothing in the smallest unit.
        let units = if self.bits_per_second == 0 {
            &units[4..]
        } else {
            &units
        };
        RATE.print(
            f,
            self.bits_per_second,
            reached(&RATE, self.bits_per_second, units),
        )
    }
}

/// An amount of data in whole bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Size(pub(crate) u64);

quantity!(Size, SIZE, |text| SIZE.exact(text).map(|(steps, _)| Self(steps)));

impl Size {
    /// A size of `bytes` bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Whole bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |name: &&str| {
            SIZE.size_of(name)
                .is_some_and(|size| self.0 != 0 && self.0.is_multiple_of(size))
        };
        let whole = ["GiB", "GB", "MiB", "MB", "KiB", "kB"].into_iter().find(fits);
        SIZE.print(f, self.0, whole.unwrap_or("B"))
    }
}

/// A probability, written in percent, in whole parts of 10^9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Probability(pub(crate) u64);

quantity!(Probability, SHARE, |text| SHARE
    .exact(text)
    .map(|(steps, _)| Self(steps)));

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0);
    /// Always.
    pub const ONE: Self = Self(1_000_000_000);

    /// A probability of `parts` in 10^9.
    pub const fn from_billionths(parts: u64) -> Self {
        Self(parts)
    }

    /// Parts in 10^9.
    pub const fn billionths(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SHARE.print(f, self.0, "%")
    }
}

/// The first of the units `names`, the largest first, that `steps` reaches; the first one for zero.
fn reached<'n>(dimension: &Dimension, steps: u64, names: &[&'n str]) -> &'n str {
    let reached = |name: &&str| steps == 0 || dimension.size_of(name).is_some_and(|size| steps >= size);
    let found = names.iter().copied().find(reached);
    found.or(names.last().copied()).unwrap_or_default()
}

macro_rules! serialized_as_text {
    ($($quantity:ty),*) => {$(
        impl serde::Serialize for $quantity {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

serialized_as_text!(Duration, Rate, Size, Probability);
