//! What a figure's preset gives: curves and rows with the paper's numbers beside ours. Nothing here judges or prints.

use perturb_models::published::Comparison;
use perturb_present::Table;
use serde::Serialize;

use super::figure::Differs;

/// All that a figure says.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub panels: Vec<Panel>,
    pub rows: Vec<Row>,
    /// What the page shows beside them, with captions.
    pub tables: Vec<(String, Table)>,
    /// Pictures that are no charts, as SVG, with captions.
    pub pictures: Vec<(String, String)>,
    /// What turned out to differ, beside what the registry knows.
    pub differs: Vec<Differs>,
    /// What speaks against the numbers.
    pub doubts: Vec<String>,
    /// The commands that were run for it.
    pub commands: Vec<String>,
}

/// An axis.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Scale {
    pub label: &'static str,
    pub unit: &'static str,
    pub logarithmic: bool,
}

impl Scale {
    pub(crate) const fn linear(label: &'static str, unit: &'static str) -> Self {
        Self {
            label,
            unit,
            logarithmic: false,
        }
    }

    pub(crate) const fn logarithmic(label: &'static str, unit: &'static str) -> Self {
        Self {
            label,
            unit,
            logarithmic: true,
        }
    }
}

/// One pair of axes.
#[derive(Debug, Serialize)]
pub(crate) struct Panel {
    pub title: String,
    pub x: Scale,
    pub y: Scale,
    pub curves: Vec<Curve>,
}

impl Panel {
    /// It shows another's numbers over another scale.
    pub(crate) fn again(mut self) -> Self {
        self.curves.iter_mut().for_each(|curve| curve.again = true);
        self
    }
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    pub x: f64,
    /// Not a number (null in JSON) where it was asked for and is missing.
    pub y: f64,
    /// Of 95 %, where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

/// The paper's points and ours. Either may be absent: then they are drawn, and not compared.
#[derive(Debug, Serialize)]
pub(crate) struct Curve {
    pub name: String,
    pub paper: Vec<Point>,
    pub ours: Vec<Point>,
    /// Where both are 1 because they were divided by their values there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<f64>,
    /// An input of ours was chosen or fitted for want of a printed one: its points do not count for the verdict.
    pub fitted: bool,
    /// The same numbers as in another curve, over another scale: they are drawn, and count once.
    #[serde(skip)]
    pub again: bool,
}

impl Curve {
    pub(crate) fn new(
        name: impl Into<String>,
        paper: impl IntoIterator<Item = (f64, f64)>,
        ours: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let points = |pair: (f64, f64)| Point {
            x: pair.0,
            y: pair.1,
            interval: None,
        };
        let mut curve = Self {
            name: name.into(),
            paper: paper.into_iter().map(points).collect(),
            ours: ours.into_iter().map(points).collect(),
            base: None,
            fitted: false,
            again: false,
        };
        for points in [&mut curve.paper, &mut curve.ours] {
            points.sort_by(|left, right| left.x.total_cmp(&right.x));
        }
        curve
    }

    /// Both divided by their own values at `x`: a slowdown. Points stay as they are where there is no value at `x`.
    pub(crate) fn over(mut self, x: f64) -> Self {
        for points in [&mut self.paper, &mut self.ours] {
            if let Some(base) = at(points, x) {
                for point in points.iter_mut() {
                    point.y /= base;
                    point.interval = point.interval.map(|ends| ends.map(|end| end / base));
                }
            }
        }
        self.base = Some(x);
        self
    }

    /// Gives those of our points that have one an interval.
    pub(crate) fn within(mut self, intervals: impl IntoIterator<Item = (f64, [f64; 2])>) -> Self {
        for (x, interval) in intervals {
            for point in self.ours.iter_mut().filter(|point| is_same(point.x, x)) {
                point.interval = Some(interval);
            }
        }
        self
    }

    /// It rests on a chosen or fitted input.
    pub(crate) fn fitted(mut self) -> Self {
        self.fitted = true;
        self
    }

    /// The paper's values beside ours at the same place, or between two of ours; the base is left out. None of ours where it
    /// is missing, or one of the two beside it.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (f64, f64, Option<f64>)> {
        let compared = !self.ours.is_empty() && !self.again;
        self.paper
            .iter()
            .filter(move |point| compared && self.base.is_none_or(|base| !is_same(base, point.x)))
            .map(|point| (point.x, point.y, at(&self.ours, point.x).filter(|y| !y.is_nan())))
    }
}

fn is_same(left: f64, right: f64) -> bool {
    (left - right).abs() <= 1e-9 * left.abs().max(right.abs())
}

/// The value at `x`, or on the straight line between the points beside it.
fn at(points: &[Point], x: f64) -> Option<f64> {
    if let Some(point) = points.iter().find(|point| is_same(point.x, x)) {
        return Some(point.y);
    }
    points.windows(2).find_map(|pair| {
        let [left, right] = pair else { return None };
        let share = (x - left.x) / (right.x - left.x);
        (left.x < x && x < right.x).then_some(left.y + share * (right.y - left.y))
    })
}

