//! How results look, once for all commands: charts, and pages that hold them.
//!
//! Model: everything becomes text ([`std::fmt::Display`] or a `String`) that the caller prints or stores. Nothing here
//! opens a file, knows an emulation or computes a statistic.

pub mod chart;
mod markup;
pub mod matrix;
mod page;

pub use page::{Page, Row};
