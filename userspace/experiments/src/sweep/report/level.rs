//! A setting's runs as one slowdown with its interval.
//!
//! Model: a run's slowdown is its cost over the baseline's of the same directory (machine). A level's point is the mean
//! (or median) of its runs' slowdowns; its interval adds, in squares, Student's 95 % half widths of the level and
//! of the baseline. One run has no interval.

use std::collections::BTreeMap;

use perturb_stats::Sample;

use super::load::Sweep;
use crate::sweep::{
    experiment::{Statistic, WorkloadSummary},
    metric::Better,
    setting,
    store::{Record, Status},
};

/// Of all intervals.
pub(super) const CONFIDENCE: f64 = 0.95;

/// Runs of one workload in one setting.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    /// Slowdowns of the runs that have a value.
    pub(super) slowdowns: Vec<f64>,
    /// Their values.
    pub(super) values: Vec<f64>,
    /// Runs whose program failed.
    pub(super) failed: usize,
    /// Runs that did not end.
    pub(super) timed_out: usize,
    /// Runs that were invalid, whether or not repeated.
    pub(super) invalid: usize,
}

/// A point and half the width of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) point: f64,
    /// Absent for a single run.
    pub(super) half: Option<f64>,
}

/// What a value costs: times as they are, rates inverted.
pub(super) fn cost(better: Better, value: f64) -> f64 {
    match better {
        Better::Lower => value,
        Better::Higher => 1.0 / value,
    }
}

/// The point of some runs.
pub(super) fn measured(values: &[f64], statistic: Statistic) -> Option<Measured> {
    let Ok(sample) = Sample::new(values.to_vec()) else {
        return values.first().map(|point| Measured {
            point: *point,
            half: None,
        });
    };
    // Of normal values the median is 1.2533 times as uncertain as the mean.
    let (point, factor) = match statistic {
        Statistic::Mean => (sample.mean(), 1.0),
        Statistic::Median => (sample.median(), 1.2533),
    };
    let half = sample.mean_interval(CONFIDENCE).ok()?.half_width() * factor;
    Some(Measured {
        point,
        half: Some(half),
    })
}

/// A setting, as a key: knobs and their levels in their order.
pub(super) type Key = Vec<(String, String)>;

/// The key of a setting.
pub(super) fn key(setting: &BTreeMap<String, setting::Level>) -> Key {
    setting
        .iter()
        .map(|(knob, level)| (knob.clone(), level.to_string()))
        .collect()
}

/// A workload's runs.
pub(super) struct Runs<'a> {
    /// By setting; the empty one is the baseline.
    pub(super) levels: BTreeMap<Key, Level>,
    /// Baseline runs with a value.
    pub(super) baselines: Vec<&'a Record>,
    statistic: Statistic,
}

impl<'a> Runs<'a> {
    /// Those of a workload, over all parts of a sweep.
    pub(super) fn of(sweep: &'a Sweep, workload: &WorkloadSummary) -> Self {
        let statistic = sweep.experiment.statistic;
        let mut levels: BTreeMap<Key, Level> = BTreeMap::new();
        let mut baselines = Vec::new();
        let mut all_baselines = Vec::new();
        let own = |record: &&Record| record.workload == workload.name;
        for part in &sweep.parts {
            let baseline = part
                .records
                .iter()
                .filter(own)
                .filter(|record| record.setting.is_empty());
            all_baselines.extend(baseline.filter_map(|record| record.value));
        }
        for part in &sweep.parts {
            let records = || part.records.iter().filter(own);
            let own_baselines: Vec<f64> = records()
                .filter(|record| record.setting.is_empty())
                .filter_map(|record| record.value)
                .collect();
            // A part without baselines of its own is compared with the others'.
            let base = measured(&own_baselines, statistic).or_else(|| measured(&all_baselines, statistic));
            for record in records() {
                let level = levels.entry(key(&record.setting)).or_default();
                match record.status {
                    Status::Ok => {}
                    Status::Failed => level.failed += 1,
                    Status::TimedOut => level.timed_out += 1,
                    Status::Invalid => level.invalid += 1,
                }
                let (Some(value), Some(base)) = (record.value, base) else {
                    continue;
                };
                if record.setting.is_empty() {
                    baselines.push(record);
                }
                level.values.push(value);
                level
                    .slowdowns
                    .push(cost(workload.better, value) / cost(workload.better, base.point));
            }
        }
        Self {
            levels,
            baselines,
            statistic,
        }
    }

    /// Slowdown of a setting, with the baseline's uncertainty in its interval.
    pub(super) fn slowdown(&self, key: &Key) -> Option<Measured> {
        let level = measured(&self.levels.get(key)?.slowdowns, self.statistic)?;
        if key.is_empty() {
            return Some(Measured {
                point: 1.0,
                half: level.half,
            });
        }
        let base = measured(&self.levels.get(&Key::new())?.slowdowns, self.statistic)?;
        let half = match (level.half, base.half) {
            (Some(own), Some(base)) => Some((own.powi(2) + (base * level.point).powi(2)).sqrt()),
            _ => None,
        };
        Some(Measured {
            point: level.point,
            half,
        })
    }

    /// Value of a setting.
    pub(super) fn value(&self, key: &Key) -> Option<f64> {
        measured(&self.levels.get(key)?.values, self.statistic).map(|measured| measured.point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_has_no_interval_and_a_median_is_robust() {
        let one = measured(&[2.0], Statistic::Mean).unwrap();
        assert_eq!((one.point, one.half), (2.0, None));
        assert_eq!(measured(&[], Statistic::Mean), None);
        let disturbed = [1.0, 1.0, 1.0, 9.0, 1.0];
        assert_eq!(measured(&disturbed, Statistic::Median).unwrap().point, 1.0);
        assert_eq!(cost(Better::Higher, 4.0), 0.25);
    }
}
