//! A program's response to one knob.
//!
//! Sensitivity is the slope of the slowdown over the knob, in 1/µs (for G in 1 per µs/byte), with its standard error;
//! its product with the baseline's run time is the model's coefficient (2m, m, …). Tolerance is the largest value of the
//! knob with at most 1, 2, 5 % slowdown.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    level::{Key, Runs},
    models::{Basis, Model, models},
    published::Published,
    shape::{self, Kind},
};
use crate::sweep::experiment::Knob;

/// A slope beyond a bend that is so many times the one before is hyper-sensitive.
const HYPER: f64 = 2.0;

/// A stretch of a knob's values that behaves in a way of its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Region {
    /// `plateau`, `rise`, `hyper_sensitive`, `easing` or `failing`.
    pub(super) kind: &'static str,
    pub(super) from_us: f64,
    pub(super) to_us: f64,
}

/// A response, reported. Arrays are parallel; null: nothing was measured.
#[derive(Debug, Serialize)]
pub(super) struct KnobReport {
    pub(super) levels_us: Vec<f64>,
    #[serde(rename = "levels_MB_s", skip_serializing_if = "Option::is_none")]
    pub(super) levels_mb_s: Option<Vec<f64>>,
    pub(super) baseline_us: f64,
    pub(super) slowdown: Vec<Option<f64>>,
    pub(super) slowdown_lower: Vec<Option<f64>>,
    pub(super) slowdown_upper: Vec<Option<f64>>,
    pub(super) value: Vec<Option<f64>>,
    /// Runs with a value.
    pub(super) runs: Vec<usize>,
    pub(super) failed: Vec<usize>,
    pub(super) timed_out: Vec<usize>,
    pub(super) invalid: Vec<usize>,
    pub(super) shape: Option<Kind>,
    pub(super) slope: Option<f64>,
    pub(super) slope_stderr: Option<f64>,
    pub(super) r_squared: Option<f64>,
    /// Slope of the run time: µs for each µs, or for each µs per byte.
    pub(super) coefficient: Option<f64>,
    pub(super) coefficient_stderr: Option<f64>,
    /// Where the slope changes.
    pub(super) knee_us: Option<f64>,
    pub(super) tolerance_1pct_us: Option<f64>,
    pub(super) tolerance_2pct_us: Option<f64>,
    pub(super) tolerance_5pct_us: Option<f64>,
    /// Percentages of which the largest level does not reach the slowdown: the tolerance is at least that level.
    pub(super) tolerance_at_least_pct: Vec<u32>,
    pub(super) regions: Vec<Region>,
    pub(super) models: BTreeMap<&'static str, Model>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) published: Option<Published>,
}

/// The knobs that were turned, in their order.
pub(super) fn turned<'a>(
    knobs: &'a BTreeMap<&'static str, KnobReport>,
) -> impl Iterator<Item = (Knob, &'a KnobReport)> {
    Knob::ALL
        .into_iter()
        .filter_map(|knob| Some((knob, knobs.get(knob.key())?)))
}

impl KnobReport {
    /// Levels and what was measured or modeled there, and 1 at the baseline, ascending.
    pub(super) fn points(&self, slowdown: &[Option<f64>]) -> Vec<(f64, f64)> {
        with_baseline(&self.levels_us, slowdown, self.baseline_us)
    }

    /// Whether it responds at all.
    pub(super) fn responds(&self) -> bool {
        self.shape.is_some_and(|shape| shape != Kind::Flat) && self.slope.is_some_and(|slope| slope > 0.0)
    }

    /// Whether it responds the other way round.
    pub(super) fn speeds_up(&self) -> bool {
        self.shape.is_some_and(|shape| shape != Kind::Flat) && self.slope.is_some_and(|slope| slope < 0.0)
    }

    /// The tolerance for a slowdown in percent, and whether it is only known to be at least that.
    pub(super) fn tolerance(&self, percent: u32) -> Option<(f64, bool)> {
        let value = match percent {
            1 => self.tolerance_1pct_us,
            2 => self.tolerance_2pct_us,
            _ => self.tolerance_5pct_us,
        }?;
        Some((value, self.tolerance_at_least_pct.contains(&percent)))
    }
}

