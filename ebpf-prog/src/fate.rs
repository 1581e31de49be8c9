//! What becomes of a packet that a server has served: see [`perturb_common::fate`].

use aya_ebpf::{
    helpers::{bpf_skb_load_bytes, bpf_skb_store_bytes},
    programs::TcContext,
};
use perturb_common::{
    abi::{
        Event, NONE, NthKey, SERVER_BURST, SERVER_KEEP_ORDER, SERVER_NTH, SERVER_SPARES, SERVER_TIMELINE,
        ServerConfig, ServerState,
    },
    departure::Load,
    fate::{Chance, JITTER_ENTRIES, Purpose, draw, jitter_ticks},
    steps::{self, ATTEMPTS},
    ties::Tied,
    units::{Instant, Ticks},
};

use crate::{
    account::{self, Served},
    atomic::{self, Shared},
    fold::{Dropped, PASSED, contended},
    maps::{JITTER, NTH, SERVERS, STATES},
    scratch::{Scratch, Walk},
};

/// Corruption hits one of the first bytes after the MAC addresses.
const CORRUPT_FROM: u32 = 12;
const CORRUPT_SPAN: u32 = 1024;

/// Each packet's fate is its own.
#[inline(always)]
pub(crate) fn free(_: u64, _: u64) -> Tied {
    Tied::default()
}

/// Loss, jitter, duplication, corruption: by the packet's index at this server, or as `tie` says for that and the instance's ordinal.
/// Loss comes after the service: a packet that is lost on the wire has been transmitted. Where ECN-capable ones are spared, they go on
/// as if nothing were, and marked (`netem_enqueue`).
///
/// # Safety
/// `state` must point to a map value.
#[inline(always)]
pub(crate) unsafe fn decide(
    walk: &mut Walk,
    state: *mut ServerState,
    config: &ServerConfig,
    server: u32,
    served: Instant,
    (loss, jitter_scale): (Chance, u64),
    tie: impl FnOnce(u64, u64) -> Tied,
) -> Result<(), Dropped> {
    // SAFETY: the caller's; `ordinal` never changes once the instance is there.
    let (index, ordinal) = unsafe {
        (
            atomic::fetch_add(&raw mut (*state).arrivals, 1),
            u64::from((*state).ordinal),
        )
    };
    let tied = tie(index, ordinal);
    if let Some(event) = lost(state, config, server, index, ordinal, loss, tied) {
        if config.flags & SERVER_SPARES == 0 || walk.ecn() == 0 {
            account::server(config.slot, 0, &Served::Lost);
            return Err(event.into());
        }
        walk.flags |= Walk::MARK;
        account::server(config.slot, 0, &Served::Spared);
    }
    let ahead = tied.0 & Tied::AHEAD != 0;
    if ahead {
        walk.time = served;
    } else if config.jitter_table != NONE {
        let drawn = draw(config.salt, ordinal, index, Purpose::Jitter) as usize;
        let entry = if tied.is_decided() { tied.entry() } else { drawn } & (JITTER_ENTRIES - 1);
        // Tables of both halves: the controller numbers them over the whole map.
        if let Some(table) = JITTER.get(config.jitter_table) {
            let ticks = jitter_ticks(jitter_scale, table.entries[entry]);
            let moved = if ticks < 0 {
                Instant(walk.time.0.saturating_sub(ticks.unsigned_abs()))
            } else {
                walk.time.after(Ticks(ticks as u64))
            };
            // Not before its service ends.
            walk.time = moved.max(served);
        }
    }
    if ahead {
        walk.flags |= Walk::REORDER;
    } else if config.jitter_table != NONE || config.flags & SERVER_TIMELINE != 0 {
        if config.flags & SERVER_KEEP_ORDER != 0 {
            // SAFETY: the caller's: an aligned word of a map value.
            let last = unsafe { Shared::new(&raw mut (*state).last) };
            walk.time = steps::in_order::<ATTEMPTS, _>(&last, walk.time, contended);
        } else {
            walk.flags |= Walk::REORDER;
        }
    }
    let damage = draw(config.salt, ordinal, index, Purpose::Damage);
    let duplicate = if tied.is_decided() {
        tied.0 & Tied::DUPLICATED != 0
    } else {
        config.duplicate.hit((damage >> 32) as u32)
    };
    let corrupt = if tied.is_decided() {
        tied.0 & Tied::CORRUPTED != 0
    } else {
        config.corrupt.hit(damage as u32)
    };
    if duplicate && walk.copies == 1 {
        // The copy crosses the servers that follow right behind the original.
        walk.copies = 2;
        walk.load = Load {
            bytes: walk.load.bytes * 2,
            segments: walk.load.segments * 2,
        };
    }
    if corrupt {
        let place = draw(config.salt, ordinal, index, Purpose::Bit);
        walk.damage = place & !0xffff_ffff | 1 << (place & 7);
    }
    Ok(())
}

