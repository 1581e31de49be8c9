//! Counters. All but [`waited`]'s are per CPU, so plain additions suffice.

use aya_ebpf::programs::TcContext;
use aya_log_ebpf::info;
use perturb_common::{
    abi::{BUCKETS, Direction, Event, class_counter, histogram},
    departure::Load,
    queue::Verdict,
    units::{Nanos, Ticks},
};

use crate::{
    atomic,
    maps::{CLASS_COUNTERS, EVENTS_SEEN, LATENESS, SERVER_COUNTERS, SOJOURNS},
};

/// Counts an event; its first occurrence on a CPU is logged.
#[inline(always)]
pub(crate) fn event(ctx: &TcContext, event: Event) {
    number(ctx, event as u32);
}

/// The same by the event's number.
#[inline(always)]
pub(crate) fn number(ctx: &TcContext, event: u32) {
    if increment(event) {
        // SAFETY: the context of a running program.
        announce(event, unsafe { (*ctx.skb.skb).ifindex });
    }
}

/// Counts an event without a word, where there is no context to log from. Whether it was this CPU's
/// first.
#[inline(always)]
pub(crate) fn count(event: Event) -> bool {
    increment(event as u32)
}

#[inline(always)]
fn increment(event: u32) -> bool {
    let Some(count) = EVENTS_SEEN.get_ptr_mut(event) else {
        return false;
    };
    // SAFETY: a per-CPU value, and tc programs do not preempt each other on a CPU.
    unsafe {
        *count += 1;
        *count == 1
    }
}

/// A global function, which takes numbers only: the verifier walks it once, however many events are
/// counted.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn announce(event: u32, ifindex: u32) -> u32 {
    // The macro asks for a context and does not use it.
    info!((), "first event {} at ifindex {}", event, ifindex);
    0
}

/// What became of a packet of a class.
#[inline(always)]
pub(crate) fn class(direction: Direction, class: u32, load: Load, delay: Option<Nanos>) {
    if let Some(counters) = CLASS_COUNTERS.get_ptr_mut(class_counter(class, direction as u32)) {
        // SAFETY: as above.
        let counters = unsafe { &mut *counters };
        counters.packets += 1;
        counters.segments += load.segments;
        counters.bytes += load.bytes;
        match delay {
            Some(delay) => counters.delay += delay.0,
            None => counters.dropped += 1,
        }
    }
}

/// The delay of a leg that is not the packet's last; the last one counts the packet.
#[inline(always)]
pub(crate) fn leg(direction: Direction, class: u32, delay: Nanos) {
    if let Some(counters) = CLASS_COUNTERS.get_ptr_mut(class_counter(class, direction as u32)) {
        // SAFETY: as above.
        unsafe { (*counters).delay += delay.0 };
    }
}

/// What a server did with a packet.
pub(crate) enum Served {
    /// Transmitted after waiting for `backlog`, busy for `busy`.
    Sent { backlog: Ticks, busy: Ticks },
    /// No room.
    TailDrop,
    /// Dropped by its queue's law.
    Early,
    /// Transmitted and lost.
    Lost,
    /// Marked in place of being lost.
    Spared,
}

/// Counts what a server did.
#[inline(always)]
pub(crate) fn server(slot: u32, bytes: u64, served: &Served) {
    if let Some(counters) = SERVER_COUNTERS.get_ptr_mut(slot) {
        // SAFETY: as above.
        let counters = unsafe { &mut *counters };
        match *served {
            Served::Sent { backlog, busy } => {
                counters.packets += 1;
                counters.bytes += bytes;
                counters.busy += busy.0;
                if backlog.0 > counters.max_backlog {
                    counters.max_backlog = backlog.0;
                }
            }
            Served::TailDrop => counters.tail_drops += 1,
            Served::Early => counters.early_drops += 1,
            Served::Lost => counters.losses += 1,
            Served::Spared => counters.loss_marks += 1,
        }
    }
}

/// A packet leaves a server so long after it came, of which its service is the least.
#[inline(always)]
pub(crate) fn held_for_slot(slot: u32, time: Ticks) {
    if let Some(counters) = SERVER_COUNTERS.get_ptr_mut(slot) {
        // SAFETY: as above.
        let counters = unsafe { &mut *counters };
        if time.0 > counters.max_backlog {
            counters.max_backlog = time.0;
        }
    }
}

/// Counts that a server's law marks a packet.
#[inline(always)]
pub(crate) fn verdict(slot: u32, verdict: u32) {
    if let Some(counters) = SERVER_COUNTERS.get_ptr_mut(slot) {
        // SAFETY: as above.
        let counters = unsafe { &mut *counters };
        if verdict == Verdict::Mark as u32 {
            counters.marks += 1;
        } else {
            counters.marks_above += 1;
        }
    }
}

/// How late a packet left.
#[inline(always)]
pub(crate) fn lateness(late: Nanos) {
    if let Some(count) = LATENESS.get_ptr_mut(histogram::bucket(late.0)) {
        // SAFETY: as above.
        unsafe { *count += 1 };
    }
}

/// Counts how long a packet waited that a server's law has judged.
#[inline(always)]
pub(crate) fn waited(slot: u32, time: Nanos) {
    if let Some(bucket) = bucket(slot, time) {
        // SAFETY: an aligned word of a map value.
        unsafe { atomic::fetch_add(bucket, 1) };
    }
}

/// The same while no other CPU does: this one has the lock of the server's queue.
#[inline(always)]
pub(crate) fn waited_alone(slot: u32, time: Nanos) {
    if let Some(bucket) = bucket(slot, time) {
        // SAFETY: an aligned word of a map value; the lock.
        unsafe { *bucket += 1 };
    }
}

#[inline(always)]
fn bucket(slot: u32, time: Nanos) -> Option<*mut u64> {
    let sojourns = SOJOURNS.get_ptr_mut(slot)?;
    // A bucket is below their number; the verifier sees it.
    let bucket = histogram::bucket(time.0) & (BUCKETS - 1);
    // SAFETY: within the array.
    Some(unsafe { (&raw mut (*sojourns).packets).cast::<u64>().add(bucket as usize) })
}
