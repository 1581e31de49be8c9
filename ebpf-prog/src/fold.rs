//! Folds the departure recursion over a path, one leg at a time, with state in maps.

use aya_ebpf::{
    helpers::{bpf_get_prandom_u32, bpf_skb_ecn_set_ce},
    programs::TcContext,
};
use perturb_common::{
    abi::{
        Attachment, Direction, Event, MAX_PATH_SERVERS, NETWORK, NONE, PACER_USER, Path, SERVER_COLLISIONS,
        SERVER_FATE, SERVER_FRAMING, SERVER_GRANTS, SERVER_LAW, SERVER_SPARES, SERVER_TIES, SERVER_TIMELINE,
        ServerConfig, ServerState, Tag, in_half,
    },
    departure::{Cost, Load, Outcome, Service, depart},
    steps::{self, ATTEMPTS},
    units::{Instant, MonoNanos, Nanos, Ticks},
};

use crate::{
    account::{self, Served},
    atomic::Shared,
    buffer, collide, fate, framing, grants, hold, instance, lead,
    maps::{PACER, PATHS, SERVERS},
    network, packet, queue,
    scratch::{Job, Place, Scratch, Walk},
    sight, ties, timeline,
};

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
    let direction = direction(scratch.key.direction.into());
    sight::begin(place);
    let folded = leg(ctx, place, path, half, attachment.target);
    // SAFETY: as above; nothing changes it from here on.
    let scratch = unsafe { &*place };
    if let Err(Dropped(event)) = folded {
        account::number(ctx, event);
        account::class(direction, class, scratch.load, None);
        sight::folded(ctx, place, attachment.target, event, MonoNanos(0));
        return hold::consume();
    }
    let walk = &scratch.walk;
    // SAFETY: as above.
    let position = unsafe { (&raw const scratch.reached).read_volatile() };
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
        fate::corrupt(ctx, (walk.damage >> 32) as u32, walk.damage as u8);
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

/// Visits servers up to the next cut, and leaves in the walk where the fold goes on. What decides is read anew at each server, and
/// what came of it goes by way of memory: the verifier then knows the same at each turn, and walks on once.
#[inline(always)]
fn leg(ctx: &TcContext, place: *mut Scratch, path: &Path, half: u32, interface: u32) -> Result<(), Dropped> {
    // SAFETY: `place` is this CPU's scratch, to which no reference lives.
    let (from, reached) = unsafe { (&raw const (*place).job.position, &raw mut (*place).reached) };
    let on = |position: u32| {
        // SAFETY: as above.
        unsafe { reached.write_volatile(position) };
    };
    on(Tag::DELIVER);
    for index in 0..MAX_PATH_SERVERS {
        let position = index as u32;
        if position >= path.len {
            break;
        }
        // SAFETY: as above.
        let from = unsafe { from.read_volatile() };
        if position < from {
            continue;
        }
        if position > from && (path.cuts >> position) & 1 != 0 {
            on(position);
            break;
        }
        let mut event = visit(path.servers[index], half, interface);
        if event == LOOKS {
            packet::look(ctx);
            event = visit(path.servers[index], half, interface);
        }
        if event != PASSED {
            event = go_on(event, path.servers[index], half, interface);
        }
        sight::crossed(place, path.servers[index]);
        if event != PASSED {
            return Err(Dropped(event));
        }
    }
    Ok(())
}

/// [`visit`]'s answer for a packet that goes on.
pub(crate) const PASSED: u32 = u32::MAX;
/// [`visit`]'s answer at a server that changes: it has not crossed it.
const CHANGES: u32 = u32::MAX - 1;
/// [`visit`]'s answer at a server whose law judges packets: it has not crossed it.
const JUDGES: u32 = u32::MAX - 2;
/// [`visit`]'s answer at a server that has to know the packet's ECN field, if nobody has looked yet: it has not crossed it.
const LOOKS: u32 = u32::MAX - 5;
/// The answer where a packet was served, and [`ties::tied_fate`] says what becomes of it: not below those that served it, for the
/// stack's sake.
pub(crate) const TIED: u32 = u32::MAX - 3;
/// The answer where a packet was served, and [`grants::wait`] says when it leaves. Its place in the buffer is not settled.
pub(crate) const GRANTED: u32 = u32::MAX - 4;

