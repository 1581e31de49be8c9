//! What a processor is to the programs: where the maps lie for it, and what helpers remember between their calls. A thread takes a
//! seat ([`Seat::sit`]) before it runs programs.

use std::{cell::Cell, fmt, ptr};

use crate::frame::Way;

/// Where a map's values lie for a seat.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The first value, or the head of a table or ring.
    pub start: *mut u8,
    /// Values.
    pub entries: u32,
}

impl Table {
    /// Nowhere: a map of which the seat knows nothing.
    pub const NONE: Self = Self {
        start: ptr::null_mut(),
        entries: 0,
    };
}

/// A thread's place among those that run programs on the same maps.
#[derive(Debug)]
pub struct Seat {
    /// By the places of maps, from 1.
    tables: Box<[Table]>,
    /// By the places of globals, from 1.
    constants: Box<[u64]>,
    redirect: Cell<Way>,
    random: Cell<u64>,
    /// How long ago what the programs look at has come, ns.
    behind: Cell<u64>,
    /// Who is told what the programs say.
    say: Option<fn(fmt::Arguments<'_>)>,
}

// SAFETY: the tables' memory is shared, and lives as long as the region that made the seat, which its user keeps.
unsafe impl Send for Seat {}

const NOWHERE: Way = Way {
    device: 0,
    received: false,
};

impl Seat {
    /// With maps and globals by their places.
    #[must_use]
    pub fn new(tables: Vec<Table>, constants: Vec<u64>, say: Option<fn(fmt::Arguments<'_>)>) -> Self {
        let seed = now() ^ (&raw const tables as u64).rotate_left(32);
        Self {
            tables: tables.into(),
            constants: constants.into(),
            redirect: Cell::new(NOWHERE),
            random: Cell::new(seed | 1),
            behind: Cell::new(0),
            say,
        }
    }

    /// Runs `work` on this seat.
    ///
    /// # Safety
    /// The memory of its tables must be mapped, and nobody else must sit here meanwhile.
    pub unsafe fn sit<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = HERE.replace(self);
        let done = work();
        HERE.set(before);
        done
    }

    /// The programs that run from now on look at what came so long ago, ns: their clock is behind by that.
    pub fn set_behind(&self, nanos: u64) {
        self.behind.set(nanos);
    }

    /// Where the program that has run last wants its frame.
    #[must_use]
    pub fn take_redirect(&self) -> Way {
        self.redirect.replace(NOWHERE)
    }
}

thread_local! {
    /// The seat of the program that runs on this thread.
    static HERE: Cell<*const Seat> = const { Cell::new(ptr::null()) };
}

#[inline(always)]
fn here<'a>() -> Option<&'a Seat> {
    // SAFETY: `sit` lends it for as long as programs run.
    unsafe { HERE.get().as_ref() }
}

/// Where the map of this place lies.
#[inline(always)]
pub(crate) fn table(place: u32) -> Table {
    let place = (place as usize).wrapping_sub(1);
    match here().and_then(|seat| seat.tables.get(place)) {
        Some(table) => *table,
        None => Table::NONE,
    }
}

#[inline(always)]
pub(crate) fn constant(place: u32) -> Option<u64> {
    let place = (place as usize).wrapping_sub(1);
    here()?.constants.get(place).copied()
}

#[inline(always)]
pub(crate) fn redirect(way: Way) {
    if let Some(seat) = here() {
        seat.redirect.set(way);
    }
}

/// A random number (xorshift64*): the programs want places and draws that senders cannot choose, no secrets.
#[inline(always)]
pub(crate) fn random() -> u32 {
    let Some(seat) = here() else { return 0 };
    let mut word = seat.random.get();
    word ^= word >> 12;
    word ^= word << 25;
    word ^= word >> 27;
    seat.random.set(word);
    (word.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
}

/// When what the programs look at has come: CLOCK_MONOTONIC, ns.
#[inline(always)]
pub(crate) fn came() -> u64 {
    now().saturating_sub(here().map_or(0, |seat| seat.behind.get()))
}

/// CLOCK_MONOTONIC, ns.
#[inline(always)]
fn now() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes to `now`, and this clock is there on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// What a program says.
pub fn say(message: fmt::Arguments<'_>) {
    if let Some(say) = here().and_then(|seat| seat.say) {
        say(message);
    }
}
