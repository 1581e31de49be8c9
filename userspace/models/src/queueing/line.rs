//! The least-squares line through points.

/// `y = slope x + intercept`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Slope.
    pub slope: f64,
    /// Value at x = 0.
    pub intercept: f64,
    /// Coefficient of determination; `None` if all y are the same.
    pub r_squared: Option<f64>,
}

/// The line through the points; `None` with fewer than two different x.
#[must_use]
pub fn fit(points: &[(f64, f64)]) -> Option<Line> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let moment = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|(x, y)| of(x - mean_x, y - mean_y)).sum()
    };
    let (xx, xy, yy) = (
        moment(&|x, _| x * x),
        moment(&|x, y| x * y),
        moment(&|_, y| y * y),
    );
    (xx > 0.0).then(|| Line {
        slope: xy / xx,
        intercept: mean_y - xy / xx * mean_x,
        r_squared: (yy > 0.0).then(|| xy * xy / (xx * yy)),
    })
}
