//! Quantities as the user writes them: an exact decimal number and a unit.
//!
//! Model: a quantity is a whole number of the smallest step perturb tells apart (ns, bit/s, byte, 10^-9), so
//! reading and printing are exact and `parse(print(q)) == q`. A number without a unit is refused, zero included:
//! `gap: 0` does not say whether microseconds or milliseconds were meant when it was 5. No floats, no exponents.

use std::fmt;
use std::str::FromStr;

use crate::suggest::closest;

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not begin with a decimal number.
    #[error("is not a number with a unit")]
    NotANumber,
    /// A minus sign: no quantity of a network is negative.
    #[error("is negative")]
    Negative,
    /// A bare number.
    #[error("has no unit")]
    NoUnit,
    /// The unit is not one of this quantity's.
    #[error("has the unit `{unit}`, which is not one of {what}")]
    UnknownUnit {
        /// The unit as written.
        unit: String,
        /// The quantity that was expected.
        what: &'static str,
        /// The unit that was probably meant.
        suggestion: Option<&'static str>,
    },
    /// More decimals than the quantity's smallest step.
    #[error("is finer than the smallest step, {step}")]
    TooFine {
        /// The smallest step.
        step: &'static str,
    },
    /// The number does not fit 64 bits of the smallest step.
    #[error("is too large to represent")]
    TooLarge,
}

/// A unit: its spelling, and its size in smallest steps.
pub(crate) struct Unit {
    name: &'static str,
    steps: u64,
}

const fn unit(name: &'static str, steps: u64) -> Unit {
    Unit { name, steps }
}

/// A kind of quantity: what [`parse`] and the schema need to know about it.
pub trait Quantity: Sized + Copy + Ord + fmt::Display + FromStr<Err = QuantityError> {
    /// What it is called in a message, with its article.
    const WHAT: &'static str;
    /// The units a message offers.
    const OFFERED: &'static str;
    /// A value to show as an example.
    const EXAMPLE: &'static str;
    /// The regular expression of its spelling, for the schema.
    const PATTERN: &'static str;
}

/// Reads `text` as a number of smallest steps, and says which unit it was written in.
fn parse<'u>(
    text: &str,
    units: &'u [Unit],
    what: &'static str,
    step: &'static str,
) -> Result<(u64, &'u Unit), QuantityError> {
    let text = text.trim();
    if text
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    {
        return Err(QuantityError::Negative);
    }
    let number_length = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(number_length);
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return Err(QuantityError::NotANumber),
        Some((whole, fraction)) => (whole, fraction.trim_end_matches('0')),
        None => (number, ""),
    };
    if whole.is_empty() || fraction.contains('.') {
        return Err(QuantityError::NotANumber);
    }
    let suffix = suffix.trim_start();
    if suffix.is_empty() {
        return Err(QuantityError::NoUnit);
    }
    let Some(unit) = units.iter().find(|unit| unit.name == suffix) else {
        return Err(QuantityError::UnknownUnit {
            unit: suffix.to_owned(),
            what,
            suggestion: probable_unit(suffix, units),
        });
    };
    // 20 digits are more than a u64 holds; 18 decimals of the largest unit are finer than any step.
    let whole: u64 = whole.trim_start_matches('0').parse().or_else(|_| {
        if whole.bytes().all(|digit| digit == b'0') {
            Ok(0)
        } else {
            Err(QuantityError::TooLarge)
        }
    })?;
    if fraction.len() > 18 {
        return Err(QuantityError::TooFine { step });
    }
    let scale = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| QuantityError::TooFine { step })?);
    let fraction: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().map_err(|_| QuantityError::NotANumber)?
    };
    // u64 * 10^18 * 10^13 needs 124 bits: no overflow for any unit below.
    let parts = fraction * u128::from(unit.steps);
    if !parts.is_multiple_of(scale) {
        return Err(QuantityError::TooFine { step });
    }
    let steps = u128::from(whole) * u128::from(unit.steps) + parts / scale;
    Ok((u64::try_from(steps).map_err(|_| QuantityError::TooLarge)?, unit))
}

fn probable_unit(written: &str, units: &[Unit]) -> Option<&'static str> {
    let lower = written.to_lowercase();
    // "10Mbps" means bits to most, "10MBps" bytes.
    let per_second = match written.strip_suffix("ps") {
        Some(stem) if stem.ends_with('b') => format!("{}it/s", stem.to_lowercase()),
        Some(stem) => format!("{}/s", stem.to_lowercase()),
        None => format!("{lower}/s"),
    };
    let same = |unit: &&Unit| [&lower, &per_second].contains(&&unit.name.to_lowercase());
    let spelled_out = match lower.as_str() {
        "sec" | "secs" | "second" | "seconds" => "s",
        "msec" | "msecs" | "millisecond" | "milliseconds" => "ms",
        "usec" | "usecs" | "microsecond" | "microseconds" => "us",
        "nsec" | "nsecs" | "nanosecond" | "nanoseconds" => "ns",
        "byte" | "bytes" => "B",
        "percent" => "%",
        other => other,
    };
    units
        .iter()
        .find(|unit| unit.name == spelled_out)
        .or_else(|| units.iter().find(same))
        .map(|unit| unit.name)
        .or_else(|| closest(written, units.iter().map(|unit| unit.name)))
}

/// Prints `steps` in `unit`, exactly.
fn print(f: &mut fmt::Formatter<'_>, steps: u64, unit: &Unit) -> fmt::Result {
    let whole = steps / unit.steps;
    let mut rest = u128::from(steps % unit.steps);
    write!(f, "{whole}")?;
    if rest != 0 {
        f.write_str(".")?;
        while rest != 0 {
            rest *= 10;
            write!(f, "{}", rest / u128::from(unit.steps))?;
            rest %= u128::from(unit.steps);
        }
    }
    f.write_str(unit.name)
}

