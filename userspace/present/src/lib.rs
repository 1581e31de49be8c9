//! How results look, once for all commands: numbers, tables, charts, and pages that hold them.
//!
//! Model: everything becomes text ([`std::fmt::Display`] or a `String`) that the caller prints or stores. Nothing here
//! opens a file, knows an emulation or computes a statistic.

pub mod chart;
mod markup;
pub mod matrix;
mod number;
mod page;
mod table;

pub use number::{Digits, compact, computed, measured, span};
pub use page::Page;
pub use table::Table;