/// Reports a knob.
pub(super) fn report(
    knob: Knob,
    levels: &[f64],
    baseline: f64,
    runs: &Runs<'_>,
    basis: Option<&Basis<'_>>,
) -> KnobReport {
    let key = |level: f64| -> Key {
        if level == baseline {
            Key::new()
        } else {
            vec![(knob.key().to_owned(), level.to_string())]
        }
    };
    let measured: Vec<_> = levels.iter().map(|level| runs.slowdown(&key(*level))).collect();
    let slowdown: Vec<Option<f64>> = measured.iter().map(|m| m.map(|m| m.point)).collect();
    let bound = |sign: f64| -> Vec<Option<f64>> {
        let bound = |m: &Option<super::level::Measured>| m.and_then(|m| Some(m.point + sign * m.half?));
        measured.iter().map(bound).collect()
    };
    let count = |pick: &dyn Fn(&super::level::Level) -> usize| -> Vec<usize> {
        let of = |level: &f64| runs.levels.get(&key(*level)).map_or(0, pick);
        levels.iter().map(of).collect()
    };
    let points = match runs.slowdown(&Key::new()) {
        Some(_) => with_baseline(levels, &slowdown, baseline),
        None => Vec::new(),
    };
    // Half widths are about two standard errors.
    let variances: Vec<f64> = measured
        .iter()
        .flatten()
        .filter_map(|m| Some((m.half? / 2.0).powi(2)))
        .collect();
    let noise = variances.iter().sum::<f64>() / variances.len().max(1) as f64;
    let shape = shape::fit(&points, noise);
    let run_time_us = basis.map(|basis| basis.run_time_us);
    let of_run_time = |slope: Option<f64>| Some(slope? * run_time_us?);
    let slope = shape.map(|shape| shape.slope);
    let slope_stderr = shape.and_then(|shape| shape.slope_stderr);
    // Faster networks than the baseline have no slowdown to tolerate.
    let slower: Vec<(f64, f64)> = points
        .iter()
        .copied()
        .filter(|(level, _)| *level >= baseline)
        .collect();
    let tolerances = [1, 2, 5].map(|percent| {
        let limit = 1.0 + f64::from(percent) / 100.0;
        let between = shape::tolerance(&slower, limit);
        let fitted = shape.and_then(|shape| shape.reaches(limit));
        let last = slower.last().map(|(level, _)| *level);
        let fitted = fitted.filter(|value| last.is_some_and(|last| *value <= last));
        (percent, fitted.map(|value| (value, false)).or(between))
    });
    let tolerance = |index: usize| tolerances[index].1.map(|(value, _)| value);
    let (failed, timed_out) = (count(&|level| level.failed), count(&|level| level.timed_out));
    let broken: Vec<bool> = slowdown
        .iter()
        .zip(failed.iter().zip(&timed_out))
        .map(|(slowdown, (failed, hung))| slowdown.is_none() && failed + hung > 0)
        .collect();
    KnobReport {
        levels_us: levels.to_vec(),
        levels_mb_s: (knob == Knob::Bandwidth).then(|| levels.iter().map(|level| 1.0 / level).collect()),
        baseline_us: baseline,
        slowdown_lower: bound(-1.0),
        slowdown_upper: bound(1.0),
        value: levels.iter().map(|level| runs.value(&key(*level))).collect(),
        runs: count(&|level| level.slowdowns.len()),
        invalid: count(&|level| level.invalid),
        shape: shape.map(|shape| shape.kind),
        slope,
        slope_stderr,
        r_squared: shape.and_then(|shape| shape.r_squared),
        coefficient: of_run_time(slope),
        coefficient_stderr: of_run_time(slope_stderr),
        knee_us: shape.and_then(|shape| shape.knee),
        tolerance_1pct_us: tolerance(0),
        tolerance_2pct_us: tolerance(1),
        tolerance_5pct_us: tolerance(2),
        tolerance_at_least_pct: tolerances
            .iter()
            .filter(|(_, tolerance)| tolerance.is_some_and(|(_, beyond)| beyond))
            .map(|(percent, _)| *percent)
            .collect(),
        regions: regions(shape, &points, levels, &broken),
        models: basis
            .map(|basis| models(basis, knob, levels, &slowdown))
            .unwrap_or_default(),
        published: None,
        slowdown,
        failed,
        timed_out,
    }
}

fn with_baseline(levels: &[f64], slowdown: &[Option<f64>], baseline: f64) -> Vec<(f64, f64)> {
    let points = levels.iter().zip(slowdown);
    let mut points: Vec<(f64, f64)> = points
        .filter_map(|(level, slowdown)| Some((*level, (*slowdown)?)))
        .collect();
    if !levels.contains(&baseline) {
        points.push((baseline, 1.0));
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    points
}

fn regions(
    shape: Option<shape::Shape>,
    points: &[(f64, f64)],
    levels: &[f64],
    broken: &[bool],
) -> Vec<Region> {
    let mut regions = Vec::new();
    if let (Some(shape), Some((first, _)), Some((last, _))) = (shape, points.first(), points.last()) {
        let mut add = |kind, from_us, to_us| {
            regions.push(Region { kind, from_us, to_us });
        };
        match (shape.kind, shape.knee, shape.slopes) {
            (Kind::Flat, ..) => add("plateau", *first, *last),
            (Kind::Threshold, Some(knee), _) => {
                add("plateau", *first, knee);
                add("rise", knee, *last);
            }
            (Kind::Saturating, Some(knee), _) => {
                add("rise", *first, knee);
                add("plateau", knee, *last);
            }
            (Kind::Bent, Some(knee), Some((before, beyond))) => {
                add("rise", *first, knee);
                let hyper = beyond > HYPER * before.max(0.0);
                add(if hyper { "hyper_sensitive" } else { "easing" }, knee, *last);
            }
            _ => add("rise", *first, *last),
        }
    }
    let failing = || {
        levels
            .iter()
            .zip(broken)
            .filter(|(_, broken)| **broken)
            .map(|(level, _)| *level)
    };
    if let (Some(from_us), Some(to_us)) = (failing().next(), failing().next_back()) {
        regions.push(Region {
            kind: "failing",
            from_us,
            to_us,
        });
    }
    regions
}
