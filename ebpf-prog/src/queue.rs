//! Servers whose law judges packets: see [`perturb_common::queue`]. Global functions, which take numbers only: what has no law
//! does not pay for it. Only servers of scope `shared` have one.

use aya_ebpf::{helpers::bpf_skb_load_bytes, programs::TcContext};
use perturb_common::{
    abi::{Event, SERVER_FATE, SERVER_TIES, ServerConfig, in_half},
    departure::{Outcome, Service, departure},
    queue::{self, Head, MOST_UPDATES, State, Verdict, judge_early, judge_start},
    shared::Word,
    steps::{self, ATTEMPTS, LOOKS},
    units::{Instant, Ticks},
};

use crate::{
    account,
    atomic::Shared,
    buffer,
    fold::{self, Dropped, JUDGES, PASSED, TIED, contended},
    framing,
    maps::{QUEUES, SERVERS, STATES},
    packet::{ETHERNET, IPV4, IPV6, skb},
    scratch::{Scratch, Walk},
};

/// What a law says of the packet at hand.
#[repr(C)]
pub(crate) struct Judged {
    service: Service,
    head: Head,
    /// What the law remembered before it, and then.
    before: State,
    after: State,
    /// Its ECN field.
    ecn: u32,
    /// A [`Verdict`].
    verdict: u32,
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

/// Notes the packet's ECN field in this CPU's scratch: 0 of what is not IP. A subprogram of its own, for the caller's stack: where
/// something is written there on one way only, the verifier walks on twice.
#[inline(never)]
pub(crate) fn look(ctx: &TcContext) {
    let mut first = [0u8; 2];
    // SAFETY: the helper writes all of `first`, or fails.
    let error = unsafe { bpf_skb_load_bytes(ctx.skb.skb.cast(), ETHERNET, first.as_mut_ptr().cast(), 2) };
    let first = u32::from(u16::from_be_bytes(first));
    let ecn = match u16::from_be(skb(ctx).protocol as u16) {
        IPV4 if error == 0 => first & 3,
        IPV6 if error == 0 => first >> 4 & 3,
        _ => 0,
    };
    if let Some(scratch) = Scratch::here() {
        // SAFETY: this CPU's scratch; no reference to this part of it lives.
        unsafe { (*scratch).judged.ecn = ecn };
    }
}

/// Crosses a server whose law judges packets, with the packet in this CPU's scratch, as `visit` does the others: [`PASSED`], or the
/// number of the event that dropped it.
#[unsafe(no_mangle)]
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
            fate(index)
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
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn space(interval: u64, count: u32) -> u64 {
    queue::spacing(Ticks(interval), count).0
}

/// The step of the packet in this CPU's scratch at a server, by its index in the whole map, that is free again then: [`PASSED`], and
/// [`Judged`] has its times, or the number of an event; [`JUDGES`] if [`early`] is to say.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn step(server: u32, free: u64, locked: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return Event::Horizon as u32;
    };
    // SAFETY: this CPU's scratch; who called has no reference to these parts of it.
    let (walk, judged) = unsafe { (&(*scratch).walk, &mut (*scratch).judged) };
    copy(&judged.before, &mut judged.after);
    judged.verdict = Verdict::Pass as u32;
    let service = match departure(
        &config.server,
        Instant(free),
        walk.time,
        framing::on_wire(config, walk),
    ) {
        Outcome::Served(service) => service,
        Outcome::TailDrop => return Event::TailDrop as u32,
        _ => return Event::Horizon as u32,
    };
    judged.service = service;
    // Another CPU that has the lock is kept from running: this packet goes without a verdict.
    if locked != 0 || config.law.kind == queue::STEP {
        let head = Head {
            start: walk.time.after(service.backlog),
            sojourn: service.backlog,
            // What [`early`] sets.
            idle: Ticks(0),
            ecn: judged.ecn,
            salt: config.salt,
        };
        if config.law.is_early() {
            judged.head = head;
            return JUDGES;
        }
        judged.verdict = judge_start(&config.law, &mut judged.after, head, spacing) as u32;
        if judged.verdict == Verdict::Drop as u32 {
            return Event::EarlyDrop as u32;
        }
    }
    PASSED
}

/// The rest of [`step`] where the law judges packets as they come. A function of its own, for the stack's sake.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn early(server: u32, free: u64) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return PASSED;
    };
    // SAFETY: this CPU's scratch; who called has no reference to this part of it.
    let (arrival, judged) = unsafe { ((*scratch).walk.time, &mut (*scratch).judged) };
    judged.head.idle = arrival.since(Instant(free));
    judged.verdict = judge_early(&config.law, &mut judged.after, judged.head) as u32;
    if judged.verdict == Verdict::Drop as u32 {
        return Event::EarlyDrop as u32;
    }
    PASSED
}

