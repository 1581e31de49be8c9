//! Servers whose packets leave in slots: see [`perturb_common::grants`]. Global functions, which take numbers only: others do not
//! pay for them. Only servers of scope `shared` have slots.

use perturb_common::{
    abi::{Event, SERVER_FATE, SERVER_TIES, in_half},
    fate::JITTER_ENTRIES,
    steps::{self, LOOKS},
    units::{Instant, Ticks},
};

use crate::{
    account::{self, Served},
    atomic::{self, Shared},
    buffer, fate,
    fold::{PASSED, TIED, contended},
    maps::{GRANTS, JITTER, SERVERS},
    scratch::Scratch,
};

/// Has the packet in this CPU's scratch, which a server has served, wait for a slot, and decides its fate: [`PASSED`], [`TIED`], or
/// the number of an event. Its place in the buffer is settled here, not when it was served.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn wait(server: u32, half: u32) -> u32 {
    let index = in_half(half, server);
    let Some(config) = SERVERS.get(index) else {
        account::count(Event::Inconsistent);
        return PASSED;
    };
    let locked = take_slot(config.slot);
    let mut event = leave(index, locked);
    if event == PASSED && config.flags & SERVER_FATE != 0 {
        event = if config.flags & SERVER_TIES != 0 {
            TIED
        } else {
            fate::fate(index)
        };
    }
    if config.ring_len != 0 {
        buffer::settle(index);
    }
    event
}

/// Takes the lock of the slots of this server: 1, or 0. A function of its own: the verifier walks on once, however often it has
/// looked.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn take_slot(slot: u32) -> u32 {
    let Some(granted) = GRANTS.get_ptr_mut(slot) else {
        return 0;
    };
    // SAFETY: an aligned word of a map value.
    let lock = unsafe { Shared::new(&raw mut (*granted).lock) };
    u32::from(steps::lock::<LOOKS, _>(&lock))
}

/// [`perturb_common::grants::Grants::drawn`], at a server by its index in the whole map.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn drawn(server: u32, number: u64) -> u64 {
    let Some(config) = SERVERS.get(server) else {
        return 0;
    };
    let grants = &config.grants;
    let entry = |place: usize| match JITTER.get(grants.table) {
        Some(table) => table.entries[place & (JITTER_ENTRIES - 1)],
        None => 0,
    };
    grants.drawn(config.salt, number, entry).0
}

/// Moves the packet in this CPU's scratch to its slot, whose lock this CPU has, or not: [`PASSED`], or the number of an event.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn leave(server: u32, locked: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return PASSED;
    };
    let Some(granted) = GRANTS.get_ptr_mut(config.slot) else {
        account::count(Event::Inconsistent);
        return PASSED;
    };
    // SAFETY: this CPU's scratch, to which no other reference lives here.
    let (walk, place) = unsafe { (&mut (*scratch).walk, &mut (*scratch).place) };
    let (ready, arrived) = (Instant(place.transmitted), Instant(place.arrived));
    let latest = arrived.after(config.server.horizon);
    let (leaves, in_time) = if locked == 0 {
        // Another CPU that has it is kept from running. Not ahead of those that wait.
        contended();
        // SAFETY: an aligned word of a map value.
        let opens = unsafe { atomic::load(&raw const (*granted).state.opens) };
        let leaves = ready.max(Instant(opens));
        (leaves, leaves.0 <= latest.0)
    } else {
        // SAFETY: a map value that is this CPU's while it has the lock.
        let left = unsafe {
            let drawn = |number| Ticks(drawn(server, number));
            config
                .grants
                .leaves(&mut (*granted).state, ready, walk.load, latest, drawn)
        };
        // SAFETY: an aligned word of a map value.
        steps::unlock(&unsafe { Shared::new(&raw mut (*granted).lock) });
        left
    };
    if !in_time {
        place.transmitted = 0;
        account::server(config.slot, 0, &Served::TailDrop);
        return Event::Horizon as u32;
    }
    account::held_for_slot(config.slot, leaves.since(arrived));
    place.transmitted = leaves.0;
    walk.wait = walk.wait.wrapping_add(leaves.since(ready).0);
    walk.time = walk.time.after(leaves.since(ready));
    PASSED
}
