//! Values by key, in memory that processes share: open addressing under a lock of its own.
//!
//! ```text
//! head   lock, how many there are, a clock
//! slot   state and time of use, key, value
//! ```
//!
//! A value never moves. In a map whose oldest entries make room a key has eight slots; in the others as many as there are, and
//! a slot that was vacated is used again.

use std::{
    hint, ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{Kind, stride};

/// Bytes before the slots.
const HEAD: usize = 64;
/// Slots of a key, where the oldest make room.
const WAYS: u64 = 8;
/// How often a lock is looked at before the processor is given up.
const LOOKS: u32 = 100;

const FREE: u64 = 0;
const GONE: u64 = 1;
/// This, and above it when it was used last.
const TAKEN: u64 = 2;

/// How a table is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    count: u64,
    most: u64,
    key: usize,
    value: usize,
    oldest_go: bool,
}

impl Slots {
    /// For so many entries.
    #[must_use]
    pub fn new(kind: Kind, key: usize, value: usize, entries: u32) -> Self {
        let oldest_go = kind == Kind::LruHash;
        let entries = u64::from(entries).max(WAYS);
        Self {
            count: if oldest_go {
                entries.next_power_of_two()
            } else {
                (entries * 2).next_power_of_two()
            },
            most: entries,
            key,
            value,
            oldest_go,
        }
    }

    fn width(&self) -> usize {
        8 + stride(self.key) + stride(self.value)
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEAD + self.count as usize * self.width()
    }
}

/// A table.
#[derive(Clone, Copy)]
pub struct Hashed {
    start: *mut u8,
    slots: Slots,
}

/// The head's words.
#[derive(Clone, Copy)]
enum Word {
    Lock,
    Count,
    Clock,
}

impl Hashed {
    /// At this place.
    ///
    /// # Safety
    /// So many bytes must be there, aligned to eight, zero at first, and written by nothing else.
    #[must_use]
    pub unsafe fn at(start: *mut u8, slots: Slots) -> Self {
        Self { start, slots }
    }

    fn word(&self, word: Word) -> &AtomicU64 {
        // SAFETY: of the head, aligned.
        unsafe { AtomicU64::from_ptr(self.start.cast::<u64>().add(word as usize)) }
    }

