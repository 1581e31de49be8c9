//! Instants of UTC: ns since 1970, and their text by RFC 3339. Days are counted in years that begin in March, so that a leap
//! day is the last of its year.

const DAY: u64 = 86_400;
const DAYS_OF_400_YEARS: u64 = 146_097;
/// From March 1 of the year 0 to 1970.
const BEFORE: u64 = 719_468;

/// `2026-11-24T12:00:00.5Z`, from 1970 to 2500.
pub(crate) fn read(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, by: char, lengths: [usize; 3]| -> Option<[u64; 3]> {
        let mut parts = text.split(by);
        let mut found = [0; 3];
        for (place, length) in found.iter_mut().zip(lengths) {
            let part = parts.next()?;
            let plain = part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
            *place = part.parse().ok().filter(|_| plain)?;
        }
        parts.next().is_none().then_some(found)
    };
    let date = numbers(date, '-', [4, 2, 2])?;
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(whole, ':', [2, 2, 2])?;
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit()) && (1..=9).contains(&fraction.len());
    let nanos: u64 = format!("{fraction:0<9}").parse().ok().filter(|_| digits)?;
    let day = Some(date).filter(|[year, ..]| (1970..=2500).contains(year));
    let day = day.map(day_of).filter(|&day| date_of(day) == date)?;
    let fits = hour < 24 && minute < 60 && second < 60;
    fits.then(|| (day * DAY + hour * 3600 + minute * 60 + second) * 1_000_000_000 + nanos)
}

/// With nine decimals of a second.
pub(crate) fn written(nanos: u64) -> String {
    let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let [year, month, day] = date_of(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:09}Z")
}

/// The day since 1970 of a year (1970 or later), a month and a day; of a date that there is not, another day.
fn day_of([year, month, day]: [u64; 3]) -> u64 {
    let years = year - u64::from(month <= 2);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day;
    (years * 365 + years / 4 - years / 100 + years / 400 + of_year).saturating_sub(1 + BEFORE)
}

/// Year, month and day of a day since 1970.
fn date_of(day: u64) -> [u64; 3] {
    let days = day + BEFORE;
    let in_cycle = days % DAYS_OF_400_YEARS;
    let years = (in_cycle - in_cycle / 1460 + in_cycle / 36_524 - in_cycle / (DAYS_OF_400_YEARS - 1)) / 365;
    let of_year = in_cycle - (365 * years + years / 4 - years / 100);
    let month = (5 * of_year + 2) / 153;
    let year = days / DAYS_OF_400_YEARS * 400 + years + u64::from(month >= 10);
    [year, (month + 2) % 12 + 1, of_year - (153 * month + 2) / 5 + 1]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn they_are_those_of_utc() {
        // date -u -d 2026-11-24T12:34:56.5Z +%s%N
        for (text, nanos) in [
            ("1970-01-01T00:00:00.000000000Z", 0),
            ("2026-11-24T12:34:56.500000000Z", 1_795_523_696_500_000_000),
            ("2000-02-29T00:00:00.000000000Z", 951_782_400_000_000_000),
        ] {
            assert_eq!(read(text), Some(nanos));
            assert_eq!(written(nanos), text);
        }
        assert_eq!(read("2026-11-24T12:34:56.5Z"), Some(1_795_523_696_500_000_000));
        for wrong in [
            "2026-11-24",
            "2026-11-24T12:00:00",
            "2023-02-29T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "1970-01-00T00:00:00Z",
            "1969-12-31T00:00:00Z",
            "2501-01-01T00:00:00Z",
            "2026-11-24T24:00:00Z",
            "2026-1-1T00:00:00Z",
            "x",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut before = [1969, 12, 31];
        for day in 0..=day_of([2500, 12, 31]) {
            let date = date_of(day);
            assert_eq!(day_of(date), day);
            let next = date[2] == before[2] + 1 && date[..2] == before[..2];
            let first =
                date[2] == 1 && before[2] >= 28 && date[0] * 12 + date[1] == before[0] * 12 + before[1] + 1;
            assert!(next || first, "{date:?} after {before:?}");
            before = date;
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(nanos in 0..16_756_761_600_000_000_000_u64) {
            prop_assert_eq!(read(&written(nanos)), Some(nanos));
        }
    }
}
