//! What models compute with: `f64` in one unit for each dimension.

use serde::Serialize;

use crate::{
    exact::{Duration, RATE, Rate, SHARE, SIZE, TIME},
    grammar::{Dimension, part, quantity, unit},
};

/// Rates of operations; base unit operations per second.
static OPERATION_RATE: Dimension = Dimension {
    what: "a rate of operations",
    offered: "op/s, kop/s",
    example: "500op/s",
    step: "1op/s",
    steps: 1,
    units: &[unit("op/s", 1), unit("ops/s", 1), unit("kop/s", 1_000)],
};

/// LogGP's G; base unit µs per byte.
static TIME_PER_BYTE: Dimension = Dimension {
    what: "a gap per byte",
    offered: "ns/B, us/B, us/kB, us/KiB, us/MB, us/MiB, ms/MB, ms/MiB",
    example: "26.3ns/B",
    step: "1ns/B",
    steps: 1_000,
    units: &[
        part("ns/B", 1, 1_000),
        unit("us/B", 1),
        unit("\u{b5}s/B", 1),
        unit("\u{3bc}s/B", 1),
        part("us/kB", 1, 1_000),
        part("us/KB", 1, 1_000),
        part("us/KiB", 1, 1 << 10),
        part("us/MB", 1, 1_000_000),
        part("us/MiB", 1, 1 << 20),
        part("ms/MB", 1_000, 1_000_000),
        part("ms/MiB", 1_000, 1 << 20),
    ],
};

/// Processor cycles.
static CYCLES: Dimension = Dimension {
    what: "a number of cycles",
    offered: "cycles, kcycles, Mcycles",
    example: "21cycles",
    step: "1cycle",
    steps: 1,
    units: &[
        unit("cycles", 1),
        unit("cycle", 1),
        unit("kcycles", 1_000),
        unit("Mcycles", 1_000_000),
    ],
};

/// LogGP's G where a cycle is the unit of time; base unit cycles per byte.
static CYCLES_PER_BYTE: Dimension = Dimension {
    what: "a gap per byte",
    offered: "cycles/B",
    example: "0.5cycles/B",
    step: "1cycle/B",
    steps: 1,
    units: &[unit("cycles/B", 1), unit("cycle/B", 1)],
};

macro_rules! real {
    ($(#[$doc:meta])* $name:ident, $dimension:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
        pub struct $name(pub f64);

        quantity!($name, $dimension, |text| $dimension.real(text).map(Self));
    };
}

real!(
    /// A duration in µs.
    Micros, TIME
);
real!(
    /// A size in bytes.
    ByteSize, SIZE
);
real!(
    /// A rate in bytes per second.
    BytesPerSecond, RATE
);
real!(
    /// Operations per second.
    OperationsPerSecond, OPERATION_RATE
);
real!(
    /// A part of a whole, 1 for 100 %.
    Share, SHARE
);
real!(
    /// LogGP's gap per byte G in µs; 0 for a bandwidth without limit.
    MicrosPerByte, TIME_PER_BYTE
);
real!(
    /// A duration in processor cycles.
    Cycles, CYCLES
);
real!(
    /// A gap per byte in cycles.
    CyclesPerByte, CYCLES_PER_BYTE
);

impl From<Duration> for Micros {
    fn from(duration: Duration) -> Self {
        Self(duration.nanos() as f64 / 1e3)
    }
}

impl Micros {
    /// The same in whole nanoseconds, rounded.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_nanos((self.0 * 1e3).round() as u64)
    }
}

impl From<Rate> for MicrosPerByte {
    fn from(rate: Rate) -> Self {
        Self(8e6 / rate.bits_per_second() as f64)
    }
}

impl MicrosPerByte {
    /// 1/G in whole bits per second, rounded; `None` without limit.
    #[must_use]
    pub fn rate(self) -> Option<Rate> {
        (self.0 > 0.0).then(|| Rate::from_bits_per_second((8e6 / self.0).round() as u64))
    }
}
