//! Folds the departure recursion over a path, one leg at a time, with state in maps.

use aya_ebpf::{
    helpers::{bpf_get_prandom_u32, bpf_skb_ecn_set_ce, bpf_skb_load_bytes, bpf_skb_store_bytes},
    programs::TcContext,
};
use perturb_common::{
    abi::{
        Attachment, Direction, Event, MAX_PATH_SERVERS, NETWORK, NONE, NthKey, PACER_USER, Path,
        SERVER_BURST, SERVER_COLLISIONS, SERVER_FATE, SERVER_FRAMING, SERVER_KEEP_ORDER, SERVER_LAW,
        SERVER_NTH, SERVER_TIES, SERVER_TIMELINE, ServerConfig, ServerState, Tag, in_half,
    },
    departure::{Load, Outcome, Service, departure},
    fate::{Chance, JITTER_ENTRIES, Purpose, draw, jitter_ticks},
    steps::{self, ATTEMPTS},
    ties::Tied,
    units::{Instant, MonoNanos, Nanos, Ticks},
};

use crate::{
    account::{self, Served},
    atomic::{self, Shared},
    buffer, collide, framing, hold, instance, lead,
    maps::{JITTER, NTH, PACER, PATHS, SERVERS},
    network, queue,
    scratch::{Job, Scratch, Walk},
    sight, ties, timeline,
};

/// Corruption hits one of the first bytes after the MAC addresses.
const CORRUPT_FROM: u32 = 12;
const CORRUPT_SPAN: u32 = 1024;

/// [`Direction`] from its number.
#[inline(always)]
pub(crate) fn direction(number: u32) -> Direction {
    if number & 1 == 0 {
        Direction::Egress
    } else {
        Direction::Ingress
    }
}

/// A path of the profile, or the one that was joined for this packet.
#[inline(always)]
pub(crate) fn path(half: u32, index: u32) -> Option<&'static Path> {
    if index == NETWORK {
        return network::joined();
    }
    PATHS.get(in_half(half, index))
}

/// The packet is dropped for this reason: the number of an [`Event`].
pub(crate) struct Dropped(pub(crate) u32);

impl From<Event> for Dropped {
    fn from(event: Event) -> Self {
        Self(event as u32)
    }
}

/// Folds a leg of the job in this CPU's scratch, `place`, and moves the packet to where it goes next. A
/// subprogram of its own, for the stack's sake.
#[inline(never)]
pub(crate) fn run(ctx: &TcContext, attachment: &Attachment, place: *mut Scratch) -> i32 {
    // SAFETY: `place` is this CPU's scratch. This borrow ends before `leg`, which changes it.
    let scratch = unsafe { &mut *place };
    let Job {
        arrival,
        half,
        class,
        position,
        epoch,
        ..
    } = scratch.job;
    let Some(path) = path(half, scratch.job.path) else {
        account::event(ctx, Event::Inconsistent);
        return hold::PASS;
    };
    scratch.walk = Walk {
        time: arrival.instant(),
        load: scratch.load,
        wait: 0,
        copies: 1,
        flags: 0,
        wire: 0,
        damage: 0,
    };
    let direction = direction(scratch.key.direction);
    sight::begin(place);
    let folded = leg(ctx, place, path, position, half, attachment.target);
    // SAFETY: as above; nothing changes it from here on.
    let scratch = unsafe { &*place };
    let position = match folded {
        Ok(position) => position,
        Err(Dropped(event)) => {
            account::number(ctx, event);
            account::class(direction, class, scratch.load, None);
            sight::folded(ctx, place, attachment.target, event, MonoNanos(0));
            return hold::consume();
        }
    };
    let walk = &scratch.walk;
    let departure = walk.time.ceil_nanos();
    let delay = Nanos(departure.0.saturating_sub(arrival.0));
    if position == Tag::DELIVER {
        account::class(direction, class, scratch.load, Some(delay));
    } else {
        account::leg(direction, class, delay);
    }
    if walk.flags & Walk::MARK != 0 {
        // SAFETY: the context of a running program.
        let set = unsafe { bpf_skb_ecn_set_ce(ctx.skb.skb) } == 1;
        account::event(ctx, if set { Event::Marked } else { Event::NotEcnCapable });
    }
    if walk.damage != 0 {
        corrupt(ctx, (walk.damage >> 32) as u32, walk.damage as u8);
    }
    sight::folded(ctx, place, attachment.target, NONE, departure);
    // A number and no enum: the compiler spills what a variant lacks, and the verifier refuses a register never written.
    // The user pacer's queue of a thread lets packets go by their departures, whatever their order.
    let order = if walk.flags & Walk::REORDER != 0 && PACER.load() != PACER_USER {
        // SAFETY: the helper has no preconditions.
        unsafe { bpf_get_prandom_u32() }
    } else {
        // The low half: no sender can choose flows that share it.
        scratch.hash as u32
    };
    let tag = Tag {
        direction: direction as u32,
        position,
        waits: lead::waits(departure, scratch.job.now),
        epoch,
    };
    let packets = walk.copies | hold::cut_by_tap(ctx, scratch.key.protocol);
    hold::hold(ctx, attachment, tag, departure, place, order, packets)
}

