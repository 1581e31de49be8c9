//! What `ebpf-prog/src/atomic.rs` does with instructions of BPF, by this processor's.

use std::sync::atomic::{AtomicU64, Ordering};

use perturb_common::shared::Word;

/// A word of a map value.
#[derive(Clone, Copy)]
pub(crate) struct Shared(*mut u64);

impl Shared {
    /// # Safety
    /// `place` must point to an aligned `u64` in a map value.
    #[inline(always)]
    pub(crate) unsafe fn new(place: *mut u64) -> Self {
        Self(place)
    }
}

impl Word for Shared {
    #[inline(always)]
    fn load(&self) -> u64 {
        // SAFETY: [`Shared::new`]'s.
        unsafe { load(self.0) }
    }

    #[inline(always)]
    fn compare_exchange(&self, old: u64, new: u64) -> u64 {
        // SAFETY: as above.
        unsafe { compare_exchange(self.0, old, new) }
    }

    #[inline(always)]
    fn fetch_add(&self, amount: u64) -> u64 {
        // SAFETY: as above.
        unsafe { fetch_add(self.0, amount) }
    }
}

/// Stores `new` if the word at `place` is `old`; returns what was there.
///
/// # Safety
/// `place` must point to an aligned `u64` in a map value.
#[inline(always)]
pub(crate) unsafe fn compare_exchange(place: *mut u64, old: u64, new: u64) -> u64 {
    // SAFETY: the caller's.
    let word = unsafe { AtomicU64::from_ptr(place) };
    match word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(seen) | Err(seen) => seen,
    }
}

/// Adds to the word at `place`; returns what was there.
///
/// # Safety
/// As above.
#[inline(always)]
pub(crate) unsafe fn fetch_add(place: *mut u64, amount: u64) -> u64 {
    // SAFETY: the caller's.
    unsafe { AtomicU64::from_ptr(place) }.fetch_add(amount, Ordering::SeqCst)
}

/// Reads a word that other threads write.
///
/// # Safety
/// As above.
#[inline(always)]
pub(crate) unsafe fn load(place: *const u64) -> u64 {
    // SAFETY: the caller's.
    unsafe { AtomicU64::from_ptr(place.cast_mut()) }.load(Ordering::Acquire)
}
