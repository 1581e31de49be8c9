//! What `perturb capture` sees: of each packet of the classes that it asks for what the fold made of it, and its release. While
//! nobody captures, a packet costs the look in [`begin`] and one at a word of this CPU's scratch for each server.
//!
//! Only the copy of a packet's bytes needs its context ([`snap`]). All else is global functions, which take numbers only: the
//! verifier walks them once.

use aya_ebpf::{
    bindings::BPF_RB_NO_WAKEUP,
    helpers::{bpf_ktime_get_ns, bpf_skb_load_bytes},
    macros::map,
    maps::PerCpuArray,
    programs::TcContext,
};
use perturb_common::{
    abi::{
        CONTROL_CLASSES, CONTROL_SIGHT, CONTROL_SNAP, CROSSINGS, Crossing, MAX_CLASSES, MAX_SNAP, NONE,
        SIGHTED_CORRUPTED, SIGHTED_DUPLICATED, SIGHTED_MARK, Sight, Sighting,
    },
    units::MonoNanos,
};

use crate::{
    lead,
    maps::{CONTROL, SIGHTINGS, UNSEEN},
    packet::skb,
    scratch::{Scratch, Walk},
};

/// A record while it is made.
#[repr(C)]
pub(crate) struct Stage {
    head: Sighting,
    /// Crossings, and right behind them the packet's bytes.
    rest: [u8; CROSSINGS * size_of::<Crossing>() + MAX_SNAP as usize],
}

// SAFETY: each CPU has its own, and programs of this crate do not nest on a CPU.
unsafe impl Sync for Stage {}

/// The BPF stack is too small, and of the ring buffer the verifier wants constant sizes.
#[map]
static STAGE: PerCpuArray<Stage> = PerCpuArray::with_max_entries(1, 0);

/// Whether somebody captures.
#[inline(always)]
pub(crate) fn watched(now: u64) -> bool {
    // SAFETY: a value of a map that lives as long as the program; written with one store.
    CONTROL
        .get_ptr(CONTROL_SIGHT)
        .is_some_and(|until| now < unsafe { until.read_volatile() })
}

/// Before a leg of the job in this CPU's scratch is folded.
#[inline(always)]
pub(crate) fn begin(scratch: *mut Scratch) {
    // By way of memory: the verifier then walks on once, whatever the answer.
    // SAFETY: this CPU's scratch.
    unsafe {
        let wanted = if watched((*scratch).job.now.0) {
            is_wanted((*scratch).job.class)
        } else {
            0
        };
        (&raw mut (*scratch).sighted.on).write_volatile(u64::from(wanted));
    }
}

/// 1 if packets of this class are captured.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn is_wanted(class: u32) -> u32 {
    let Some(scratch) = Scratch::here() else { return 0 };
    // SAFETY: this CPU's scratch.
    unsafe {
        (*scratch).sighted.crossings = 0;
        (*scratch).walk.wait = 0;
    }
    if class >= MAX_CLASSES {
        return 0;
    }
    let Some(word) = CONTROL.get_ptr(CONTROL_CLASSES + class / 64) else {
        return 0;
    };
    // SAFETY: a value of a map that lives as long as the program.
    let word = unsafe { word.read_volatile() };
    (word >> (class % 64)) as u32 & 1
}

#[inline(always)]
fn is_on(scratch: *mut Scratch) -> bool {
    // SAFETY: this CPU's scratch.
    unsafe { (&raw const (*scratch).sighted.on).read_volatile() != 0 }
}

/// The packet has crossed a server, or was dropped there.
#[inline(always)]
pub(crate) fn crossed(scratch: *mut Scratch, server: u32) {
    if is_on(scratch) {
        note_crossing(server);
    }
}

#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn note_crossing(server: u32) -> u32 {
    let (Some(scratch), Some(stage)) = (Scratch::here(), STAGE.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: this CPU's scratch and stage; the index is masked.
    unsafe {
        let place = (*scratch).sighted.crossings as usize & (CROSSINGS - 1);
        let crossing = (&raw mut (*stage).rest).cast::<Crossing>().add(place);
        (&raw mut (*crossing).time).write_volatile((*scratch).walk.time.0);
        (&raw mut (*crossing).wait).write_volatile((*scratch).walk.wait);
        (&raw mut (*crossing).server).write_volatile(server);
        (&raw mut (*crossing).reserved).write_volatile(0);
        (*scratch).sighted.crossings = place as u64 + 1;
        // The next server may pass the packet without a look.
        (*scratch).walk.wait = 0;
    }
    0
}

/// A leg was folded: the packet departs then, or was dropped for this event.
#[inline(always)]
pub(crate) fn folded(
    ctx: &TcContext,
    scratch: *mut Scratch,
    interface: u32,
    event: u32,
    departure: MonoNanos,
) {
    if is_on(scratch) {
        // SAFETY: this CPU's scratch.
        snap(ctx, unsafe { (*scratch).sighted.crossings });
        tell_fold(interface, event, departure.0);
    }
}

/// The packet leaves the emulation.
#[inline(always)]
pub(crate) fn released(ctx: &TcContext, interface: u32, now: MonoNanos) {
    if watched(now.0) {
        snap(ctx, 0);
        tell_release(interface, now.0);
    }
}

