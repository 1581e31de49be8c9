//! What emulations of many machines have done, side by side and in sum.

use std::{collections::BTreeMap, fmt};

use anyhow::Context as _;
use perturb_emulator::status::{Fault, Report};
use perturb_present::Table;
use serde::Serialize;

use crate::cli::status::micros;

/// As `status --on --json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct Merged {
    /// By machine.
    machines: BTreeMap<String, Vec<Report>>,
    /// Those of which nothing is known.
    failed: Vec<String>,
    /// All together.
    total: Total,
}

/// Sums over machines.
#[derive(Debug, Default, Serialize)]
struct Total {
    captured: u64,
    /// Sent on to their interfaces.
    released: u64,
    /// As the profile asks.
    dropped: u64,
    unintended: u64,
    /// Without regard to signs: what is lost on one machine is not made up for by another.
    unaccounted: u64,
    /// Of the machine where it is most.
    #[serde(skip_serializing_if = "Option::is_none")]
    lateness_p99_us: Option<f64>,
}

impl Merged {
    /// Of what each has printed: a report, or an array of them.
    ///
    /// # Errors
    /// When that is no JSON of perturb's.
    pub(super) fn of(printed: BTreeMap<String, String>, failed: &[String]) -> anyhow::Result<Self> {
        let mut machines = BTreeMap::new();
        for (host, text) in printed {
            let reports = if text.starts_with('[') {
                serde_json::from_str(&text)
            } else {
                serde_json::from_str(&text).map(|report| vec![report])
            };
            let reports: Vec<Report> = reports.with_context(|| format!("{host}: it prints no report"))?;
            machines.insert(host, reports);
        }
        let mut total = Total::default();
        for report in machines.values().flatten() {
            let balance = &report.balance;
            total.captured += balance.captured;
            total.released += balance.released;
            total.dropped += balance.dropped;
            total.unintended += balance.unintended;
            total.unaccounted += balance.unaccounted.unsigned_abs();
            let late = report.lateness.as_ref().map(|lateness| lateness.p99_us);
            total.lateness_p99_us = total.lateness_p99_us.into_iter().chain(late).reduce(f64::max);
        }
        Ok(Self {
            machines,
            failed: failed.to_vec(),
            total,
        })
    }

    /// What speaks against a result, and where.
    fn faults(&self) -> impl Iterator<Item = (&str, &Fault)> {
        self.machines.iter().flat_map(|(host, reports)| {
            let faults = reports.iter().filter_map(|report| report.faults.as_ref());
            faults.flatten().map(move |fault| (host.as_str(), fault))
        })
    }

    /// Says that a result is not to be trusted, and why.
    pub(super) fn warn(&self) {
        for (host, fault) in self.faults() {
            log::warn!("{host}: {fault}; no profile asks for this, so do not trust the result");
        }
    }
}

impl fmt::Display for Merged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = [
            "machine",
            "interface",
            "captured",
            "released",
            "dropped",
            "unintended",
            "unaccounted",
            "99 % late by",
        ];
        let mut table = Table::new(2, &columns);
        let mut row = |host: &str, place: String, counts: [u64; 5], late: Option<f64>| {
            let mut cells = vec![host.to_owned(), place];
            cells.extend(counts.map(|count| count.to_string()));
            cells.push(micros(late));
            table.row(cells);
        };
        for (host, reports) in &self.machines {
            for report in reports {
                let balance = &report.balance;
                let counts = [
                    balance.captured,
                    balance.released,
                    balance.dropped,
                    balance.unintended,
                    balance.unaccounted.unsigned_abs(),
                ];
                let late = report.lateness.as_ref().map(|lateness| lateness.p99_us);
                row(host, report.place(), counts, late);
            }
            if reports.is_empty() {
                row(host, "nothing is applied".into(), [0; 5], None);
            }
        }
        let total = &self.total;
        let counts = [
            total.captured,
            total.released,
            total.dropped,
            total.unintended,
            total.unaccounted,
        ];
        row("all", String::new(), counts, total.lateness_p99_us);
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_added_up_and_what_one_lost_is_lost() {
        let report = |captured: u64, unaccounted: i64, late: f64| {
            let mut report = Report::default();
            report.balance.captured = captured;
            report.balance.unaccounted = unaccounted;
            report.faults = Some(report.faults());
            let mut value = serde_json::to_value(&report).unwrap();
            value["lateness"] =
                serde_json::json!({ "p50_us": 1.0, "p99_us": late, "max_us": late, "lead_us": 0.0 });
            value.to_string()
        };
        let printed = BTreeMap::from([
            ("n1".to_owned(), format!("[{}]", report(3, 1, 7.0))),
            ("n2".to_owned(), report(4, -1, 9.0)),
            ("n3".to_owned(), "[]".to_owned()),
        ]);
        let merged = Merged::of(printed, &["n4".into()]).unwrap();
        let total = &merged.total;
        assert_eq!((total.captured, total.unaccounted), (7, 2));
        assert_eq!(total.lateness_p99_us, Some(9.0));
        let hosts: Vec<&str> = merged.faults().map(|(host, _)| host).collect();
        assert_eq!(hosts, ["n1", "n2"]);
        let text = merged.to_string();
        assert!(
            text.contains("nothing is applied") && text.contains("99 % late by"),
            "{text}"
        );
        assert!(Merged::of(BTreeMap::from([("n1".into(), "hello".into())]), &[]).is_err());
    }
}
