//! What a collective moves.

use std::ffi::c_int;

use super::abi::{self, Handle};

/// What a collective moves.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// Bytes from this process to each other, or of the vector.
    pub(crate) bytes: u64,
    /// The root, if there is one.
    pub(crate) root: c_int,
    /// Bytes for each, where they differ.
    pub(crate) sizes: Vec<u32>,
}

impl Shape {
    pub(crate) fn of(bytes: u64, root: c_int) -> Self {
        Self {
            bytes,
            root,
            sizes: Vec::new(),
        }
    }

    /// From counts of elements; `datatype` gives the type of each.
    ///
    /// # Safety
    /// There are `size` counts.
    pub(crate) unsafe fn of_counts(
        counts: *const c_int,
        size: usize,
        root: c_int,
        datatype: impl Fn(usize) -> Handle,
    ) -> Self {
        let sizes: Vec<u32> = (0..size)
            .map(|index| {
                // SAFETY: as the caller says.
                let count = unsafe { counts.add(index).read() };
                u32::try_from(abi::bytes(count, datatype(index))).unwrap_or(u32::MAX)
            })
            .collect();
        Self {
            bytes: sizes.iter().map(|size| u64::from(*size)).sum(),
            root,
            sizes,
        }
    }
}
