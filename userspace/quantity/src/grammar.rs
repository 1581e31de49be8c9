//! Dimensions with their units, and what reads and prints them.

use std::{fmt, str::FromStr};

use serde::de::{Deserializer, Visitor};

use crate::suggest::closest;

/// Why a text is not a quantity. Displayed it reads on from the text: "`20` has no unit".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
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
    #[error("has the unit `{unit}`, which is not one of the units of {what}")]
    UnknownUnit {
        /// The unit as written.
        unit: String,
        /// The quantity that was expected, with its article.
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
    /// The number does not fit 64 bits of the smallest step, or an `f64`.
    #[error("is too large to represent")]
    TooLarge,
}

/// Why a text is not a quantity, and what to write instead. Displayed it reads on from the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}{}; write {dimension}", self.meant())]
pub struct QuantityError {
    /// What is wrong.
    pub fault: Fault,
    /// What was expected.
    pub dimension: &'static Dimension,
}

impl QuantityError {
    fn meant(&self) -> String {
        match &self.fault {
            Fault::UnknownUnit {
                suggestion: Some(unit),
                ..
            } => format!(" (did you mean `{unit}`?)"),
            _ => String::new(),
        }
    }
}

/// A unit: its spelling, and its size as a fraction of the dimension's base unit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    numerator: u64,
    denominator: u64,
}

/// A unit of `size` base units.
pub(crate) const fn unit(name: &'static str, size: u64) -> Unit {
    part(name, size, 1)
}

/// A unit of `numerator / denominator` base units.
pub(crate) const fn part(name: &'static str, numerator: u64, denominator: u64) -> Unit {
    Unit {
        name,
        numerator,
        denominator,
    }
}

/// A kind of quantity: its units, and what messages say of it. Displayed it says what to write.
#[derive(Debug, PartialEq, Eq)]
pub struct Dimension {
    /// What it is called in a message, with its article.
    pub what: &'static str,
    /// The units that a message offers; a few more may be accepted.
    pub offered: &'static str,
    /// A value to show.
    pub example: &'static str,
    /// The smallest step that an exact quantity tells apart.
    pub(crate) step: &'static str,
    /// How many of them are in a base unit.
    pub(crate) steps: u64,
    pub(crate) units: &'static [Unit],
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            offered,
            example,
            ..
        } = self;
        write!(f, "{what} in {offered}, such as {example}")
    }
}

impl Dimension {
    /// The regular expression of its spelling (ECMA 262), for a JSON Schema.
    #[must_use]
    pub fn pattern(&self) -> String {
        let units: Vec<&str> = self.units.iter().map(|unit| unit.name).collect();
        format!(
            r"^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)? ?({})$",
            units.join("|")
        )
    }

    /// Reads a whole number of smallest steps, and says in which unit it was written.
    pub(crate) fn exact(&'static self, text: &str) -> Result<(u64, &'static Unit), QuantityError> {
        let (number, unit) = self.split(text)?;
        let steps = self.steps_of(number, unit).map_err(|fault| self.refused(fault))?;
        Ok((steps, unit))
    }

    /// Reads a number of base units.
    pub(crate) fn real(&'static self, text: &str) -> Result<f64, QuantityError> {
        let (number, unit) = self.split(text)?;
        let number: f64 = number.parse().map_err(|_| self.refused(Fault::NotANumber))?;
        let value = number * (unit.numerator as f64 / unit.denominator as f64);
        if value.is_finite() {
            Ok(value)
        } else {
            Err(self.refused(Fault::TooLarge))
        }
    }

    /// Prints `steps` in the unit called `name`, exactly.
    pub(crate) fn print(&self, f: &mut fmt::Formatter<'_>, steps: u64, name: &str) -> fmt::Result {
        let size = self
            .units
            .iter()
            .find(|unit| unit.name == name)
            .map_or(1, |unit| self.size(unit));
        let mut rest = u128::from(steps % size);
        write!(f, "{}", steps / size)?;
        if rest != 0 {
            f.write_str(".")?;
            while rest != 0 {
                rest *= 10;
                write!(f, "{}", rest / u128::from(size))?;
                rest %= u128::from(size);
            }
        }
        f.write_str(name)
    }

    /// The size in smallest steps of the unit called `name`.
    #[must_use]
    pub fn size_of(&self, name: &str) -> Option<u64> {
        let unit = self.units.iter().find(|unit| unit.name == name)?;
        Some(self.size(unit))
    }

    const fn size(&self, unit: &Unit) -> u64 {
        unit.numerator * self.steps / unit.denominator
    }

    const fn refused(&'static self, fault: Fault) -> QuantityError {
        QuantityError {
            fault,
            dimension: self,
        }
    }

