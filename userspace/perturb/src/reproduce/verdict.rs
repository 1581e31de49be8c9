//! Whether a figure agrees with the paper's: by one rule, from the errors alone.

use std::collections::BTreeMap;

use perturb_present::computed;
use perturb_stats::{Line, rank_correlation};
use serde::Serialize;

use super::outcome::Outcome;

/// The rule, as pages and the book have it.
pub(crate) const RULE: &str = "A printed number agrees if the difference is no more than its rounding, and that of the \
    printed inputs, explains; one that was measured if it is within 10 % of the paper's, or within the tolerance that stands \
    beside it (of the paper's, or of a number that is named there); a point of a curve if it is within 10 %. A figure agrees if nine of ten numbers do. It agrees in shape if in \
    three of four curves (or, where no curve is drawn, groups of numbers of one unit) of at least three points in the paper \
    the ranks of ours and the paper's are correlated by 0.9 or more, and the slope of ours over the paper's is between 1/2 \
    and 2; of a curve that is flat in the paper, within 10 %, ours has to be flat. The baseline of slowdowns, where both are \
    1, is one of the points. A curve of which ours has fewer than three points, or fewer than three in four of the paper's, has \
    no shape. Otherwise it differs. Numbers \
    that rest on a fitted input do not count; what is missing counts as wrong.";

/// Largest relative error of a point.
pub(super) const POINT: f64 = 0.1;
/// Share of numbers that agree.
const NUMBERS: f64 = 0.9;
/// Share of curves in shape.
const CURVES: f64 = 0.75;
/// Least rank correlation.
const RANKS: f64 = 0.9;
/// What a number is near zero by: of the largest of its unit, and of its tolerance.
const NEAR_ZERO: (f64, f64) = (0.01, 10.0);
/// Points of a curve that has a shape.
const LEAST: usize = 3;

/// What the errors say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Verdict {
    #[serde(rename = "agrees")]
    Agrees,
    #[serde(rename = "agrees in shape")]
    AgreesInShape,
    #[serde(rename = "differs")]
    Differs,
    /// There is no number that does not rest on a fitted input.
    #[serde(rename = "not compared")]
    NotCompared,
}

const fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

impl Verdict {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::AgreesInShape => "agrees in shape",
            Self::Differs => "differs",
            Self::NotCompared => "not compared",
        }
    }
}

/// The line of errors.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Errors {
    /// Numbers that count for the verdict.
    pub numbers: usize,
    pub agreeing: usize,
    /// The paper's points without one of ours; they are among the numbers.
    pub missing: usize,
    /// Numbers beside them that rest on a fitted input.
    pub fitted: usize,
    /// Mean of the absolute relative errors, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_error_percent: Option<f64>,
    /// The one of largest magnitude, with its sign.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_error_percent: Option<f64>,
    /// Where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<String>,
    /// Curves, or groups of numbers, that have a shape.
    pub curves: usize,
    pub in_shape: usize,
}

