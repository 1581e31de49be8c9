//! Reads the trace of a server, and when a timeline starts.

use perturb_quantity::Probability;

use crate::findings::Findings;
use crate::keys;
use crate::read::{self, At, Fields};
use crate::recording::Format;
use crate::timeline::{Start, Trace};

/// A trace of a server.
pub(crate) fn trace(at: At<'_>, findings: &mut Findings<'_>) -> Option<Trace> {
    let fields = Fields::of(at, &keys::TRACE, &[], findings)?;
    let file = fields.require("file", "file: lte.mm", findings, |at, f| {
        at.prose(keys::MAX_TEXT, f)
    });
    let written = fields.read("format", findings, read::variant::<Format>);
    let format = match &file {
        Some(file) if !fields.has("format") => {
            let format = Format::of(file);
            if format.is_none() {
                let (other, why) = ("format", "the name of the file does not say how it is written");
                fields.needs("file", other, why, findings);
            }
            format
        }
        _ => written,
    };
    let scale = fields.read("scale", findings, |at, f| at.quantity(keys::FACTOR, f));
    Some(Trace {
        file: file?,
        format: format?,
        at_end: fields.read("at_end", findings, read::variant),
        offset: fields
            .read("offset", findings, |at, f| at.quantity(keys::INSTANT, f))
            .unwrap_or_default(),
        scale: scale.unwrap_or(Probability::ONE),
    })
}

/// What the times of a timeline count from.
pub(crate) fn start(at: At<'_>, findings: &mut Findings<'_>) -> Option<Start> {
    let text = at.text("apply, first-packet or an instant", findings)?;
    let start = match text {
        "apply" => Some(Start::Apply),
        "first-packet" => Some(Start::FirstPacket),
        _ => instant(text).map(Start::At),
    };
    if start.is_none() {
        let why = "it is neither apply, first-packet nor an instant of UTC";
        at.unfit(
            why,
            "write for example 2026-11-24T12:00:00Z, with up to 9 decimals of a second",
            findings,
        );
    }
    start
}

/// `2026-11-24T12:00:00.5Z` (RFC 3339, UTC only) as ns since 1970.
fn instant(text: &str) -> Option<u64> {
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
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(whole, ':', [2, 2, 2])?;
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit()) && (1..=9).contains(&fraction.len());
    let nanos: u64 = format!("{fraction:0<9}").parse().ok().filter(|_| digits)?;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = |month: u64| match month {
        2 => 28 + u64::from(leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let fits = (1970..=2500).contains(&year)
        && (1..=12).contains(&month)
        && (1..=length(month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let days: u64 = (1970..year).map(|year| 365 + u64::from(leap(year))).sum::<u64>()
        + (1..month).map(length).sum::<u64>()
        + day.saturating_sub(1);
    fits.then(|| (days * 86_400 + hour * 3600 + minute * 60 + second) * 1_000_000_000 + nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_those_of_utc() {
        assert_eq!(instant("1970-01-01T00:00:00Z"), Some(0));
        // date -u -d 2026-11-24T12:34:56.5Z +%s%N
        assert_eq!(instant("2026-11-24T12:34:56.5Z"), Some(1_795_523_696_500_000_000));
        assert_eq!(instant("2000-02-29T00:00:00Z"), Some(951_782_400_000_000_000));
        for wrong in [
            "2026-11-24",
            "2026-11-24T12:00:00",
            "2023-02-29T00:00:00Z",
            "2026-1-1T00:00:00Z",
            "x",
        ] {
            assert_eq!(instant(wrong), None, "{wrong}");
        }
    }
}
