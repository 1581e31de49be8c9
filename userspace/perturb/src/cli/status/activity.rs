//! What the servers do now: two looks at the counters, and the time between them.

use std::{fmt, time::Duration};

use perturb_emulator::status::{QueueReport, Report, ServerReport};
use perturb_present::Table;

use super::table::{judged, micros, share};

/// The servers of an emulation between two looks.
#[derive(Debug)]
pub(crate) struct Activity<'a> {
    report: &'a Report,
    pub(crate) rows: Vec<Row<'a>>,
    time: Duration,
}

#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) server: &'a ServerReport,
    pub(crate) bytes: u64,
    pub(crate) drops: u64,
    /// What the law of its queue had done before.
    queue: Option<&'a QueueReport>,
}

impl<'a> Activity<'a> {
    /// What the servers did since an earlier look.
    pub(crate) fn between(earlier: &'a Report, report: &'a Report, time: Duration) -> Self {
        let rows = report.servers.iter().map(|server| {
            let before = earlier.servers.iter().find(|before| before.name == server.name);
            let drops = ServerReport::dropped;
            Row {
                server,
                bytes: server
                    .bytes
                    .saturating_sub(before.map_or(0, |before| before.bytes)),
                drops: drops(server).saturating_sub(before.map_or(0, drops)),
                queue: before.and_then(|before| before.queue.as_ref()),
            }
        });
        Self {
            report,
            rows: rows.collect(),
            time,
        }
    }
}

impl fmt::Display for Activity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        writeln!(f, "{}, pacer {}", report.place(), report.pacer)?;
        let mut table = Table::new(
            1,
            &["server", "in use", "carries", "backlog", "max backlog", "dropped"],
        )
        .indent(2)
        .widths(&[20, 7, 13, 11, 11, 8]);
        for Row {
            server, bytes, drops, ..
        } in &self.rows
        {
            let rate = *bytes as f64 * 8e-6 / self.time.as_secs_f64().max(f64::MIN_POSITIVE);
            table.row(vec![
                server.name.clone(),
                share(server.utilization),
                format!("{rate:.2} Mbit/s"),
                micros(server.backlog_us),
                micros(server.max_backlog_us),
                drops.to_string(),
            ]);
        }
        write!(f, "{table}")?;
        for Row { server, queue, .. } in &self.rows {
            if let Some(now) = &server.queue {
                writeln!(f, "{}", judged(&server.name, now, *queue))?;
            }
        }
        Ok(())
    }
}
