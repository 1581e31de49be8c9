//! Times on the command line, as profiles write them.

use std::{ops::RangeInclusive, time::Duration};

use perturb_quantity::QuantityError;

/// A parser of times within a range, both ends allowed.
pub(crate) fn within(
    allowed: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let parsed: perturb_quantity::Duration =
            text.parse().map_err(|error: QuantityError| error.to_string())?;
        let time = parsed.into();
        if allowed.contains(&time) {
            return Ok(time);
        }
        let [least, most] =
            [allowed.start(), allowed.end()].map(|&end| perturb_quantity::Duration::from(end));
        Err(format!("allowed is {least} to {most}"))
    }
}

/// How long something may go on that ends by itself: up to a year.
pub(crate) const SPAN: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(365 * 86_400);

/// How far apart what is to happen at once may be.
pub(crate) const APART: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(1);

/// Time between two looks or messages.
pub(crate) const PERIOD: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3_600);

/// Without a word from its controller an emulation goes on so long: a controller that is scheduled late must still be in
/// time, and traffic must not be held up for ever.
pub(crate) const LEASE: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);

/// A poll before each departure; a longer one would leave the processor to nothing else.
pub(crate) const SPIN: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_millis(10);

/// A time within a program's work: computation, service, silence between messages.
pub(crate) const WORK: RangeInclusive<Duration> = Duration::from_nanos(1)..=Duration::from_secs(3_600);

/// The same, or none.
pub(crate) const WORK_OR_NONE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{LEASE, WORK_OR_NONE, within};

    #[test]
    fn a_time_is_within_its_range() {
        let lease = within(LEASE);
        assert_eq!(lease("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(lease("3600s"), Ok(Duration::from_secs(3_600)));
        for outside in ["3ns", "99ms", "3601s", "0s"] {
            assert_eq!(
                lease(outside),
                Err("allowed is 100ms to 3600s".into()),
                "{outside}"
            );
        }
        assert!(lease("3").is_err_and(|error| error.contains("such as 20ms")));
        assert_eq!(within(WORK_OR_NONE)("0s"), Ok(Duration::ZERO));
    }
}
