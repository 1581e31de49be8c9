//! Servers whose law judges packets: see [`perturb_common::queue`]. Global functions, which take numbers only: what has no law
//! does not pay for it. Only servers of scope `shared` have one.

use perturb_common::{
    abi::{Event, SERVER_FATE, SERVER_TIES, SERVER_TIMELINE, ServerConfig, in_half},
    departure::{Outcome, Service, departure},
    queue::{self, Head, MOST_UPDATES, State, Verdict, judge_early, judge_start},
    shared::Word,
    steps::{self, ATTEMPTS, LOOKS},
    timeline::Stop,
    units::{Instant, Ticks},
};

use crate::{
    account,
    atomic::Shared,
    buffer, fate,
    fold::{self, Dropped, PASSED, TIED, contended},
    framing,
    maps::{QUEUES, SERVERS, STATES},
    scratch::{Scratch, Walk},
    timeline,
};

/// What a law says of the packet at hand.
#[repr(C)]
pub(crate) struct Judged {
    service: Service,
    head: Head,
    /// What the law remembers after it; what it remembered before stays in [`QUEUES`] meanwhile.
    after: State,
    /// A [`Verdict`].
    verdict: u32,
    /// 0, or why it is not served: the number of a [`Stop`], or [`EARLY`].
    stopped: u32,
}

/// A state from one place to another, word by word: not by way of the stack.
#[inline(always)]
fn copy(from: &State, to: &mut State) {
    const WORDS: usize = size_of::<State>() / size_of::<u64>();
    const { assert!(size_of::<State>() == WORDS * size_of::<u64>() && align_of::<State>() == align_of::<u64>()) };
    let (from, to) = (&raw const *from, &raw mut *to);
    for word in 0..WORDS {
        // SAFETY: references to so many aligned words.
        unsafe {
            to.cast::<u64>()
                .add(word)
                .write_volatile(from.cast::<u64>().add(word).read_volatile());
        }
    }
}

/// Crosses a server whose law judges packets, with the packet in this CPU's scratch, as `visit` does the others: [`PASSED`], or the
/// number of the event that dropped it.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn cross(server: u32, half: u32) -> u32 {
    let index = in_half(half, server);
    let Some(config) = SERVERS.get(index) else {
        account::count(Event::Inconsistent);
        return PASSED;
    };
    let limited = config.ring_len != 0;
    if limited && buffer::reserve(index) == 0 {
        return Event::PacketLimit as u32;
    }
    let mut event = served(config, index);
    if event == PASSED && config.flags & SERVER_FATE != 0 {
        event = if config.flags & SERVER_TIES != 0 {
            TIED
        } else {
            fate::fate(index)
        };
    }
    if limited {
        buffer::settle(index);
    }
    event
}

/// [`queue::spacing`].
#[inline(always)]
fn spacing(interval: Ticks, count: u32) -> Ticks {
    Ticks(space(interval.0, count))
}

/// The same, as a global function.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn space(interval: u64, count: u32) -> u64 {
    queue::spacing(Ticks(interval), count).0
}

/// Whether a server changes.
#[inline(always)]
fn changes(config: &ServerConfig) -> bool {
    config.flags & SERVER_TIMELINE != 0
}

/// The times of the packet in this CPU's scratch at this server.
///
/// # Safety
/// `scratch` must be this CPU's, and [`step`] or [`timeline::depart`] have said 0.
#[inline(always)]
unsafe fn times(config: &ServerConfig, scratch: *mut Scratch) -> Service {
    // SAFETY: the caller's.
    unsafe {
        if changes(config) {
            (*scratch).change.times()
        } else {
            (*scratch).judged.service
        }
    }
}

/// [`Judged::stopped`], beside the numbers of a [`Stop`]: by the law.
const EARLY: u32 = 64;

/// [`Judged::stopped`] after this verdict.
#[inline(always)]
const fn stopped_by(verdict: u32) -> u32 {
    if verdict == Verdict::Drop as u32 { EARLY } else { 0 }
}

/// The step of the packet in this CPU's scratch at a server that does not change, by its index in the whole map, that is free again
/// then, and what the law says of it if [`ready`] said [`JUDGED`]: 0, and [`Judged`] has its times, or [`Judged::stopped`].
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn step(server: u32, free: u64, judges: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return Stop::Inconsistent as u32;
    };
    // SAFETY: this CPU's scratch; who called has no reference to these parts of it.
    let (walk, judged) = unsafe { (&(*scratch).walk, &mut (*scratch).judged) };
    let load = framing::on_wire(config, walk);
    match departure(&config.server, Instant(free), walk.time, load) {
        Outcome::Served(service) => judged.service = service,
        Outcome::TailDrop => return Stop::TailDrop as u32,
        _ => return Stop::BeyondHorizon as u32,
    }
    if judges != JUDGED {
        return 0;
    }
    let small = config.law.small_takes(config.server.gap, config.server.per_byte);
    meet(config, judged, Instant(free), walk, judged.service.backlog, small);
    if config.law.is_early() {
        return stopped_by(early(server));
    }
    judged.verdict = judge_start(&config.law, &mut judged.after, judged.head, spacing) as u32;
    stopped_by(judged.verdict)
}

