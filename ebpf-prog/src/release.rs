//! Takes packets out of the hold device when their time has come, and sends them on: to the
//! interface if their path is done, else through its next leg.

use aya_ebpf::{helpers::bpf_ktime_get_ns, programs::TcContext};
use perturb_common::{
    abi::{Attachment, Event, NONE, Tag},
    units::{MonoNanos, Nanos},
};

use crate::{
    account,
    capture::{self, Profile, attachment},
    fold,
    hold::{self, Held},
    lead, packet,
    scratch::{Job, Scratch},
    sight,
};

/// The program at the far end of a hold device.
#[inline(always)]
pub(crate) fn release(ctx: &TcContext) -> i32 {
    let Some(attachment) = attachment(packet::skb(ctx).ifindex) else {
        return hold::DISCARD;
    };
    let Some(scratch) = Scratch::here() else {
        return hold::DISCARD;
    };
    match hold::reclaim(ctx, scratch) {
        // SAFETY: this CPU's scratch.
        Ok(held) => unsafe { (&raw mut (*scratch).held).write_volatile(held) },
        Err(event) => {
            account::event(ctx, event);
            return hold::DISCARD;
        }
    }
    let held = known(scratch);
    // SAFETY: the helper has no preconditions.
    let now = MonoNanos(unsafe { bpf_ktime_get_ns() });
    if held.tag.position != 0 {
        let late = lead::lateness(&held, now);
        account::lateness(late);
        // SAFETY: this CPU's scratch.
        unsafe { (*scratch).late = late.0 };
    } else {
        // Out of the splitter: its path begins.
        account::count(Event::Captured);
    }
    if held.tag.position != Tag::DELIVER
        && let Some(action) = next_leg(ctx, attachment, scratch, now)
    {
        return action;
    }
    account::event(ctx, Event::Released);
    sight::released(ctx, attachment.target, now);
    hold::deliver(ctx, attachment, held.tag.direction)
}

/// The packet at hand. By way of memory: the verifier then knows the same of it, wherever it comes from, and walks on once.
#[inline(always)]
fn known(scratch: *const Scratch) -> Held {
    // SAFETY: this CPU's scratch, of this packet.
    unsafe { (&raw const (*scratch).held).read_volatile() }
}

/// 1 if the packet at hand waited between two servers of a path that may be another one now: its position is an index of the
/// old path, and would mean another server on the new one. A global function, which takes a number only: the verifier walks
/// on once, whatever the answer was made of.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn outdated(epoch: u32) -> u32 {
    let Some(scratch) = Scratch::here() else { return 0 };
    let tag = known(scratch).tag;
    // At position 0 it comes from the splitter, and its path has not begun.
    u32::from(tag.position != 0 && tag.epoch != Tag::epoch(epoch))
}

/// Folds the path further from the packet's logical arrival; `None` if there is no path any more
/// (the profile changed, or the lease ran out): the packet is delivered at once.
#[inline(always)]
fn next_leg(ctx: &TcContext, attachment: &Attachment, scratch: *mut Scratch, now: MonoNanos) -> Option<i32> {
    let profile = Profile::in_force(ctx, now.0)?;
    let direction = fold::direction(known(scratch).tag.direction);
    // SAFETY: this CPU's scratch, and the reference ends with the call.
    packet::parse(ctx, direction, unsafe { &mut *scratch }).ok()?;
    // SAFETY: this CPU's scratch.
    let (class, path) = unsafe {
        if profile.settings.cgroup_levels != 0 {
            (&raw mut (*scratch).key.cgroup).write_volatile((*scratch).cgroup as u16);
        }
        profile.path(scratch, direction)
    };
    let changed = outdated(profile.settings.epoch) != 0;
    if changed {
        account::event(ctx, Event::Outdated);
    }
    if changed || path == NONE {
        // SAFETY: as above.
        account::class(direction, class, unsafe { (*scratch).load }, Some(Nanos(0)));
        return None;
    }
    let half = profile.half();
    let held = known(scratch);
    let position = held.tag.position;
    if position >= fold::path(half, path)?.len {
        return None;
    }
    // A stamp that could not be written over is a sender's, who may ask for any time.
    let latest = MonoNanos(now.0.saturating_add(capture::FARTHEST_STAMP));
    let arrival = match held.departure {
        MonoNanos(0) => lead::arrival(now),
        departure if position == 0 => departure.min(latest),
        departure => departure,
    };
    let job = Job {
        now,
        arrival,
        half,
        class,
        path,
        position,
        epoch: Tag::epoch(profile.settings.epoch),
    };
    // SAFETY: as above.
    unsafe { (*scratch).job = job };
    Some(fold::run(ctx, attachment, scratch))
}
