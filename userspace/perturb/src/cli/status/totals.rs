//! What is said of an emulation while it runs.

use perturb_emulator::{
    registry::Record,
    status::{Flow, Report},
};

/// The totals now, in a line; nothing if there is no such emulation.
///
/// # Errors
/// When the record or a map cannot be read.
pub(crate) fn totals(record: &Record) -> anyhow::Result<Option<String>> {
    // Another command may have changed the profile since.
    let read = record.again()?;
    let Some(report) = Report::of(read.as_ref().unwrap_or(record))? else {
        return Ok(None);
    };
    let total = |pick: fn(&Flow) -> u64| -> u64 {
        report
            .classes
            .iter()
            .map(|class| pick(&class.egress) + pick(&class.ingress))
            .sum()
    };
    let mut line = format!(
        "{} packets, {:.1} MB, {} dropped",
        total(|flow| flow.packets),
        total(|flow| flow.bytes) as f64 / 1e6,
        total(|flow| flow.dropped),
    );
    if let Some(lateness) = &report.lateness {
        line += &format!(", 99 % at most {:.0} µs late", lateness.p99_us);
    }
    let unasked = report.unintended.dropped();
    if unasked > 0 {
        line += &format!(
            ", UNINTENDED: {unasked} dropped that the profile does not drop; `perturb status` says where"
        );
    }
    Ok(Some(line))
}
