//! What Martin 1999 printed for a program, beside what was measured.
//!
//! The levels of a sweep are those of the thesis times a factor, so a level stands for the printed one that is as many
//! times its baseline. Where none is, within 3 %, there is nothing beside it.

use perturb_models::published::run_times_of;
use serde::Serialize;

use crate::sweep::experiment::Knob;

/// How far apart two ratios may be that mean the same level.
const SAME: f64 = 0.03;

/// A program's printed response to a knob.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Published {
    /// The table.
    pub(super) source: &'static str,
    /// Slowdown at each level; null where the table has none.
    pub(super) slowdown: Vec<Option<f64>>,
}

/// What was printed for these levels.
pub(super) fn published(program: &str, knob: Knob, levels: &[f64], baseline: f64) -> Option<Published> {
    let curve = run_times_of(program, knob)?;
    let base = curve.base?;
    let first = curve.points.iter().find(|point| point.at == base)?.measured;
    let at = |level: &f64| {
        let point = curve.points.iter().find(|point| {
            // The level of a bandwidth is G.
            let times = match knob {
                Knob::Bandwidth => base / point.at,
                _ => point.at / base,
            };
            (level / baseline / times - 1.0).abs() < SAME
        })?;
        Some(point.measured / first)
    };
    Some(Published {
        source: curve.source,
        slowdown: levels.iter().map(at).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_stands_for_the_one_that_is_as_many_times_the_baseline() {
        // Twice the overheads of Table B.2, and a level that it does not have.
        let radix = published("radix", Knob::Overhead, &[7.8, 60.0, 205.8], 5.8).unwrap();
        assert_eq!(radix.slowdown, [Some(10.5 / 7.8), None, Some(443.2 / 7.8)]);
        assert!(radix.source.contains("Table B.2"));
        // A tenth of the bandwidths of Table B.9; where it prints a dash there is nothing.
        let levels = [1.0 / 1.12, 1.0 / 0.119];
        let is = published("is", Knob::Bandwidth, &levels, 1.0 / 3.75).unwrap();
        assert_eq!(is.slowdown, [Some(23.0 / 18.7), None]);
        assert!(published("nosuch", Knob::Gap, &[1.0], 1.0).is_none());
    }
}