/// Visits servers up to the next cut; says where the fold goes on.
#[inline(always)]
fn leg(
    ctx: &TcContext,
    place: *mut Scratch,
    path: &Path,
    from: u32,
    half: u32,
    interface: u32,
) -> Result<u32, Dropped> {
    for index in 0..MAX_PATH_SERVERS {
        let position = index as u32;
        if position >= path.len {
            break;
        }
        if position < from {
            continue;
        }
        if position > from && (path.cuts >> position) & 1 != 0 {
            return Ok(position);
        }
        let mut event = visit(path.servers[index], half, interface);
        if event != PASSED {
            if event == CHANGES {
                event = timeline::cross_changing(path.servers[index], half, interface);
            } else if event == JUDGES {
                queue::look(ctx);
                event = queue::cross(path.servers[index], half);
            }
            if event == TIED {
                event = ties::tied_fate(path.servers[index], half, interface);
            }
        }
        sight::crossed(place, path.servers[index]);
        if event != PASSED {
            return Err(Dropped(event));
        }
    }
    Ok(Tag::DELIVER)
}

/// [`visit`]'s answer for a packet that goes on.
pub(crate) const PASSED: u32 = u32::MAX;
/// [`visit`]'s answer at a server that changes: it has not crossed it.
const CHANGES: u32 = u32::MAX - 1;
/// [`visit`]'s answer at a server whose law judges packets: it has not crossed it.
pub(crate) const JUDGES: u32 = u32::MAX - 2;
/// The answer where a packet was served, and [`ties::tied_fate`] says what becomes of it: not below those that served it, for the
/// stack's sake.
pub(crate) const TIED: u32 = u32::MAX - 3;

/// Crosses one server with the packet in this CPU's scratch: [`PASSED`], or the number of the event
/// that dropped it. A global function, which takes numbers only: the verifier walks it once, however
/// many servers a path has.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn visit(server: u32, half: u32, interface: u32) -> u32 {
    let index = in_half(half, server);
    let Some(config) = SERVERS.get(index) else {
        account::count(Event::Inconsistent);
        return PASSED;
    };
    if config.flags & SERVER_FRAMING != 0 {
        framing::frame(index);
    }
    if config.flags & (SERVER_TIMELINE | SERVER_LAW) != 0 {
        return if config.flags & SERVER_LAW != 0 {
            JUDGES
        } else {
            CHANGES
        };
    }
    let mut lost = 0;
    if config.flags & SERVER_COLLISIONS != 0 {
        lost = collide::lost(index);
        if lost == collide::GIVEN_UP {
            return Event::Collided as u32;
        }
    }
    let limited = config.ring_len != 0;
    if limited && buffer::reserve(index) == 0 {
        return Event::PacketLimit as u32;
    }
    let Some(state) = instance::state(config, interface) else {
        account::count(Event::NoInstance);
        return PASSED;
    };
    // SAFETY: this CPU's scratch; the caller holds no reference to it, and no call while this one lives comes to it.
    let Some(scratch) = Scratch::here().map(|scratch| unsafe { &mut *scratch }) else {
        return PASSED;
    };
    let (walk, transmitted) = (&mut scratch.walk, &mut scratch.place.transmitted);
    // SAFETY: `state` points to a value of a map, all of whose words are u64.
    let event = match unsafe { cross(walk, transmitted, state, config, index, Ticks(lost)) } {
        Ok(()) => PASSED,
        Err(Dropped(event)) => event,
    };
    if limited {
        buffer::settle(index);
    }
    if event == PASSED && config.flags & SERVER_TIES != 0 {
        TIED
    } else {
        event
    }
}

/// Each packet's fate is its own.
#[inline(always)]
pub(crate) fn free(_: u64, _: u64) -> Tied {
    Tied::default()
}

