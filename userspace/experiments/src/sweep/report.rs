//! What a sweep's runs say.
//!
//! ```text
//! directories ─load─► runs ─curve─► slowdown, slope, tolerance, shape ─┬─► JSON, terminal
//!                       └──models─► predictions of the same levels ────┴─► page, SVG, CSV
//! ```
//!
//! The report reads a sweep's records only: it needs neither the programs nor the machine.

mod answers;
mod collective;
mod communication;
mod compare;
mod curve;
mod effects;
mod findings;
#[cfg(test)]
mod fixture;
mod level;
mod load;
mod models;
mod output;
mod published;
mod rules;
mod scenarios;
mod shape;
mod summary;
mod terminal;

pub use self::{
    compare::Comparison,
    load::InputError,
    rules::{JudgeError, Rule, RuleError, check, judge},
    summary::{Report, Response},
};
