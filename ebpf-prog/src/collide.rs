//! CSMA/CD at a shared server: see [`perturb_common::collisions`]. CPUs that race take steps of their own.

use perturb_common::{
    abi::Event,
    collisions::{Fate, contend},
    units::Instant,
};

use crate::{
    account::{self, Served},
    atomic, framing,
    maps::{COLLISIONS, CONTENTION, SERVERS, STATES},
    scratch::Scratch,
};

/// [`lost`]'s answer for a frame that is given up.
pub(crate) const GIVEN_UP: u64 = u64::MAX;

/// Time that the packet in this CPU's scratch loses to collisions at a server, by its index in the whole map, ticks; or
/// [`GIVEN_UP`]. A global function, which takes numbers only: what has no collisions does not pay for it.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn lost(server: u32) -> u64 {
    let Some(config) = SERVERS.get(server) else {
        return 0;
    };
    let (Some(table), Some(contention), Some(state), Some(scratch)) = (
        COLLISIONS.get(config.collision_table),
        CONTENTION.get_ptr_mut(config.slot),
        STATES.get_ptr_mut(config.slot),
        Scratch::here(),
    ) else {
        account::count(Event::Inconsistent);
        return 0;
    };
    // SAFETY: values of maps, and this CPU's scratch; nothing else is called meanwhile.
    let (fate, segments) = unsafe {
        let free = Instant(atomic::load(&raw const (*state).free));
        let walk = &(*scratch).walk;
        let station = u32::from((*scratch).key.source[15]);
        let times = (walk.time, free);
        (
            contend(
                &mut *contention,
                table,
                config,
                station,
                times,
                framing::on_wire(config, walk),
            ),
            walk.load.segments,
        )
    };
    match fate {
        // Less than 2^46 ticks, at most 2^16 times.
        Fate::Lost(ticks) => ticks.0.wrapping_mul(segments),
        Fate::GivenUp => {
            account::server(config.slot, 0, &Served::Lost);
            GIVEN_UP
        }
    }
}
