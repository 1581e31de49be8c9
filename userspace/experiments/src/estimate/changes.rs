//! Where times over sizes stop being one line: a change of protocol.
//!
//! Model (Hoefler et al. 2007, section III): the mean squared residual of the line through the sizes up to k stays what
//! noise makes it as long as one line holds. If adding each of the next few sizes at least doubles it, another line has
//! begun behind k.
//! What is lacking: two changes closer together than that; a change too small for the noise.

use perturb_stats::Line;

/// Growth of the residual that counts.
const FACTOR: f64 = 2.0;
/// How many sizes in a row must show it.
const NEXT: usize = 3;
/// Sizes that a line needs before anything can be said about it.
const FIRST: usize = 4;

/// Indices of the points at which a new line begins, for points in ascending order of size; `noise` is the standard
/// error of an observation, so that a fit better than that is not taken for an exact one.
#[must_use]
pub(crate) fn find(points: &[(f64, f64)], noise: f64) -> Vec<usize> {
    let mut changes = Vec::new();
    let mut start = 0;
    let mut end = FIRST;
    while start + FIRST <= points.len() && end + NEXT <= points.len() {
        let before = residual(&points[start..end]).max(noise * noise);
        let breaks = (1..=NEXT).all(|more| residual(&points[start..end + more]) > FACTOR * before);
        if breaks {
            changes.push(end);
            start = end;
            end = start + FIRST;
        } else {
            end += 1;
        }
    }
    changes
}

/// Mean squared residual of the line through the points.
fn residual(points: &[(f64, f64)]) -> f64 {
    Line::fit(points).map_or(0.0, |line| {
        let squares = points.iter().map(|(x, y)| (y - line.at(*x)).powi(2));
        squares.sum::<f64>() / points.len() as f64
    })
}

#[cfg(test)]
mod tests {
    use perturb_stats::SplitMix64;

    use super::*;

    fn noisy(y: impl Fn(f64) -> f64, seed: u64) -> Vec<(f64, f64)> {
        let mut random = SplitMix64::new(seed);
        (1..=24)
            .map(|step| f64::from(step) * 1024.0)
            .map(|x| (x, y(x) + random.fraction() - 0.5))
            .collect()
    }

    #[test]
    fn one_line_has_no_change() {
        for seed in 0..200 {
            assert_eq!(find(&noisy(|x| 20.0 + 0.01 * x, seed), 0.5), Vec::<usize>::new());
        }
    }

    #[test]
    fn an_eager_limit_is_found() {
        // From 12 KiB on a message costs a round trip more, and half as much per byte.
        let two = |x: f64| {
            if x <= 12_288.0 {
                20.0 + 0.01 * x
            } else {
                120.0 + 0.005 * x
            }
        };
        for seed in 0..200 {
            assert_eq!(find(&noisy(two, seed), 0.5), [12], "seed {seed}");
        }
    }

    #[test]
    fn too_few_points_say_nothing() {
        assert!(find(&[(1.0, 1.0), (2.0, 9.0), (3.0, 1.0)], 0.1).is_empty());
    }
}