    /// Runs `work` while nobody else comes to the table.
    fn locked<T>(&self, work: impl FnOnce() -> T) -> T {
        let lock = self.word(Word::Lock);
        let mut looks = 0;
        while lock
            .compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            looks += 1;
            if looks % LOOKS == 0 {
                std::thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
        let done = work();
        lock.store(0, Ordering::Release);
        done
    }

    fn slot(&self, index: u64) -> *mut u8 {
        let offset = HEAD + index as usize * self.slots.width();
        // SAFETY: within the table.
        unsafe { self.start.add(offset) }
    }

    fn state(&self, index: u64) -> *mut u64 {
        self.slot(index).cast()
    }

    fn key(&self, index: u64) -> *mut u8 {
        // SAFETY: within the slot.
        unsafe { self.slot(index).add(8) }
    }

    fn value(&self, index: u64) -> *mut u8 {
        // SAFETY: within the slot.
        unsafe { self.slot(index).add(8 + stride(self.slots.key)) }
    }

    /// The slots where a key may be, in the order in which they are looked at.
    ///
    /// # Safety
    /// `key` must point to a key.
    unsafe fn places(&self, key: *const u8) -> impl Iterator<Item = u64> + use<> {
        // SAFETY: the caller's.
        let bytes = unsafe { std::slice::from_raw_parts(key, self.slots.key) };
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
        let (mask, oldest_go) = (self.slots.count - 1, self.slots.oldest_go);
        let turns = if oldest_go { WAYS } else { self.slots.count };
        let first = if oldest_go { hash & !(WAYS - 1) } else { hash };
        (0..turns).map(move |turn| first.wrapping_add(turn) & mask)
    }

    /// Where a key is.
    ///
    /// # Safety
    /// `key` must point to a key, and the caller must have the lock.
    unsafe fn found(&self, key: *const u8) -> Option<u64> {
        // SAFETY: the caller's; within slots.
        unsafe {
            for index in self.places(key) {
                let state = *self.state(index);
                if state == FREE && !self.slots.oldest_go {
                    return None;
                }
                if state >= TAKEN && self.is(index, key) {
                    return Some(index);
                }
            }
        }
        None
    }

    /// Whether a slot has this key.
    ///
    /// # Safety
    /// As above.
    unsafe fn is(&self, index: u64, key: *const u8) -> bool {
        // SAFETY: the caller's; within the slot.
        unsafe {
            let own = std::slice::from_raw_parts(self.key(index), self.slots.key);
            own == std::slice::from_raw_parts(key, self.slots.key)
        }
    }

    fn use_now(&self, index: u64) {
        let time = self.word(Word::Clock).fetch_add(1, Ordering::Relaxed);
        // SAFETY: a slot's first word; the caller has the lock.
        unsafe { *self.state(index) = TAKEN + time };
    }

    /// The value of a key.
    ///
    /// # Safety
    /// `key` must point to a key of the table.
    #[must_use]
    pub unsafe fn find(&self, key: *const u8) -> Option<*mut u8> {
        self.locked(|| {
            // SAFETY: the caller's, and the lock.
            let index = unsafe { self.found(key) }?;
            self.use_now(index);
            Some(self.value(index))
        })
    }

    /// Gives a key a value; `false` if there is no room.
    ///
    /// # Safety
    /// Both must point to such ones of the table.
    #[must_use]
    pub unsafe fn insert(&self, key: *const u8, value: *const u8) -> bool {
        self.locked(|| {
            // SAFETY: the caller's, and the lock.
            unsafe {
                let index = match self.found(key) {
                    Some(index) => index,
                    None => match self.vacant(key) {
                        Some(index) => index,
                        None => return false,
                    },
                };
                ptr::copy(key, self.key(index), self.slots.key);
                ptr::copy(value, self.value(index), self.slots.value);
                self.use_now(index);
            }
            true
        })
    }

    /// A slot for a new key, counted as taken.
    ///
    /// # Safety
    /// As for [`Self::found`].
    unsafe fn vacant(&self, key: *const u8) -> Option<u64> {
        let count = self.word(Word::Count);
        // SAFETY: the caller's; within slots.
        let state = |index: &u64| unsafe { *self.state(*index) };
        if self.slots.oldest_go {
            // SAFETY: as above.
            return unsafe { self.places(key) }.min_by_key(state);
        }
        if count.load(Ordering::Relaxed) >= self.slots.most {
            return None;
        }
        count.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { self.places(key) }.find(|index| state(index) < TAKEN)
    }

    /// Takes a key out; whether it was there.
    ///
    /// # Safety
    /// `key` must point to a key of the table.
    #[must_use]
    pub unsafe fn remove(&self, key: *const u8) -> bool {
        self.locked(|| {
            // SAFETY: the caller's, and the lock.
            let Some(index) = (unsafe { self.found(key) }) else {
                return false;
            };
            // SAFETY: a slot's first word.
            unsafe { *self.state(index) = if self.slots.oldest_go { FREE } else { GONE } };
            if !self.slots.oldest_go {
                self.word(Word::Count).fetch_sub(1, Ordering::Relaxed);
            }
            true
        })
    }

    /// Is shown every key and value.
    pub fn each(&self, mut show: impl FnMut(&[u8], &[u8])) {
        self.locked(|| {
            for index in 0..self.slots.count {
                // SAFETY: a slot, and the lock.
                unsafe {
                    if *self.state(index) >= TAKEN {
                        show(
                            std::slice::from_raw_parts(self.key(index), self.slots.key),
                            std::slice::from_raw_parts(self.value(index), self.slots.value),
                        );
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn table(kind: Kind, entries: u32) -> (Vec<u64>, Hashed) {
        let slots = Slots::new(kind, 12, 4, entries);
        let mut memory = vec![0_u64; slots.bytes() / 8];
        // SAFETY: so much is there.
        let table = unsafe { Hashed::at(memory.as_mut_ptr().cast(), slots) };
        (memory, table)
    }

    fn key(number: u32) -> [u8; 12] {
        let mut key = [7; 12];
        key[4..8].copy_from_slice(&number.to_le_bytes());
        key
    }

    /// Keys and values of the table's sizes.
    fn put(table: &Hashed, number: u32, value: u32) -> bool {
        // SAFETY: as it says.
        unsafe { table.insert(key(number).as_ptr(), value.to_le_bytes().as_ptr()) }
    }

    fn get(table: &Hashed, number: u32) -> Option<u32> {
        // SAFETY: as above.
        unsafe {
            table
                .find(key(number).as_ptr())
                .map(|value| value.cast::<u32>().read_unaligned())
        }
    }

    #[test]
    fn does_what_a_map_does() {
        let (_memory, table) = table(Kind::Hash, 100);
        let mut model = HashMap::new();
        let mut random = 1_u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (number, what) = (random >> 8 & 127, random >> 30);
            if what == 0 {
                // SAFETY: as above.
                let removed = unsafe { table.remove(key(number).as_ptr()) };
                assert_eq!(removed, model.remove(&number).is_some());
            } else if model.len() < 100 || model.contains_key(&number) {
                assert!(put(&table, number, random));
                model.insert(number, random);
            } else {
                assert!(!put(&table, number, random));
            }
            assert_eq!(get(&table, number), model.get(&number).copied());
        }
        let mut seen = 0;
        table.each(|_, _| seen += 1);
        assert_eq!(seen, model.len());
    }

    #[test]
    fn the_oldest_make_room() {
        let (_memory, table) = table(Kind::LruHash, 1024);
        for number in 0..10_000 {
            assert!(put(&table, number, number));
            assert_eq!(get(&table, 0), Some(0), "what is used stays");
        }
        let found = (9_000..10_000)
            .filter(|&number| get(&table, number).is_some())
            .count();
        assert!(found > 700, "{found}");
    }
}
