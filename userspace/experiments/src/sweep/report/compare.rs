//! Do two sweeps agree?
//!
//! Model: two slowdowns of the same setting agree if their difference lies within the root of the sum of squares of
//! their 95 % half widths. Of independent sweeps of the same thing, 95 % of the settings are expected to.

use std::fmt;

use perturb_present::measured;
use serde::Serialize;

use super::summary::Report;
use crate::sweep::{experiment::Knob, setting::SCENARIO};

/// Two slowdowns of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Pair {
    pub(super) first: f64,
    pub(super) second: f64,
    /// Half width of the difference's interval; absent for settings that were run once.
    pub(super) within: Option<f64>,
    pub(super) agrees: Option<bool>,
}

/// Two slowdowns at a level of a knob.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Levels {
    pub(super) workload: String,
    pub(super) knob: Knob,
    pub(super) level_us: f64,
    #[serde(flatten)]
    pub(super) pair: Pair,
}

/// Two slowdowns in a scenario of this name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Scenarios {
    pub(super) workload: String,
    pub(super) scenario: String,
    #[serde(flatten)]
    pub(super) pair: Pair,
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
    pub(super) settings: Vec<Levels>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) scenarios: Vec<Scenarios>,
}

impl Pair {
    /// Of slowdowns and the upper ends of their intervals, if both were measured.
    fn of(
        (first, first_upper): (Option<f64>, Option<f64>),
        (second, second_upper): (Option<f64>, Option<f64>),
    ) -> Option<Self> {
        let (first, second) = first.zip(second)?;
        let halves = first_upper.zip(second_upper);
        let within = halves.map(|(one, other)| (one - first).hypot(other - second));
        Some(Self {
            first,
            second,
            within,
            agrees: within.map(|within| (second - first).abs() <= within),
        })
    }

    fn verdict(&self) -> &'static str {
        match self.agrees {
            Some(true) => "agree",
            Some(false) => "DIFFER",
            None => "run once",
        }
    }
}

impl Comparison {
    /// Where the two agree.
    #[must_use]
    pub fn of(first: &Report, second: &Report) -> Self {
        let mut settings = Vec::new();
        let (mut scenarios, mut slopes) = (Vec::new(), Vec::new());
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
                    let of = (x.slowdown[i], x.slowdown_upper[i]);
                    let pair = Pair::of(of, (y.slowdown[j], y.slowdown_upper[j]));
                    settings.extend(pair.map(|pair| Levels {
                        workload: a.name.clone(),
                        knob,
                        level_us: *level,
                        pair,
                    }));
                }
            }
            for x in &a.scenarios {
                let Some(y) = b.scenarios.iter().find(|other| other.name == x.name) else {
                    continue;
                };
                let of = (x.slowdown, x.slowdown_upper);
                let pair = Pair::of(of, (y.slowdown, y.slowdown_upper));
                scenarios.extend(pair.map(|pair| Scenarios {
                    workload: a.name.clone(),
                    scenario: x.name.clone(),
                    pair,
                }));
            }
        }
        let levels = settings.iter().map(|levels: &Levels| levels.pair);
        let pairs = levels.chain(scenarios.iter().map(|one: &Scenarios| one.pair));
        let agree: Vec<bool> = pairs.filter_map(|pair| pair.agrees).collect();
        Self {
            first: first.experiment.clone(),
            second: second.experiment.clone(),
            compared: agree.len(),
            agreeing: agree.iter().filter(|agrees| **agrees).count(),
            slopes,
            settings,
            scenarios,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |workload: &str, key: &str, level: &str, pair: Pair| {
            let (first, second, verdict) = (pair.first, pair.second, pair.verdict());
            writeln!(
                f,
                "{workload:<20} {key:<10} {level:>12} {first:>9.3} {second:>9.3}  {verdict}"
            )
        };
        for of in &self.settings {
            row(
                &of.workload,
                of.knob.key(),
                &of.knob.written(of.level_us),
                of.pair,
            )?;
        }
        for of in &self.scenarios {
            row(&of.workload, SCENARIO, &of.scenario, of.pair)?;
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
        if self.settings.is_empty() && self.scenarios.is_empty() {
            return writeln!(f, "no setting of a workload was measured in both sweeps");
        }
        writeln!(
            f,
            "{} of {} settings agree within their 95 % intervals",
            self.agreeing, self.compared
        )
    }
}
