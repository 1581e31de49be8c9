//! Writes records into this process's ring. Any number of threads and signal handlers may write at once: a
//! slot is reserved by one atomic addition and marked when it is whole.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::preload::sys;
use crate::record::{CAPACITY, Event, Header, MAGIC, RECORDS, Record, SIZE, Slot, ThreadState, VERSION};

/// Longest path of a ring.
const PATH: usize = 256;
/// How long a full ring is waited for: then nobody reads it.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Between two looks at a full ring.
const PAUSE_NS: i64 = 100_000;
/// Events on which the cost of recording is measured.
const REHEARSALS: u64 = 64;

/// The ring; null before the first event.
static RING: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Whether this process records.
static STATE: AtomicU8 = AtomicU8::new(OFF);
/// The process that `RING` belongs to. A child that shares its parent's memory (vfork) is another.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The key that marks threads which have recorded, plus 1; 0 if there is none.
static KEY: AtomicU32 = AtomicU32::new(0);
/// Rings made by this process, for their names.
static RINGS: AtomicU64 = AtomicU64::new(0);

/// A reading of the CPU clock is good for this long: it is a system call, and CLOCK_MONOTONIC is none.
const NEAR_NS: u64 = 10_000;

const OFF: u8 = 0;
const READY: u8 = 1;
const MAKING: u8 = 2;
const ON: u8 = 3;

thread_local! {
    /// This thread's number, 0 if unknown, and CPU time in ns that is left out.
    static THREAD: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
    /// This thread's last reading of its CPU clock, and when that was; zeros if there is none.
    static READING: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    /// This thread's begins and ends of MPI calls, and its place among the ring's threads.
    static CALLS: Cell<(u32, usize)> = const { Cell::new((0, NOWHERE)) };
}

/// The place of a thread that the ring has no room for, or does not know yet.
const NOWHERE: usize = usize::MAX;

/// Begins with this process, if the environment names a directory.
pub(crate) fn begin() {
    if directory().is_some() {
        OWNER.store(sys::pid(), Ordering::Relaxed);
        KEY.store(
            sys::at_thread_end(thread_ends).map_or(0, |key| key + 1),
            Ordering::Relaxed,
        );
        STATE.store(READY, Ordering::Release);
    }
}

extern "C" fn thread_ends(_: *mut c_void) {
    if is_on() {
        write(Event::ThreadExit, counted_cpu());
        if let Some(state) = state() {
            state.free();
        }
        CALLS.set((CALLS.get().0, NOWHERE));
    }
}

/// After a fork, in the child: a ring of its own, with the next event.
pub(crate) fn begin_again() {
    let ring = RING.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if !ring.is_null() {
        sys::unmap(ring, SIZE);
    }
    THREAD.set((0, 0));
    CALLS.set((CALLS.get().0, NOWHERE));
    // The child's CPU clock begins at 0.
    READING.set((0, 0));
    if STATE.load(Ordering::Relaxed) != OFF {
        OWNER.store(sys::pid(), Ordering::Relaxed);
        STATE.store(READY, Ordering::Release);
    }
}

/// Records nothing any more.
pub(crate) fn stop() {
    STATE.store(OFF, Ordering::Release);
}

/// Whether events are wanted: cheap, and false in a child that shares our memory.
pub(crate) fn is_on() -> bool {
    STATE.load(Ordering::Relaxed) != OFF && OWNER.load(Ordering::Relaxed) == sys::pid()
}

/// Whether anything has been recorded.
pub(crate) fn has_recorded() -> bool {
    is_on() && !RING.load(Ordering::Acquire).is_null()
}

/// This thread's CPU time in ns when a call ends. What follows soon may go by this reading ([`start`]).
pub(crate) fn cpu_at_end() -> u64 {
    let cpu = sys::thread_cpu();
    READING.set((cpu, sys::monotonic()));
    cpu
}

/// When a call began.
#[derive(Clone, Copy, Default)]
pub(crate) struct Start {
    /// This thread's CPU time in ns.
    pub(crate) cpu_ns: u64,
    /// CLOCK_MONOTONIC in ns.
    pub(crate) time_ns: u64,
}

/// A call begins. If another one has just ended, the program has computed in between all the time: a thread that gave its
/// processor away is not back so soon, and if it is, the error is shorter still.
pub(crate) fn start() -> Start {
    let (cpu, at) = READING.get();
    let time_ns = sys::monotonic();
    let near = time_ns
        .checked_sub(at)
        .filter(|since| at != 0 && *since < NEAR_NS);
    Start {
        cpu_ns: near.map_or_else(sys::thread_cpu, |since| cpu + since),
        time_ns,
    }
}

