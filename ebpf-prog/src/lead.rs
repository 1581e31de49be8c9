//! The lead of the emulation over the clock, which makes up for the pacer's timer ([`perturb_common::lead`]).
//! With the user pacer it makes up for the receiver's wake-up, too, of which the pacer's thread tells the floor.

use aya_ebpf::{macros::map, maps::Array};
use perturb_common::{
    abi::{LEAD_LEN, LEAD_NOW, LEAD_WAKE_UP},
    lead::{Lead, WAIT},
    units::{MonoNanos, Nanos},
};

use crate::{atomic, hold::Held};

/// A word that is a [`Lead`], of all interfaces, as the servers between them are; and the floor of wake-ups.
#[map]
static LEAD: Array<u64> = Array::with_max_entries(LEAD_LEN, 0);

#[inline(always)]
fn word() -> Option<*mut u64> {
    LEAD.get_ptr_mut(LEAD_NOW)
}

/// What passes at least until a packet is read that leaves now.
#[inline(always)]
fn wake_up() -> u64 {
    // SAFETY: an aligned word of a map value.
    LEAD.get_ptr_mut(LEAD_WAKE_UP)
        .map_or(0, |word| unsafe { atomic::load(word) })
}

/// When a packet arrives in the emulation that comes now.
#[inline(always)]
pub(crate) fn arrival(now: MonoNanos) -> MonoNanos {
    MonoNanos(now.0.saturating_sub(lead(now).0))
}

/// When a packet came that arrives in the emulation then; within a sixteenth of the time since, by which the lead may have risen.
#[inline(always)]
pub(crate) fn came(arrival: MonoNanos, now: MonoNanos) -> MonoNanos {
    MonoNanos(arrival.0.saturating_add(lead(now).0))
}

#[inline(always)]
fn lead(now: MonoNanos) -> Nanos {
    // SAFETY: an aligned word of a map value.
    word()
        .map_or(Lead::default(), |word| Lead(unsafe { atomic::load(word) }))
        .at(now)
}

/// Whether a packet that departs then will wait for the pacer's timer.
#[inline(always)]
pub(crate) fn waits(departure: MonoNanos, now: MonoNanos) -> bool {
    departure.0 > now.0 + WAIT.0
}

/// How late a held packet will be read, by the lead of now, early counting as not late; if a timer was to let it go, the
/// lead learns from it.
#[inline(always)]
pub(crate) fn lateness(held: &Held, now: MonoNanos) -> Nanos {
    let late = Nanos(now.0.saturating_sub(held.departure.0) + wake_up());
    let Some(word) = word() else { return late };
    // SAFETY: an aligned word of a map value.
    let lead = Lead(unsafe { atomic::load(word) });
    if held.tag.waits {
        let learned = lead.follow(late, now);
        if learned != lead {
            // If CPUs race, one of them wins: what an old packet taught must not undo what a newer one did.
            // SAFETY: as above.
            unsafe { atomic::compare_exchange(word, lead.0, learned.0) };
        }
    }
    Nanos(late.0.saturating_sub(lead.at(now).0))
}
