//! What memory costs that no cache has.

use std::{num::NonZero, ptr::NonNull, time::Instant};

use nix::sys::mman::{self, MapFlags, MmapAdvise, ProtFlags};
use perturb_common::{abi::ServerState, instance::places};

/// Memory of this process, as large as a table of instances, of which a line is read where the programs find one: what they
/// cannot do without when no cache has it. It is mapped in small pages, as the memory of maps is, so that a read walks the page
/// tables, too.
pub(crate) struct Lines {
    first: NonNull<u64>,
    bytes: NonZero<usize>,
    next: usize,
}

impl Lines {
    /// As large as the table of so many instances.
    pub(crate) fn of(instances: u32) -> Self {
        let bytes = NonZero::new(places(instances) as usize * size_of::<ServerState>()).unwrap();
        let (access, flags) = (
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_PRIVATE,
        );
        // SAFETY: new memory, which is filled before it is read.
        let first = unsafe {
            let first = mman::mmap_anonymous(None, bytes, access, flags).unwrap();
            mman::madvise(first, bytes.get(), MmapAdvise::MADV_NOHUGEPAGE).unwrap();
            first.write_bytes(1, bytes.get());
            first.cast()
        };
        Self {
            first,
            bytes,
            next: 0,
        }
    }

    /// What one of `count` lines, so many after the last, costs over a line that was just read, ns.
    pub(crate) fn read(&mut self, count: u32, stride: u32) -> f64 {
        self.next = (self.next + stride as usize) % count as usize;
        let place = (self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16)
            % (self.bytes.get() / size_of::<ServerState>());
        let [first, again] = [(); 2].map(|()| {
            let start = Instant::now();
            // SAFETY: one of the lines. Each reading of the clock waits for what comes before it.
            unsafe { self.first.add(place * 8).read_volatile() };
            start.elapsed().as_nanos() as f64
        });
        first - again
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: nobody else knows of it.
        unsafe { mman::munmap(self.first.cast(), self.bytes.get()).unwrap() };
    }
}
