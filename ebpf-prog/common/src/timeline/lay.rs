//! Timelines as a compiled profile has them.

extern crate alloc;

use alloc::vec::Vec;

use super::{End, Segment, Start};

/// How a server changes, or ([`Overhead`](super::Overhead)) what a packet costs its host. Servers that change alike share one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timeline<S = Segment> {
    /// Which instant `at` counts from.
    pub start: Start,
    /// At least one, `at` ascending without repetition, the first one's 0.
    pub segments: Vec<S>,
    /// What comes behind.
    pub end: End,
}
