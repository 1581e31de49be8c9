//! The shape of a response: a line, a threshold, a saturation, or a bend.
//!
//! Model: slowdown y over a knob x is one of
//!
//! | shape | y | parameters |
//! |---|---|---|
//! | linear | a + b x | 2 |
//! | threshold | a + b max(0, x - k) | 3, the uniform-gap model's |
//! | saturating | a + b min(x, k) | 3 |
//! | bent | a + b x + c max(0, x - k) | 4 |
//!
//! each fitted by least squares, with the knee k searched between the levels. The one of least BIC is chosen
//! (Schwarz 1978, "Estimating the dimension of a model"), where the levels' own variance is added to the mean square of
//! the residuals, so that noise is not taken for a knee; a line is left only for a difference of 6 ("strong", Kass and
//! Raftery 1995). A line whose slope is within two standard errors of 0, or whose whole rise is below 1 %, is flat.
//! What it lacks: several knees, and steps.

use perturb_stats::Line;
use serde::Serialize;

/// Least difference of BIC for which a line is left.
const STRONG: f64 = 6.0;
/// Places of the knee that are tried between two levels.
const STEPS: u32 = 64;
/// Variance below which residuals do not matter: that of 0.1 % of slowdown.
const FLOOR: f64 = 1e-6;
/// A rise below this is none.
const NEGLIGIBLE: f64 = 0.01;

/// Which shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// No response.
    Flat,
    /// In proportion.
    Linear,
    /// None up to the knee, then in proportion.
    Threshold,
    /// In proportion up to the knee, then no more.
    Saturating,
    /// Another slope beyond the knee.
    Bent,
}

/// A fitted shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// Of the part that rises; of a bent one over all levels.
    pub(super) slope: f64,
    pub(super) slope_stderr: Option<f64>,
    pub(super) r_squared: Option<f64>,
    pub(super) knee: Option<f64>,
    /// Bent: the slopes before and beyond the knee.
    pub(super) slopes: Option<(f64, f64)>,
    /// Height of a threshold's plateau.
    plateau: f64,
}

impl Shape {
    /// The knob's value with a slowdown, where the shape tells it better than the levels around: just above a threshold.
    pub(super) fn reaches(&self, slowdown: f64) -> Option<f64> {
        let knee = self.knee.filter(|_| self.kind == Kind::Threshold)?;
        Some(knee + (slowdown - self.plateau).max(0.0) / self.slope)
    }
}

struct Candidate {
    kind: Kind,
    knee: Option<f64>,
    squares: f64,
    line: Line,
    slopes: Option<(f64, f64)>,
}

/// Fits points whose means have the variance `noise`, ascending in x.
pub(super) fn fit(points: &[(f64, f64)], noise: f64) -> Option<Shape> {
    let line = Line::fit(points).ok()?;
    let n = points.len() as f64;
    let bic = |squares: f64, parameters: f64| n * (squares / n + noise.max(FLOOR)).ln() + parameters * n.ln();
    let residuals = |line: &Line, transform: &dyn Fn(f64) -> f64| -> f64 {
        let residual = |(x, y): &(f64, f64)| (y - line.at(transform(*x))).powi(2);
        points.iter().map(residual).sum()
    };
    let straight = Candidate {
        kind: Kind::Linear,
        knee: None,
        squares: residuals(&line, &|x| x),
        line,
        slopes: None,
    };
    let one_slope = |kind, knee: f64| -> Option<Candidate> {
        let transform: &dyn Fn(f64) -> f64 = match kind {
            Kind::Threshold => &|x: f64| (x - knee).max(0.0),
            _ => &|x: f64| x.min(knee),
        };
        let moved: Vec<_> = points.iter().map(|(x, y)| (transform(*x), *y)).collect();
        let line = Line::fit(&moved).ok().filter(|line| line.slope > 0.0)?;
        Some(Candidate {
            kind,
            knee: Some(knee),
            squares: residuals(&line, transform),
            line,
            slopes: None,
        })
    };
    let two_slopes = |knee: f64| -> Option<Candidate> {
        let (squares, before, beyond) = bent(points, knee)?;
        Some(Candidate {
            kind: Kind::Bent,
            knee: Some(knee),
            squares,
            line,
            slopes: Some((before, beyond)),
        })
    };
    let mut candidates = Vec::new();
    if points.len() >= 5 {
        for kind in [Kind::Threshold, Kind::Saturating] {
            let found = search(points, |knee| one_slope(kind, knee));
            candidates.extend(found.map(|found| (3.0, found)));
        }
    }
    if points.len() >= 6 {
        candidates.extend(search(points, two_slopes).map(|found| (4.0, found)));
    }
    let baseline = bic(straight.squares, 2.0) - STRONG;
    let best = candidates
        .into_iter()
        .map(|(parameters, candidate)| (bic(candidate.squares, parameters), candidate))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(value, _)| *value < baseline)
        .map_or(straight, |(_, candidate)| candidate);
    let rise = points.iter().map(|(_, y)| *y).fold(f64::NEG_INFINITY, f64::max)
        - points.iter().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
    let insignificant = best
        .line
        .slope_error
        .is_some_and(|error| best.line.slope.abs() < 2.0 * error);
    let kind = if best.kind == Kind::Linear && (insignificant || rise < NEGLIGIBLE) {
        Kind::Flat
    } else {
        best.kind
    };
    Some(Shape {
        kind,
        slope: best.line.slope,
        slope_stderr: best.line.slope_error,
        r_squared: best.line.r_squared,
        knee: best.knee,
        slopes: best.slopes,
        plateau: best.line.intercept,
    })
}