    /// The number and its unit.
    fn split<'t>(&'static self, text: &'t str) -> Result<(&'t str, &'static Unit), QuantityError> {
        let text = text.trim();
        let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        if text.strip_prefix('-').is_some_and(begins) {
            return Err(self.refused(Fault::Negative));
        }
        let (number, rest) = text.split_at(number_length(text));
        if !number.contains(|c: char| c.is_ascii_digit()) || rest.starts_with('.') {
            return Err(self.refused(Fault::NotANumber));
        }
        let suffix = rest.trim_start();
        if suffix.is_empty() {
            return Err(self.refused(Fault::NoUnit));
        }
        match self.units.iter().find(|unit| unit.name == suffix) {
            Some(unit) => Ok((number, unit)),
            None => Err(self.refused(Fault::UnknownUnit {
                unit: suffix.to_owned(),
                what: self.what,
                suggestion: self.probable_unit(suffix),
            })),
        }
    }

    /// `number` of `unit` in smallest steps.
    fn steps_of(&self, number: &str, unit: &Unit) -> Result<u64, Fault> {
        let number = number.trim_start_matches('+');
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Ok(0);
        }
        // An exponent beyond 32 bits is as far out of range as a smaller one.
        let exponent = exponent
            .parse::<i64>()
            .unwrap_or(match exponent.starts_with('-') {
                true => i64::from(i32::MIN),
                false => i64::from(i32::MAX),
            });
        let decimals = (fraction.len() as i64).saturating_sub(exponent);
        let value: u128 = digits.parse().map_err(|_| Fault::TooLarge)?;
        let size = u128::from(self.size(unit));
        let power = |decimals: u64| 10u128.checked_pow(u32::try_from(decimals).ok()?);
        let steps = if decimals <= 0 {
            power(decimals.unsigned_abs())
                .and_then(|scale| value.checked_mul(scale))
                .and_then(|value| value.checked_mul(size))
        } else {
            let too_fine = Fault::TooFine { step: self.step };
            // No unit has so many steps that one of more than 38 decimals could be a whole number of them.
            let Some(scale) = power(decimals.unsigned_abs()) else {
                return Err(too_fine);
            };
            let common = greatest_common_divisor(size, scale);
            if !value.is_multiple_of(scale / common) {
                return Err(too_fine);
            }
            (value / (scale / common)).checked_mul(size / common)
        };
        steps
            .and_then(|steps| u64::try_from(steps).ok())
            .ok_or(Fault::TooLarge)
    }

    fn probable_unit(&self, written: &str) -> Option<&'static str> {
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
        self.units
            .iter()
            .find(|unit| unit.name == spelled_out)
            .or_else(|| self.units.iter().find(same))
            .map(|unit| unit.name)
            .or_else(|| closest(written, self.units.iter().map(|unit| unit.name)))
    }
}

/// Length of the longest prefix that reads as a number: sign, digits, fraction, exponent.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut end = digits(usize::from(bytes.first() == Some(&b'+')));
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let after = digits(exponent);
        if after > exponent {
            end = after;
        }
    }
    end
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A type that this grammar reads.
pub trait Quantity: Copy + PartialOrd + FromStr<Err = QuantityError> {
    /// Its units.
    const DIMENSION: &'static Dimension;
}

/// Reads a text, or a bare number: its error names the units that would do.
pub(crate) fn deserialize<'de, Q: Quantity, D: Deserializer<'de>>(deserializer: D) -> Result<Q, D::Error> {
    deserializer.deserialize_any(TextVisitor(std::marker::PhantomData))
}

struct TextVisitor<Q>(std::marker::PhantomData<Q>);

impl<Q: Quantity> Visitor<'_> for TextVisitor<Q> {
    type Value = Q;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Q::DIMENSION)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Q, E> {
        text.parse()
            .map_err(|error| E::custom(format_args!("`{text}` {error}")))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Q, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Q, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Q, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Q, E> {
        Err(E::custom(format_args!(
            "a value is missing; write {}",
            Q::DIMENSION
        )))
    }
}

/// Parsing and `Deserialize` of a type that `$read` makes of a text.
macro_rules! quantity {
    ($name:ident, $dimension:ident, $read:expr) => {
        impl $crate::grammar::Quantity for $name {
            const DIMENSION: &'static $crate::grammar::Dimension = &$dimension;
        }

        impl std::str::FromStr for $name {
            type Err = $crate::grammar::QuantityError;

            fn from_str(text: &str) -> Result<Self, $crate::grammar::QuantityError> {
                $read(text)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::grammar::deserialize(deserializer)
            }
        }
    };
}

pub(crate) use quantity;