/// Service, then fate. Whatever comes of it, `transmitted` is when a packet that was served leaves the buffer.
///
/// # Safety
/// `state` must point to a map value.
#[inline(always)]
unsafe fn cross(
    walk: &mut Walk,
    transmitted: &mut u64,
    state: *mut ServerState,
    config: &ServerConfig,
    index: u32,
    lost: Ticks,
) -> Result<(), Dropped> {
    // SAFETY: the caller's.
    let service = unsafe { serve(state, config, walk, lost)? };
    *transmitted = service.free.0;
    note(config, &service, walk);
    if config.flags & SERVER_FATE != 0 && config.flags & SERVER_TIES == 0 {
        let now = (config.loss, config.jitter_scale);
        // SAFETY: the caller's.
        unsafe { decide(walk, state, config, index, service.free, now, free)? };
    }
    Ok(())
}

/// What its service changes of a packet's way.
#[inline(always)]
pub(crate) fn note(config: &ServerConfig, service: &Service, walk: &mut Walk) {
    if service.backlog.0 > config.ecn.0 {
        walk.flags |= Walk::MARK;
    }
    walk.wait = service.backlog.0;
    walk.time = service.next;
}

/// One step of the recursion against shared state.
///
/// # Safety
/// `state` must point to a map value.
#[inline(always)]
unsafe fn serve(
    state: *mut ServerState,
    config: &ServerConfig,
    walk: &Walk,
    lost: Ticks,
) -> Result<Service, Dropped> {
    let (arrival, load) = (walk.time, framing::on_wire(config, walk));
    // What occupies nothing is never busy.
    let server = &config.server;
    let outcome = if server.gap.0 == 0 && server.per_byte.0 == 0 {
        Outcome::Served(Service::at_once(arrival).delayed(lost, server.latency))
    } else {
        let depart = |free| match departure(server, free, arrival, load) {
            Outcome::Served(service) => Outcome::Served(service.delayed(lost, server.latency)),
            dropped => dropped,
        };
        // SAFETY: the caller's: an aligned word of a map value.
        let free = unsafe { Shared::new(&raw mut (*state).free) };
        steps::serve::<ATTEMPTS, _>(&free, arrival, depart, contended)
    };
    served(config, outcome, arrival, walk.load)
}

/// CPUs that raced have left a server's state otherwise than one alone would have.
#[inline(always)]
pub(crate) fn contended() {
    account::count(Event::Contention);
}

/// Counts what a server did to a packet that arrived then.
#[inline(always)]
pub(crate) fn served(
    config: &ServerConfig,
    outcome: Outcome,
    arrival: Instant,
    load: Load,
) -> Result<Service, Dropped> {
    let (event, counted) = match outcome {
        Outcome::Served(service) => {
            let busy = Ticks(service.free.since(arrival).0 - service.backlog.0);
            let sent = Served::Sent {
                backlog: service.backlog,
                busy,
            };
            account::server(config.slot, load.bytes, &sent);
            return Ok(service);
        }
        Outcome::TailDrop => (Event::TailDrop, Served::TailDrop),
        Outcome::BeyondHorizon => (Event::Horizon, Served::TailDrop),
        Outcome::Down => (Event::Down, Served::Lost),
        Outcome::Early => (Event::EarlyDrop, Served::Early),
    };
    account::server(config.slot, 0, &counted);
    Err(event.into())
}

