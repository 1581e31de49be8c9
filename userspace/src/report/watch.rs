//! What the servers do now: two looks at the counters, and the time between them.

use std::{fmt, time::Duration};

use super::{
    Report, ServerReport,
    table::{backlog, share},
};

/// The servers of an emulation between two looks.
#[derive(Debug)]
pub struct Activity<'a> {
    report: &'a Report,
    rows: Vec<Row<'a>>,
    time: Duration,
}

#[derive(Debug)]
struct Row<'a> {
    server: &'a ServerReport,
    bytes: u64,
    drops: u64,
}

impl Report {
    /// Replaces every server's utilization by that since an earlier look, `time` ago.
    pub fn since(&mut self, earlier: &Self, time: Duration) {
        for server in &mut self.servers {
            let before = earlier.servers.iter().find(|before| before.name == server.name);
            server.utilization = before
                .filter(|_| !time.is_zero())
                .map(|before| (server.busy_ms - before.busy_ms).max(0.0) / (time.as_secs_f64() * 1e3));
        }
    }

    /// What the servers did since an earlier look.
    #[must_use]
    pub fn activity<'a>(&'a self, earlier: &Self, time: Duration) -> Activity<'a> {
        let rows = self.servers.iter().map(|server| {
            let before = earlier.servers.iter().find(|before| before.name == server.name);
            let drops = |server: &ServerReport| server.tail_drops + server.losses;
            Row {
                server,
                bytes: server
                    .bytes
                    .saturating_sub(before.map_or(0, |before| before.bytes)),
                drops: drops(server).saturating_sub(before.map_or(0, drops)),
            }
        });
        Activity {
            report: self,
            rows: rows.collect(),
            time,
        }
    }
}

impl fmt::Display for Activity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        writeln!(f, "{}, pacer {}", report.place, report.pacer)?;
        writeln!(
            f,
            "  {:<20} {:>8} {:>14} {:>12} {:>12} {:>9}",
            "server", "in use", "carries", "backlog", "max backlog", "dropped"
        )?;
        for Row { server, bytes, drops } in &self.rows {
            let rate = *bytes as f64 * 8e-6 / self.time.as_secs_f64().max(f64::MIN_POSITIVE);
            writeln!(
                f,
                "  {:<20} {:>8} {rate:>7.2} Mbit/s {:>12} {:>9.1} us {drops:>9}",
                server.name,
                share(server.utilization),
                backlog(server.backlog_us),
                server.max_backlog_us,
            )?;
        }
        Ok(())
    }
}
