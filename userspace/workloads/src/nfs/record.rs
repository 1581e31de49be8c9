//! What a load has measured.
//!
//! Model: an RPC counts if its reply came within the run. Its response time is from the instant at
//! which it was meant to start to the reply, so a load that falls behind does not hide it. Failed
//! calls count as errors, by kind, and in no throughput and no response time. Quantiles are within
//! 0.1 % (HDR histogram); the mean's interval comes from the means of ten equal parts of the run (batch
//! means), because successive response times are not independent.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use perturb_stats::{Bucket, Histogram, HistogramError, Sample};
use serde::{Deserialize, Serialize};

use super::{client::Transport, data_set::Extent, operation::Failure, procedure::Procedure};

/// Parts of a run for the mean's interval.
const BATCHES: usize = 10;
const CONFIDENCE: f64 = 0.95;

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, strum::Display, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Arrivals {
    /// A fixed number of processes, each of which waits for its reply, thinks and calls again (SFS).
    #[default]
    Closed,
    /// A Poisson process: calls come whether or not earlier ones have been answered.
    Open,
}

/// Why a run did not last as long as it was meant to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutShort {
    /// The user stopped it.
    Stopped,
    /// The server did not answer any more.
    ServerGone,
}

/// The result of one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the mix.
    pub mix: String,
    /// How requests arrived.
    pub arrivals: Arrivals,
    /// Rate that was asked for, RPCs per second.
    pub requested_op_s: f64,
    /// Rate of successful replies.
    pub delivered_op_s: f64,
    /// Mean response time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ms: Option<f64>,
    /// 95 % interval of the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_interval_ms: Option<[f64; 2]>,
    /// Median response time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// 99th percentile of the response time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    /// 99 % of the calls were sent at most so long after they were meant to start. What is late here is this
    /// program or its machine, not the server; it is part of the response times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_p99_ms: Option<f64>,
    /// Calls that failed.
    pub errors: u64,
    /// The same by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Datagrams sent again, warm-up included.
    pub retransmissions: u64,
    /// Packets that crossed the network for each call, both ways, if whoever measured has counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_op: Option<f64>,
    /// Why the run was cut short, if it was: its figures cover what it lasted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<CutShort>,
    /// Calls that were meant to start in the run and had no reply when it ended.
    pub unanswered: u64,
    /// What carried the calls.
    pub transport: Transport,
    /// Processes that called.
    pub processes: usize,
    /// Connections they shared.
    pub connections: usize,
    /// Factor of the data set's size.
    pub scale: f64,
    /// The data set.
    pub data_set: Extent,
    /// Warm-up before the run.
    pub warmup_s: f64,
    /// How long the run lasted.
    pub duration_s: f64,
    /// Seed of all that was drawn.
    pub seed: u64,
    /// By procedure.
    pub operations: BTreeMap<Procedure, OperationRecord>,
    /// All response times, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<Bucket>,
}

/// One procedure's part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationRecord {
    /// Successful calls.
    pub count: u64,
    /// Share of all successful calls.
    pub percent: f64,
    /// Mean response time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ms: Option<f64>,
    /// 99th percentile of the response time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
}

/// The run's place in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) start: Instant,
    pub(super) end: Instant,
}

/// What one thread has seen.
pub(super) struct Seen {
    window: Window,
    response: BTreeMap<Procedure, Histogram>,
    late: Histogram,
    errors: BTreeMap<String, Errors>,
    batches: [(u64, f64); BATCHES],
    /// Calls meant to start in the run.
    started: u64,
    /// Those of them that were answered or failed, at any time.
    ended: u64,
}

struct Errors {
    count: u64,
    example: String,
}

impl Window {
    pub(super) fn length(&self) -> Duration {
        self.end.saturating_duration_since(self.start)
    }

    fn contains(&self, at: Instant) -> bool {
        self.start <= at && at < self.end
    }
}

impl Seen {
    pub(super) fn new(window: Window) -> Result<Self, HistogramError> {
        Ok(Self {
            window,
            response: BTreeMap::new(),
            late: Histogram::new()?,
            errors: BTreeMap::new(),
            batches: [(0, 0.0); BATCHES],
            started: 0,
            ended: 0,
        })
    }

    /// A call starts, at least so late.
    pub(super) fn starts(&mut self, intended: Instant) {
        if self.window.contains(intended) {
            self.started += 1;
            self.late.record(intended.elapsed());
        }
    }

