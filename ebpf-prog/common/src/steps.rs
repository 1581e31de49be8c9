//! The steps that CPUs take on a server's state at the same time: the queue, the order, a buffer's places.
//!
//! Model: a step looks at a word, computes, and exchanges the word if it is still what it was. Who loses `ATTEMPTS`
//! exchanges adds instead, which cannot fail: by as much as the exchange would have added, to whatever the word has become
//! meanwhile. Both words, [`serve`]'s and [`in_order`]'s, only ever grow, so what an addition leaves there is never less than
//! what the exchange would have left. What this costs: a packet may wait for longer than it had to, and a server stand idle.
//! Each such step is told (`contended`), so that it can be counted.
//!
//! `tests/races.rs` searches the interleavings of these steps.

use crate::{
    departure::Outcome,
    shared::Word,
    units::{Instant, Ticks},
};

/// Exchanges that a program loses before it adds.
pub const ATTEMPTS: u32 = 4;

/// Serves a packet at a server that is free again at what the word says. `depart` is its step of the recursion, by when it is free.
#[inline(always)]
pub fn serve<const ATTEMPTS: u32, W: Word>(
    word: &W,
    arrival: Instant,
    depart: impl Fn(Instant) -> Outcome,
    contended: impl Fn(),
) -> Outcome {
    let mut attempt = 0;
    loop {
        let free = Instant(word.load());
        let service = match depart(free) {
            Outcome::Served(service) => service,
            dropped => return dropped,
        };
        if word.compare_exchange(free.0, service.free.0) == free.0 {
            return Outcome::Served(service);
        }
        attempt += 1;
        if attempt >= ATTEMPTS {
            let busy = service.free.since(arrival.max(free));
            let added = service.free.since(free);
            // Not before `arrival`: the word has grown since.
            let start = Instant(word.fetch_add(added.0)).after(Ticks(added.0 - busy.0));
            let outcome = depart(start);
            match outcome {
                Outcome::Served(service) => {
                    // A server that changes may take longer than it would have.
                    let longer = service.free.since(start.after(busy));
                    if longer.0 != 0 {
                        word.fetch_add(longer.0);
                    }
                    if added.0 != busy.0 || longer.0 != 0 {
                        contended();
                    }
                }
                // The server stands idle for it: what came after it has its time already.
                _ => contended(),
            }
            return outcome;
        }
    }
}

/// How often a CPU looks at a lock before it goes without: far longer than any CPU has it, unless that is kept from running.
pub const LOOKS: u32 = 500;

/// Takes a lock, so that state of several words is one CPU's; [`unlock`] it afterwards. Whether it was taken: another CPU may have
/// been kept from running.
#[inline(always)]
pub fn lock<const LOOKS: u32, W: Word>(word: &W) -> bool {
    for _ in 0..LOOKS {
        if word.load() == 0 && word.compare_exchange(0, 1) == 0 {
            return true;
        }
    }
    false
}

/// Gives a lock back. An exchange: what was written under it must be there before.
#[inline(always)]
pub fn unlock<W: Word>(word: &W) {
    word.compare_exchange(1, 0);
}

/// `time`, or later: not before any departure that was given to another. The word has the last one.
#[inline(always)]
pub fn in_order<const ATTEMPTS: u32, W: Word>(word: &W, time: Instant, contended: impl Fn()) -> Instant {
    let mut last = word.load();
    let mut attempt = 0;
    loop {
        if last >= time.0 {
            return Instant(last);
        }
        let seen = word.compare_exchange(last, time.0);
        if seen == last {
            return time;
        }
        attempt += 1;
        if attempt >= ATTEMPTS {
            contended();
            if seen >= time.0 {
                return Instant(seen);
            }
            let added = time.0 - seen;
            return Instant(word.fetch_add(added)).after(Ticks(added));
        }
        last = seen;
    }
}

/// What a place of a buffer says while its packet is being served, and nobody knows yet when it leaves.
const RESERVED: u64 = u64::MAX;
/// Places that are tried: more CPUs than that have to be serving packets at one moment for a packet to be dropped without need.
const PLACES_TRIED: u64 = 8;

