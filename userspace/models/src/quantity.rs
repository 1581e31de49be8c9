//! Numbers with units, as the model inputs write them: `21cycles`, `1.38ms`, `8KiB`, `10Mbit/s`.
//!
//! Model: a quantity is a finite, non-negative number followed by one of the units of its dimension.
//! A bare number is refused, because nobody can tell what it means. Decimal prefixes are powers of
//! 1000 (`kB`, `Mbit`), binary ones powers of 1024 (`KiB`); the case of `k` and `K` does not matter.
//! Arithmetic is in `f64`: these are inputs of models, not of the data path.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

/// What is wrong with a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// No digits, or something that is not a number.
    #[error("`{text}`: expected {dimension}, a number with a unit ({units}), e.g. `{example}`")]
    NotANumber {
        /// The input.
        text: String,
        /// What was expected.
        dimension: &'static str,
        /// The units that would do.
        units: String,
        /// A value that would do.
        example: &'static str,
    },
    /// The unit is missing or belongs to another dimension.
    #[error("`{text}`: `{unit}` is not a unit of {dimension}; use one of {units}, e.g. `{example}`")]
    Unit {
        /// The input.
        text: String,
        /// What followed the number.
        unit: String,
        /// What was expected.
        dimension: &'static str,
        /// The units that would do.
        units: String,
        /// A value that would do.
        example: &'static str,
    },
    /// Negative, infinite or not a number.
    #[error("`{text}`: {dimension} must be finite and not negative")]
    Range {
        /// The input.
        text: String,
        /// What was expected.
        dimension: &'static str,
    },
}

/// A dimension: its name, an example, and its units with their factors.
pub struct Dimension {
    /// What the quantity is called in an error.
    pub name: &'static str,
    /// A value that parses.
    pub example: &'static str,
    /// Unit and factor to the base unit. Matched exactly first, then without regard to case
    /// where that is not ambiguous.
    pub units: &'static [(&'static str, f64)],
}

/// Times; base unit µs.
pub const TIME: Dimension = Dimension {
    name: "a time",
    example: "20us",
    units: &[
        ("ns", 1e-3),
        ("us", 1.0),
        ("µs", 1.0),
        ("μs", 1.0),
        ("ms", 1e3),
        ("s", 1e6),
    ],
};

/// Sizes; base unit bytes.
pub const SIZE: Dimension = Dimension {
    name: "a size",
    example: "8KiB",
    units: &[
        ("B", 1.0),
        ("kB", 1e3),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
    ],
};

/// Rates; base unit bytes per second.
pub const RATE: Dimension = Dimension {
    name: "a bandwidth",
    example: "10Mbit/s",
    units: &[
        ("bit/s", 0.125),
        ("kbit/s", 125.0),
        ("Kbit/s", 125.0),
        ("Mbit/s", 125e3),
        ("Gbit/s", 125e6),
        ("B/s", 1.0),
        ("kB/s", 1e3),
        ("KB/s", 1e3),
        ("MB/s", 1e6),
        ("GB/s", 1e9),
        ("KiB/s", 1024.0),
        ("MiB/s", 1_048_576.0),
        ("GiB/s", 1_073_741_824.0),
        ("B/us", 1e6),
        ("B/µs", 1e6),
    ],
};

/// Rates of operations; base unit operations per second.
pub const OPERATION_RATE: Dimension = Dimension {
    name: "a rate of operations",
    example: "500op/s",
    units: &[("op/s", 1.0), ("ops/s", 1.0), ("kop/s", 1e3)],
};

/// Parts of a whole; base unit 1.
pub const SHARE: Dimension = Dimension {
    name: "a share",
    example: "18%",
    units: &[("%", 0.01)],
};

/// LogGP's G as a time; base unit µs per byte.
pub const TIME_PER_BYTE: Dimension = Dimension {
    name: "a gap per byte",
    example: "18.5us/KiB",
    units: &[
        ("ns/B", 1e-3),
        ("us/B", 1.0),
        ("µs/B", 1.0),
        ("us/kB", 1e-3),
        ("us/KB", 1e-3),
        ("us/KiB", 1.0 / 1024.0),
        ("us/MB", 1e-6),
        ("us/MiB", 1.0 / 1_048_576.0),
        ("ms/MB", 1e-3),
        ("ms/MiB", 1e3 / 1_048_576.0),
    ],
};

/// Processor cycles.
pub const CYCLES: Dimension = Dimension {
    name: "a number of cycles",
    example: "21cycles",
    units: &[
        ("cycles", 1.0),
        ("cycle", 1.0),
        ("kcycles", 1e3),
        ("Mcycles", 1e6),
    ],
};

/// Cycles per byte (LogGP's G where a cycle is the unit of time).
pub const CYCLES_PER_BYTE: Dimension = Dimension {
    name: "a gap per byte",
    example: "0.5cycles/B",
    units: &[("cycles/B", 1.0), ("cycle/B", 1.0)],
};