/// This thread's CPU time in ns, without what is left out.
pub(crate) fn counted_cpu() -> u64 {
    counted(sys::thread_cpu())
}

/// Of a reading of the CPU clock, without what is left out.
pub(crate) fn counted(cpu_ns: u64) -> u64 {
    cpu_ns.saturating_sub(THREAD.get().1)
}

/// This thread's call of MPI begins.
pub(crate) fn call_begins() {
    count_call();
}

/// It ends, and this CPU time is left out.
pub(crate) fn call_ends(nanos: u64) {
    let (thread, out) = THREAD.get();
    let out = out + nanos;
    THREAD.set((thread, out));
    if let Some(state) = state() {
        state.out_ns.store(out, Ordering::Relaxed);
    }
    count_call();
}

fn count_call() {
    let (calls, place) = CALLS.get();
    let calls = calls.wrapping_add(1);
    CALLS.set((calls, place));
    if let Some(state) = state() {
        state.calls.store(calls, Ordering::Release);
    }
}

/// This thread's place in the ring, if it has one.
fn state() -> Option<&'static ThreadState> {
    let (_, place) = CALLS.get();
    let ring = RING.load(Ordering::Acquire);
    if place == NOWHERE || ring.is_null() || !is_on() {
        return None;
    }
    // SAFETY: this process's ring stays mapped; a fork's child, which drops it, has forgotten the place.
    unsafe { (*ring.cast::<Header>()).threads.get(place) }
}

/// Writes an event of this thread, which happens now.
pub(crate) fn write(event: Event, cpu_ns: u64) {
    write_at(event, cpu_ns, sys::monotonic());
}

/// Writes an event of this thread that happened at this time of CLOCK_MONOTONIC.
pub(crate) fn write_at(event: Event, cpu_ns: u64, time_ns: u64) {
    let Some(ring) = Ring::own() else { return };
    let (mut thread, out) = THREAD.get();
    if thread == 0 {
        thread = sys::thread();
        THREAD.set((thread, out));
        if let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) {
            sys::mark_thread(key);
        }
        ring.place(thread, out);
    }
    if let Some(state) = state() {
        state.time_ns.store(time_ns, Ordering::Release);
    }
    ring.append(Record {
        thread,
        cpu_ns,
        time_ns,
        event,
    });
}

/// A ring in this process's memory.
#[derive(Clone, Copy)]
struct Ring(*mut c_void);