/// Puts a packet that waits for `sojourn` before a server's law.
#[inline(always)]
fn meet(
    config: &ServerConfig,
    judged: &mut Judged,
    free: Instant,
    walk: &Walk,
    sojourn: Ticks,
    small: Ticks,
) {
    // A step remembers nothing.
    if config.law.kind != queue::STEP
        && let Some(queue) = QUEUES.get_ptr_mut(config.slot)
    {
        // SAFETY: a map value that is this CPU's: it has the lock.
        copy(unsafe { &(*queue).state }, &mut judged.after);
    }
    judged.head.start = walk.time.after(sojourn);
    judged.head.sojourn = sojourn;
    judged.head.idle = walk.time.since(free);
    judged.head.small = small;
    judged.head.ecn = walk.ecn();
    judged.head.salt = config.salt;
}

/// What the law of a server that changes says of the packet in this CPU's scratch, whose times are known: [`Judged::stopped`].
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn judge(server: u32, free: u64) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return 0;
    };
    // SAFETY: this CPU's scratch; who called has no reference to these parts of it.
    unsafe {
        let sojourn = (*scratch).change.times().backlog;
        let own = || config.law.small_takes(config.server.gap, config.server.per_byte);
        let small = (*scratch)
            .change
            .small_takes(&config.law, Instant(free))
            .unwrap_or_else(own);
        let (walk, judged) = (&(*scratch).walk, &mut (*scratch).judged);
        meet(config, judged, Instant(free), walk, sojourn, small);
    }
    stopped_by(if config.law.is_early() {
        early(server)
    } else {
        begin(server)
    })
}

/// The verdict of a law that judges packets as their service begins, a function of its own, for the stack's sake: a [`Verdict`].
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn begin(server: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return Verdict::Pass as u32;
    };
    // SAFETY: this CPU's scratch; who called has no reference to this part of it.
    let judged = unsafe { &mut (*scratch).judged };
    judged.verdict = judge_start(&config.law, &mut judged.after, judged.head, spacing) as u32;
    judged.verdict
}

/// The same of one that judges them as they come.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn early(server: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return Verdict::Pass as u32;
    };
    // SAFETY: this CPU's scratch; who called has no reference to this part of it.
    let judged = unsafe { &mut (*scratch).judged };
    judged.verdict = judge_early(&config.law, &mut judged.after, judged.head) as u32;
    judged.verdict
}

/// [`queue::update`] of the server's law before the packet in this CPU's scratch, at a server that is free again then: 1 if there
/// may be another.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn update(server: u32, free: u64) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return 0;
    };
    let Some(queue) = QUEUES.get_ptr_mut(config.slot) else {
        return 0;
    };
    // SAFETY: this CPU's scratch, and a map value that is this CPU's: it has the lock.
    let (now, state) = unsafe { ((*scratch).walk.time, &mut (*queue).state) };
    let small = config.law.small_takes(config.server.gap, config.server.per_byte);
    u32::from(queue::update(&config.law, state, Instant(free), now, small))
}

/// As many as the square root of [`MOST_UPDATES`], and [`catch_up`] as many of these: the verifier walks each loop once.
const UPDATES: u32 = MOST_UPDATES.isqrt();

/// Some of the updates.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn updates(server: u32, free: u64) -> u32 {
    for _ in 0..UPDATES {
        if update(server, free) == 0 {
            return 0;
        }
    }
    1
}

/// All updates until the packet in this CPU's scratch comes.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn catch_up(server: u32, free: u64) -> u32 {
    for _ in 0..UPDATES {
        if updates(server, free) == 0 {
            return 0;
        }
    }
    1
}

/// Takes the lock of the queue in this slot that another CPU has: 1, or 0. A function of its own: the verifier walks on once, however
/// often it has looked.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn take_queue(slot: u32) -> u32 {
    let Some(queue) = QUEUES.get_ptr_mut(slot) else {
        return 0;
    };
    // SAFETY: an aligned word of a map value.
    let lock = unsafe { Shared::new(&raw mut (*queue).lock) };
    u32::from(steps::lock::<LOOKS, _>(&lock))
}

/// [`ready`]'s answer: the law judges the packet, and this CPU has the queue's lock, unless nothing is remembered.
const JUDGED: u32 = 1;
/// [`ready`]'s answer: another CPU that has the lock is kept from running; this packet goes without a verdict.
const UNJUDGED: u32 = 0;
/// [`ready`]'s answer: the tables contradict themselves.
const SKIPPED: u32 = 2;