/// A printed number and ours.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub case: String,
    pub unit: &'static str,
    pub paper: f64,
    pub ours: f64,
    /// Largest difference with which the two agree.
    pub tolerance: f64,
    /// What ours may differ from by so much, where it is not the paper's number: the paper judges its own by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar: Option<f64>,
    /// An input was chosen or fitted for want of a printed one: it does not count for the verdict.
    pub fitted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<&'static str>,
}

impl Row {
    /// A number that the paper says in its text; they agree if they differ by no more than `tolerance`.
    pub(crate) fn new(
        case: impl Into<String>,
        unit: &'static str,
        (paper, tolerance): (f64, f64),
        ours: f64,
    ) -> Self {
        Self {
            case: case.into(),
            unit,
            paper,
            ours,
            tolerance,
            bar: None,
            fitted: false,
            remark: None,
        }
    }

    /// A number that was measured there: they agree within the share that points of curves have.
    pub(crate) fn measured(case: impl Into<String>, unit: &'static str, paper: f64, ours: f64) -> Self {
        Self::new(case, unit, (paper, paper.abs() * super::verdict::POINT), ours)
    }

    /// A number that the paper holds against `bar`, not against another's: ours agrees if it is no further from it than `tolerance`.
    pub(crate) fn judged(
        case: impl Into<String>,
        paper: f64,
        ours: f64,
        (bar, tolerance): (f64, f64),
    ) -> Self {
        let mut row = Self::new(case, "", (paper, tolerance), ours);
        row.bar = Some(bar);
        row
    }

    /// It rests on an input that was chosen or fitted, as the remark says.
    pub(crate) fn fitted(mut self, remark: &'static str) -> Self {
        (self.fitted, self.remark) = (true, Some(remark));
        self
    }

    pub(crate) fn agrees(&self) -> bool {
        let bar = self.bar.unwrap_or(self.paper);
        // Doubles round, too.
        (self.ours - bar).abs() <= self.tolerance * (1.0 + 1e-9) + 1e-12 || self.ours == bar
    }
}

impl From<Comparison> for Row {
    fn from(row: Comparison) -> Self {
        Self {
            fitted: row.is_fitted(),
            remark: row.deviation.or(row.reading),
            case: row.case,
            unit: row.unit,
            paper: row.paper,
            ours: row.ours,
            tolerance: row.tolerance,
            bar: None,
        }
    }
}

impl Outcome {
    /// The rows of `perturb predict validate` from these sources, in their order.
    pub(crate) fn printed(model: &str, sources: &[&str]) -> Self {
        let all = perturb_models::published::comparisons_of(model);
        let wanted = all.into_iter().filter(|row| sources.contains(&row.source));
        Self {
            rows: wanted.map(Row::from).collect(),
            ..Self::default()
        }
    }

    pub(super) fn curves(&self) -> impl Iterator<Item = (&Panel, &Curve)> {
        self.panels
            .iter()
            .flat_map(|panel| panel.curves.iter().map(move |curve| (panel, curve)))
    }

    pub(crate) fn of_panels(panels: impl IntoIterator<Item = Panel>) -> Self {
        Self {
            panels: panels.into_iter().collect(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_leave_their_base_out() {
        let curve = Curve::new("x", [(3.0, 10.0), (5.0, 20.0)], [(5.0, 4.5), (3.0, 2.0)]).over(3.0);
        assert_eq!(curve.pairs().collect::<Vec<_>>(), [(5.0, 2.0, Some(2.25))]);
    }

    #[test]
    fn intervals_are_divided_as_their_points_are() {
        let curve = Curve::new("x", [], [(1.0, 2.0), (3.0, 4.0)]).within([(3.0, [3.0, 5.0])]);
        let intervals: Vec<_> = curve.over(1.0).ours.iter().map(|point| point.interval).collect();
        assert_eq!(intervals, [None, Some([1.5, 2.5])]);
    }

    #[test]
    fn a_bar_judges_ours_alone() {
        let agrees = |paper, ours| Row::judged("r", paper, ours, (1.0, 0.08)).agrees();
        assert!(agrees(0.93, 1.08) && !agrees(0.93, 0.91) && agrees(1.2, 0.93));
    }

    #[test]
    fn ours_is_read_between_points_and_not_beyond() {
        let curve = Curve::new("x", [(1.5, 1.0), (3.0, 1.0)], [(1.0, 10.0), (2.0, 20.0)]);
        let pairs: Vec<_> = curve.pairs().collect();
        assert_eq!(pairs, [(1.5, 1.0, Some(15.0)), (3.0, 1.0, None)]);
        assert_eq!(Curve::new("drawn", [(1.0, 1.0)], []).pairs().count(), 0);
        let holed = Curve::new("x", [(2.0, 1.0)], [(1.0, 10.0), (2.0, f64::NAN), (3.0, 30.0)]);
        assert_eq!(holed.pairs().collect::<Vec<_>>(), [(2.0, 1.0, None)]);
    }
}
