//! What stands in for `aya_ebpf` where the programs are compiled for this processor: maps that lie in memory of this process
//! ([`region`]), helpers over a frame in a buffer ([`frame`]), and what a processor is to them ([`seat`]).
//!
//! It has what perturb's programs use, under the same names, and nothing more.

pub mod bindings;
pub mod frame;
pub mod helpers;
pub mod maps;
pub mod programs;
pub mod region;
pub mod seat;

use std::sync::atomic::{AtomicU32, Ordering};

pub use perturb_machine_macros as macros;

/// `aya_log_ebpf::info`.
#[macro_export]
macro_rules! info {
    ($context:expr, $($rest:tt)*) => {{
        let () = $context;
        $crate::seat::say(format_args!($($rest)*))
    }};
}

/// What a [`Global`] may be.
pub trait Constant: Copy {
    /// From the word that a seat has for it.
    fn of(word: u64) -> Self;
}

impl Constant for u32 {
    fn of(word: u64) -> Self {
        word as Self
    }
}

impl Constant for u64 {
    fn of(word: u64) -> Self {
        word
    }
}

/// A constant that the controller may set: a seat has its value.
pub struct Global<T> {
    value: T,
    /// Its place among a seat's words, from 1; 0: it has none.
    place: AtomicU32,
}

impl<T> Global<T> {
    /// One that is this unless a seat has another.
    pub const fn new(value: T) -> Self {
        Self {
            value,
            place: AtomicU32::new(0),
        }
    }

    /// From now on seats have it at this place, from 1.
    pub fn put(&self, place: u32) {
        self.place.store(place, Ordering::Relaxed);
    }
}

impl<T: Constant> Global<T> {
    /// Its value.
    #[inline(always)]
    pub fn load(&self) -> T {
        seat::constant(self.place.load(Ordering::Relaxed)).map_or(self.value, T::of)
    }
}
