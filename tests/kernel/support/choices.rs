//! Choices that look random and are the same in every run.

use perturb_common::fate::{Purpose, draw};

/// A stream of choices.
pub(crate) struct Choices {
    stream: u64,
    count: u64,
}

impl Choices {
    pub(crate) fn new(stream: u64) -> Self {
        Self { stream, count: 0 }
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.count += 1;
        draw(0x7065_7274, self.stream, self.count, Purpose::Bit) % limit
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
