//! Quantities on the command line: the grammar of profiles, and units that an option's name says already.

use std::time::Duration;

use perturb_profile::Profile;
use perturb_quantity::{Fault, OperationsPerSecond, Quantity, QuantityError, Rate, Share, Size};

use super::time::within;

/// A size of at least a byte, in bytes.
pub(crate) fn message(text: &str) -> Result<u64, String> {
    match parsed::<Size>(text)?.bytes() {
        0 => Err("must be at least 1 byte".into()),
        bytes => Ok(bytes),
    }
}

/// The largest packet of private hosts: `3584B`.
pub(crate) fn mtu(text: &str) -> Result<Size, String> {
    let size: Size = parsed(text)?;
    if Profile::MTU.contains(&size.bytes()) {
        Ok(size)
    } else {
        let (least, most) = Profile::MTU.into_inner();
        Err(format!("must be {least}B to {most}B"))
    }
}

/// A part of a whole: `90%`, or 0.9.
pub(crate) fn fraction(text: &str) -> Result<Share, String> {
    let share = match (text.parse(), text.trim().parse()) {
        (
            Err(QuantityError {
                fault: Fault::NoUnit, ..
            }),
            Ok(share),
        ) => Share(share),
        (share, _) => share.map_err(|error| error.to_string())?,
    };
    if share.0 <= 1.0 {
        Ok(share)
    } else {
        Err("must lie between 0 and 1, or 0% and 100%".into())
    }
}

/// Operations per second: `500op/s`, or 500.
pub(crate) fn rate(text: &str) -> Result<OperationsPerSecond, String> {
    let rate: OperationsPerSecond = parsed(&with_unit::<OperationsPerSecond>(text, "op/s"))?;
    if rate.0 > 0.0 {
        Ok(rate)
    } else {
        Err("must be operations per second, greater than 0, such as 500".into())
    }
}

/// What a disk does in a second, e.g. `5.5MB/s`.
pub(crate) fn disk(text: &str) -> Result<Rate, String> {
    let rate: Rate = parsed(text)?;
    if rate.bits_per_second() > 0 {
        Ok(rate)
    } else {
        Err("must be greater than 0".into())
    }
}

/// A time up to a day: `500ms`, or a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    within(Duration::ZERO..=Duration::from_secs(86_400))(&with_unit::<perturb_quantity::Duration>(text, "s"))
}

fn parsed<Q: Quantity>(text: &str) -> Result<Q, String> {
    text.parse().map_err(|error: QuantityError| error.to_string())
}

/// `text`, with `unit` if it has none.
fn with_unit<Q: Quantity>(text: &str, unit: &str) -> String {
    match text.parse::<Q>() {
        Err(error) if error.fault == Fault::NoUnit => format!("{text}{unit}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_units() {
        assert_eq!(message("64KiB"), Ok(65_536));
        assert!(message("0B").is_err() && message("64").is_err());
    }

    #[test]
    fn options_say_some_units() {
        for text in ["0.9", "90%"] {
            assert_eq!(fraction(text), Ok(Share(0.9)), "{text}");
        }
        assert!(fraction("90").is_err() && fraction("-1").is_err() && fraction("NaN").is_err());
        for text in ["500", "500op/s", "0.5kop/s"] {
            assert_eq!(rate(text), Ok(OperationsPerSecond(500.0)), "{text}");
        }
        assert!(rate("0").is_err() && rate("fast").is_err());
        for text in ["0.5", "500ms"] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(500)), "{text}");
        }
        assert!(seconds("86401").is_err() && seconds("soon").is_err());
    }
}
