//! Buffers that are limited in packets: see [`steps::reserve`]. Only servers of scope `shared` have them. Global functions,
//! which take numbers only: what has no such buffer does not pay for them.

use perturb_common::{
    abi::ServerConfig,
    steps::{self, Reserved, place_of},
    units::Instant,
};

use crate::{
    account::{self, Served},
    atomic::Shared,
    fold::contended,
    maps::{RING, SERVERS, STATES},
    scratch::Scratch,
};

/// The packets that a server has admitted.
#[inline(always)]
fn turns(config: &ServerConfig) -> Option<Shared> {
    let state = STATES.get_ptr_mut(config.slot)?;
    // SAFETY: an aligned word of a map value.
    Some(unsafe { Shared::new((&raw mut (*state).beside).cast()) })
}

/// A place of its buffer.
#[inline(always)]
fn place(config: &ServerConfig, place: u32) -> Option<Shared> {
    let word = RING.get_ptr_mut(config.ring_start.wrapping_add(place))?;
    // SAFETY: an aligned word of a map value.
    Some(unsafe { Shared::new(word) })
}

/// Reserves a place at a server, by its index in the whole map, for the packet in this CPU's scratch: 1, or 0 if there is
/// no room.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn reserve(server: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return 0;
    };
    let Some(turns) = turns(config) else { return 0 };
    // SAFETY: this CPU's scratch.
    let arrival = unsafe { (*scratch).walk.time };
    let place = |index| place(config, index);
    match steps::reserve(&turns, place, config.ring_len, arrival, contended) {
        Some(reserved) => {
            // SAFETY: this CPU's scratch; one by one, see `Walk`.
            unsafe {
                (*scratch).place.turn = reserved.turn;
                (*scratch).place.before = reserved.before.0;
                (&raw mut (*scratch).place.transmitted).write_volatile(0);
            }
            1
        }
        None => {
            account::server(config.slot, 0, &Served::TailDrop);
            0
        }
    }
}

/// Settles the reservation of the packet in this CPU's scratch.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn settle(server: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return 0;
    };
    // SAFETY: this CPU's scratch; nothing that is called from here comes to it.
    let own = unsafe { &(*scratch).place };
    let (Some(turns), Some(place)) = (turns(config), place(config, place_of(own.turn, config.ring_len)))
    else {
        return 0;
    };
    if own.transmitted != 0 {
        steps::take(&place, Instant(own.transmitted));
    } else {
        let reserved = Reserved {
            turn: own.turn,
            before: Instant(own.before),
        };
        steps::leave(&turns, &place, reserved, contended);
    }
    1
}
