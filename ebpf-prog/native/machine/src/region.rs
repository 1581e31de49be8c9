//! The memory in which the maps lie: a file that this process and others map.
//!
//! ```text
//! head       a mark, how many maps and seats there are, how many bytes
//! directory  of each map its name, kind, sizes, and where it lies
//! maps       each from a page on; one per CPU has its values once for each seat
//! ```

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    ptr, slice,
};

use crate::{
    maps::{Hashed, Kind, Records, Shape, Slots, stride},
    seat::Table,
};

/// How a region begins; the number changes with its layout.
const MARK: u64 = 0x7065_7274_7572_6201;
const PAGE: usize = 4096;
/// Longest name of a map, which the kernel's have, too.
const NAME: usize = 16;

#[derive(Clone, Copy)]
#[repr(C)]
struct Head {
    mark: u64,
    bytes: u64,
    maps: u32,
    seats: u32,
}

/// A map in a region.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Entry {
    name: [u8; NAME],
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    /// Bytes from the region's start.
    offset: u64,
    /// Bytes from one seat's values to the next one's.
    per_seat: u64,
}

/// The memory.
#[derive(Debug)]
pub struct Region {
    start: *mut u8,
    bytes: usize,
    entries: Vec<Entry>,
    seats: u32,
}

// SAFETY: the memory is shared between processes already: who comes to it goes by words and locks.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// A map as one of a region's users sees it.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    start: *mut u8,
    kind: Kind,
    key: u32,
    value: u32,
    entries: u32,
    per_seat: usize,
    seats: u32,
}

// SAFETY: as for the region, in which it lies and which its user keeps.
unsafe impl Send for Placed {}
// SAFETY: as above.
unsafe impl Sync for Placed {}

fn kind(number: u32) -> Option<Kind> {
    [
        Kind::Array,
        Kind::PerCpuArray,
        Kind::Hash,
        Kind::LruHash,
        Kind::Ring,
    ]
    .into_iter()
    .find(|kind| *kind as u32 == number)
}

/// Has room made for so many bytes of a file: who writes to a mapping where there is none left gets SIGBUS. Where a file system
/// cannot do that, it is as it was.
fn make_room(file: &File, bytes: usize) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    loop {
        // SAFETY: it takes its arguments by value.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(()),
            _ => return Err(error),
        }
    }
}

/// Bytes of a map, of one seat.
fn size(shape: &Shape) -> usize {
    match shape.kind {
        Kind::Array | Kind::PerCpuArray => stride(shape.value as usize) * shape.entries as usize,
        Kind::Hash | Kind::LruHash => Slots::new(
            shape.kind,
            shape.key as usize,
            shape.value as usize,
            shape.entries,
        )
        .bytes(),
        Kind::Ring => Records::bytes(shape.entries),
    }
}

fn map(file: &OwnedFd, bytes: usize) -> io::Result<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, of a file that is so large.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(start.cast())
}

impl Region {
    /// In a file that is empty: maps of these shapes, for so many seats. All is zero.
    pub fn create(file: File, shapes: &[Shape], seats: u32) -> io::Result<Self> {
        let seats = seats.max(1);
        let mut offset = (size_of::<Head>() + shapes.len() * size_of::<Entry>()).next_multiple_of(PAGE);
        let mut entries = Vec::new();
        for shape in shapes {
            let mut name = [0; NAME];
            let given = shape.name.as_bytes();
            let length = given.len().min(NAME);
            name[..length].copy_from_slice(&given[..length]);
            let per_seat = if shape.kind == Kind::PerCpuArray {
                size(shape).next_multiple_of(PAGE)
            } else {
                0
            };
            entries.push(Entry {
                name,
                kind: shape.kind as u32,
                key: shape.key,
                value: shape.value,
                entries: shape.entries,
                offset: offset as u64,
                per_seat: per_seat as u64,
            });
            offset += if per_seat == 0 {
                size(shape).next_multiple_of(PAGE)
            } else {
                per_seat * seats as usize
            };
        }
        file.set_len(offset as u64)?;
        make_room(&file, offset)?;
        let start = map(&file.into(), offset)?;
        let region = Self {
            start,
            bytes: offset,
            entries,
            seats,
        };
        let head = Head {
            mark: MARK,
            bytes: offset as u64,
            maps: region.entries.len() as u32,
            seats,
        };
        // SAFETY: head and directory lie before the first map, and nobody else knows of the region yet.
        unsafe {
            let directory = start.add(size_of::<Head>()).cast::<Entry>();
            directory.copy_from(region.entries.as_ptr(), region.entries.len());
            start.cast::<Head>().write(head);
        }
        Ok(region)
    }