/// The largest of `units` (sorted, largest first) that `steps` reaches; the first one for zero.
fn reached(steps: u64, units: &[Unit]) -> Option<&Unit> {
    units.iter().find(|unit| steps >= unit.steps || steps == 0)
}

/// A span of time in whole nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

const TIMES: &[Unit] = &[
    unit("s", 1_000_000_000),
    unit("ms", 1_000_000),
    unit("us", 1_000),
    unit("ns", 1),
    unit("\u{b5}s", 1_000),
    unit("\u{3bc}s", 1_000),
];

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

impl Quantity for Duration {
    const WHAT: &'static str = "a duration";
    const OFFERED: &'static str = "ns, us, ms, s";
    const EXAMPLE: &'static str = "20ms";
    const PATTERN: &'static str = r"^[0-9]+(\.[0-9]+)? ?(ns|us|µs|μs|ms|s)$";
}

impl FromStr for Duration {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, TIMES, "the units of a duration", "1ns").map(|(steps, _)| Self(steps))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        reached(self.0, &TIMES[..4]).map_or(Ok(()), |unit| print(f, self.0, unit))
    }
}

/// A bandwidth in whole bits per second. It remembers whether it was written in bytes, and prints likewise;
/// comparison ignores that.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    bits_per_second: u64,
    in_bytes: bool,
}

const BIT_RATES: &[Unit] = &[
    unit("Tbit/s", 1_000_000_000_000),
    unit("Gbit/s", 1_000_000_000),
    unit("Mbit/s", 1_000_000),
    unit("kbit/s", 1_000),
    unit("bit/s", 1),
];

const BYTE_RATES: &[Unit] = &[
    unit("TB/s", 8_000_000_000_000),
    unit("GB/s", 8_000_000_000),
    unit("MB/s", 8_000_000),
    unit("kB/s", 8_000),
    unit("B/s", 8),
];

const RATES: &[Unit] = &[
    unit("Mbit/s", 1_000_000),
    unit("Gbit/s", 1_000_000_000),
    unit("kbit/s", 1_000),
    unit("MB/s", 8_000_000),
    unit("GB/s", 8_000_000_000),
    unit("kB/s", 8_000),
    unit("bit/s", 1),
    unit("Tbit/s", 1_000_000_000_000),
    unit("Kbit/s", 1_000),
    unit("B/s", 8),
    unit("TB/s", 8_000_000_000_000),
    unit("KB/s", 8_000),
    unit("KiB/s", 8 << 10),
    unit("MiB/s", 8 << 20),
    unit("GiB/s", 8 << 30),
];

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

impl Quantity for Rate {
    const WHAT: &'static str = "a bandwidth";
    const OFFERED: &'static str =
        "bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s, B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s";
    const EXAMPLE: &'static str = "100Mbit/s";
    const PATTERN: &'static str = r"^[0-9]+(\.[0-9]+)? ?([kKMGT]?bit|[kKMGT]?B|[KMG]iB)/s$";
}

impl FromStr for Rate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (bits_per_second, unit) = parse(text, RATES, "the units of a bandwidth", "1bit/s")?;
        // Ten decimals of a GiB/s may still be a whole number of bits but not of bytes: then bits print exactly.
        Ok(Self {
            bits_per_second,
            in_bytes: unit.name.ends_with("B/s") && bits_per_second % 8 == 0,
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = if self.in_bytes { BYTE_RATES } else { BIT_RATES };
        reached(self.bits_per_second, units).map_or(Ok(()), |unit| print(f, self.bits_per_second, unit))
    }
}

/// An amount of data in whole bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Size(u64);

const SIZES: &[Unit] = &[
    unit("B", 1),
    unit("KiB", 1 << 10),
    unit("MiB", 1 << 20),
    unit("GiB", 1 << 30),
    unit("kB", 1_000),
    unit("MB", 1_000_000),
    unit("GB", 1_000_000_000),
    unit("KB", 1_000),
];

const WHOLE_SIZES: &[Unit] = &[
    unit("GiB", 1 << 30),
    unit("GB", 1_000_000_000),
    unit("MiB", 1 << 20),
    unit("MB", 1_000_000),
    unit("KiB", 1 << 10),
    unit("kB", 1_000),
    unit("B", 1),
];

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

impl Quantity for Size {
    const WHAT: &'static str = "a size";
    const OFFERED: &'static str = "B, kB, MB, GB (powers of 1000), KiB, MiB, GiB (powers of 1024)";
    const EXAMPLE: &'static str = "64KiB";
    const PATTERN: &'static str = r"^[0-9]+(\.[0-9]+)? ?([kKMG]?B|[KMG]iB)$";
}

impl FromStr for Size {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, SIZES, "the units of a size", "1B").map(|(steps, _)| Self(steps))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = WHOLE_SIZES
            .iter()
            .find(|unit| self.0 != 0 && self.0.is_multiple_of(unit.steps));
        whole
            .or(WHOLE_SIZES.last())
            .map_or(Ok(()), |unit| print(f, self.0, unit))
    }
}

/// A probability, written in percent, in whole parts of 10^9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Probability(u64);

const PERCENT: &[Unit] = &[unit("%", 10_000_000)];

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

impl Quantity for Probability {
    const WHAT: &'static str = "a percentage";
    const OFFERED: &'static str = "%";
    const EXAMPLE: &'static str = "0.1%";
    const PATTERN: &'static str = r"^[0-9]+(\.[0-9]+)? ?%$";
}

impl FromStr for Probability {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text, PERCENT, "the units of a percentage", "0.0000001%").map(|(steps, _)| Self(steps))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, self.0, &PERCENT[0])
    }
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

#[cfg(test)]
mod tests;