impl Errors {
    /// Of all numbers that count. Where none does, the errors of fitted ones are told, and judge nothing.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let counted = Self::among(outcome, false);
        if counted.numbers > 0 {
            return counted;
        }
        let fitted = Self::among(outcome, true);
        Self {
            mean_error_percent: fitted.mean_error_percent,
            worst_error_percent: fitted.worst_error_percent,
            worst: fitted.worst,
            ..counted
        }
    }

    /// Of the fitted numbers, or of the others.
    fn among(outcome: &Outcome, fitted: bool) -> Self {
        let mut errors = Self {
            numbers: 0,
            agreeing: 0,
            missing: 0,
            fitted: 0,
            mean_error_percent: None,
            worst_error_percent: None,
            worst: None,
            curves: 0,
            in_shape: 0,
        };
        let mut relative: Vec<(f64, String)> = Vec::new();
        let mut groups: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        let mut largest: BTreeMap<&str, f64> = BTreeMap::new();
        for row in &outcome.rows {
            let most = largest.entry(row.unit).or_default();
            *most = most.max(row.paper.abs());
        }
        for row in &outcome.rows {
            if row.fitted != fitted {
                errors.fitted += usize::from(row.fitted);
                continue;
            }
            errors.numbers += 1;
            errors.agreeing += usize::from(row.agrees());
            // What is zero within its tolerance, or nearly so beside the others, has no relative error.
            let near_zero = row.paper.abs() < NEAR_ZERO.0 * largest[row.unit]
                && row.paper.abs() < NEAR_ZERO.1 * row.tolerance;
            if row.paper.abs() > row.tolerance && !near_zero {
                relative.push((row.ours / row.paper - 1.0, row.case.clone()));
            }
            groups.entry(row.unit).or_default().push((row.paper, row.ours));
        }
        // How many points the paper has, and those that ours has, too.
        let mut curves: Vec<(usize, Vec<(f64, f64)>)> = Vec::new();
        for (panel, curve) in outcome.curves() {
            if curve.fitted != fitted {
                errors.fitted += if curve.fitted { curve.pairs().count() } else { 0 };
                continue;
            }
            let (mut points, mut pairs) = (0, Vec::new());
            for (x, paper, ours) in curve.pairs() {
                errors.numbers += 1;
                points += 1;
                let Some(ours) = ours else {
                    errors.missing += 1;
                    continue;
                };
                let error = ours / paper - 1.0;
                errors.agreeing += usize::from(error.abs() <= POINT);
                relative.push((
                    error,
                    format!(
                        "{}, {} at {} {}",
                        panel.title,
                        curve.name,
                        computed(x),
                        panel.x.unit
                    ),
                ));
                pairs.push((paper, ours));
            }
            if points > 0 && curve.base.is_some() {
                points += 1;
                if !pairs.is_empty() {
                    pairs.push((1.0, 1.0));
                }
            }
            curves.push((points, pairs));
        }
        if curves.is_empty() {
            curves = groups.into_values().map(|pairs| (pairs.len(), pairs)).collect();
        }
        curves.retain(|(points, _)| *points >= LEAST);
        errors.curves = curves.len();
        let is_whole = |points, pairs| pairs >= LEAST && share(pairs, points) >= CURVES;
        let in_shape = curves
            .iter()
            .filter(|(points, pairs)| is_whole(*points, pairs.len()) && is_in_shape(pairs));
        errors.in_shape = in_shape.count();
        relative.retain(|(error, _)| error.is_finite());
        let count = relative.len() as f64;
        errors.mean_error_percent =
            (count > 0.0).then(|| relative.iter().map(|(error, _)| error.abs()).sum::<f64>() / count * 100.0);
        let worst = relative
            .into_iter()
            .max_by(|left, right| left.0.abs().total_cmp(&right.0.abs()));
        if let Some((error, place)) = worst {
            errors.worst_error_percent = Some(error * 100.0);
            errors.worst = Some(place);
        }
        errors
    }

    /// By the rule.
    pub(crate) fn verdict(&self) -> Verdict {
        if self.numbers == 0 {
            Verdict::NotCompared
        } else if share(self.agreeing, self.numbers) >= NUMBERS {
            Verdict::Agrees
        } else if self.curves > 0 && share(self.in_shape, self.curves) >= CURVES {
            Verdict::AgreesInShape
        } else {
            Verdict::Differs
        }
    }
}

