//! Jitter distributions as tables: the inverse cumulative distribution at (i + 1/2)/4096, 8192 for one scale, cut at
//! what 16 bits hold (± 4 scales). The shapes are netem's, so that a profile means what `tc` users expect:
//!
//! * pareto: x = u^(-1/3) for even u (shape 3, mean 1.5), shifted to mean 0 and stretched by 4/3;
//! * pareto-normal: a quarter of the normal and three quarters of the pareto quantile.
//!
//! Sources: netem/pareto.c and netem/paretonormal.c of iproute2. A correlation between packets is `perturb_common::ties`'.

use perturb_common::abi::JitterTable;
use perturb_common::fate::{JITTER_ENTRIES, JITTER_UNIT};

/// Entries of a table file at most, as in netem.
pub(crate) const MAX_ENTRIES: usize = 16 << 10;

/// The table of a distribution given by its quantile function.
fn tabulate(mut quantile: impl FnMut(f64) -> f64) -> JitterTable {
    let mut entries = [0; JITTER_ENTRIES];
    for (index, entry) in entries.iter_mut().enumerate() {
        let probability = (index as f64 + 0.5) / JITTER_ENTRIES as f64;
        // A float-to-integer conversion saturates.
        *entry = (quantile(probability) * JITTER_UNIT as f64).round() as i16;
    }
    JitterTable { entries }
}

pub(super) fn uniform() -> JitterTable {
    tabulate(|probability| 2.0 * probability - 1.0)
}

pub(super) fn normal() -> JitterTable {
    tabulate(normal_quantile())
}

pub(super) fn pareto() -> JitterTable {
    tabulate(pareto_quantile)
}

pub(super) fn pareto_normal() -> JitterTable {
    let mut normal = normal_quantile();
    tabulate(|probability| (normal(probability) + 3.0 * pareto_quantile(probability)) / 4.0)
}

/// Φ's, for what drifts: entry i is (2^16 - 1) Φ(i/512 - 4) - 2^15 (`perturb_common::ties::quantile`).
pub(super) fn cumulative() -> JitterTable {
    let mut entries = [0; JITTER_ENTRIES];
    for (index, entry) in entries.iter_mut().enumerate() {
        let share = normal_cdf(index as f64 / 512.0 - 4.0).clamp(0.0, 1.0);
        *entry = (share * 65_535.0 - 32_768.0).round() as i16;
    }
    JitterTable { entries }
}

/// The table of a file's entries, ascending whatever order the file has: as many as needed, evenly.
pub(super) fn resampled(values: &[i16]) -> JitterTable {
    let mut values = values.to_vec();
    values.sort_unstable();
    let mut entries = [0; JITTER_ENTRIES];
    for (index, entry) in entries.iter_mut().enumerate() {
        let place = (2 * index + 1) * values.len() / (2 * JITTER_ENTRIES);
        *entry = values.get(place).copied().unwrap_or(0);
    }
    JitterTable { entries }
}

/// netem cuts each quantile at 4 scales before it mixes them.
fn pareto_quantile(probability: f64) -> f64 {
    (((1.0 - probability).powf(-1.0 / 3.0) - 1.5) * 4.0 / 3.0).min(f64::from(i16::MAX) / JITTER_UNIT as f64)
}

/// The normal quantile function by Newton's method from the last answer: fast for ascending probabilities.
fn normal_quantile() -> impl FnMut(f64) -> f64 {
    let mut x = 0.0f64;
    move |probability| {
        // 1/2 < 1 - 2^-14, where the density is still 10^-4: a handful of steps, always convergent when bounded.
        for _ in 0..50 {
            let step = ((normal_cdf(x) - probability) / normal_density(x)).clamp(-0.5, 0.5);
            x -= step;
            if step.abs() < 1e-12 {
                break;
            }
        }
        x
    }
}

fn normal_density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
}

/// Φ(x) = 1/2 + φ(x) (x + x³/3 + x⁵/(3·5) + …) (Marsaglia 2004).
fn normal_cdf(x: f64) -> f64 {
    let (mut sum, mut term, mut odd) = (x, x, 1.0);
    while term.abs() > 1e-17 {
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    0.5 + sum * normal_density(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(table: &JitterTable) -> f64 {
        table.entries.iter().map(|&entry| f64::from(entry)).sum::<f64>()
            / JITTER_ENTRIES as f64
            / JITTER_UNIT as f64
    }

    fn deviation(table: &JitterTable) -> f64 {
        let mean = mean(table);
        let square = |&entry: &i16| (f64::from(entry) / JITTER_UNIT as f64 - mean).powi(2);
        (table.entries.iter().map(square).sum::<f64>() / JITTER_ENTRIES as f64).sqrt()
    }

    #[test]
    fn normal_table_has_the_textbook_quantiles() {
        let table = normal();
        // Φ^-1(0.975) = 1.959964, at the boundary between two entries.
        let at = |probability: f64| {
            f64::from(table.entries[(probability * JITTER_ENTRIES as f64) as usize]) / 8192.0
        };
        assert!((at(0.975) - 1.959_964).abs() < 3e-3, "{}", at(0.975));
        assert!((at(0.8413) - 1.0).abs() < 3e-3, "{}", at(0.8413));
        assert!(
            mean(&table).abs() < 1e-4 && (deviation(&table) - 1.0).abs() < 2e-3,
            "{}",
            deviation(&table)
        );
        assert!(
            table
                .entries
                .iter()
                .zip(table.entries.iter().rev())
                .all(|(a, b)| (a + b).abs() <= 1)
        );
    }

    #[test]
    fn uniform_table_is_even() {
        let table = uniform();
        assert_eq!(
            (table.entries[0], table.entries[JITTER_ENTRIES - 1]),
            (-8190, 8190)
        );
        assert!((deviation(&table) - 1.0 / 3f64.sqrt()).abs() < 1e-3);
    }

    #[test]
    fn pareto_tables_begin_and_end_as_netems_do() {
        // netem's pareto.dist begins with -5461 (u near 1: -1/2 * 4/3 * 8192) and is cut at 32767.
        let table = pareto();
        assert_eq!(
            (table.entries[0], table.entries[JITTER_ENTRIES - 1]),
            (-5461, 32767)
        );
        // The cut takes the tail beyond x = 4.5: the integral of (x - 4.5) 3 x^-4 is 1/(2 * 4.5^2), times 4/3.
        let expected = -4.0 / 3.0 / (2.0 * 4.5 * 4.5);
        assert!((mean(&table) - expected).abs() < 1e-3, "{}", mean(&table));
        assert!(table.entries.is_sorted() && pareto_normal().entries.is_sorted());
    }

    #[test]
    fn files_are_resampled_evenly() {
        let values: Vec<i16> = (0..8192).collect();
        let table = resampled(&values);
        assert!(
            table
                .entries
                .iter()
                .enumerate()
                .all(|(index, &entry)| usize::from(entry as u16) == 2 * index + 1)
        );
        assert_eq!(resampled(&values[..4096]).entries[..], values[..4096]);
        assert_eq!(resampled(&[7]).entries, [7; JITTER_ENTRIES]);
        let backwards: Vec<i16> = values.iter().rev().copied().collect();
        assert_eq!(resampled(&backwards), table);
    }
}