/// [`queue::update`] of the server's law before the packet in this CPU's scratch, at a server that is free again then: 1 if there
/// may be another.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn update(server: u32, free: u64) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return 0;
    };
    // SAFETY: this CPU's scratch; who called has no reference to these parts of it.
    let (now, before) = unsafe { ((*scratch).walk.time, &mut (*scratch).judged.before) };
    u32::from(queue::update(&config.law, before, Instant(free), now))
}

/// As many as the square root of [`MOST_UPDATES`], and [`catch_up`] as many of these: the verifier walks each loop once.
const UPDATES: u32 = MOST_UPDATES.isqrt();

/// Some of the updates.
#[unsafe(no_mangle)]
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
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn catch_up(server: u32, free: u64) -> u32 {
    for _ in 0..UPDATES {
        if updates(server, free) == 0 {
            return 0;
        }
    }
    1
}

/// Takes the lock of the queue in this slot: 1, or 0. A function of its own: the verifier walks on once, however often it has looked.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take_queue(slot: u32) -> u32 {
    let Some(queue) = QUEUES.get_ptr_mut(slot) else {
        return 0;
    };
    // SAFETY: an aligned word of a map value.
    let lock = unsafe { Shared::new(&raw mut (*queue).lock) };
    u32::from(steps::lock::<LOOKS, _>(&lock))
}

/// Service: [`PASSED`], or the number of an event. In its caller's frame, for the stack's sake.
#[inline(always)]
fn served(config: &ServerConfig, server: u32) -> u32 {
    let Some(scratch) = Scratch::here() else {
        return PASSED;
    };
    let (Some(queue), Some(state)) = (QUEUES.get_ptr_mut(config.slot), STATES.get_ptr_mut(config.slot))
    else {
        account::count(Event::Inconsistent);
        return PASSED;
    };
    // SAFETY: aligned words of map values.
    let (lock, free) = unsafe {
        (
            Shared::new(&raw mut (*queue).lock),
            Shared::new(&raw mut (*state).free),
        )
    };
    // A step remembers nothing.
    let remembers = config.law.kind != queue::STEP;
    let locked = remembers && take_queue(config.slot) != 0;
    // SAFETY: this CPU's scratch, to which no other reference lives here, and a map value that is this CPU's while it has the lock.
    unsafe {
        copy(&(*queue).state, &mut (*scratch).judged.before);
        (*scratch).judged.before.begin(&config.law);
    }
    if locked && config.law.is_early() {
        catch_up(server, free.load());
    }
    let depart = |free: Instant| {
        let mut event = step(server, free.0, u32::from(locked));
        if event == JUDGES {
            event = early(server, free.0);
        }
        if event == PASSED {
            // SAFETY: this CPU's scratch; no reference to it lives here.
            Outcome::Served(unsafe { (*scratch).judged.service })
        } else if event == Event::EarlyDrop as u32 {
            Outcome::Early
        } else if event == Event::TailDrop as u32 {
            Outcome::TailDrop
        } else {
            Outcome::BeyondHorizon
        }
    };
    // SAFETY: this CPU's scratch.
    let arrival = unsafe { (*scratch).walk.time };
    let outcome = steps::serve::<ATTEMPTS, _>(&free, arrival, depart, contended);
    if locked {
        // SAFETY: as above.
        unsafe { copy(&(*scratch).judged.after, &mut (*queue).state) };
        steps::unlock(&lock);
    } else if remembers {
        contended();
    }
    // SAFETY: this CPU's scratch; no reference to it lives here.
    let service = match fold::served(config, outcome, arrival, unsafe { (*scratch).walk.load }) {
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

/// Fate: [`PASSED`], or the number of an event.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fate(server: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return PASSED;
    };
    let Some(state) = STATES.get_ptr_mut(config.slot) else {
        return PASSED;
    };
    // SAFETY: this CPU's scratch, and a value of a map.
    let decided = unsafe {
        let served = (*scratch).judged.service.free;
        let now = (config.loss, config.jitter_scale);
        fold::decide(
            &mut (*scratch).walk,
            state,
            config,
            server,
            served,
            now,
            fold::free,
        )
    };
    match decided {
        Ok(()) => PASSED,
        Err(Dropped(event)) => event,
    }
}
