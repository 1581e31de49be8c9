//! Effects of several knobs at once, for the designs that turn them together.
//!
//! Model: with two levels of each knob (baseline, and the last one) the main effect of a knob is the mean slowdown where
//! it is high less the mean where it is low, an interaction likewise for the product of signs (Box, Hunter and Hunter,
//! "Statistics for Experimenters", chapter 10). In the half fraction every effect is that of its alias as well.

use serde::Serialize;

use super::level::{Key, Runs};
use crate::sweep::{
    experiment::{Design, Knob},
    plan,
};

/// An effect on the slowdown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Effect {
    /// `o`, `o·g`.
    pub(super) of: String,
    /// What the fraction cannot tell it from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) confounded_with: Option<String>,
    /// Difference of slowdown.
    pub(super) slowdown: f64,
}

/// Effects, from the largest to the least.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Effects {
    /// Settings from which they were taken.
    pub(super) settings: usize,
    pub(super) effects: Vec<Effect>,
    pub(super) confounding: Vec<String>,
}

/// The effects, if every setting that they need has a value.
pub(super) fn effects(
    design: Design,
    knobs: &[(Knob, Vec<f64>)],
    base: &dyn Fn(Knob) -> f64,
    runs: &Runs<'_>,
) -> Option<Effects> {
    let factors: Vec<(Knob, f64)> = knobs
        .iter()
        .filter_map(|(knob, levels)| Some((*knob, *levels.last()?)))
        .filter(|(knob, level)| *level != base(*knob))
        .collect();
    let rows: Vec<Vec<bool>> = match design {
        Design::Fractional => plan::half_fraction(factors.len()),
        Design::Simple | Design::Full => (0..1_usize << factors.len())
            .map(|bits| (0..factors.len()).map(|factor| bits >> factor & 1 == 1).collect())
            .collect(),
    };
    let responses: Vec<f64> = rows
        .iter()
        .map(|row| {
            let high = factors.iter().zip(row).filter(|(_, high)| **high);
            let mut key: Key = high
                .map(|((knob, level), _)| (knob.key().to_owned(), level.to_string()))
                .collect();
            key.sort();
            runs.slowdown(&key).map(|measured| measured.point)
        })
        .collect::<Option<_>>()?;
    let contrast = |set: &[usize]| -> f64 {
        let sign = |row: &Vec<bool>| -> f64 {
            set.iter()
                .map(|index| if row[*index] { 1.0 } else { -1.0 })
                .product()
        };
        let sum: f64 = rows
            .iter()
            .zip(&responses)
            .map(|(row, response)| sign(row) * response)
            .sum();
        sum / (rows.len() as f64 / 2.0)
    };
    let name = |set: &[usize]| -> String {
        let letters: Vec<&str> = set.iter().map(|index| factors[*index].0.letter()).collect();
        letters.join("·")
    };
    let alias = |set: &[usize]| {
        let others: Vec<usize> = (0..factors.len()).filter(|index| !set.contains(index)).collect();
        (design == Design::Fractional).then(|| name(&others))
    };
    let singles = (0..factors.len()).map(|index| vec![index]);
    let pairs = (0..factors.len()).flat_map(|a| (a + 1..factors.len()).map(move |b| vec![a, b]));
    let mut effects: Vec<Effect> = singles
        .chain(pairs)
        .map(|set| Effect {
            of: name(&set),
            confounded_with: alias(&set),
            slowdown: contrast(&set),
        })
        .collect();
    effects.sort_by(|a, b| b.slowdown.abs().total_cmp(&a.slowdown.abs()));
    let turned: Vec<Knob> = factors.iter().map(|(knob, _)| *knob).collect();
    Some(Effects {
        settings: rows.len(),
        effects,
        confounding: match design {
            Design::Fractional => plan::confounding(&turned),
            Design::Simple | Design::Full => Vec::new(),
        },
    })
}