/// Copies the packet's bytes behind so many crossings, and notes what only its context says.
#[inline(always)]
fn snap(ctx: &TcContext, crossings: u64) {
    let (Some(stage), Some(limit)) = (STAGE.get_ptr_mut(0), CONTROL.get_ptr(CONTROL_SNAP)) else {
        return;
    };
    let skb = skb(ctx);
    // SAFETY: this CPU's stage, with room for as many bytes as the masks let through, behind as many crossings; the helper
    // writes all of them or fails.
    unsafe {
        let head = &raw mut (*stage).head;
        let length = skb.len;
        (&raw mut (*head).length).write_volatile(length);
        let vlan = if skb.vlan_present != 0 {
            skb.vlan_proto << 16 | skb.vlan_tci & 0xffff
        } else {
            0
        };
        (&raw mut (*head).vlan).write_volatile(vlan);
        (&raw mut (*head).segments).write_volatile(skb.gso_segs);
        let limit = limit.read_volatile() as u32;
        let bytes = bounded(if length < limit { length } else { limit });
        let at = (crossings as usize & (CROSSINGS - 1)) * size_of::<Crossing>();
        let to = (&raw mut (*stage).rest).cast::<u8>().add(at);
        let error = bpf_skb_load_bytes(ctx.skb.skb.cast(), 0, to.cast(), bytes);
        (&raw mut (*head).bytes).write_volatile(if error == 0 { bytes } else { 0 });
    }
}

/// A number that is 1 to [`MAX_SNAP`], so that the verifier knows it.
#[inline(always)]
fn bounded(bytes: u32) -> u32 {
    const { assert!(MAX_SNAP.is_power_of_two()) };
    (bytes.wrapping_sub(1) & (MAX_SNAP - 1)) + 1
}

#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn tell_fold(interface: u32, event: u32, departure: u64) -> u32 {
    let (Some(scratch), Some(stage)) = (Scratch::here(), STAGE.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: this CPU's scratch and stage, of which nothing else is called meanwhile.
    unsafe {
        let head = &mut (*stage).head;
        let walk = &(*scratch).walk;
        let mut flags = 0;
        if walk.flags & Walk::MARK != 0 {
            flags |= SIGHTED_MARK;
        }
        if walk.copies > 1 {
            flags |= SIGHTED_DUPLICATED;
        }
        if walk.damage != 0 {
            flags |= SIGHTED_CORRUPTED;
        }
        let job = &(*scratch).job;
        head.time = job.now.0;
        if job.position == 0 {
            // One that was split came before its parts came out.
            let came = lead::came(job.arrival, job.now);
            head.time = if came.0 < job.now.0 { came.0 } else { job.now.0 };
        }
        head.arrival = job.arrival.0;
        head.departure = departure;
        head.lateness = 0;
        head.what = Sight::Folded as u32;
        head.event = event;
        head.direction = (*scratch).key.direction.into();
        head.interface = interface;
        head.class = (*scratch).job.class;
        head.position = (*scratch).job.position;
        head.crossings = (*scratch).sighted.crossings as u32 & (CROSSINGS as u32 - 1);
        head.flags = flags;
        head.half = (*scratch).job.half;
        head.reserved = 0;
    }
    put(stage)
}

#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn tell_release(interface: u32, now: u64) -> u32 {
    let (Some(scratch), Some(stage)) = (Scratch::here(), STAGE.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: as above.
    unsafe {
        let head = &mut (*stage).head;
        let held = &(*scratch).held;
        // One that was only split was never held.
        let was_held = held.tag.position != 0;
        head.time = now;
        head.arrival = 0;
        head.departure = if was_held { held.departure.0 } else { 0 };
        head.lateness = (*scratch).late;
        head.what = Sight::Released as u32;
        head.event = NONE;
        head.direction = held.tag.direction;
        head.interface = interface;
        head.class = NONE;
        head.position = held.tag.position;
        head.crossings = 0;
        head.flags = 0;
        head.half = 0;
        head.reserved = 0;
    }
    put(stage)
}

/// The hold device did not take the packet that was to depart then, or one of its copies: what was told of its leg is not so.
#[inline(always)]
pub(crate) fn refused(scratch: *mut Scratch, event: u32, departure: MonoNanos) {
    if is_on(scratch) {
        tell_refusal(event, departure.0);
    }
}

#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn tell_refusal(event: u32, departure: u64) -> u32 {
    let (Some(scratch), Some(stage)) = (Scratch::here(), STAGE.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: as above.
    unsafe {
        let head = &mut (*stage).head;
        head.time = bpf_ktime_get_ns();
        head.arrival = 0;
        head.departure = departure;
        head.lateness = 0;
        head.what = Sight::Refused as u32;
        head.event = event;
        head.direction = (*scratch).key.direction.into();
        head.interface = 0;
        head.class = NONE;
        head.position = 0;
        head.crossings = 0;
        head.length = 0;
        head.bytes = 0;
        head.vlan = 0;
        head.segments = 0;
        head.flags = 0;
        head.half = 0;
        head.reserved = 0;
    }
    put(stage)
}

/// Puts the record into the ring buffer, or counts that there is no room.
#[inline(always)]
fn put(stage: *mut Stage) -> u32 {
    // SAFETY: this CPU's stage; the masks keep the length within it.
    let (record, direction) = unsafe {
        let head = &(*stage).head;
        let crossings = head.crossings as usize & (CROSSINGS - 1);
        let bytes = head.bytes as usize & (2 * MAX_SNAP as usize - 1);
        let length = size_of::<Sighting>() + crossings * size_of::<Crossing>() + bytes;
        let length = if length > size_of::<Stage>() {
            size_of::<Stage>()
        } else {
            length
        };
        (
            core::slice::from_raw_parts(stage.cast_const().cast::<u8>(), length),
            head.direction,
        )
    };
    // The reader looks by itself: waking it would cost an interrupt per packet.
    if SIGHTINGS
        .output::<[u8]>(record, u64::from(BPF_RB_NO_WAKEUP))
        .is_ok()
    {
        return 0;
    }
    if let Some(count) = UNSEEN.get_ptr_mut(direction & 1) {
        // SAFETY: a per-CPU value, and tc programs do not preempt each other on a CPU.
        unsafe { *count += 1 };
    }
    0
}
