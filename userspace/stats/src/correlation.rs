//! Correlation: whether two quantities rise together, by a line (Pearson) or whatever the law between them (Spearman).

/// Pearson's coefficient of `(x, y)` points, from -1 to 1. `None` where a coordinate does not vary, or is not a number.
#[must_use]
pub fn correlation(points: &[(f64, f64)]) -> Option<f64> {
    let first = points.first()?;
    let varies = |pick: fn(&(f64, f64)) -> f64| points.iter().any(|point| pick(point) != pick(first));
    if !varies(|point| point.0) || !varies(|point| point.1) {
        return None;
    }
    let count = points.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in points {
        xx += (x - mean_x) * (x - mean_x);
        yy += (y - mean_y) * (y - mean_y);
        xy += (x - mean_x) * (y - mean_y);
    }
    let scale = (xx * yy).sqrt();
    (scale > 0.0 && scale.is_finite()).then(|| xy / scale)
}

/// The correlation of the ranks of `(x, y)` points, from -1 to 1; equal values share their mean rank. `None` where a
/// coordinate does not vary, or is not a number.
#[must_use]
pub fn rank_correlation(points: &[(f64, f64)]) -> Option<f64> {
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    if xs.iter().chain(&ys).any(|value| value.is_nan()) {
        return None;
    }
    correlation(&ranks(&xs).into_iter().zip(ranks(&ys)).collect::<Vec<_>>())
}

/// Ranks from 0.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for tied in order.chunk_by(|a, b| values[*a] == values[*b]) {
        for index in tied {
            ranks[*index] = before as f64 + (tied.len() - 1) as f64 / 2.0;
        }
        before += tied.len();
    }
    ranks
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
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [1.5, 0.0, 1.5]);
        assert_eq!(rank_correlation(&[(1.0, 2.0), (2.0, 2.0)]), None);
        assert_eq!(rank_correlation(&[]), None);
        assert_eq!(rank_correlation(&[(1.0, 2.0), (2.0, f64::NAN)]), None);
    }
}
