//! Rank correlation (Spearman): whether two quantities rise together, whatever the law between them.

use crate::Line;

/// The correlation of the ranks of `(x, y)` points, from -1 to 1; equal values share their mean rank. `None` where a
/// coordinate does not vary, or is not a number.
#[must_use]
pub fn rank_correlation(points: &[(f64, f64)]) -> Option<f64> {
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let ranked: Vec<(f64, f64)> = ranks(&xs).into_iter().zip(ranks(&ys)).collect();
    let line = Line::fit(&ranked).ok()?;
    let back = Line::fit(&ranked.iter().map(|(x, y)| (*y, *x)).collect::<Vec<_>>()).ok()?;
    // The product of both slopes is the square of the correlation.
    Some((line.slope * back.slope).sqrt().copysign(line.slope))
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + (equal as f64 + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_alone_counts() {
        let rising = [(1.0, 1.0), (2.0, 10.0), (3.0, 11.0), (9.0, 1e6)];
        assert_eq!(rank_correlation(&rising), Some(1.0));
        let falling = rising.map(|(x, y)| (x, -y));
        assert_eq!(rank_correlation(&falling), Some(-1.0));
    }

    #[test]
    fn a_published_example() {
        // Ranks 1..5 against 2, 1, 4, 3, 5: 1 - 6 * 4 / (5 * 24).
        let points = [(1.0, 2.0), (2.0, 1.0), (3.0, 4.0), (4.0, 3.0), (5.0, 5.0)];
        assert!((rank_correlation(&points).unwrap() - 0.8).abs() < 1e-12);
    }

    #[test]
    fn equal_values_share_a_rank_and_constants_have_none() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [2.5, 1.0, 2.5]);
        assert_eq!(rank_correlation(&[(1.0, 2.0), (2.0, 2.0)]), None);
        assert_eq!(rank_correlation(&[]), None);
    }
}