/// The best knee that leaves two points on either side: first on a grid, then on a finer one about the best.
fn search(points: &[(f64, f64)], candidate: impl Fn(f64) -> Option<Candidate>) -> Option<Candidate> {
    let best = |knees: &mut dyn Iterator<Item = f64>| {
        knees
            .filter_map(&candidate)
            .min_by(|a, b| a.squares.total_cmp(&b.squares))
    };
    let inner = points.get(1..points.len().saturating_sub(1))?;
    let spans: Vec<(f64, f64)> = inner.windows(2).map(|pair| (pair[0].0, pair[1].0)).collect();
    let grid = |low: f64, high: f64| {
        (0..=STEPS).map(move |step| low + (high - low) * f64::from(step) / f64::from(STEPS))
    };
    let coarse = best(&mut spans.iter().flat_map(|(low, high)| grid(*low, *high)))?;
    let knee = coarse.knee?;
    let (low, high) = spans.iter().find(|(low, high)| (*low..=*high).contains(&knee))?;
    let step = (high - low) / f64::from(STEPS);
    best(&mut grid((knee - step).max(*low), (knee + step).min(*high)))
}

/// Least squares of `a + b x + c max(0, x - k)`: the residuals' squares, b, and b + c.
fn bent(points: &[(f64, f64)], knee: f64) -> Option<(f64, f64, f64)> {
    let row = |x: f64| [1.0, x, (x - knee).max(0.0)];
    let mut system = [[0.0; 4]; 3];
    for (x, y) in points {
        let row = row(*x);
        for i in 0..3 {
            for j in 0..3 {
                system[i][j] += row[i] * row[j];
            }
            system[i][3] += row[i] * y;
        }
    }
    for pivot in 0..3 {
        let best = (pivot..3).max_by(|a, b| system[*a][pivot].abs().total_cmp(&system[*b][pivot].abs()))?;
        system.swap(pivot, best);
        let divisor = system[pivot][pivot];
        if divisor.abs() < 1e-12 {
            return None;
        }
        let pivot_row = system[pivot].map(|value| value / divisor);
        system[pivot] = pivot_row;
        for (other, row) in system.iter_mut().enumerate() {
            if other != pivot {
                let factor = row[pivot];
                for (value, above) in row.iter_mut().zip(pivot_row) {
                    *value -= factor * above;
                }
            }
        }
    }
    let [a, b, c] = [system[0][3], system[1][3], system[2][3]];
    let at = |x: f64| a + b * x + c * (x - knee).max(0.0);
    let squares = points.iter().map(|(x, y)| (y - at(*x)).powi(2)).sum();
    Some((squares, b, b + c))
}

