//! The predictors of the five papers: pure functions of their inputs.

pub mod quantity;
pub mod locality;
