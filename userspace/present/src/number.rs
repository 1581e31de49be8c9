//! Numbers as people read them: so many significant digits.
//!
//! Model: a value is rounded to its significant digits. From 10^-4 to 10^15 it is written plainly, all digits before the
//! point included, as a count of bytes must be; beyond, with an exponent. What has no value is a dash.

use std::{fmt, ops::RangeInclusive};

/// Exponents of ten whose numbers are written without one.
const PLAIN: RangeInclusive<i32> = -4..=14;

/// A number that was measured, or a dash: four significant digits, trailing zeros included, for they were seen.
#[must_use]
pub fn measured(value: impl Into<Option<f64>>) -> String {
    Digits::of(4).write(value)
}

/// A number that a model gives, or a dash: six significant digits without trailing zeros.
#[must_use]
pub fn computed(value: impl Into<Option<f64>>) -> String {
    Digits::of(6).trimmed().write(value)
}

/// A number where there is little room, as beside an axis: so many significant digits, k, M and G for large ones.
#[must_use]
pub fn compact(value: f64, significant: u8) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = Digits::of(significant).trimmed().write(scaled);
    format!("{}{suffix}", digits.replace('-', "\u{2212}"))
}

/// A value in a CSV file, with all its digits; nothing if there is none.
#[must_use]
pub fn cell(value: Option<impl fmt::Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Seconds, in the unit that people would say them in.
#[must_use]
pub fn span(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

/// How a column of numbers is written, where [`measured`] and [`computed`] do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    significant: i32,
    decimals: Option<i32>,
    trimmed: bool,
}

impl Digits {
    /// So many significant digits, at least one.
    #[must_use]
    pub const fn of(significant: u8) -> Self {
        Self {
            significant: significant as i32,
            decimals: None,
            trimmed: false,
        }
    }

    /// At most so many digits behind the point, however small the number is.
    #[must_use]
    pub const fn decimals(mut self, most: u8) -> Self {
        self.decimals = Some(most as i32);
        self
    }

    /// Without zeros at the end, behind the point.
    #[must_use]
    pub const fn trimmed(mut self) -> Self {
        self.trimmed = true;
        self
    }

    /// The number, or a dash.
    #[must_use]
    pub fn write(self, value: impl Into<Option<f64>>) -> String {
        let Some(value) = value.into() else {
            return "-".into();
        };
        if !value.is_finite() {
            return value.to_string();
        }
        let digits = self.significant.max(1) - 1;
        // Rounding may add a digit in front: 9.9996 has the exponent of 10.
        let scientific = format!("{value:.*e}", digits as usize);
        let exponent = scientific.rsplit('e').next().and_then(|text| text.parse().ok());
        let exponent: i32 = exponent.unwrap_or(0);
        let decimals = match (self.decimals, value == 0.0) {
            (None, true) => return "0".into(),
            (Some(most), true) => most,
            (None, _) if !PLAIN.contains(&exponent) => return self.trim(&scientific),
            (None, _) => digits - exponent,
            (Some(most), _) => most.min(digits - exponent),
        };
        self.trim(&format!("{value:.*}", decimals.max(0) as usize))
    }

    fn trim(self, text: &str) -> String {
        let (number, exponent) = text.split_at(text.find('e').unwrap_or(text.len()));
        if self.trimmed && number.contains('.') {
            number.trim_end_matches('0').trim_end_matches('.').to_owned() + exponent
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_numbers_have_four_digits() {
        for (value, text) in [
            (1234.56, "1235"),
            (12.3456, "12.35"),
            (12.0, "12.00"),
            (9.9996, "10.00"),
            (0.012_345, "0.01235"),
            (-0.000_5, "-0.0005000"),
            (0.000_059_5, "5.950e-5"),
            (12_345_678.0, "12345678"),
            (0.0, "0"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(measured(value), text);
        }
        assert_eq!(measured(None), "-");
    }

    #[test]
    fn computed_numbers_have_six_digits_and_no_zeros_at_the_end() {
        for (value, text) in [
            (0.0, "0"),
            (7.76, "7.76"),
            (1_234_567.0, "1234567"),
            (0.000_123_456_789, "0.000123457"),
            (-2.5, "-2.5"),
            (447_979.848_65, "447980"),
            (1e-9, "1e-9"),
            (2.5e15, "2.5e15"),
            (99.999_999_99, "100"),
            (100.0, "100"),
        ] {
            assert_eq!(computed(value), text);
        }
    }

    #[test]
    fn digits_behind_the_point_may_be_few() {
        let digits = Digits::of(4).decimals(2);
        let shown = [0.0, 0.001, -0.27, 9.9996, 106.93, 1234.5, 20_000.0].map(|value| digits.write(value));
        assert_eq!(
            shown,
            ["0.00", "0.00", "-0.27", "10.00", "106.9", "1234", "20000"]
        );
    }

    #[test]
    fn compact_numbers_are_short() {
        let shown = [0.0, 0.05, 12.5, 1405.0, 20_000.0, 2.5e6, -3.0, 0.000_3].map(|value| compact(value, 4));
        assert_eq!(
            shown,
            ["0", "0.05", "12.5", "1405", "20k", "2.5M", "\u{2212}3", "0.0003"]
        );
        assert_eq!(
            [7.0, 1234.0, 12_345.0, 123_456.0].map(|value| compact(value, 2)),
            ["7", "1234", "12k", "123k"]
        );
    }

    #[test]
    fn times_have_the_unit_of_their_size() {
        assert_eq!([59.6, 150.0, 9000.0].map(span), ["60 s", "2 min", "2.5 h"]);
    }
}