/// Whether ours rises and falls where the paper's does, about as much.
fn is_in_shape(points: &[(f64, f64)]) -> bool {
    let flat = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        high - low <= POINT * low.abs()
    };
    if flat(&mut points.iter().map(|(paper, _)| *paper)) {
        return flat(&mut points.iter().map(|(_, ours)| *ours));
    }
    let Ok(line) = Line::fit(points) else {
        return false;
    };
    (0.5..=2.0).contains(&line.slope) && rank_correlation(points).is_some_and(|ranks| ranks >= RANKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::outcome::{Curve, Panel, Row, Scale};

    fn curve(ours: [f64; 4]) -> Outcome {
        let paper = [1.0, 2.0, 3.0, 4.0];
        Outcome::of_panels([Panel {
            title: "p".into(),
            x: Scale::linear("x", "us"),
            y: Scale::linear("y", ""),
            curves: vec![Curve::new(
                "c",
                paper.map(|x| (x, x)),
                paper.into_iter().zip(ours),
            )],
        }])
    }

    fn verdict(ours: [f64; 4]) -> Verdict {
        Errors::of(&curve(ours)).verdict()
    }

    #[test]
    fn errors_decide() {
        assert_eq!(verdict([1.05, 2.1, 2.9, 4.0]), Verdict::Agrees);
        assert_eq!(verdict([1.5, 2.9, 4.4, 6.0]), Verdict::AgreesInShape);
        // Three times as steep; not in order; flat.
        assert_eq!(verdict([1.0, 4.0, 7.0, 10.0]), Verdict::Differs);
        assert_eq!(verdict([1.0, 3.0, 2.0, 0.5]), Verdict::Differs);
        assert_eq!(verdict([1.5, 1.5, 1.5, 1.5]), Verdict::Differs);
    }

    #[test]
    fn what_is_missing_is_wrong() {
        let mut outcome = curve([1.0, 2.0, 3.0, 4.0]);
        outcome.panels[0].curves[0].ours.truncate(2);
        let errors = Errors::of(&outcome);
        assert_eq!((errors.numbers, errors.agreeing, errors.missing), (4, 2, 2));
        assert_eq!(errors.verdict(), Verdict::Differs);
    }

    #[test]
    fn curves_of_which_ours_has_few_points_are_not_in_shape() {
        let mut outcome = curve([1.5, 2.9, 4.4, 6.0]);
        let errors = Errors::of(&outcome);
        assert_eq!((errors.curves, errors.in_shape), (1, 1));
        let mut short = curve([1.5, 2.9, 4.4, 6.0]).panels.remove(0);
        short.curves[0].ours.truncate(1);
        outcome.panels.push(short);
        let errors = Errors::of(&outcome);
        assert_eq!((errors.curves, errors.in_shape), (2, 1));
        assert_eq!(errors.verdict(), Verdict::Differs);
        // Of slowdowns the baseline is a point, of the paper's and of ours.
        let slowdowns = Curve::new("s", [1.0, 2.0, 3.0].map(|x| (x, x)), [(1.0, 1.0), (2.0, 2.5)]).over(1.0);
        outcome.panels[0].curves.push(slowdowns);
        let errors = Errors::of(&outcome);
        assert_eq!((errors.curves, errors.in_shape), (3, 1));
    }

    #[test]
    fn flat_curves_have_to_stay_flat() {
        let flat = |ours: [f64; 3]| is_in_shape(&[1.0, 1.02, 1.01].into_iter().zip(ours).collect::<Vec<_>>());
        assert!(flat([2.0, 2.0, 2.1]) && !flat([1.0, 1.5, 1.0]));
    }

    #[test]
    fn fitted_numbers_do_not_count() {
        let mut row = Row::new("r", "us", (5.0, 0.5), 5.0);
        row.fitted = true;
        let outcome = Outcome {
            rows: vec![row],
            ..Outcome::default()
        };
        let errors = Errors::of(&outcome);
        assert_eq!((errors.numbers, errors.fitted), (0, 1));
        assert_eq!(errors.verdict(), Verdict::NotCompared);
        let mut outcome = curve([1.0, 2.0, 3.0, 4.4]);
        outcome.panels[0].curves[0].fitted = true;
        let errors = Errors::of(&outcome);
        assert_eq!((errors.numbers, errors.fitted, errors.curves), (0, 4, 0));
        assert_eq!(errors.verdict(), Verdict::NotCompared);
        assert!((errors.worst_error_percent.unwrap() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_near_zero_have_no_relative_error() {
        let row = |paper, ours| Row::new("r", "ms", (paper, 0.005), ours);
        let outcome = Outcome {
            rows: vec![row(8.0, 4.0), row(-0.04, -2.0)],
            ..Outcome::default()
        };
        let errors = Errors::of(&outcome);
        assert_eq!((errors.numbers, errors.worst_error_percent), (2, Some(-50.0)));
    }

    #[test]
    fn numbers_over_another_scale_count_once() {
        let mut outcome = curve([1.0, 2.0, 3.0, 4.0]);
        let again = curve([1.0, 2.0, 3.0, 4.0]).panels.remove(0).again();
        outcome.panels.push(again);
        assert_eq!(Errors::of(&outcome).numbers, 4);
    }
}
