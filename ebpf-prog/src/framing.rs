//! What a link sends besides packets' bytes: see [`perturb_common::framing`].

use perturb_common::{
    abi::{SERVER_FRAMING, ServerConfig},
    departure::Load,
};

use crate::{
    maps::SERVERS,
    scratch::{Scratch, Walk},
};

/// Notes the bytes that the packet in this CPU's scratch takes on the wire of a server, by its index in the whole map. A global
/// function, which takes numbers only: servers without framing do not pay for it.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn frame(server: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return 0;
    };
    // SAFETY: this CPU's scratch; who called has no reference to it.
    let walk = unsafe { &mut (*scratch).walk };
    walk.wire = config.framing.on_wire(walk.load);
    1
}

/// What the packet takes on the wire; [`frame`] came before.
#[inline(always)]
pub(crate) fn on_wire(config: &ServerConfig, walk: &Walk) -> Load {
    Load {
        bytes: if config.flags & SERVER_FRAMING != 0 {
            walk.wire
        } else {
            walk.load.bytes
        },
        segments: walk.load.segments,
    }
}