/// The bits of a turn in its word; those above count how often a turn was given back, so that who has looked before that cannot
/// move the turn as if it had not been. A server that admits a million packets per second fills them in nine years.
const TURN_BITS: u32 = 48;
/// One more time.
const GIVEN_BACK: u64 = 1 << TURN_BITS;

/// The turn that a word says.
#[inline(always)]
const fn turn_of(word: u64) -> u64 {
    word & (GIVEN_BACK - 1)
}

/// A place that is reserved in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Its turn.
    pub turn: u64,
    /// When the packet has been transmitted that took it last.
    pub before: Instant,
}

/// Reserves a place in a buffer of `len` packets, [`take`] or [`leave`] it afterwards; `None` if all are taken.
/// Each place has the time at which the packet that took it last has been transmitted, so a packet finds room exactly if fewer
/// than `len` are there when it arrives. `turns` counts the packets that were admitted: they take the places by turns, and
/// the next one is that of the packet which leaves first.
#[inline(always)]
pub fn reserve<W: Word>(
    turns: &W,
    place: impl Fn(u32) -> Option<W>,
    len: u32,
    arrival: Instant,
    contended: impl Fn(),
) -> Option<Reserved> {
    // Counted in a whole word: of half a word that lies on the stack meanwhile the verifier forgets the value.
    for tried in 0..PLACES_TRIED {
        if tried >= len as u64 {
            return None;
        }
        let now = turns.load();
        let turn = turn_of(now);
        let word = place(place_of(turn, len))?;
        let before = word.load();
        if before != RESERVED && before > arrival.0 {
            // An exchange that changes nothing: a load might say what the turn was before the place was looked at (arm64).
            if turns.compare_exchange(now, now) == now {
                return None;
            }
            // Taken since the turn was read: the next one may be free.
            continue;
        }
        let reserved = before != RESERVED && word.compare_exchange(before, RESERVED) == before;
        // If it is another's, the other may not have come to this yet.
        let seen = turns.compare_exchange(now, now + 1);
        if reserved {
            if seen != now && turn_of(seen) <= turn {
                // Who had a turn before this one has given it back. The next one must not be this one's, which is taken.
                let missing = turn + 1 - turn_of(seen);
                let late = turns.compare_exchange(seen, seen + missing) != seen;
                if late || missing > 1 {
                    contended();
                }
            }
            return Some(Reserved {
                turn,
                before: Instant(before),
            });
        }
    }
    contended();
    None
}

/// Which place of a buffer of `len` packets has this turn.
#[inline(always)]
#[must_use]
pub const fn place_of(turn: u64, len: u32) -> u32 {
    // No panic for 0, which nobody asks for.
    if len == 0 { 0 } else { (turn % len as u64) as u32 }
}

/// The packet that has reserved this place will have been transmitted at this time.
#[inline(always)]
pub fn take<W: Word>(place: &W, transmitted: Instant) {
    place.compare_exchange(RESERVED, transmitted.0);
}

/// The packet that has reserved this place was dropped: the next one may have it, whenever that arrives.
#[inline(always)]
pub fn leave<W: Word>(turns: &W, place: &W, reserved: Reserved, contended: impl Fn()) {
    let next = reserved.turn + 1;
    // An addition that changes nothing: a load might say what the turn was before.
    let now = turns.fetch_add(0);
    let back = now.wrapping_add(GIVEN_BACK - 1);
    // The turn first: who takes the place then finds it to be the next one.
    let given_back = turn_of(now) == next && turns.compare_exchange(now, back) == now;
    place.compare_exchange(RESERVED, reserved.before.0);
    // If others have the turns behind it, or have passed it while it was reserved, it stays free until its turn comes again.
    // Nobody passes it from here on because it was reserved once.
    let passed = if given_back {
        turns.compare_exchange(back, back.wrapping_add(GIVEN_BACK)) != back
    } else {
        turn_of(now) >= next
    };
    if passed {
        contended();
    }
}