/// The value of `text` in the base unit of `dimension`.
///
/// # Errors
/// When `text` is no number, carries no unit or another dimension's, or is negative.
pub fn parse(text: &str, dimension: &Dimension) -> Result<f64, QuantityError> {
    let units = || {
        dimension
            .units
            .iter()
            .map(|(unit, _)| *unit)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let trimmed = text.trim();
    let split = number_length(trimmed);
    let (number, unit) = (&trimmed[..split], trimmed[split..].trim());
    let Ok(value) = number.parse::<f64>() else {
        return Err(QuantityError::NotANumber {
            text: text.to_owned(),
            dimension: dimension.name,
            units: units(),
            example: dimension.example,
        });
    };
    let Some((_, factor)) = dimension.units.iter().find(|(name, _)| *name == unit) else {
        return Err(QuantityError::Unit {
            text: text.to_owned(),
            unit: unit.to_owned(),
            dimension: dimension.name,
            units: units(),
            example: dimension.example,
        });
    };
    let value = value * factor;
    if !value.is_finite() || value < 0.0 {
        return Err(QuantityError::Range {
            text: text.to_owned(),
            dimension: dimension.name,
        });
    }
    Ok(value)
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
    let sign = |at: usize| at + usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
    let mut end = digits(sign(0));
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let exponent = sign(end + 1);
        let after = digits(exponent);
        if after > exponent {
            end = after;
        }
    }
    end
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $dimension:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
        pub struct $name(pub f64);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(QuantityVisitor(&$dimension)).map(Self)
            }
        }
    };
}

quantity!(
    /// A duration in µs.
    Micros, TIME
);
quantity!(
    /// A size in bytes.
    ByteSize, SIZE
);
quantity!(
    /// A rate in bytes per second.
    BytesPerSecond, RATE
);
quantity!(
    /// Operations per second.
    OperationsPerSecond, OPERATION_RATE
);
quantity!(
    /// A part of a whole, 1 for 100 %.
    Share, SHARE
);
quantity!(
    /// A gap per byte in µs.
    MicrosPerByte, TIME_PER_BYTE
);
quantity!(
    /// A duration in processor cycles.
    Cycles, CYCLES
);
quantity!(
    /// A gap per byte in cycles.
    CyclesPerByte, CYCLES_PER_BYTE
);

struct QuantityVisitor(&'static Dimension);

impl QuantityVisitor {
    fn parsed<E: serde::de::Error>(&self, text: &str) -> Result<f64, E> {
        parse(text, self.0).map_err(E::custom)
    }
}

impl Visitor<'_> for QuantityVisitor {
    type Value = f64;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} with its unit, e.g. `{}`", self.0.name, self.0.example)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<f64, E> {
        self.parsed(text)
    }

    // A bare number goes the same way, so that the error names the units that would do.
    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<f64, E> {
        self.parsed(&value.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<f64, E> {
        self.parsed(&value.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<f64, E> {
        self.parsed(&value.to_string())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<f64, E> {
        Err(E::custom(format_args!(
            "a value is missing; give {} such as `{}`",
            self.0.name, self.0.example
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_every_dimension() {
        assert_eq!(parse("1.38ms", &TIME), Ok(1380.0));
        assert_eq!(parse(" 8 KiB", &SIZE), Ok(8192.0));
        assert_eq!(parse("10Mbit/s", &RATE), Ok(1.25e6));
        assert_eq!(parse("2.5e3cycles", &CYCLES), Ok(2500.0));
        assert_eq!(parse(".5cycles/B", &CYCLES_PER_BYTE), Ok(0.5));
        assert_eq!(parse("3B/us", &RATE), Ok(3e6));
        assert_eq!(parse("97.07%", &SHARE), Ok(0.9707));
        assert_eq!(parse("7.2us/KiB", &TIME_PER_BYTE), Ok(0.00703125));
        for dimension in [
            TIME,
            SIZE,
            RATE,
            OPERATION_RATE,
            SHARE,
            TIME_PER_BYTE,
            CYCLES,
            CYCLES_PER_BYTE,
        ] {
            assert!(parse(dimension.example, &dimension).is_ok());
        }
    }

    #[test]
    fn refusals_say_what_would_do() {
        assert!(matches!(parse("20", &TIME), Err(QuantityError::Unit { .. })));
        assert!(matches!(parse("20B", &TIME), Err(QuantityError::Unit { .. })));
        assert!(matches!(
            parse("fast", &RATE),
            Err(QuantityError::NotANumber { .. })
        ));
        assert!(matches!(parse("", &SIZE), Err(QuantityError::NotANumber { .. })));
        assert!(matches!(parse("-1us", &TIME), Err(QuantityError::Range { .. })));
        let error = parse("20", &TIME).map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err("`20`: `` is not a unit of a time; use one of ns, us, µs, μs, ms, s, e.g. `20us`".to_owned())
        );
    }

    #[test]
    fn yaml_strings_and_bare_numbers() {
        assert_eq!(
            serde_saphyr::from_str::<Micros>("1.38ms").ok(),
            Some(Micros(1380.0))
        );
        let error = serde_saphyr::from_str::<Micros>("20").map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("20us")));
    }
}
