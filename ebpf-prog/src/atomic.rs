//! Read-modify-write on map values that several CPUs touch. `AtomicU64` has none on this target
//! (no `max_atomic_width`), and the compiler's intrinsics change their names between releases; the
//! instructions (BPF v3, kernel 5.12) do not.

use core::arch::asm;

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
    let seen;
    // SAFETY: the caller's; the instruction touches only `place` and r0.
    unsafe {
        asm!(
            "r0 = cmpxchg_64({place} + 0, r0, {new})",
            place = in(reg) place,
            new = in(reg) new,
            inout("r0") old => seen,
        );
    }
    seen
}

/// Adds to the word at `place`; returns what was there.
///
/// # Safety
/// `place` must point to an aligned `u64` in a map value.
#[inline(always)]
pub(crate) unsafe fn fetch_add(place: *mut u64, amount: u64) -> u64 {
    let seen;
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "{amount} = atomic_fetch_add((u64 *)({place} + 0), {amount})",
            place = in(reg) place,
            amount = inout(reg) amount => seen,
        );
    }
    seen
}

/// Reads a word that other CPUs write.
///
/// # Safety
/// `place` must point to an aligned `u64` in a map value.
#[inline(always)]
pub(crate) unsafe fn load(place: *const u64) -> u64 {
    // SAFETY: the caller's. An aligned 64-bit load is single-copy atomic on every 64-bit machine.
    unsafe { place.read_volatile() }
}
