//! The memory that sch_fq's packets take, and its limit: see [`perturb_common::memory`]. The user pacer counts what it holds
//! itself.

use aya_ebpf::programs::TcContext;
use perturb_common::{
    abi::{Direction, HELD_ALL, HELD_LOST, PACER_USER},
    memory::{self, Held},
    shared::Word as _,
};

use crate::{
    atomic::Shared,
    maps::{HELD, HELD_HERE, PACER, SETTINGS},
    packet::skb,
};

/// Bytes of a VLAN tag. A receiver takes the outermost one out of the data (`skb_vlan_untag`): what carries one before it is
/// held, carries it beside its data afterwards.
const TAG: u32 = 4;

/// Charges so many packets like this one; whether the limit allows it.
#[inline(always)]
pub(crate) fn charge(ctx: &TcContext, direction: u32, packets: u32, half: u32) -> bool {
    PACER.load() == PACER_USER || take(length(ctx), skb(ctx).gso_size, direction, packets, half) != 0
}

/// Takes the charge of so many packets like this one back.
#[inline(always)]
pub(crate) fn discharge(ctx: &TcContext, direction: u32, packets: u32) {
    if PACER.load() != PACER_USER {
        give(length(ctx), skb(ctx).gso_size, direction, packets);
    }
}

/// Its length, with its VLAN tags wherever they are.
#[inline(always)]
fn length(ctx: &TcContext) -> u32 {
    let skb = skb(ctx);
    // Without a branch: the verifier would walk what follows twice.
    skb.len + skb.vlan_present * TAG
}

#[inline(always)]
fn of(len: u32, gso_size: u32, direction: u32, packets: u32) -> Held {
    let received = direction == Direction::Ingress as u32;
    Held::new(packets, memory::of(len, gso_size, received) * packets)
}

/// A word of everybody's.
#[inline(always)]
fn word(index: u32) -> Option<Shared> {
    let word = HELD.get_ptr_mut(index)?;
    // SAFETY: an aligned word of a map value.
    Some(unsafe { Shared::new(word) })
}

/// A global function, which takes numbers only: the verifier walks its branches once.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn take(len: u32, gso_size: u32, direction: u32, packets: u32, half: u32) -> u32 {
    let more = of(len, gso_size, direction, packets);
    let (Some(settings), Some(all), Some(lost)) = (SETTINGS.get(half & 1), word(HELD_ALL), word(HELD_LOST))
    else {
        return 0;
    };
    let held = Held(all.load()).without(Held(lost.load()));
    if !memory::admits(held, more, settings.held) {
        return 0;
    }
    note(&all, more)
}

/// Another one.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn give(len: u32, gso_size: u32, direction: u32, packets: u32) -> u32 {
    match word(HELD_ALL) {
        Some(all) => note(&all, Held(0).without(of(len, gso_size, direction, packets))),
        None => 0,
    }
}

#[inline(always)]
fn note(all: &Shared, more: Held) -> u32 {
    let Some(here) = HELD_HERE.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: a per-CPU value, and tc programs do not preempt each other on a CPU.
    unsafe { *here = memory::note(all, Held(*here), more).0 };
    1
}
