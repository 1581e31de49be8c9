//! A program's communication at the baseline.
//!
//! Two views, which feed different models:
//!
//! | view | unit | from | models |
//! |---|---|---|---|
//! | wire | packets, acknowledgments of TCP included | the emulator's counters, all baseline runs | o, g (packets), G (bytes) |
//! | program | messages: sends, whatever packets they become | `perturb trace`, one run more | L (round trips) |
//!
//! The emulated overhead is burnt for each wire packet and the emulated gap separates them, so that the program's own
//! messages are too few for o and g where one of them is several packets, and too many where TCP gathers small ones.
//! Only the trace tells which messages are waited for.

use std::fmt;

use serde::Serialize;

use crate::sweep::{
    experiment::WorkloadSummary,
    store::{Record, Traced, Traffic},
};

/// How much is sent from each to each other one: wire packets of hosts, or messages of processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Volume {
    /// Of the one that sends most.
    pub(super) messages: u64,
    /// Of all, on average.
    pub(super) average_messages: f64,
    /// Of the one that sends most.
    pub(super) bytes: u64,
    pub(super) total_messages: u64,
    pub(super) total_bytes: u64,
    pub(super) mean_size: f64,
    /// Mean time between two messages of the one that sends most, in the baseline runs.
    pub(super) interval_us: f64,
    /// Messages from each (row) to each (column).
    pub(super) matrix: Vec<Vec<u64>>,
    pub(super) matrix_bytes: Vec<Vec<u64>>,
}

impl Volume {
    /// In a run of this time; `None` if nothing is sent.
    fn of(matrix: Vec<Vec<u64>>, matrix_bytes: Vec<Vec<u64>>, seconds: f64) -> Option<Self> {
        let sums = |table: &[Vec<u64>]| -> Vec<u64> { table.iter().map(|row| row.iter().sum()).collect() };
        let (sent, bytes) = (sums(&matrix), sums(&matrix_bytes));
        let messages = sent.iter().copied().max().filter(|messages| *messages > 0)?;
        let (total_messages, total_bytes): (u64, u64) = (sent.iter().sum(), bytes.iter().sum());
        Some(Self {
            messages,
            average_messages: total_messages as f64 / sent.len() as f64,
            bytes: bytes.iter().copied().max().unwrap_or_default(),
            total_messages,
            total_bytes,
            mean_size: total_bytes as f64 / total_messages as f64,
            interval_us: seconds * 1e6 / messages as f64,
            matrix,
            matrix_bytes,
        })
    }

    /// Messages in blocking round trips, request and reply, in percent of those of the one that sends most.
    pub(super) fn reads_percent(&self, round_trips: u64) -> f64 {
        (200.0 * round_trips as f64 / self.messages as f64).min(100.0)
    }
}

/// A program's communication at the baseline, as the emulator counted it; means over the runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Communication {
    /// Wire packets between hosts.
    #[serde(flatten)]
    pub(super) sent: Volume,
    /// Longest time that a packet waited behind others, which a smooth sender does not have.
    pub(super) max_backlog_us: f64,
    /// `max_backlog_us` over `interval_us`: 0 for a smooth sender, the packets in the longest queue for bursts.
    pub(super) burstiness: f64,
    /// Blocking round trips, where the experiment says so or a trace does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_trips: Option<u64>,
    /// `experiment` or `trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_trips_from: Option<&'static str>,
    /// What the program itself sent, where it was traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) program: Option<Program>,
}

/// A program's own messages in its traced run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Program {
    /// Names: ranks, or the program's name and a number.
    pub(super) processes: Vec<String>,
    /// Messages between processes.
    #[serde(flatten)]
    pub(super) sent: Volume,
    pub(super) round_trips: u64,
    /// Messages in the round trips of the thread with most of them, of those of the process that sends most.
    pub(super) reads_percent: f64,
}

impl Communication {
    pub(super) fn of(
        records: &[&Record],
        workload: &WorkloadSummary,
        seconds: f64,
        traced: Option<&Traced>,
    ) -> Option<Self> {
        let hosts = workload.hosts as usize;
        let count = records.len() as u64;
        if count == 0 {
            return None;
        }
        let table = |pick: fn(&Traffic) -> u64| -> Vec<Vec<u64>> {
            let mut table = vec![vec![0; hosts]; hosts];
            for traffic in records.iter().flat_map(|record| &record.traffic) {
                table[traffic.from as usize - 1][traffic.to as usize - 1] += pick(traffic);
            }
            for cell in table.iter_mut().flatten() {
                *cell = (*cell + count / 2) / count;
            }
            table
        };
        let (matrix, matrix_bytes) = (table(|traffic| traffic.packets), table(|traffic| traffic.bytes));
        let sent = Volume::of(matrix, matrix_bytes, seconds)?;
        let backlogs: Vec<f64> = records
            .iter()
            .filter_map(|record| {
                let servers = record.counters["servers"].as_array()?;
                let backlogs = servers
                    .iter()
                    .filter_map(|server| server["max_backlog_us"].as_f64());
                backlogs.reduce(f64::max)
            })
            .collect();
        let declared = workload
            .communication
            .round_trips
            .map(|count| (count, "experiment"));
        // Of a collective none answers another, but what a late partner sends looks so.
        let counted = traced.filter(|_| workload.collective.is_none());
        let round_trips = declared.or(counted.map(|traced| (traced.round_trips, "trace")));
        let max_backlog_us = backlogs.iter().sum::<f64>() / backlogs.len().max(1) as f64;
        Some(Self {
            max_backlog_us,
            burstiness: max_backlog_us / sent.interval_us,
            sent,
            round_trips: round_trips.map(|(count, _)| count),
            round_trips_from: round_trips.map(|(_, from)| from),
            program: traced.and_then(|traced| Program::of(traced, seconds)),
        })
    }

    /// Which number feeds which model.
    pub(super) fn feeds(&self) -> String {
        let latency = match self.round_trips.zip(self.round_trips_from) {
            Some((count, from)) => format!("{count} round trips ({from}) for L"),
            None => "no round trips for L".into(),
        };
        format!(
            "{} packets (counters) for o and g; {} bytes (counters) for G; {latency}",
            self.sent.messages, self.sent.bytes
        )
    }

    /// Largest over mean number of packets that a host sends: 1 for perfect balance.
    pub(super) fn imbalance(&self) -> f64 {
        self.sent.messages as f64 / self.sent.average_messages
    }
}

impl Program {
    fn of(traced: &Traced, seconds: f64) -> Option<Self> {
        let sent = Volume::of(traced.matrix.clone(), traced.matrix_bytes.clone(), seconds)?;
        Some(Self {
            processes: traced.processes.clone(),
            round_trips: traced.round_trips,
            reads_percent: sent.reads_percent(traced.round_trips),
            sent,
        })
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} messages and {} bytes from the busiest of {} processes, one each {:.1} us, {:.0} bytes on average; {} \
             blocking round trips ({:.0} % reads)",
            self.sent.messages,
            self.sent.bytes,
            self.processes.len(),
            self.sent.interval_us,
            self.sent.mean_size,
            self.round_trips,
            self.reads_percent
        )
    }
}
