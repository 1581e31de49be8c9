//! What a model says, in words: the same for the screen and for lines.

use perturb_emulator::status::{Lateness, Report, ServerReport};
use perturb_present::Digits;

use super::model::{Now, Passing};
use crate::cli::moment;

/// A number of so few digits that what stays about the same looks the same.
fn number(value: f64, digits: u8) -> String {
    let rounded = format!("{value:.*e}", usize::from(digits.max(1) - 1));
    // What was written as a number is one.
    let rounded = rounded.parse().unwrap_or(value);
    Digits::of(digits).trimmed().write(rounded)
}

/// A number with the largest of its units that it reaches, or the last.
fn scaled(value: f64, digits: u8, units: &[(f64, &str)]) -> String {
    let found = units.iter().find(|(size, _)| value >= *size).or(units.last());
    let (size, unit) = found.copied().unwrap_or((1.0, ""));
    format!("{} {unit}", number(value / size, digits))
}

/// Bits per second, if it is known how many.
pub(super) fn rate(bits: impl Into<Option<f64>>, digits: u8) -> String {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")];
    bits.into()
        .map_or_else(|| "-".into(), |bits| scaled(bits, digits, &units))
}

/// A time in us, if there is one.
pub(super) fn time(us: impl Into<Option<f64>>, digits: u8) -> String {
    let units = [(1e6, "s"), (1e3, "ms"), (1.0, "us")];
    us.into()
        .map_or_else(|| "-".into(), |us| scaled(us, digits, &units))
}

pub(super) fn share(share: impl Into<Option<f64>>, digits: u8) -> String {
    let write = |share: f64| format!("{} %", number(100.0 * share, digits));
    share.into().map_or_else(|| "-".into(), write)
}

fn count(count: Option<u64>) -> String {
    count.map_or_else(|| "-".into(), |count| count.to_string())
}

/// What a server does: what it is called, and its value.
pub(super) fn server(server: &ServerReport, now: Now, digits: u8) -> [(&'static str, String); 4] {
    [
        ("in use", share(server.utilization, digits)),
        ("carries", rate(now.carries, digits)),
        ("backlog", time(server.backlog_us, digits)),
        ("dropped", count(now.drops)),
    ]
}

/// What passes of a class, likewise.
pub(super) fn class(passing: Passing, digits: u8) -> [(&'static str, String); 4] {
    let packets = passing
        .packets
        .map_or_else(|| "-".into(), |packets| number(packets, digits));
    [
        ("packets/s", packets),
        ("carries", rate(passing.carries, digits)),
        ("dropped", count(passing.drops)),
        ("delay", time(passing.delay, digits)),
    ]
}

/// What is out of the ordinary, in as few words as there are for it.
pub(super) fn states(report: &Report) -> Vec<String> {
    let mut states = Vec::new();
    if report.paused {
        states.push("PAUSED: traffic passes untouched".to_owned());
    }
    if !report.lost.is_empty() {
        states.push(format!("gone, and waited for: {}", report.lost.join(", ")));
    }
    let unasked = report.unintended.dropped();
    if unasked > 0 {
        states.push(format!(
            "UNINTENDED: {unasked} dropped that the profile does not drop"
        ));
    }
    states
}

/// What [`deadlines`] there may be.
pub(super) const DEADLINES: [&str; 2] = ["undone", "ends"];

/// When it ends by itself.
pub(super) fn deadlines(report: &Report) -> Vec<(&'static str, String)> {
    let seconds = |ms: u64| format!("{:.0} s", ms as f64 / 1e3);
    let [undone, ends] = DEADLINES;
    let confirm = report.confirm_left_ms;
    let confirm = confirm.map(|left| (undone, format!("undone in {} unless confirmed", seconds(left))));
    let end = report
        .ends_in_ms
        .map(|left| (ends, format!("ends in {}", seconds(left))));
    confirm.into_iter().chain(end).collect()
}

pub(super) fn late(lateness: &Lateness, digits: u8) -> String {
    format!(
        "late by at most {} (50 %), {} (99 %), {} (all)",
        time(lateness.p50_us, digits),
        time(lateness.p99_us, digits),
        time(lateness.max_us, digits)
    )
}

/// Where a server is in its timeline.
pub(super) fn timeline(server: &ServerReport) -> Option<String> {
    let timeline = server.timeline.as_ref()?;
    Some(format!("timeline of {}: {}", server.name, moment(timeline)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_they_reach() {
        assert_eq!(rate(0.0, 3), "0 bit/s");
        assert_eq!(rate(1_234_567.0, 3), "1.23 Mbit/s");
        assert_eq!(time(999.0, 2), "1000 us");
        assert_eq!(time(1_500_000.0, 3), "1.5 s");
        assert_eq!(time(None, 3), "-");
        assert_eq!(share(0.12345, 3), "12.3 %");
        assert_eq!(share(1.0, 2), "100 %");
        assert_eq!(share(0.0, 2), "0 %");
    }

    #[test]
    fn what_is_ordinary_is_not_said() {
        assert!(states(&Report::default()).is_empty());
        let paused = Report {
            paused: true,
            ends_in_ms: Some(4_600),
            ..Report::default()
        };
        assert_eq!(states(&paused), ["PAUSED: traffic passes untouched"]);
        assert_eq!(deadlines(&paused), [("ends", "ends in 5 s".into())]);
    }
}
