//! Which cgroup of the profile sends a packet, and how that travels with it.

use aya_ebpf::{
    helpers::{bpf_get_hash_recalc, bpf_set_hash, bpf_set_hash_invalid, bpf_skb_ancestor_cgroup_id},
    programs::TcContext,
};
use perturb_common::abi::{MAX_CGROUP_LEVEL, NONE, Tag, carried_cgroup, carry_cgroup, cgroups_span};

use crate::{
    classify::locate,
    maps::{HAVE_CGROUPS, SETTINGS},
    packet::skb,
};

/// The number of the deepest cgroup of the profile that the packet's socket was made in or below; 0 if there is none, or no
/// socket. `levels` are those of `Settings::cgroup_levels`. A subprogram of its own: the verifier comes back from it in one way.
#[inline(never)]
pub(crate) fn of_sender(ctx: &TcContext, half: u32, levels: u32) -> u32 {
    if HAVE_CGROUPS.load() == 0 {
        return 0;
    }
    for step in 0..MAX_CGROUP_LEVEL {
        let level = MAX_CGROUP_LEVEL - step;
        if levels >> level & 1 == 0 {
            continue;
        }
        // SAFETY: a helper on the context of a running program.
        let id = unsafe { bpf_skb_ancestor_cgroup_id(ctx.skb.skb, level as i32) };
        if id == 0 {
            continue;
        }
        let number = locate(cgroups_span(half & 1), 0, id, NONE);
        if number != NONE {
            return number;
        }
    }
    0
}

/// A hash for sch_fq that carries a cgroup, if the profile of this half names any.
#[inline(always)]
pub(crate) fn with(hash: u32, half: u32, cgroup: u16) -> u32 {
    match SETTINGS.get(half & 1) {
        Some(settings) if settings.cgroup_levels != 0 => carry_cgroup(hash, cgroup),
        _ => hash,
    }
}

/// Has a packet carry its sender's cgroup through the splitter.
#[inline(always)]
pub(crate) fn carry(ctx: &TcContext, cgroup: u16) {
    // SAFETY: helpers on the context of a running program.
    unsafe {
        bpf_set_hash(
            ctx.skb.skb,
            carry_cgroup(bpf_get_hash_recalc(ctx.skb.skb), cgroup),
        )
    };
}

/// Notes which cgroup sent a packet that comes out of the splitter; what carried it is taken off.
#[inline(always)]
pub(crate) fn of_part(ctx: &TcContext, tag: Tag, cgroup: *mut u64) {
    let carried = if tag.waits {
        carried_cgroup(skb(ctx).hash)
    } else {
        0
    };
    // SAFETY: this CPU's scratch, and the context of a running program.
    unsafe {
        cgroup.write_volatile(carried.into());
        if tag.waits {
            bpf_set_hash_invalid(ctx.skb.skb);
        }
    }
}
