//! How results look, once for all commands: numbers, tables, charts, pages that hold them, and the live line.
//!
//! Model: everything becomes text ([`std::fmt::Display`] or a `String`) that the caller prints or stores; a [`LiveLine`]
//! writes to what it is given. Nothing here opens a file, knows an emulation or computes a statistic.

#![warn(missing_docs)]

pub mod chart;
mod live;
mod markup;
pub mod matrix;
mod number;
mod page;
pub mod shell;
mod table;

pub use live::{LiveLine, Parts, Shown, bar, clear_screen, progress};
pub use number::{Digits, cell, compact, computed, measured, span};
pub use page::Page;
pub use table::Table;
