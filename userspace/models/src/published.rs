//! Published numbers beside ours: what the papers print, what the models give, and the difference.
//!
//! The published tables are [`tables`]. A row agrees if it differs by no more than its tolerance, which is what the rounding of the
//! printed number and of the printed inputs explains (a whole last digit where the source truncates).
//! A row that does not agree must carry the reason; tests fail on any that does not, and on any
//! reason that is no longer needed. Measurements are another matter: there the model's error is the
//! result, so [`measurements`] only summarizes it.

use serde::Serialize;

mod locality;
mod loggp;
pub mod logpc;
mod nfs;
mod pipeline;
pub mod plogpt;
pub mod tables;
mod whatif;

pub use loggp::{run_times, run_times_of};
pub use nfs::{ServiceTime, peak_throughputs, response_times};
pub use pipeline::gam;

/// One published number and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the model.
    pub model: &'static str,
    /// Where the number is printed.
    pub source: &'static str,
    /// Which of the source's numbers it is.
    pub case: String,
    /// Its unit.
    pub unit: &'static str,
    /// The printed number.
    pub paper: f64,
    /// The model's.
    pub ours: f64,
    /// Largest difference that the print explains.
    pub tolerance: f64,
    /// How the print was read, where that is not obvious.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<&'static str>,
    /// Why the two differ by more, where they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deviation: Option<&'static str>,
}

impl Comparison {
    /// Ours minus the paper's.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.ours - self.paper
    }

    /// Whether an input was chosen or fitted for want of a printed one, so that agreement says less.
    #[must_use]
    pub fn is_fitted(&self) -> bool {
        let marks = ["given", "fitted"];
        self.reading
            .is_some_and(|reading| marks.iter().any(|mark| reading.starts_with(mark)))
    }

    /// Whether the difference is within the tolerance (and the rounding of doubles).
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.difference().abs() <= self.tolerance * (1.0 + 1e-9) + 1e-12
    }
}

/// A model's comparisons.
type Compare = fn() -> Vec<Comparison>;

const MODELS: [(&str, Compare); 7] = [
    ("loggp", loggp::comparisons),
    ("nfs", nfs::comparisons),
    ("pipeline", pipeline::comparisons),
    ("plogpt", plogpt::comparisons),
    ("logpc", logpc::comparisons),
    ("whatif", whatif::comparisons),
    ("locality", locality::comparisons),
];

/// Every published number that the models produce, in the order of the models.
#[must_use]
pub fn comparisons() -> Vec<Comparison> {
    MODELS.iter().flat_map(|(_, compare)| compare()).collect()
}

/// One model's.
#[must_use]
pub fn comparisons_of(model: &str) -> Vec<Comparison> {
    let known = MODELS.iter().filter(|(name, _)| *name == model);
    known.flat_map(|(_, compare)| compare()).collect()
}

/// How far a model is from the measurements of one published table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurements {
    /// Name of the model.
    pub model: &'static str,
    /// Where the measurements are printed.
    pub source: &'static str,
    /// Which of them: a program or a server, and the knob.
    pub case: String,
    /// How many, the baseline left out.
    pub points: usize,
    /// Mean of `ours / measured - 1` in percent: the bias.
    pub mean_error_percent: f64,
    /// Mean of its absolute value.
    pub mean_absolute_error_percent: f64,
    /// The error of largest absolute value.
    pub worst_error_percent: f64,
}

impl Measurements {
    /// Summarizes pairs of a measured and a modeled value; `None` without any.
    fn of(
        model: &'static str,
        source: &'static str,
        case: String,
        pairs: impl IntoIterator<Item = (f64, f64)>,
    ) -> Option<Self> {
        let errors: Vec<f64> = pairs
            .into_iter()
            .map(|(measured, ours)| (ours / measured - 1.0) * 100.0)
            .collect();
        let count = errors.len() as f64;
        let worst = errors
            .iter()
            .copied()
            .max_by(|a, b| a.abs().total_cmp(&b.abs()))?;
        Some(Self {
            model,
            source,
            case,
            points: errors.len(),
            mean_error_percent: errors.iter().sum::<f64>() / count,
            mean_absolute_error_percent: errors.iter().map(|error| error.abs()).sum::<f64>() / count,
            worst_error_percent: worst,
        })
    }
}

/// Measurements that a paper prints, beside the model's values.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredCurve {
    /// Where they are printed.
    pub source: &'static str,
    /// A program or a server, and what is varied.
    pub case: String,
    /// What tells this curve from others of the table.
    pub name: String,
    /// The setting of the baseline.
    pub base: Option<f64>,
    /// In the order of the table.
    pub points: Vec<MeasuredPoint>,
}

/// A point of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredPoint {
    /// The setting, or the load.
    pub at: f64,
    /// What was measured.
    pub measured: f64,
    /// What the model gives; `None` where it has nothing to say, as beyond saturation.
    pub ours: Option<f64>,
}

/// How far the models are from the measurements that the papers print.
#[must_use]
pub fn measurements() -> Vec<Measurements> {
    let mut all = loggp::measurements();
    all.extend(nfs::measurements());
    all.extend(logpc::measurements());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_and_only_they_carry_a_reason() {
        for row in comparisons() {
            assert_eq!(
                row.agrees(),
                row.deviation.is_none(),
                "{row:?}, difference {}",
                row.difference()
            );
        }
    }

    #[test]
    fn every_model_is_there() {
        for model in ["loggp", "nfs", "plogpt"] {
            assert!(comparisons().iter().any(|row| row.model == model), "{model}");
        }
    }
}
