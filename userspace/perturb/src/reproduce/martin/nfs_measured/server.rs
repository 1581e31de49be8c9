//! The thesis's two servers, emulated and loaded by `perturb nfs curve`, and what it measured.

use std::{fs, io::ErrorKind};

use anyhow::Context as _;
use perturb_experiments::nfs::is_late;
use perturb_models::published::tables::{Embedded, Row as Printed};
use perturb_present::Table;
use serde_json::Value;

use super::super::super::{figure::Setting, outcome::Outcome};

/// What is compared of the paper's curves: beyond, a throughput has two response times.
pub(super) const STEADY_MS: f64 = 30.0;
/// Overhead of the thesis's baseline.
const BASE_OVERHEAD_US: f64 = 80.0;

/// A server of the thesis, and how it is loaded there.
#[derive(Clone, Copy)]
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) model: &'static str,
    /// Of the load generators, three with so many each (tables A.3 and A.7).
    processes: &'static str,
    pub(super) rates: &'static [f64],
    /// More than it delivers, op/s; the data set grows with it.
    pub(super) beyond: f64,
    quick_rates: &'static [f64],
    stations: [&'static str; 3],
}

/// The lowest level lies a little below the paper's, so that its first point is between two of ours.
pub(super) const SCSI: Server = Server {
    name: "SCSI",
    model: "martin-scsi",
    processes: "21",
    rates: &[188.0, 397.0, 602.0, 800.0, 950.0, 1006.0, 1100.0],
    beyond: 1300.0,
    quick_rates: &[180.0, 1020.0],
    stations: ["900 us", "24 of 12 ms", "128 MB"],
};

pub(super) const RAID: Server = Server {
    name: "RAID",
    model: "martin-raid",
    processes: "45",
    rates: &[283.0, 494.0, 696.0, 901.0, 1103.0, 1304.0, 1550.0],
    beyond: 1800.0,
    quick_rates: &[270.0, 1350.0],
    stations: ["650 us", "28 of 12 ms", "512 MB"],
};

/// A knob, and the levels at which both measure: the paper's number, and ours.
pub(super) struct Levels<'a> {
    pub(super) knob: &'static str,
    pub(super) settings: &'a [(f64, String)],
}

