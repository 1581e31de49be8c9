//! A ring of records in memory that processes share: who writes reserves under a lock; one reads.
//!
//! ```text
//! head    lock, bytes written, bytes read
//! record  length and whether it is not written yet; its bytes, to a multiple of eight
//! ```

use std::{
    hint,
    marker::PhantomData,
    mem::MaybeUninit,
    ptr, slice,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{Base, Kind, Shape, Shaped, shaped};

/// Bytes before the records.
const HEAD: usize = 64;
/// Of a record's first word: it is not written yet.
const BUSY: u64 = 1 << 63;

/// A ring.
#[derive(Clone, Copy)]
pub struct Records {
    start: *mut u8,
    capacity: u64,
}

#[derive(Clone, Copy)]
enum Word {
    Lock,
    Written,
    Read,
}

impl Records {
    /// At this place.
    ///
    /// # Safety
    /// [`Self::bytes`] must be there, aligned to eight, zero at first, and written by nothing else.
    #[must_use]
    pub unsafe fn at(start: *mut u8, capacity: u32) -> Self {
        Self {
            start,
            capacity: u64::from(capacity) & !7,
        }
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(capacity: u32) -> usize {
        HEAD + capacity as usize
    }

    fn head(&self, word: Word) -> &AtomicU64 {
        // SAFETY: of the head, aligned.
        unsafe { AtomicU64::from_ptr(self.start.cast::<u64>().add(word as usize)) }
    }

    /// The word that lies there; positions are multiples of eight.
    fn word(&self, position: u64) -> &AtomicU64 {
        let offset = HEAD + (position % self.capacity) as usize;
        // SAFETY: within the ring, aligned.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast()) }
    }

    /// Where a record of so many bytes begins; `None` if there is no room.
    fn reserve(&self, length: usize) -> Option<u64> {
        let whole = 8 + length.next_multiple_of(8) as u64;
        let lock = self.head(Word::Lock);
        while lock
            .compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            hint::spin_loop();
        }
        let written = self.head(Word::Written);
        let position = written.load(Ordering::Relaxed);
        let used = position - self.head(Word::Read).load(Ordering::Acquire);
        let fits = used + whole <= self.capacity;
        if fits {
            self.word(position).store(BUSY | length as u64, Ordering::Relaxed);
            written.store(position + whole, Ordering::Release);
        }
        lock.store(0, Ordering::Release);
        fits.then_some(position)
    }

    /// Writes a record that was reserved.
    fn commit(&self, position: u64, record: &[u8]) {
        for (chunk, at) in record.chunks(8).zip(1..) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(position + 8 * at)
                .store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        self.word(position).store(record.len() as u64, Ordering::Release);
    }

    /// Writes a record; whether there was room.
    #[must_use]
    pub fn put(&self, record: &[u8]) -> bool {
        let place = self.reserve(record.len());
        place.map(|position| self.commit(position, record)).is_some()
    }

    /// Takes the oldest record; `None` if there is none yet.
    #[must_use]
    pub fn take(&self) -> Option<Vec<u8>> {
        let read = self.head(Word::Read);
        let position = read.load(Ordering::Relaxed);
        if position == self.head(Word::Written).load(Ordering::Acquire) {
            return None;
        }
        let length = self.word(position).load(Ordering::Acquire);
        if length & BUSY != 0 {
            return None;
        }
        let words = length.div_ceil(8);
        let mut record: Vec<u8> = (1..=words)
            .flat_map(|at| self.word(position + 8 * at).load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        record.truncate(length as usize);
        read.store(position + 8 + words * 8, Ordering::Release);
        Some(record)
    }
}

/// Records of the programs.
pub struct RingBuf {
    base: Base,
}

shaped!(RingBuf, [], Ring, 0, 1);

impl RingBuf {
    /// With room for so many bytes.
    #[must_use]
    pub const fn with_byte_size(bytes: u32, _flags: u32) -> Self {
        Self {
            base: Base::new(bytes),
        }
    }

    fn records(&self) -> Option<Records> {
        let table = self.base.table();
        // SAFETY: the region has laid it out so.
        (!table.start.is_null()).then(|| unsafe { Records::at(table.start, table.entries) })
    }

    /// Room for a record.
    #[must_use]
    pub fn reserve<T>(&self, _flags: u64) -> Option<RingEntry<T>> {
        let records = self.records()?;
        Some(RingEntry {
            records,
            position: records.reserve(size_of::<T>())?,
            value: MaybeUninit::zeroed(),
            kind: PhantomData,
        })
    }

    /// Writes a record.
    pub fn output<T: ?Sized>(&self, record: &T, _flags: u64) -> Result<(), i64> {
        let (start, length) = (ptr::from_ref(record).cast::<u8>(), size_of_val(record));
        // SAFETY: the bytes of a value. The programs' records have no gaps.
        let bytes = unsafe { slice::from_raw_parts(start, length) };
        match self.records() {
            Some(records) if records.put(bytes) => Ok(()),
            _ => Err(-i64::from(libc::EAGAIN)),
        }
    }
}

/// Room for a record.
pub struct RingEntry<T> {
    records: Records,
    position: u64,
    value: MaybeUninit<T>,
    kind: PhantomData<T>,
}

impl<T> RingEntry<T> {
    /// Writes it.
    pub fn write(&mut self, value: T) {
        self.value.write(value);
    }

    /// Lets it be read.
    pub fn submit(self, _flags: u64) {
        // SAFETY: zeroed at first: all bytes are initialized.
        let bytes = unsafe { slice::from_raw_parts(self.value.as_ptr().cast(), size_of::<T>()) };
        self.records.commit(self.position, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_in_order_and_whole() {
        const CAPACITY: u32 = 256;
        let mut memory = vec![0_u64; Records::bytes(CAPACITY) / 8];
        // SAFETY: so much is there.
        let ring = unsafe { Records::at(memory.as_mut_ptr().cast(), CAPACITY) };
        let record = |number: usize| vec![number as u8; number % 40];
        let (mut put, mut taken) = (0, 0);
        for round in 0..1000 {
            while ring.put(&record(put)) {
                put += 1;
            }
            assert!(put > taken, "a ring that was emptied takes something");
            for _ in 0..=round % 5 {
                if let Some(found) = ring.take() {
                    assert_eq!(found, record(taken));
                    taken += 1;
                }
            }
        }
        assert!(taken > 1000);
    }
}
