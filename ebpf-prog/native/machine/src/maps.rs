//! `aya_ebpf::maps`: the same types, whose values lie where the thread's seat says.

mod hash;
mod ring;

use std::{
    borrow::Borrow,
    marker::PhantomData,
    sync::atomic::{AtomicU32, Ordering},
};

pub use hash::{Hashed, Slots};
pub use ring::{Records, RingBuf, RingEntry};

use crate::seat;

/// What kind of map it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Values by number.
    Array = 1,
    /// The same, for each seat.
    PerCpuArray = 2,
    /// Values by key.
    Hash = 3,
    /// The same; the oldest go.
    LruHash = 4,
    /// Records.
    Ring = 5,
}

/// What a map is like, to lay it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Bytes of a key; 0 where there are numbers.
    pub key: u32,
    /// Bytes of a value; 1 for a ring.
    pub value: u32,
    /// Values, or bytes of a ring.
    pub entries: u32,
}

/// Any map.
pub trait Shaped: Sync {
    /// What it is like.
    fn shape(&self) -> Shape;

    /// From now on seats have it at this place, from 1.
    fn put(&self, place: u32);
}

/// What all maps are.
pub(crate) struct Base {
    name: &'static str,
    entries: u32,
    place: AtomicU32,
}

impl Base {
    const fn new(entries: u32) -> Self {
        Self {
            name: "",
            entries,
            place: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    fn table(&self) -> seat::Table {
        seat::table(self.place.load(Ordering::Relaxed))
    }
}

/// Bytes from one value of an array to the next: the kernel's, too.
#[must_use]
pub const fn stride(value: usize) -> usize {
    value.next_multiple_of(8)
}

macro_rules! shaped {
    ($name:ident, [$($parameter:ident),*], $kind:ident, $key:expr, $value:expr) => {
        // SAFETY: what it keeps itself is atomic; its values are shared as words, which is the programs' affair.
        unsafe impl<$($parameter),*> Sync for $name<$($parameter),*> {}

        impl<$($parameter),*> Shaped for $name<$($parameter),*> {
            fn shape(&self) -> Shape {
                Shape {
                    name: self.base.name,
                    kind: Kind::$kind,
                    key: $key as u32,
                    value: $value as u32,
                    entries: self.base.entries,
                }
            }

            fn put(&self, place: u32) {
                self.base.place.store(place, Ordering::Relaxed);
            }
        }

        impl<$($parameter),*> $name<$($parameter),*> {
            /// With a name: `#[map]` gives it.
            #[must_use]
            pub const fn named(mut self, name: &'static str) -> Self {
                self.base.name = name;
                self
            }
        }
    };
}
pub(crate) use shaped;

macro_rules! array {
    ($name:ident, $what:literal) => {
        #[doc = $what]
        pub struct $name<T> {
            base: Base,
            values: PhantomData<T>,
        }

        shaped!($name, [T], $name, 0, size_of::<T>());

        impl<T> $name<T> {
            /// With so many values.
            pub const fn with_max_entries(entries: u32, _flags: u32) -> Self {
                Self {
                    base: Base::new(entries),
                    values: PhantomData,
                }
            }

            /// A value.
            #[inline(always)]
            pub fn get_ptr_mut(&self, index: u32) -> Option<*mut T> {
                let table = self.base.table();
                if index >= table.entries {
                    return None;
                }
                let offset = index as usize * const { stride(size_of::<T>()) };
                // SAFETY: within the table.
                Some(unsafe { table.start.add(offset).cast() })
            }

            /// The same, to read.
            #[inline(always)]
            pub fn get_ptr(&self, index: u32) -> Option<*const T> {
                self.get_ptr_mut(index).map(<*mut T>::cast_const)
            }

            /// The same.
            #[inline(always)]
            pub fn get(&self, index: u32) -> Option<&T> {
                // SAFETY: a value of the table; who writes to it writes words.
                self.get_ptr(index).map(|value| unsafe { &*value })
            }
        }
    };
}

array!(Array, "Values by number.");
array!(PerCpuArray, "Values by number, of this seat.");

macro_rules! by_key {
    ($name:ident, $kind:ident, $what:literal) => {
        #[doc = $what]
        pub struct $name<K, V> {
            base: Base,
            values: PhantomData<(K, V)>,
        }

        shaped!($name, [K, V], $kind, size_of::<K>(), size_of::<V>());

        impl<K, V> $name<K, V> {
            /// With so many values.
            pub const fn with_max_entries(entries: u32, _flags: u32) -> Self {
                Self {
                    base: Base::new(entries),
                    values: PhantomData,
                }
            }

            fn hashed(&self) -> Option<Hashed> {
                let table = self.base.table();
                if table.start.is_null() {
                    return None;
                }
                let slots = Slots::new(Kind::$kind, size_of::<K>(), size_of::<V>(), table.entries);
                // SAFETY: the region has laid it out so.
                Some(unsafe { Hashed::at(table.start, slots) })
            }

            /// The value of a key.
            pub fn get_ptr_mut(&self, key: impl Borrow<K>) -> Option<*mut V> {
                // SAFETY: a key of the table.
                let value = unsafe { self.hashed()?.find((&raw const *key.borrow()).cast()) }?;
                Some(value.cast())
            }

            /// The same.
            ///
            /// # Safety
            /// It may become another key's: nothing is to depend on it.
            pub unsafe fn get(&self, key: impl Borrow<K>) -> Option<&V> {
                let value = self.get_ptr_mut(key)?;
                // SAFETY: the caller's.
                Some(unsafe { &*value.cast_const() })
            }

            /// Gives a key a value.
            pub fn insert(&self, key: impl Borrow<K>, value: impl Borrow<V>, _flags: u64) -> Result<(), i32> {
                let table = self.hashed().ok_or(-libc::ENOENT)?;
                // SAFETY: a key and a value of the table.
                let done = unsafe {
                    table.insert(
                        (&raw const *key.borrow()).cast(),
                        (&raw const *value.borrow()).cast(),
                    )
                };
                if done { Ok(()) } else { Err(-libc::E2BIG) }
            }
        }
    };
}

by_key!(HashMap, Hash, "Values by key.");
by_key!(
    LruHashMap,
    LruHash,
    "Values by key, of which the oldest make room."
);