    /// A call has ended.
    pub(super) fn ends(
        &mut self,
        procedure: Procedure,
        intended: Instant,
        outcome: &Result<Instant, Failure>,
    ) -> Result<(), HistogramError> {
        self.ended += u64::from(self.window.contains(intended));
        match outcome {
            Ok(at) if self.window.contains(*at) => {
                let response = at.saturating_duration_since(intended);
                let histogram = match self.response.entry(procedure) {
                    std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                    std::collections::btree_map::Entry::Vacant(new) => new.insert(Histogram::new()?),
                };
                histogram.record(response);
                let elapsed = at.duration_since(self.window.start).as_secs_f64();
                let batch = (elapsed / self.window.length().as_secs_f64() * BATCHES as f64) as usize;
                let (count, sum) = &mut self.batches[batch.min(BATCHES - 1)];
                *count += 1;
                *sum += response.as_secs_f64();
            }
            Err(failure) if self.window.contains(Instant::now()) => {
                let errors = self.errors.entry(failure.kind()).or_insert_with(|| Errors {
                    count: 0,
                    example: format!("{procedure}: {failure}"),
                });
                errors.count += 1;
            }
            Ok(_) | Err(_) => {}
        }
        Ok(())
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (procedure, histogram) in other.response {
            match self.response.entry(procedure) {
                std::collections::btree_map::Entry::Occupied(mut known) => known.get_mut().merge(&histogram),
                std::collections::btree_map::Entry::Vacant(new) => {
                    new.insert(histogram);
                }
            }
        }
        self.late.merge(&other.late);
        for (kind, errors) in other.errors {
            self.errors
                .entry(kind)
                .and_modify(|mine| mine.count += errors.count)
                .or_insert(errors);
        }
        for (mine, theirs) in self.batches.iter_mut().zip(other.batches) {
            *mine = (mine.0 + theirs.0, mine.1 + theirs.1);
        }
        self.started += other.started;
        self.ended += other.ended;
    }

    pub(super) fn errors(&self) -> u64 {
        self.errors.values().map(|errors| errors.count).sum()
    }

    pub(super) fn unanswered(&self) -> u64 {
        self.started.saturating_sub(self.ended)
    }

    pub(super) fn errors_by_kind(&self) -> BTreeMap<String, u64> {
        self.errors
            .iter()
            .map(|(kind, errors)| (kind.clone(), errors.count))
            .collect()
    }

    /// The first error of each kind, in full.
    pub(super) fn examples(&self) -> Vec<String> {
        self.errors
            .values()
            .map(|errors| errors.example.clone())
            .collect()
    }

    pub(super) fn all(&self) -> Result<Histogram, HistogramError> {
        let mut all = Histogram::new()?;
        for histogram in self.response.values() {
            all.merge(histogram);
        }
        Ok(all)
    }

    pub(super) fn late_p99_ms(&self) -> Option<f64> {
        self.late.quantile(0.99).ok().flatten().map(ms)
    }

    pub(super) fn mean_interval_ms(&self) -> Option<[f64; 2]> {
        let means = self
            .batches
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(n, sum)| 1e3 * sum / *n as f64);
        let interval = Sample::new(means.collect())
            .ok()?
            .mean_interval(CONFIDENCE)
            .ok()?;
        Some([interval.lower, interval.upper])
    }

    pub(super) fn operations(&self) -> BTreeMap<Procedure, OperationRecord> {
        let total: u64 = self.response.values().map(Histogram::len).sum();
        let record = |histogram: &Histogram| OperationRecord {
            count: histogram.len(),
            percent: 100.0 * histogram.len() as f64 / total as f64,
            mean_ms: histogram.mean().map(ms),
            p99_ms: histogram.quantile(0.99).ok().flatten().map(ms),
        };
        self.response
            .iter()
            .map(|(procedure, histogram)| (*procedure, record(histogram)))
            .collect()
    }
}

/// Milliseconds, as records have them.
pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use nfs3_types::nfs3::nfsstat3;

    use super::*;

    #[test]
    fn failures_are_in_no_throughput() {
        let start = Instant::now();
        let window = Window {
            start,
            end: start + Duration::from_secs(100),
        };
        let mut seen = Seen::new(window).unwrap();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (intended, outcome) in [
            (at(0), Ok(at(2))),
            (at(1), Ok(at(5))),
            (at(2), Err(Failure::Status(nfsstat3::NFS3ERR_NOSPC))),
            (at(99), Ok(at(101))),
        ] {
            seen.starts(intended);
            seen.ends(Procedure::Read, intended, &outcome).unwrap();
        }
        seen.starts(at(98));
        let all = seen.all().unwrap();
        assert_eq!(all.len(), 2, "one failed, one was answered after the end");
        assert_eq!(all.mean(), Some(Duration::from_secs(3)));
        assert_eq!((seen.errors(), seen.unanswered()), (1, 1));
        assert_eq!(seen.errors_by_kind()["NFS3ERR_NOSPC"], 1);
        assert_eq!(seen.operations()[&Procedure::Read].count, 2);
    }
}
