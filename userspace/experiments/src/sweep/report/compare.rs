//! Do two sweeps agree?
//!
//! Model: two slowdowns of the same setting agree if their difference lies within the root of the sum of squares of
//! their 95 % half widths. Of independent sweeps of the same thing, 95 % of the settings are expected to.

use std::fmt;

use perturb_present::measured;
use serde::Serialize;

use super::summary::Report;
use crate::sweep::experiment::Knob;

/// Two slowdowns of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Pair {
    pub(super) workload: String,
    pub(super) knob: Knob,
    pub(super) level_us: f64,
    pub(super) first: f64,
    pub(super) second: f64,
    /// Half width of the difference's interval; absent for settings that were run once.
    pub(super) within: Option<f64>,
    pub(super) agrees: Option<bool>,
}

/// Two sensitivities of a program to a knob.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Slopes {
    pub(super) workload: String,
    pub(super) knob: Knob,
    pub(super) first: f64,
    pub(super) second: f64,
    pub(super) difference_percent: f64,
}

/// Two sweeps side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub(super) first: String,
    pub(super) second: String,
    /// Settings that both have with an interval.
    pub(super) compared: usize,
    pub(super) agreeing: usize,
    pub(super) slopes: Vec<Slopes>,
    pub(super) settings: Vec<Pair>,
}

impl Comparison {
    /// Where the two agree.
    #[must_use]
    pub fn of(first: &Report, second: &Report) -> Self {
        let mut settings = Vec::new();
        let mut slopes = Vec::new();
        for a in &first.workloads {
            let Some(b) = second.workloads.iter().find(|other| other.name == a.name) else {
                continue;
            };
            for knob in Knob::ALL {
                let (Some(x), Some(y)) = (a.knobs.get(knob.key()), b.knobs.get(knob.key())) else {
                    continue;
                };
                if let (Some(first), Some(second)) = (x.slope, y.slope) {
                    slopes.push(Slopes {
                        workload: a.name.clone(),
                        knob,
                        first,
                        second,
                        difference_percent: 100.0 * (second - first) / first,
                    });
                }
                for (i, level) in x.levels_us.iter().enumerate() {
                    let Some(j) = y.levels_us.iter().position(|other| other == level) else {
                        continue;
                    };
                    let (Some(first), Some(second)) = (x.slowdown[i], y.slowdown[j]) else {
                        continue;
                    };
                    let half = |upper: Option<f64>, point: f64| Some(upper? - point);
                    let within = half(x.slowdown_upper[i], first)
                        .zip(half(y.slowdown_upper[j], second))
                        .map(|(a, b)| a.hypot(b));
                    settings.push(Pair {
                        workload: a.name.clone(),
                        knob,
                        level_us: *level,
                        first,
                        second,
                        within,
                        agrees: within.map(|within| (second - first).abs() <= within),
                    });
                }
            }
        }
        Self {
            first: first.experiment.clone(),
            second: second.experiment.clone(),
            compared: settings.iter().filter(|pair| pair.agrees.is_some()).count(),
            agreeing: settings.iter().filter(|pair| pair.agrees == Some(true)).count(),
            slopes,
            settings,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for pair in &self.settings {
            let verdict = match pair.agrees {
                Some(true) => "agree",
                Some(false) => "DIFFER",
                None => "run once",
            };
            writeln!(
                f,
                "{:<20} {:<10} {:>12} {:>9.3} {:>9.3}  {verdict}",
                pair.workload,
                pair.knob.key(),
                pair.knob.written(pair.level_us),
                pair.first,
                pair.second
            )?;
        }
        for slopes in &self.slopes {
            writeln!(
                f,
                "{:<20} {:<10} slope {} and {} ({:+.1} %)",
                slopes.workload,
                slopes.knob.key(),
                measured(slopes.first),
                measured(slopes.second),
                slopes.difference_percent
            )?;
        }
        writeln!(
            f,
            "{} of {} settings agree within their 95 % intervals",
            self.agreeing, self.compared
        )
    }
}
