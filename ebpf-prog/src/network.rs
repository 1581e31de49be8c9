//! The path of a packet through a network of many hosts, joined from two lists: see
//! [`perturb_common::network`]. Which hosts a flow goes between is searched once per flow, as its class is.

use aya_ebpf::helpers::bpf_get_prandom_u32;
use perturb_common::{
    abi::{NONE, PAIR_PLACES, Path, hosts_span, in_half},
    flow::WAYS,
    network::{Pair, PairEntry},
};

use crate::{
    classify::{address, locate},
    maps::{JOINED, PAIRS, PATHS, SETTINGS},
    scratch::Scratch,
};

/// Joins the path of the packet in this CPU's scratch: 1, or 0 if it goes between no two hosts of the network. A
/// global function, which takes numbers only: the verifier walks it once.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn join(half: u32) -> u32 {
    let half = half & 1;
    let Some(settings) = SETTINGS.get(half) else {
        return 0;
    };
    let known = pair(half);
    if known == NONE {
        return 0;
    }
    let pair = Pair {
        from: known >> 16,
        to: known & 0xffff,
    };
    let network = &settings.network;
    if pair.from >= network.hosts || pair.to >= network.hosts {
        return 0;
    }
    let (Some(outward), Some(inward)) = (
        PATHS.get(in_half(half, network.outward(pair.from))),
        PATHS.get(in_half(half, network.inward(pair.to))),
    ) else {
        return 0;
    };
    let Some(path) = JOINED.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: a per-CPU value; programs of this crate do not nest on a CPU, and the reference ends here.
    network.join(pair, outward, inward, unsafe { &mut *path });
    1
}

/// The path that was joined last on this CPU.
#[inline(always)]
pub(crate) fn joined() -> Option<&'static Path> {
    JOINED.get(0)
}

/// Sender (high half) and receiver of the packet in this CPU's scratch, or [`NONE`].
#[inline(always)]
fn pair(half: u32) -> u32 {
    let Some(scratch) = Scratch::here() else {
        return NONE;
    };
    // SAFETY: this CPU's.
    let hash = unsafe { (*scratch).hash };
    let bucket = hash as u32 & (PAIR_PLACES - 1) & !(WAYS - 1);
    for way in 0..WAYS {
        // SAFETY: a map value, and one load: other CPUs write places as a whole.
        let entry = PAIRS
            .get_ptr(bucket + way)
            .map(|place| unsafe { place.read_volatile() });
        if let Some(pair) = entry.and_then(|entry| entry.open(hash)) {
            return pair.from << 16 | pair.to;
        }
    }
    let (from, to) = unsafe {
        // SAFETY: this CPU's; the references end with the calls.
        let (source, destination) = (
            address(&(*scratch).key.source),
            address(&(*scratch).key.destination),
        );
        let span = hosts_span(half);
        (
            locate(span, source.0, source.1, NONE),
            locate(span, destination.0, destination.1, NONE),
        )
    };
    if from == to || from > 0xffff || to > 0xffff {
        return NONE;
    }
    // SAFETY: the helper has no preconditions.
    let way = unsafe { bpf_get_prandom_u32() } & (WAYS - 1);
    if let Some(place) = PAIRS.get_ptr_mut(bucket + way) {
        let entry = PairEntry::new(hash, Pair { from, to });
        // SAFETY: a map value, written with one store.
        unsafe { place.write_volatile(entry) };
    }
    from << 16 | to
}
