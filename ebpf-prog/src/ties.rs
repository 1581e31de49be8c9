//! Fates that depend on those before: see [`perturb_common::ties`]. Global functions, which take numbers only: other servers do
//! not pay for them, nor does their stack.

use perturb_common::{
    abi::{SERVER_TIMELINE, in_half},
    fate::{Chance, JITTER_ENTRIES, Purpose, draw},
    ties::{Chances, Memory, TIE_DRIFT, Tied, quantile},
    units::Instant,
};

use crate::{
    fate,
    fold::{Dropped, PASSED},
    instance,
    maps::{JITTER, SERVERS},
    scratch::Scratch,
};

/// The fate of the packet in this CPU's scratch, which a server has served: [`PASSED`], or the number of the event that drops it.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn tied_fate(server: u32, half: u32, interface: u32) -> u32 {
    let index = in_half(half, server);
    let (Some(config), Some(scratch)) = (SERVERS.get(index), Scratch::here()) else {
        return PASSED;
    };
    let Some(state) = instance::met(config, interface) else {
        return PASSED;
    };
    // SAFETY: this CPU's scratch, of which others see what they have no reference to, and a map value. CPUs that race take steps of
    // their own; one of them is remembered.
    let decided = unsafe {
        let served = Instant((*scratch).place.transmitted);
        let now = if config.flags & SERVER_TIMELINE != 0 {
            (*scratch).change.now()
        } else {
            (config.loss, config.jitter_scale)
        };
        let remembered = &raw const (*scratch).memory;
        let tie = |number: u64, ordinal: u64| {
            let memory = (&raw const (*state).bad).read_volatile();
            let since = (&raw const (*state).since).read_volatile();
            let tied = tie(
                u64::from(index) << 32 | u64::from(now.0.0),
                number,
                ordinal,
                memory,
                since,
            );
            let entry = if config.ties.kinds & TIE_DRIFT != 0 {
                drift(index, number, ordinal)
            } else {
                draw(config.salt, ordinal, number, Purpose::Jitter) as u32
            };
            let Memory(memory, since) = remembered.read_volatile();
            (&raw mut (*state).bad).write_volatile(memory);
            (&raw mut (*state).since).write_volatile(since);
            Tied(tied).with(entry as usize & (JITTER_ENTRIES - 1))
        };
        fate::decide(&mut (*scratch).walk, state, config, index, served, now, tie)
    };
    match decided {
        Ok(()) => PASSED,
        Err(Dropped(event)) => event,
    }
}

/// What becomes but for its jitter of the packet with this index at a server, by its index in the whole map, or at its `ordinal`-th
/// instance. Leaves what is remembered in this CPU's scratch.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn tie(server_and_loss: u64, index: u64, ordinal: u64, memory: u64, since: u32) -> u64 {
    let (Some(config), Some(scratch)) = (SERVERS.get((server_and_loss >> 32) as u32), Scratch::here()) else {
        return 0;
    };
    let draws = |purpose| draw(config.salt, ordinal, index, purpose);
    let chances = Chances {
        loss: Chance(server_and_loss as u32),
        duplicate: config.duplicate,
        corrupt: config.corrupt,
        burst: config.burst,
    };
    let (tied, memory) = config.ties.decide(Memory(memory, since), &chances, draws);
    // SAFETY: this CPU's scratch; who called has no reference to this part of it.
    unsafe { (&raw mut (*scratch).memory).write_volatile(memory) };
    tied.0
}

/// The entry of the jitter that has drifted since the packet before, behind [`tie`] and by the same numbers.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn drift(server: u32, index: u64, ordinal: u64) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return 0;
    };
    let of = |table: u32, entry: usize| match JITTER.get(table) {
        Some(table) => table.entries[entry & (JITTER_ENTRIES - 1)],
        None => 0,
    };
    let random = draw(config.salt, ordinal, index, Purpose::Jitter);
    let fresh = of(config.ties.normal, random as usize);
    // SAFETY: this CPU's scratch; who called has no reference to this part of it.
    unsafe {
        let (remembered, served) = (&raw mut (*scratch).memory, (*scratch).place.transmitted);
        let memory = config
            .ties
            .drift(remembered.read_volatile(), served, fresh, (random >> 32) as u32);
        remembered.write_volatile(memory);
        quantile(memory, |entry| of(config.ties.cumulative, entry)) as u32
    }
}
