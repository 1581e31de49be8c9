//! The recursion's source at eight bits.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::duplicate_mod,
    reason = "the other width is another module"
)]

/// In the place of [`crate::word`].
pub(super) mod word {
    pub(crate) type Word = u8;
    pub(crate) const TICK_SHIFT: u32 = 1;
    pub(crate) const SPLIT: u32 = 3;
}

#[path = "departure.rs"]
pub(super) mod departure;
#[path = "ticks.rs"]
pub(super) mod ticks;