    /// The one in a file that another process has made.
    pub fn open(file: File) -> io::Result<Self> {
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        let other = || io::Error::new(io::ErrorKind::InvalidData, "it has no maps of this version");
        if bytes < PAGE {
            return Err(other());
        }
        let start = map(&file.into(), bytes)?;
        let mut region = Self {
            start,
            bytes,
            entries: Vec::new(),
            seats: 0,
        };
        // SAFETY: within the file's first page.
        let head = unsafe { start.cast::<Head>().read() };
        let directory = size_of::<Head>() + head.maps as usize * size_of::<Entry>();
        if head.mark != MARK || head.bytes != bytes as u64 || directory > bytes {
            return Err(other());
        }
        // SAFETY: so many lie there.
        region.entries =
            unsafe { slice::from_raw_parts(start.add(size_of::<Head>()).cast(), head.maps as usize) }
                .to_vec();
        region.seats = head.seats;
        if head.seats == 0 || !region.entries.iter().all(|entry| region.has(entry)) {
            return Err(other());
        }
        Ok(region)
    }

    /// Whether a map lies within it: a file may say anything.
    fn has(&self, entry: &Entry) -> bool {
        let Some(kind) = kind(entry.kind) else {
            return false;
        };
        // No larger than what is computed with overflows nothing on 64 bits.
        const MOST: u32 = 1 << 30;
        if entry.key > MOST || entry.value > MOST || entry.entries > MOST || !entry.offset.is_multiple_of(8) {
            return false;
        }
        let shape = Shape {
            name: "",
            kind,
            key: entry.key,
            value: entry.value,
            entries: entry.entries,
        };
        let size = size(&shape) as u128;
        let is_hash = matches!(kind, Kind::Hash | Kind::LruHash);
        let more = match entry.per_seat {
            0 => 0,
            per_seat => u128::from(per_seat) * u128::from(self.seats - 1),
        };
        let is_whole = is_hash == (entry.key != 0) && (kind != Kind::Ring || entry.entries >= 8);
        let is_apart =
            entry.per_seat == 0 || u128::from(entry.per_seat) >= size && entry.per_seat.is_multiple_of(8);
        is_whole && is_apart && u128::from(entry.offset) + more + size <= self.bytes as u128
    }

