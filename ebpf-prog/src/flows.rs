//! What `perturb status --flows` shows: flows, noted once each when they are classified, and requests, logged packet by
//! packet while somebody reads the log. Both are global functions, which take numbers only: the verifier walks them
//! once. A packet of a known flow that nobody watches costs the comparison in [`watched`].

use aya_ebpf::{bindings::BPF_RB_NO_WAKEUP, helpers::bpf_ktime_get_ns};
use perturb_common::abi::{CONTROL_WATCH, Event, FlowNote, Request};

use crate::{
    account,
    maps::{CONTROL, NOTED, REQUESTS},
    scratch::Scratch,
};

/// Notes that the flow of this CPU's scratch has this class.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn note(class: u32) -> u32 {
    let Some(scratch) = Scratch::here() else { return 0 };
    // SAFETY: this CPU's scratch; the helpers that are called from here do not write to it.
    let key = unsafe { &(*scratch).key };
    if let Some(known) = NOTED.get_ptr_mut(key) {
        // SAFETY: a map value; an aligned word.
        unsafe { (*known).class = class };
        return 0;
    }
    let note = FlowNote {
        // SAFETY: the helper has no preconditions.
        first: unsafe { bpf_ktime_get_ns() },
        class,
        reserved: 0,
    };
    // The map gives up its oldest flow for it, or lacks memory: then the flow is missing from a list.
    u32::from(NOTED.insert(key, &note, 0).is_err())
}

/// Whether somebody reads the log of requests.
#[inline(always)]
pub(crate) fn watched(now: u64) -> bool {
    // SAFETY: a value of a map that lives as long as the program; written with one store.
    CONTROL
        .get_ptr(CONTROL_WATCH)
        .is_some_and(|until| now < unsafe { until.read_volatile() })
}

/// Logs the packet of this CPU's scratch.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn log(time: u64, class: u32) -> u32 {
    let Some(scratch) = Scratch::here() else { return 0 };
    let Some(mut entry) = REQUESTS.reserve::<Request>(0) else {
        account::count(Event::Unlogged);
        return 0;
    };
    // SAFETY: this CPU's scratch.
    let (key, load) = unsafe { ((*scratch).key, (*scratch).load) };
    entry.write(Request {
        time,
        bytes: load.bytes,
        key,
        segments: load.segments as u32,
        class,
    });
    // The reader looks by itself: waking it would cost an interrupt per packet.
    entry.submit(u64::from(BPF_RB_NO_WAKEUP));
    0
}
