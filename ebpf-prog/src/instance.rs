//! The state of a server, or of one of its instances: see [`perturb_common::instance`].

use perturb_common::{
    abi::{Direction, NONE, Scope, ServerConfig, ServerState},
    flow::{self, KeyWords},
    instance::{self, PAGE_PLACES},
};

use crate::{
    atomic,
    maps::{FLOW_HOME, INSTANCE_MASK, INSTANCES, ORDINALS, SECRET, STATES},
    scratch::Scratch,
};

/// The state that this CPU's packet meets at a server; nothing if an instance would be needed and all that could make
/// room are busy.
#[inline(always)]
pub(crate) fn state(config: &ServerConfig, interface: u32) -> Option<*mut ServerState> {
    if config.scope == Scope::Shared as u32 {
        return STATES.get_ptr_mut(config.slot);
    }
    let mut place = find(config.scope, config.slot, interface);
    if place == NONE {
        place = make(config.slot);
    }
    INSTANCES.get_ptr_mut(place)
}

/// The same of a packet that has met it already.
#[inline(always)]
pub(crate) fn met(config: &ServerConfig, interface: u32) -> Option<*mut ServerState> {
    if config.scope == Scope::Shared as u32 {
        return STATES.get_ptr_mut(config.slot);
    }
    INSTANCES.get_ptr_mut(find(config.scope, config.slot, interface))
}

/// Names the instance of this CPU's packet at the server with this scope and slot, and looks for it: its place, or
/// [`NONE`]. A global function, which takes numbers only: the verifier walks it once.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn find(scope: u32, slot: u32, interface: u32) -> u32 {
    let Some(scratch) = Scratch::here() else {
        return NONE;
    };
    // SAFETY: this CPU's scratch; the reference ends with the call.
    let name = unsafe {
        let name = if scope == Scope::Flow as u32 && slot == FLOW_HOME.load() {
            (*scratch).name
        } else {
            named(&*scratch, scope, slot, interface)
        };
        (*scratch).instance = name;
        name
    };
    for turn in 0..PAGE_PLACES {
        let place = instance::place(name, turn, INSTANCE_MASK.load());
        let Some(state) = INSTANCES.get_ptr_mut(place) else {
            return NONE;
        };
        // SAFETY: an aligned word of a map value.
        let found = unsafe { atomic::load(&raw const (*state).name) };
        if found == name {
            return place;
        }
        if found == 0 {
            break;
        }
    }
    NONE
}

/// The name of the packet's instance at the server with this scope and slot.
#[inline(always)]
pub(crate) fn named(scratch: &Scratch, scope: u32, slot: u32, interface: u32) -> u64 {
    let words = told_apart(scratch, scope, slot, interface);
    instance::name(flow::hash(&words, 0, |word| SECRET[word].load()))
}

/// What tells the packet's instance from the server's others, as words that have nothing else in common.
#[inline(always)]
fn told_apart(scratch: &Scratch, scope: u32, slot: u32, interface: u32) -> KeyWords {
    let [source, more_source, destination, more_destination, small, _] = scratch.key.words();
    let egress = scratch.key.direction == Direction::Egress as u16;
    let slot = u64::from(slot);
    if scope == Scope::Interface as u32 {
        return [0, 0, 0, 0, u64::from(interface) << 32, slot];
    }
    let (local, remote) = if egress {
        ([source, more_source], [destination, more_destination])
    } else {
        ([destination, more_destination], [source, more_source])
    };
    if scope == Scope::Flow as u32 {
        let (source_port, destination_port) = (small & 0xffff, small >> 16 & 0xffff);
        let ports = if egress {
            source_port | destination_port << 16
        } else {
            destination_port | source_port << 16
        };
        let protocol = u64::from(scratch.key.protocol) << 32;
        return [local[0], local[1], remote[0], remote[1], ports, slot | protocol];
    }
    [0, 0, remote[0], remote[1], 0, slot]
}

/// Makes the instance that [`find`] has named, of the server with this slot: its place, or [`NONE`]. Once per instance,
/// and a global function: see there.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn make(slot: u32) -> u32 {
    let Some(scratch) = Scratch::here() else {
        return NONE;
    };
    // SAFETY: this CPU's scratch.
    let (name, now) = unsafe { ((*scratch).instance, (*scratch).walk.time.0) };
    let mask = INSTANCE_MASK.load();
    let mut chosen = NONE;
    let mut seen = 0;
    let mut since = u64::MAX;
    for turn in 0..PAGE_PLACES {
        let place = instance::place(name, turn, mask);
        let Some(state) = INSTANCES.get_ptr_mut(place) else {
            return NONE;
        };
        // SAFETY: aligned words of a map value.
        let (found, free, last) = unsafe {
            (
                atomic::load(&raw const (*state).name),
                atomic::load(&raw const (*state).free),
                atomic::load(&raw const (*state).last),
            )
        };
        if found == name {
            // Another CPU was first.
            return place;
        }
        let idle = if free > last { free } else { last };
        if found == 0 || idle < since {
            (chosen, seen, since) = (place, found, idle);
        }
        if found == 0 {
            break;
        }
    }
    let (Some(state), Some(counter)) = (INSTANCES.get_ptr_mut(chosen), ORDINALS.get_ptr_mut(slot)) else {
        return NONE;
    };
    // A busy one stays.
    if seen != 0 && since > now {
        return NONE;
    }
    // SAFETY: aligned words of map values. Who comes for the new instance in between finds an idle server, whose
    // times need no change.
    unsafe {
        let found = atomic::compare_exchange(&raw mut (*state).name, seen, name);
        if found == seen {
            (&raw mut (*state).ordinal).write_volatile(atomic::fetch_add(counter, 1) as u32);
            (&raw mut (*state).arrivals).write_volatile(0);
            (&raw mut (*state).bad).write_volatile(0);
        } else if found != name {
            // Another CPU made another instance here; the next packet looks again.
            return NONE;
        }
    }
    chosen
}