/// Loss, jitter, duplication, corruption: by the packet's index at this server, or as `tie` says for that and the instance's ordinal. Loss comes after the
/// service: a packet that is lost on the wire has been transmitted.
///
/// # Safety
/// `state` must point to a map value.
#[inline(always)]
pub(crate) unsafe fn decide(
    walk: &mut Walk,
    state: *mut ServerState,
    config: &ServerConfig,
    server: u32,
    served: Instant,
    (loss, jitter_scale): (Chance, u64),
    tie: impl FnOnce(u64, u64) -> Tied,
) -> Result<(), Dropped> {
    // SAFETY: the caller's; `ordinal` never changes once the instance is there.
    let (index, ordinal) = unsafe {
        (
            atomic::fetch_add(&raw mut (*state).arrivals, 1),
            u64::from((*state).ordinal),
        )
    };
    let tied = tie(index, ordinal);
    if let Some(event) = lost(state, config, server, index, ordinal, loss, tied) {
        account::server(config.slot, 0, &Served::Lost);
        return Err(event.into());
    }
    let ahead = tied.0 & Tied::AHEAD != 0;
    if ahead {
        walk.time = served;
    } else if config.jitter_table != NONE {
        let drawn = draw(config.salt, ordinal, index, Purpose::Jitter) as usize;
        let entry = if tied.is_decided() { tied.entry() } else { drawn } & (JITTER_ENTRIES - 1);
        // Tables of both halves: the controller numbers them over the whole map.
        if let Some(table) = JITTER.get(config.jitter_table) {
            let ticks = jitter_ticks(jitter_scale, table.entries[entry]);
            let moved = if ticks < 0 {
                Instant(walk.time.0.saturating_sub(ticks.unsigned_abs()))
            } else {
                walk.time.after(Ticks(ticks as u64))
            };
            // Not before its service ends.
            walk.time = moved.max(served);
        }
    }
    if ahead {
        walk.flags |= Walk::REORDER;
    } else if config.jitter_table != NONE || config.flags & SERVER_TIMELINE != 0 {
        if config.flags & SERVER_KEEP_ORDER != 0 {
            // SAFETY: the caller's: an aligned word of a map value.
            let last = unsafe { Shared::new(&raw mut (*state).last) };
            walk.time = steps::in_order::<ATTEMPTS, _>(&last, walk.time, contended);
        } else {
            walk.flags |= Walk::REORDER;
        }
    }
    let damage = draw(config.salt, ordinal, index, Purpose::Damage);
    let duplicate = if tied.is_decided() {
        tied.0 & Tied::DUPLICATED != 0
    } else {
        config.duplicate.hit((damage >> 32) as u32)
    };
    let corrupt = if tied.is_decided() {
        tied.0 & Tied::CORRUPTED != 0
    } else {
        config.corrupt.hit(damage as u32)
    };
    if duplicate && walk.copies == 1 {
        // The copy crosses the servers that follow right behind the original.
        walk.copies = 2;
        walk.load = Load {
            bytes: walk.load.bytes * 2,
            segments: walk.load.segments * 2,
        };
    }
    if corrupt {
        let place = draw(config.salt, ordinal, index, Purpose::Bit);
        walk.damage = place & !0xffff_ffff | 1 << (place & 7);
    }
    Ok(())
}

/// Whether a loss model takes the packet.
#[inline(always)]
fn lost(
    state: *mut ServerState,
    config: &ServerConfig,
    server: u32,
    index: u64,
    ordinal: u64,
    independent: Chance,
    tied: Tied,
) -> Option<Event> {
    let loss = draw(config.salt, ordinal, index, Purpose::Loss);
    if config.flags & SERVER_NTH != 0 {
        let key = NthKey {
            index: index + 1,
            server,
            reserved: 0,
        };
        // SAFETY: the value is not read.
        if unsafe { NTH.get(&key) }.is_some() {
            return Some(Event::NthLoss);
        }
    }
    if tied.is_decided() {
        return if tied.0 & Tied::LOST_IN_BURST != 0 {
            Some(Event::BurstLoss)
        } else if tied.0 & Tied::LOST != 0 {
            Some(Event::Loss)
        } else {
            None
        };
    }
    if config.flags & SERVER_BURST != 0 {
        let step = draw(config.salt, ordinal, index, Purpose::Burst);
        // SAFETY: `state` points to a map value. CPUs that race take steps of their own; each counts once.
        let bad = unsafe {
            // Of what was remembered while its fates hung together ([`perturb_common::ties::Memory`]), the loss's state only.
            let bad = config.burst.step((*state).bad & 3 == 1, step);
            (*state).bad = u64::from(bad);
            bad
        };
        if config.burst.lost(bad, loss as u32) {
            return Some(Event::BurstLoss);
        }
    }
    independent.hit((loss >> 32) as u32).then_some(Event::Loss)
}

/// Flips a bit behind the MAC addresses. The checksum is complete, or damage would go unnoticed: a profile
/// that corrupts sends all packets through the splitter, which computes it.
#[inline(never)]
fn corrupt(ctx: &TcContext, place: u32, mask: u8) {
    let len = crate::packet::skb(ctx).len;
    if len <= CORRUPT_FROM {
        return;
    }
    let span = len - CORRUPT_FROM;
    let span = if span > CORRUPT_SPAN { CORRUPT_SPAN } else { span };
    let offset = CORRUPT_FROM + place % span;
    let mut byte = 0u8;
    // SAFETY: helpers on the context of a running program; both fail for an offset outside the packet.
    unsafe {
        if bpf_skb_load_bytes(ctx.skb.skb.cast(), offset, (&raw mut byte).cast(), 1) != 0 {
            return;
        }
        byte ^= mask;
        if bpf_skb_store_bytes(ctx.skb.skb, offset, (&raw const byte).cast(), 1, 0) == 0 {
            account::event(ctx, Event::Corrupted);
        }
    }
}
