//! How wide the recursion's numbers are. [`crate::ticks`] and [`crate::departure`] take it from here, so that a test can
//! compile the same source at a width at which all values can be tried.

/// A number of ticks.
pub type Word = u64;
/// log2 of the number of ticks in a nanosecond.
pub const TICK_SHIFT: u32 = 6;
/// log2 of the bytes that are multiplied at once, and of the parts of a nanosecond in which G is counted.
pub const SPLIT: u32 = 20;