/// What [`visit`] leaves to others, by its answer: [`PASSED`], or the number of the event that dropped the packet. No function of its
/// own, for the stack's sake.
#[inline(always)]
fn go_on(answer: u32, server: u32, half: u32, interface: u32) -> u32 {
    let mut event = match answer {
        CHANGES => timeline::cross_changing(server, half, interface),
        JUDGES => queue::cross(server, half),
        other => other,
    };
    if event == GRANTED {
        event = grants::wait(server, half);
    }
    if event == TIED {
        event = ties::tied_fate(server, half, interface);
    }
    event
}

/// Crosses one server with the packet in this CPU's scratch: [`PASSED`], or the number of the event
/// that dropped it, or whose it is ([`go_on`]). A global function, which takes numbers only: the verifier walks it once, however many
/// servers a path has.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
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
    if config.flags & (SERVER_SPARES | SERVER_LAW) != 0 && !looked() {
        return LOOKS;
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
    let (walk, place, cost) = (&mut scratch.walk, &mut scratch.place, &mut scratch.cost);
    // SAFETY: `state` points to a value of a map, all of whose words are u64.
    let event = match unsafe { cross(walk, place, cost, state, config, index, Ticks(lost)) } {
        Ok(()) => PASSED,
        Err(Dropped(event)) => event,
    };
    if event == PASSED && config.flags & SERVER_GRANTS != 0 {
        return GRANTED;
    }
    if limited {
        buffer::settle(index);
    }
    if event == PASSED && config.flags & SERVER_TIES != 0 {
        TIED
    } else {
        event
    }
}

/// Whether the ECN field of the packet in this CPU's scratch is known.
#[inline(always)]
fn looked() -> bool {
    // SAFETY: this CPU's scratch; no reference to it lives.
    Scratch::here().is_none_or(|scratch| unsafe { (*scratch).walk.flags } & Walk::LOOKED != 0)
}

/// Service, then fate. Whatever comes of it, `place` says when a packet that was served leaves the buffer.
///
/// # Safety
/// `state` must point to a map value.
#[inline(always)]
unsafe fn cross(
    walk: &mut Walk,
    place: &mut Place,
    cost: &mut Cost,
    state: *mut ServerState,
    config: &ServerConfig,
    index: u32,
    lost: Ticks,
) -> Result<(), Dropped> {
    if config.flags & SERVER_GRANTS != 0 {
        place.arrived = walk.time.0;
    }
    // SAFETY: the caller's.
    let service = unsafe { serve(state, config, walk, cost, lost)? };
    place.transmitted = service.free.0;
    note(config, &service, walk);
    if config.flags & (SERVER_FATE | SERVER_TIES | SERVER_GRANTS) == SERVER_FATE {
        let now = (config.loss, config.jitter_scale);
        // SAFETY: the caller's.
        unsafe { fate::decide(walk, state, config, index, service.free, now, fate::free)? };
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
    cost: &mut Cost,
    lost: Ticks,
) -> Result<Service, Dropped> {
    let (arrival, load) = (walk.time, framing::on_wire(config, walk));
    // What occupies nothing is never busy.
    let server = &config.server;
    let outcome = if server.gap.0 == 0 && server.per_byte.0 == 0 {
        Outcome::Served(Service::at_once(arrival).delayed(lost, server.latency))
    } else {
        // By way of memory: the verifier then walks on once, whatever the cost was made of.
        let cost = &raw mut *cost;
        // SAFETY: a reference.
        let cost = unsafe {
            cost.write_volatile(Cost::of(server, load));
            cost.read_volatile()
        };
        let depart = |free| match depart(server, free, arrival, cost) {
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