/// Fate of the packet in this CPU's scratch, which a server of scope `shared` has served, by its index in the whole map: [`PASSED`],
/// or the number of an event.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn fate(server: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return PASSED;
    };
    let Some(state) = STATES.get_ptr_mut(config.slot) else {
        return PASSED;
    };
    // SAFETY: this CPU's scratch, and a value of a map.
    let decided = unsafe {
        let served = Instant((*scratch).place.transmitted);
        let now = if config.flags & SERVER_TIMELINE != 0 {
            (*scratch).change.now()
        } else {
            (config.loss, config.jitter_scale)
        };
        decide(&mut (*scratch).walk, state, config, server, served, now, free)
    };
    match decided {
        Ok(()) => PASSED,
        Err(Dropped(event)) => event,
    }
}

/// Whether a loss model takes the packet.
#[inline(always)]
fn lost(
    state: *mut ServerState,
    config: &ServerConfig,
    server: u32,
    index: u64,
    ordinal: u64,
    independent: Chance,
    tied: Tied,
) -> Option<Event> {
    let loss = draw(config.salt, ordinal, index, Purpose::Loss);
    if config.flags & SERVER_NTH != 0 {
        let key = NthKey {
            index: index + 1,
            server,
            reserved: 0,
        };
        // SAFETY: the value is not read.
        if unsafe { NTH.get(&key) }.is_some() {
            return Some(Event::NthLoss);
        }
    }
    if tied.is_decided() {
        return if tied.0 & Tied::LOST_IN_BURST != 0 {
            Some(Event::BurstLoss)
        } else if tied.0 & Tied::LOST != 0 {
            Some(Event::Loss)
        } else {
            None
        };
    }
    if config.flags & SERVER_BURST != 0 {
        let step = draw(config.salt, ordinal, index, Purpose::Burst);
        // SAFETY: `state` points to a map value. CPUs that race take steps of their own; each counts once.
        let bad = unsafe {
            // Of what was remembered while its fates hung together ([`perturb_common::ties::Memory`]), the loss's state only.
            let bad = config.burst.step((*state).bad & 3 == 1, step);
            (*state).bad = u64::from(bad);
            bad
        };
        if config.burst.lost(bad, loss as u32) {
            return Some(Event::BurstLoss);
        }
    }
    independent.hit((loss >> 32) as u32).then_some(Event::Loss)
}

/// Flips a bit behind the MAC addresses. The checksum is complete, or damage would go unnoticed: a profile
/// that corrupts sends all packets through the splitter, which computes it.
#[inline(never)]
pub(crate) fn corrupt(ctx: &TcContext, place: u32, mask: u8) {
    let len = crate::packet::skb(ctx).len;
    if len <= CORRUPT_FROM {
        return;
    }
    let span = len - CORRUPT_FROM;
    let span = if span > CORRUPT_SPAN { CORRUPT_SPAN } else { span };
    let offset = CORRUPT_FROM + place % span;
    let mut byte = 0u8;
    // SAFETY: helpers on the context of a running program; both fail for an offset outside the packet.
    unsafe {
        if bpf_skb_load_bytes(ctx.skb.skb.cast(), offset, (&raw mut byte).cast(), 1) != 0 {
            return;
        }
        byte ^= mask;
        if bpf_skb_store_bytes(ctx.skb.skb, offset, (&raw const byte).cast(), 1, 0) == 0 {
            account::event(ctx, Event::Corrupted);
        }
    }
}