/// Readies the server's law for the packet in this CPU's scratch.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn ready(server: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return SKIPPED;
    };
    let Some(queue) = QUEUES.get_ptr_mut(config.slot) else {
        return SKIPPED;
    };
    if changes(config) && timeline::ready(config, scratch, 0).is_none() {
        return SKIPPED;
    }
    // SAFETY: this CPU's scratch, to which no other reference lives here.
    unsafe { (*scratch).judged.verdict = Verdict::Pass as u32 };
    // A step remembers nothing.
    if config.law.kind == queue::STEP {
        return JUDGED;
    }
    // SAFETY: an aligned word of a map value.
    let lock = unsafe { Shared::new(&raw mut (*queue).lock) };
    if !steps::lock::<1, _>(&lock) && take_queue(config.slot) == 0 {
        return UNJUDGED;
    }
    // SAFETY: a map value that is this CPU's: it has the lock.
    unsafe { (*queue).state.begin(&config.law) };
    JUDGED
}

/// Service: [`PASSED`], or the number of an event. In its caller's frame, for the stack's sake.
#[inline(always)]
fn served(config: &ServerConfig, server: u32) -> u32 {
    let judged = ready(server);
    let (Some(scratch), Some(state)) = (Scratch::here(), STATES.get_ptr_mut(config.slot)) else {
        return PASSED;
    };
    if judged == SKIPPED {
        account::count(Event::Inconsistent);
        return PASSED;
    }
    // SAFETY: an aligned word of a map value.
    let free = unsafe { Shared::new(&raw mut (*state).free) };
    if judged == JUDGED && config.law.is_early() {
        catch_up(server, free.load());
    }
    let depart = |free: Instant| {
        let stopped = if !changes(config) {
            step(server, free.0, judged)
        } else {
            match timeline::depart(server, free.0) {
                0 if judged == JUDGED => judge(server, free.0),
                stopped => stopped,
            }
        };
        // SAFETY: this CPU's scratch; no reference to it lives here.
        unsafe {
            (*scratch).judged.stopped = stopped;
            if stopped == 0 {
                Outcome::Served(times(config, scratch))
            } else {
                Outcome::Early
            }
        }
    };
    // SAFETY: this CPU's scratch.
    let arrival = unsafe { (*scratch).walk.time };
    steps::serve::<ATTEMPTS, _>(&free, arrival, depart, contended);
    finish(server, judged)
}

/// What follows the service of the packet in this CPU's scratch: [`PASSED`], or the number of an event.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn finish(server: u32, judged: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return PASSED;
    };
    let Some(queue) = QUEUES.get_ptr_mut(config.slot) else {
        return PASSED;
    };
    if changes(config) {
        timeline::found(config, scratch);
    }
    // SAFETY: this CPU's scratch; no reference to it lives here.
    let (arrival, load, stopped) = unsafe {
        (
            (*scratch).walk.time,
            (*scratch).walk.load,
            (*scratch).judged.stopped,
        )
    };
    // SAFETY: as above.
    let waited = || unsafe { times(config, scratch) }.backlog.nanos();
    if judged != JUDGED {
        contended();
    } else if config.law.kind == queue::STEP {
        if stopped == 0 {
            account::waited(config.slot, waited());
        }
    } else {
        // A packet that was refused before the law saw it leaves nothing.
        if stopped == 0 || stopped == EARLY {
            // SAFETY: this CPU's scratch, and a map value that is this CPU's: it has the lock.
            unsafe { copy(&(*scratch).judged.after, &mut (*queue).state) };
        }
        if stopped == 0 {
            account::waited_alone(config.slot, waited());
        }
        // SAFETY: an aligned word of a map value.
        steps::unlock(&unsafe { Shared::new(&raw mut (*queue).lock) });
    }
    let outcome = if stopped == 0 {
        // SAFETY: this CPU's scratch: the packet is served.
        Outcome::Served(unsafe { times(config, scratch) })
    } else if stopped == EARLY {
        Outcome::Early
    } else if stopped == Stop::TailDrop as u32 {
        Outcome::TailDrop
    } else if stopped == Stop::Down as u32 {
        Outcome::Down
    } else {
        if stopped == Stop::Inconsistent as u32 {
            account::count(Event::Inconsistent);
        }
        Outcome::BeyondHorizon
    };
    let service = match fold::served(config, outcome, arrival, load) {
        Ok(service) => service,
        Err(Dropped(event)) => return event,
    };
    // SAFETY: this CPU's scratch, of which nothing else is called meanwhile.
    let (walk, place, verdict) = unsafe {
        (
            &mut (*scratch).walk,
            &mut (*scratch).place,
            (*scratch).judged.verdict,
        )
    };
    place.transmitted = service.free.0;
    fold::note(config, &service, walk);
    if verdict != Verdict::Pass as u32 {
        walk.flags |= Walk::MARK;
        account::verdict(config.slot, verdict);
    }
    PASSED
}