/// The largest x at which the slowdown is at most `limit`, between the points; whether it lies beyond the last.
/// Points are made monotone first (pool adjacent violators), as a slower network does not speed a program up.
pub(super) fn tolerance(points: &[(f64, f64)], limit: f64) -> Option<(f64, bool)> {
    let mut pooled: Vec<(f64, usize)> = Vec::new();
    for (_, y) in points {
        pooled.push((*y, 1));
        while let [.., (before, count), (last, more)] = pooled.as_slice()
            && before > last
        {
            let sum = count + more;
            let mean = (before * *count as f64 + last * *more as f64) / sum as f64;
            pooled.truncate(pooled.len() - 2);
            pooled.push((mean, sum));
        }
    }
    let monotone = pooled
        .iter()
        .flat_map(|(y, count)| std::iter::repeat_n(*y, *count));
    let points: Vec<(f64, f64)> = points.iter().map(|(x, _)| *x).zip(monotone).collect();
    let (last, _) = *points.last()?;
    let Some(above) = points.iter().position(|(_, y)| *y > limit) else {
        return Some((last, true));
    };
    let Some(below) = above.checked_sub(1) else {
        return Some((points[0].0, false));
    };
    let ((x0, y0), (x1, y1)) = (points[below], points[above]);
    Some((x0 + (x1 - x0) * (limit - y0) / (y1 - y0), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(response: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        [2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0]
            .map(|x| (x, response(x)))
            .to_vec()
    }

    #[test]
    fn shapes_are_told_apart() {
        let line = fit(&points(|x| 1.0 + 0.02 * x), 0.0).unwrap();
        assert_eq!(line.kind, Kind::Linear);
        assert!((line.slope - 0.02).abs() < 1e-9);
        let threshold = fit(&points(|x| 1.0 + 0.05 * (x - 33.0_f64).max(0.0)), 0.0).unwrap();
        assert_eq!(threshold.kind, Kind::Threshold);
        assert!((threshold.knee.unwrap() - 33.0).abs() < 0.4, "{threshold:?}");
        assert!((threshold.slope - 0.05).abs() < 1e-3);
        assert!((threshold.reaches(1.05).unwrap() - 34.0).abs() < 0.1);
        let saturating = fit(&points(|x| 1.0 + 0.05 * x.min(33.0)), 0.0).unwrap();
        assert_eq!(saturating.kind, Kind::Saturating);
        let bent = fit(&points(|x| 1.0 + 0.01 * x + 0.1 * (x - 50.0_f64).max(0.0)), 0.0).unwrap();
        assert_eq!(bent.kind, Kind::Bent);
        let (before, beyond) = bent.slopes.unwrap();
        assert!(
            (before - 0.01).abs() < 2e-3 && (beyond - 0.11).abs() < 5e-3,
            "{bent:?}"
        );
        assert_eq!(fit(&points(|_| 1.0), 0.0).unwrap().kind, Kind::Flat);
    }

    #[test]
    fn noise_is_no_knee() {
        let noisy = |slope: f64| -> Vec<(f64, f64)> {
            let signs = [1.0, -1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0];
            let points = points(|x| 1.0 + slope * x).into_iter().zip(signs);
            points.map(|((x, y), sign)| (x, y + 0.02 * sign)).collect()
        };
        assert_eq!(fit(&noisy(0.02), 0.02 * 0.02).unwrap().kind, Kind::Linear);
        assert_eq!(fit(&noisy(0.0), 0.02 * 0.02).unwrap().kind, Kind::Flat);
    }

    #[test]
    fn tolerance_is_interpolated() {
        let (value, beyond) = tolerance(&points(|x| 1.0 + 0.001 * (x - 2.0)), 1.05).unwrap();
        assert!((value - 52.0).abs() < 1e-9 && !beyond);
        assert_eq!(tolerance(&points(|_| 1.0), 1.05), Some((100.0, true)));
        // One point that dips does not make the program tolerant.
        let dipping = [(1.0, 1.0), (2.0, 1.2), (3.0, 1.0), (4.0, 1.5)];
        assert!(tolerance(&dipping, 1.05).unwrap().0 < 2.0);
    }
}