impl Ring {
    /// This process's, made if need be.
    fn own() -> Option<Self> {
        loop {
            let ring = RING.load(Ordering::Acquire);
            if !ring.is_null() {
                return Some(Self(ring));
            }
            match STATE.compare_exchange(READY, MAKING, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    let made = Self::make();
                    RING.store(
                        made.map_or(std::ptr::null_mut(), |ring| ring.0),
                        Ordering::Release,
                    );
                    STATE.store(if made.is_some() { ON } else { OFF }, Ordering::Release);
                    return made;
                }
                // Another thread is making it; or a signal handler interrupts the one that is.
                Err(MAKING) if THREAD.get().0 != u32::MAX => sys::sleep(PAUSE_NS),
                Err(ON) => {}
                Err(_) => return None,
            }
        }
    }

    fn make() -> Option<Self> {
        let (thread, out) = THREAD.get();
        THREAD.set((u32::MAX, out));
        let mut path = [0_u8; PATH];
        let directory = directory()?.to_bytes();
        let number = RINGS.fetch_add(1, Ordering::Relaxed);
        let mut end = 0;
        for part in [directory, b"/"] {
            path.get_mut(end..end + part.len())?.copy_from_slice(part);
            end += part.len();
        }
        // Unique: two processes with one number (of different PID namespaces) differ in time.
        for number in [sys::pid() as u64, sys::monotonic(), number] {
            end = decimal(&mut path, end, number)?;
            *path.get_mut(end)? = b'-';
            end += 1;
        }
        path.get_mut(end..end + 4)?.copy_from_slice(b"ring");
        path.get(end + 4).filter(|byte| **byte == 0)?;
        let mapped = sys::map_new(CStr::from_bytes_until_nul(&path).ok()?, SIZE);
        THREAD.set((thread, out));
        if mapped.is_null() {
            return None;
        }
        let ring = Self(mapped);
        ring.introduce();
        Some(ring)
    }

    /// Fills in the header of a new ring.
    fn introduce(self) {
        let header = self.0.cast::<Header>();
        let cost = self.rehearse();
        // SAFETY: the mapping is zero, larger than a header and nobody else's until `magic` is written;
        // every field may be zero.
        unsafe {
            (*header).version = VERSION;
            (*header).pid = sys::pid() as u32;
            (*header).pid_namespace = sys::namespace(c"/proc/self/ns/pid");
            (*header).net_namespace = sys::namespace(c"/proc/self/ns/net");
            (*header).cost_ns = cost;
            (*header).name = sys::process_name();
            (*header).host = sys::host_name();
            (*header).magic.store(MAGIC, Ordering::Release);
        }
    }

    /// What one event costs at most: two readings of the CPU clock, three of the other, and a slot.
    fn rehearse(self) -> u64 {
        let reading = READING.get();
        let begun = sys::monotonic();
        for _ in 0..REHEARSALS {
            READING.set((0, 1));
            let start = start();
            self.append(Record {
                thread: 0,
                cpu_ns: start.cpu_ns.max(cpu_at_end()),
                time_ns: sys::monotonic(),
                event: Event::MpiEnd,
            });
        }
        READING.set(reading);
        let cost = (sys::monotonic() - begun) / REHEARSALS;
        let header = self.header();
        for index in 0..REHEARSALS {
            self.slot(index).lap.store(0, Ordering::Relaxed);
        }
        header.head.store(0, Ordering::Relaxed);
        cost
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is larger and lives until a fork's child drops it, which has one thread.
        unsafe { &*self.0.cast::<Header>() }
    }

    /// Gives this thread a place among the ring's. The time of its first record makes it valid.
    fn place(&self, thread: u32, out_ns: u64) {
        let (calls, _) = CALLS.get();
        let free = |state: &ThreadState| {
            state
                .thread
                .compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let threads = &self.header().threads;
        let Some(place) = threads.iter().position(free) else {
            return;
        };
        threads[place].out_ns.store(out_ns, Ordering::Relaxed);
        threads[place].calls.store(calls, Ordering::Relaxed);
        CALLS.set((calls, place));
    }

    fn slot(&self, index: u64) -> &Slot {
        let offset = RECORDS + (index % CAPACITY) as usize * size_of::<Slot>();
        // SAFETY: the offset is inside the mapping and a multiple of 64; as above.
        unsafe { &*self.0.byte_add(offset).cast::<Slot>() }
    }

    fn append(&self, record: Record) {
        let header = self.header();
        if header.closed.load(Ordering::Relaxed) != 0 {
            return;
        }
        let index = header.head.fetch_add(1, Ordering::Relaxed);
        let mut tail = header.tail.load(Ordering::Acquire);
        let mut patience = PATIENCE_NS;
        while index >= tail + CAPACITY {
            if header.closed.load(Ordering::Relaxed) != 0 {
                return;
            }
            if patience == 0 {
                header.lost.fetch_add(1, Ordering::Relaxed);
                header.closed.store(1, Ordering::Relaxed);
                return;
            }
            sys::sleep(PAUSE_NS);
            patience = patience.saturating_sub(PAUSE_NS as u64);
            let now = header.tail.load(Ordering::Acquire);
            if now != tail {
                patience = PATIENCE_NS;
            }
            tail = now;
        }
        // SAFETY: the index was reserved by us alone and the collector has taken what was there before.
        unsafe { self.slot(index).put((index / CAPACITY) as u32 + 1, record) };
    }
}

fn directory() -> Option<&'static CStr> {
    sys::environment(c"PERTURB_TRACE_DIRECTORY").filter(|path| !path.is_empty())
}

/// Writes a number; the place behind it.
fn decimal(text: &mut [u8], start: usize, mut number: u64) -> Option<usize> {
    let mut digits = [0_u8; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let digits = &digits[first..];
    text.get_mut(start..start + digits.len())?.copy_from_slice(digits);
    Some(start + digits.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals() {
        let mut text = [0; 24];
        assert_eq!(decimal(&mut text, 1, 0), Some(2));
        assert_eq!(decimal(&mut text, 2, u64::MAX), Some(22));
        assert_eq!(&text[1..22], b"018446744073709551615");
        assert_eq!(decimal(&mut text, 22, 100), None);
    }
}
