//! What is said of an emulation while it runs, and at its end.

use std::io::IsTerminal as _;

use super::{Flow, Report};
use crate::{controller::running::Running, registry::Record, voice};

/// A line on standard error that shows the running totals, if that is a terminal.
pub struct LiveLine {
    on: bool,
}

impl LiveLine {
    /// Nothing is shown if `quiet`.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        Self {
            on: !quiet && std::io::stderr().is_terminal(),
        }
    }

    /// Shows the totals now.
    pub fn show(&mut self, running: &Running) -> anyhow::Result<()> {
        if !self.on {
            return Ok(());
        }
        // Another command may have changed the profile since.
        let record = Record::read(&running.record.id)?.unwrap_or_else(|| running.record.clone());
        let Some(report) = Report::of(&record)? else {
            return Ok(());
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
            line += &format!(", UNINTENDED: {unasked} dropped unasked; `perturb status` says where");
        }
        voice::say(format!("\r\x1b[K{line}"));
        Ok(())
    }

    /// Ends the line.
    pub fn finish(&mut self) {
        if self.on {
            voice::say("\n".into());
        }
        voice::settle();
    }
}