    /// How many threads may run programs at once.
    #[must_use]
    pub fn seats(&self) -> u32 {
        self.seats
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A map; `None` if it has none of this name.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<Placed> {
        let is_it = |entry: &&Entry| {
            let end = entry.name.iter().position(|&byte| byte == 0).unwrap_or(NAME);
            entry.name[..end] == name.as_bytes()[..name.len().min(NAME)]
        };
        let entry = self.entries.iter().find(is_it)?;
        let offset = usize::try_from(entry.offset)
            .ok()
            .filter(|&offset| offset < self.bytes)?;
        Some(Placed {
            // SAFETY: within the region.
            start: unsafe { self.start.add(offset) },
            kind: kind(entry.kind)?,
            key: entry.key,
            value: entry.value,
            entries: entry.entries,
            per_seat: entry.per_seat as usize,
            seats: self.seats,
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this mapping is nobody else's: who uses it keeps the region.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

impl Placed {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of a key and of a value.
    #[must_use]
    pub fn sizes(&self) -> (u32, u32) {
        (self.key, self.value)
    }

    /// Values, or bytes of a ring.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// How often it has each value.
    #[must_use]
    pub fn copies(&self) -> u32 {
        if self.per_seat == 0 { 1 } else { self.seats }
    }

    /// As a seat has it.
    #[must_use]
    pub fn table(&self, seat: u32) -> Table {
        Table {
            // SAFETY: within the map, for seats below their number.
            start: unsafe { self.start.add(self.per_seat * seat.min(self.seats - 1) as usize) },
            entries: self.entries,
        }
    }

    /// A value, of an array; its first word is aligned.
    fn value(&self, index: u32, seat: u32) -> Option<*mut u8> {
        if index >= self.entries || seat >= self.copies() || self.key != 0 || self.kind == Kind::Ring {
            return None;
        }
        let offset = self.per_seat * seat as usize + stride(self.value as usize) * index as usize;
        // SAFETY: within the map.
        Some(unsafe { self.start.add(offset) })
    }

    /// Reads a value of an array into `to`, which is as large, word by word; whether it has so many values.
    pub fn read(&self, index: u32, seat: u32, to: &mut [u8]) -> bool {
        let Some(value) = self
            .value(index, seat)
            .filter(|_| to.len() == self.value as usize)
        else {
            return false;
        };
        for (chunk, at) in to.chunks_mut(8).zip(0..) {
            // SAFETY: within the value's place, which is a multiple of words.
            let word = unsafe { value.cast::<u64>().add(at).read_volatile() };
            chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
        }
        true
    }

    /// Writes one, word by word, behind all that was written before; whether it has so many values.
    pub fn write(&self, index: u32, seat: u32, from: &[u8]) -> bool {
        let Some(value) = self
            .value(index, seat)
            .filter(|_| from.len() == self.value as usize)
        else {
            return false;
        };
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        for (chunk, at) in from.chunks(8).zip(0..) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            // SAFETY: as above.
            unsafe {
                value
                    .cast::<u64>()
                    .add(at)
                    .write_volatile(u64::from_ne_bytes(word));
            };
        }
        true
    }

    /// The table of a map with keys.
    #[must_use]
    pub fn hashed(&self) -> Option<Hashed> {
        let slots = Slots::new(self.kind, self.key as usize, self.value as usize, self.entries);
        // SAFETY: it was laid out so.
        (self.key != 0).then(|| unsafe { Hashed::at(self.start, slots) })
    }

    /// The records of a ring.
    #[must_use]
    pub fn records(&self) -> Option<Records> {
        // SAFETY: it was laid out so.
        (self.kind == Kind::Ring).then(|| unsafe { Records::at(self.start, self.entries) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(name: &'static str, kind: Kind, key: u32, value: u32, entries: u32) -> Shape {
        Shape {
            name,
            kind,
            key,
            value,
            entries,
        }
    }

    /// Of each kind of layout.
    fn shapes() -> [Shape; 4] {
        [
            shape("ONE", Kind::Array, 0, 12, 5),
            shape("EACH", Kind::PerCpuArray, 0, 8, 3),
            shape("KEYS", Kind::Hash, 4, 4, 10),
            shape("RING", Kind::Ring, 0, 1, 4096),
        ]
    }

    #[test]
    fn another_process_finds_the_same() {
        let file = tempfile::tempfile().unwrap();
        let again = file.try_clone().unwrap();
        let made = Region::create(file, &shapes(), 2).unwrap();
        let found = Region::open(again).unwrap();
        let (one, same) = (made.map("ONE").unwrap(), found.map("ONE").unwrap());
        assert!(one.write(4, 0, b"twelve bytes"));
        assert!(!one.write(5, 0, b"twelve bytes") && !one.write(4, 1, b"twelve bytes"));
        let mut read = [0; 12];
        assert!(same.read(4, 0, &mut read));
        assert_eq!(&read, b"twelve bytes");
        let (each, same) = (made.map("EACH").unwrap(), found.map("EACH").unwrap());
        assert_eq!(same.copies(), 2);
        for seat in 0..2 {
            assert!(each.write(2, seat, &u64::from(seat + 7).to_ne_bytes()));
        }
        let mut word = [0; 8];
        assert!(same.read(2, 1, &mut word) && u64::from_ne_bytes(word) == 8);
        assert!(made.map("RING").unwrap().records().unwrap().put(b"a record"));
        assert_eq!(
            found.map("RING").unwrap().records().unwrap().take().unwrap(),
            b"a record"
        );
        assert!(made.map("TWO").is_none() && made.map("KEYS").unwrap().hashed().is_some());
        assert!(Region::open(tempfile::tempfile().unwrap()).is_err());
    }

    /// A file that says that a map begins at its end, or is larger than it.
    #[test]
    fn a_file_that_lies_is_refused() {
        use std::os::unix::fs::FileExt as _;
        let file = tempfile::tempfile().unwrap();
        let again = file.try_clone().unwrap();
        drop(Region::create(file, &shapes(), 2).unwrap());
        let end = again.metadata().unwrap().len();
        for map in 0..shapes().len() as u64 {
            let entry = size_of::<Head>() as u64 + map * size_of::<Entry>() as u64;
            // Where it lies, and how many values it has.
            for (at, lie) in [(entry + 32, end - 8), (entry + 28, 1 << 28 | 1 << 60)] {
                let mut truth = [0; 8];
                again.read_exact_at(&mut truth, at).unwrap();
                let length = if at == entry + 32 { 8 } else { 4 };
                again.write_all_at(&lie.to_le_bytes()[..length], at).unwrap();
                assert!(Region::open(again.try_clone().unwrap()).is_err(), "{map} {at}");
                again.write_all_at(&truth, at).unwrap();
            }
        }
        assert!(Region::open(again).is_ok());
    }

    /// A full file system is an error, and not a signal later.
    #[test]
    fn all_of_it_has_room() {
        use std::os::unix::fs::MetadataExt as _;
        let file = tempfile::tempfile().unwrap();
        let again = file.try_clone().unwrap();
        let region = Region::create(file, &[shape("ONE", Kind::Array, 0, 8, 1 << 16)], 1).unwrap();
        assert!(again.metadata().unwrap().blocks() * 512 >= region.bytes() as u64);
    }
}