impl Server {
    pub(super) fn chosen_rates(&self, setting: &Setting) -> &'static [f64] {
        if setting.quick {
            self.quick_rates
        } else {
            self.rates
        }
    }

    /// Runs the curves and gives their results, in the order of the levels, with a table of what is scaled.
    pub(super) fn measure(
        &self,
        setting: &Setting,
        outcome: &mut Outcome,
        levels: &Levels<'_>,
        rates: &[f64],
        more: &[&str],
    ) -> anyhow::Result<Vec<Value>> {
        let written: Vec<&str> = levels.settings.iter().map(|(_, level)| level.as_str()).collect();
        let vary = format!("{}={}", levels.knob, written.join(","));
        let rates: Vec<String> = rates.iter().map(ToString::to_string).collect();
        let rates = rates.join(",");
        let out = setting.directory.join(self.model);
        match fs::remove_dir_all(&out) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", out.display()));
            }
            _ => {}
        }
        let out = out.to_string_lossy().into_owned();
        let (warmup, duration) = if setting.quick {
            ("1s", "2s")
        } else {
            ("3s", "20s")
        };
        let mut words = vec!["nfs", "curve", "--vary", &vary, "--server-model", self.model];
        words.extend([
            "--processes",
            self.processes,
            "--mix",
            "sfs2-v2",
            "--mtu",
            "3584B",
        ]);
        words.extend([
            "--rates",
            &rates,
            "--scale",
            SCALE,
            "--warmup",
            warmup,
            "--duration",
            duration,
        ]);
        if !more.contains(&"--transport") {
            words.extend(["--transport", "udp"]);
        }
        words.extend(more);
        words.extend(["--out", &out, "--json", "--quiet"]);
        let found = setting.json(outcome, &words)?;
        outcome
            .tables
            .push(self.scaling(duration, more.contains(&"--burn")));
        let curves = found["curves"].as_array().context("the curves")?.clone();
        outcome.doubts.extend(self.lateness(&curves));
        Ok(curves)
    }

    /// Whether this machine was too busy to send the calls in time.
    fn lateness(&self, curves: &[Value]) -> Option<String> {
        let all = || {
            curves
                .iter()
                .flat_map(|curve| curve["levels"].as_array().into_iter().flatten())
        };
        let late = all().filter(|level| {
            let times = level["late_p99_ms"].as_f64().zip(level["mean_ms"].as_f64());
            times.is_some_and(|(late, mean)| is_late(late, mean))
        });
        let count = late.count();
        (count > 0).then(|| {
            format!(
                "{}: at {count} of {} levels calls were sent late, as the machine was busy; response times and slopes there say little",
                self.name,
                all().count()
            )
        })
    }

    /// The thesis's levels and sizes beside ours.
    fn scaling(&self, duration: &str, burns: bool) -> (String, Table) {
        let mut table = Table::new(3, &["", "thesis", "here", "factor"]);
        let [processor, disks, cache] = self.stations;
        let how = if burns { "burnt" } else { "waited for" };
        let share = format!("{cache}, a share of 1 MB for each op/s");
        let processes = format!("{} on one host", self.processes);
        let generators = format!("3 with {} each", if self.name == "SCSI" { 7 } else { 15 });
        let rows: [[&str; 4]; 8] = [
            [
                "processor time of an operation",
                processor,
                &format!("{processor}, {how}"),
                "1",
            ],
            ["disks", disks, disks, "1"],
            ["cache", cache, &share, "1"],
            ["load generators' processes", &generators, &processes, "1"],
            ["rates", "op/s", "the same", "1"],
            ["data set for each op/s", "10 MB", "10 kB", "1/1000"],
            ["largest packet", "3584 B", "3584 B", "1"],
            ["time of a level", "not printed", duration, "-"],
        ];
        for row in rows {
            table.row(row.map(str::to_owned).to_vec());
        }
        (format!("{}: what is scaled", self.name), table)
    }
}

/// Of the data set: 10 kB for each op/s.
const SCALE: &str = "0.001";

/// The levels of a measured curve: throughput and response time.
pub(super) fn levels(curve: &Value) -> impl Iterator<Item = (f64, f64)> {
    let levels = curve["levels"].as_array().into_iter().flatten();
    levels.filter_map(|level| Some((level["delivered_op_s"].as_f64()?, level["mean_ms"].as_f64()?)))
}

/// 95 % intervals of the mean response times, over the throughput.
pub(super) fn intervals(curve: &Value) -> impl Iterator<Item = (f64, [f64; 2])> {
    let levels = curve["levels"].as_array().into_iter().flatten();
    levels.filter_map(|level| Some((level["delivered_op_s"].as_f64()?, interval(level)?)))
}

/// That of one level.
pub(super) fn interval(level: &Value) -> Option<[f64; 2]> {
    let end = |place: usize| level["mean_interval_ms"][place].as_f64();
    Some([end(0)?, end(1)?])
}

pub(super) fn peak(curve: &Value) -> f64 {
    levels(curve).map(|(rate, _)| rate).fold(0.0, f64::max)
}

/// A table's points at a value of its setting: throughput and response time.
pub(super) fn printed(table: Embedded, column: Option<&str>, value: f64) -> Vec<(f64, f64)> {
    let table = table.table();
    let own = table
        .rows()
        .filter(|row| column.is_none_or(|column| row.number(column) == Some(value)));
    let point = |row: Printed<'_>| Some((row.number("throughput_op_s")?, row.number("response_ms")?));
    own.filter_map(point).collect()
}

pub(super) fn in_us(values: &[f64]) -> Vec<(f64, String)> {
    values
        .iter()
        .map(|value| (*value, format!("{value}us")))
        .collect()
}

pub(super) fn added_us(values: &[f64]) -> Vec<(f64, String)> {
    let added = |value: &f64| (*value, format!("{}us", value - BASE_OVERHEAD_US));
    values.iter().map(added).collect()
}
