//! Servers that change, and overheads that do: see [`perturb_common::timeline`]. Global functions, which take numbers only:
//! what does not change does not pay for them.

use core::cell::Cell;

use perturb_common::{
    abi::{
        Direction, Event, SERVER_COLLISIONS, SERVER_FATE, SERVER_GRANTS, SERVER_TIES, ServerConfig, in_half,
    },
    departure::{Outcome, Service, departure},
    fate::Chance,
    queue::Law,
    steps::{self, ATTEMPTS},
    timeline::{By, Course, Hints, Row, Rows, Stage, Step, Stop, locate},
    units::{Instant, MonoNanos, Ticks},
};

use crate::{
    account,
    atomic::{self, Shared},
    buffer, collide, fate,
    fold::{self, Dropped, GRANTED, PASSED, TIED, contended},
    framing, instance,
    maps::{CLOCKS, HINTS, SEGMENTS, SERVERS, TIMELINES},
    scratch::Scratch,
};

/// What a server that changes does to the packet at hand.
#[repr(C)]
pub(crate) struct Change {
    step: Step,
    service: Cell<Service>,
    /// Time that collisions take besides.
    lost: u64,
    /// The jitter's scale then.
    jitter_scale: Cell<u64>,
    /// Loss then.
    loss: Cell<Chance>,
}

impl Change {
    /// Its times, if it is served.
    #[inline(always)]
    pub(crate) fn times(&self) -> Service {
        self.service.get()
    }

    /// Loss and the jitter's scale then.
    #[inline(always)]
    pub(crate) fn now(&self) -> (Chance, u64) {
        (self.loss.get(), self.jitter_scale.get())
    }

    /// [`Step::small_takes`] of a packet that found the server free again then, if the timeline was in force.
    #[inline(always)]
    pub(crate) fn small_takes(&self, law: &Law, free: Instant) -> Option<Ticks> {
        let step = &self.step;
        if !step.course.in_force(free, step.arrival) {
            return None;
        }
        step.small_takes(&Table(step.course.first), law)
    }
}

/// The rows of a timeline, which begin there.
struct Table(u32);

impl Rows for Table {
    #[inline(always)]
    fn row(&self, index: u32) -> Option<&Row> {
        SEGMENTS.get(self.0.wrapping_add(index))
    }

    #[inline(always)]
    fn locate(&self, rows: u32, hint: u32, key: u64, by: By) -> u32 {
        locate(|index| Some(self.row(index)?.key(by)), rows, hint, key)
    }

    #[inline(always)]
    fn seek(&self, _: &Step) -> Stage {
        stage(part_seek())
    }

    #[inline(always)]
    fn ahead(&self, _: &Step) -> Stage {
        stage(part_ahead())
    }

    #[inline(always)]
    fn reach(&self, _: &Step) -> Stage {
        stage(part_reach())
    }

    #[inline(always)]
    fn rest(&self, _: &Step) -> Stage {
        stage(part_rest())
    }
}

/// Parts of the [`Step`] of the packet in this CPU's scratch, each a function of its own: 0, or the number of a [`Stop`].
macro_rules! parts {
    ($($name:ident: $part:ident),+) => {
        $(
            #[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
            #[inline(never)]
            extern "C" fn $name() -> u32 {
                let Some(scratch) = Scratch::here() else {
                    return Stop::Inconsistent as u32;
                };
                // SAFETY: this CPU's scratch, in which all that changes meanwhile is in cells.
                let step = unsafe { &(*scratch).change.step };
                match step.$part(&Table(step.course.first)) {
                    Ok(()) => 0,
                    Err(stop) => stop as u32,
                }
            }
        )+
    };
}

parts! {
    part_seek: seek,
    part_ahead: ahead,
    part_reach: reach,
    part_rest: rest
}

/// A part's answer.
#[inline(always)]
fn stage(answer: u32) -> Stage {
    // None of them finds that there is no room.
    if answer == 0 {
        Ok(())
    } else {
        Err(Stop::Inconsistent)
    }
}

/// When a timeline's clock started; what waits for a packet starts with the one that arrives now.
#[inline(always)]
fn origin(course: &Course, arrival: u64) -> u64 {
    if course.origin < Course::WAITS {
        return course.origin;
    }
    let Some(clock) = CLOCKS.get_ptr_mut((course.origin - Course::WAITS) as u32) else {
        return 0;
    };
    // SAFETY: an aligned word of a map value.
    unsafe {
        let started = atomic::load(clock);
        if started != 0 {
            return started;
        }
        let started = atomic::compare_exchange(clock, 0, arrival);
        if started == 0 { arrival } else { started }
    }
}

/// The step of the packet in this CPU's scratch at a server, by its index in the whole map, that is free again then: 0, and
/// [`Change`] has what it meets, or the number of a [`Stop`].
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn depart(server: u32, free: u64) -> u32 {
    let Some(scratch) = Scratch::here() else {
        return Stop::Inconsistent as u32;
    };
    // SAFETY: this CPU's scratch, in which all that changes meanwhile is in cells.
    let change = unsafe { &(*scratch).change };
    let step = &change.step;
    let free = Instant(free);
    if !step.course.in_force(free, step.arrival) {
        return constant(server, free, change);
    }
    let rows = Table(step.course.first);
    match step.run(&rows, free) {
        Ok((service, row)) => {
            change.loss.set(row.loss);
            change.jitter_scale.set(row.jitter_scale);
            change
                .service
                .set(service.delayed(Ticks(change.lost), Ticks(row.latency)));
            0
        }
        Err(stop) => stop as u32,
    }
}

/// The same before the timeline's clock starts.
#[inline(always)]
fn constant(server: u32, free: Instant, change: &Change) -> u32 {
    let Some(config) = SERVERS.get(server) else {
        return Stop::Inconsistent as u32;
    };
    change.loss.set(config.loss);
    change.jitter_scale.set(config.jitter_scale);
    match departure(&config.server, free, change.step.arrival, change.step.load) {
        Outcome::Served(service) => {
            let latency = config.server.latency;
            change.service.set(service.delayed(Ticks(change.lost), latency));
            0
        }
        Outcome::TailDrop => Stop::TailDrop as u32,
        _ => Stop::BeyondHorizon as u32,
    }
}

/// Readies the step of the packet in this CPU's scratch, which collisions take so much time besides.
#[inline(always)]
pub(crate) fn ready(config: &ServerConfig, scratch: *mut Scratch, lost: u64) -> Option<()> {
    let course = TIMELINES.get(config.timeline)?;
    let hints = HINTS.get_ptr_mut(config.slot)?;
    // SAFETY: this CPU's scratch, to which nobody has a reference, and an aligned word of a map value.
    unsafe {
        (*scratch).change.lost = lost;
        let step = &mut (*scratch).change.step;
        step.arrival = (*scratch).walk.time;
        step.load = framing::on_wire(config, &(*scratch).walk);
        step.horizon = config.server.horizon;
        step.course = course.started(origin(course, step.arrival.0));
        step.hints.set(Hints(atomic::load(hints)));
    }
    Some(())
}

/// Leaves where it was found for the next packet.
#[inline(always)]
pub(crate) fn found(config: &ServerConfig, scratch: *mut Scratch) {
    if let Some(hints) = HINTS.get_ptr_mut(config.slot) {
        // SAFETY: an aligned word of a map value, and this CPU's scratch. Whatever CPUs that race leave there is valid.
        unsafe {
            let found = (*scratch).change.step.hints.get().0;
            if atomic::load(hints) != found {
                hints.write_volatile(found);
            }
        }
    }
}

/// Crosses a server that changes with the packet in this CPU's scratch, as `visit` does the others: [`PASSED`], or the number
/// of the event that dropped it. Not called by `visit`, for the stack's sake.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
pub(crate) extern "C" fn cross_changing(server: u32, half: u32, interface: u32) -> u32 {
    let index = in_half(half, server);
    let (Some(config), Some(scratch)) = (SERVERS.get(index), Scratch::here()) else {
        account::count(Event::Inconsistent);
        return PASSED;
    };
    let lost = if config.flags & SERVER_COLLISIONS != 0 {
        collide::lost(index)
    } else {
        0
    };
    if lost == collide::GIVEN_UP {
        return Event::Collided as u32;
    }
    let limited = config.ring_len != 0;
    if limited && buffer::reserve(index) == 0 {
        return Event::PacketLimit as u32;
    }
    let mut event = serve(config, scratch, index, interface, lost);
    if event == PASSED {
        // SAFETY: this CPU's scratch; no reference to it lives here.
        unsafe {
            (*scratch).place.arrived = (*scratch).change.step.arrival.0;
            (*scratch).place.transmitted = (*scratch).change.service.get().free.0;
        }
        if config.flags & SERVER_GRANTS != 0 {
            return GRANTED;
        }
        if config.flags & SERVER_FATE != 0 {
            event = if config.flags & SERVER_TIES != 0 {
                TIED
            } else {
                decide(index, interface)
            };
        }
    }
    if limited {
        buffer::settle(index);
    }
    if event == SKIPPED { PASSED } else { event }
}

/// [`serve`]'s answer for a packet that goes on as if there were no server.
const SKIPPED: u32 = u32::MAX - 2;

/// Service: [`PASSED`], [`SKIPPED`], or the number of an event.
#[inline(always)]
fn serve(config: &ServerConfig, scratch: *mut Scratch, server: u32, interface: u32, lost: u64) -> u32 {
    let Some(state) = instance::state(config, interface) else {
        account::count(Event::NoInstance);
        return SKIPPED;
    };
    if ready(config, scratch, lost).is_none() {
        account::count(Event::Inconsistent);
        return SKIPPED;
    }
    let contradictory = Cell::new(false);
    let step = |free: Instant| match depart(server, free.0) {
        // SAFETY: this CPU's scratch.
        0 => Outcome::Served(unsafe { (*scratch).change.service.get() }),
        stopped if stopped == Stop::TailDrop as u32 => Outcome::TailDrop,
        stopped if stopped == Stop::Down as u32 => Outcome::Down,
        stopped => {
            contradictory.set(stopped == Stop::Inconsistent as u32);
            Outcome::BeyondHorizon
        }
    };
    // SAFETY: this CPU's scratch.
    let arrival = unsafe { (*scratch).walk.time };
    // SAFETY: an aligned word of a map value.
    let free = unsafe { Shared::new(&raw mut (*state).free) };
    let outcome = steps::serve::<ATTEMPTS, _>(&free, arrival, step, contended);
    if contradictory.get() {
        account::count(Event::Inconsistent);
        return SKIPPED;
    }
    found(config, scratch);
    // SAFETY: this CPU's scratch; no reference to it lives here.
    let (service, load) = unsafe { ((*scratch).change.service.get(), (*scratch).walk.load) };
    // Not the one at hand: the verifier of 6.1 forgets what its register holds if there is none.
    let outcome = match outcome {
        Outcome::Served(_) => Outcome::Served(service),
        dropped => dropped,
    };
    match fold::served(config, outcome, arrival, load) {
        Ok(service) => {
            // SAFETY: as above.
            unsafe { fold::note(config, &service, &mut (*scratch).walk) };
            PASSED
        }
        Err(Dropped(event)) => event,
    }
}

/// Fate: [`PASSED`], or the number of an event.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn decide(server: u32, interface: u32) -> u32 {
    let (Some(config), Some(scratch)) = (SERVERS.get(server), Scratch::here()) else {
        return PASSED;
    };
    let Some(state) = instance::met(config, interface) else {
        return PASSED;
    };
    // SAFETY: this CPU's scratch, and a value of a map.
    let decided = unsafe {
        let change = &(*scratch).change;
        let now = change.now();
        fate::decide(
            &mut (*scratch).walk,
            state,
            config,
            server,
            change.service.get().free,
            now,
            fate::free,
        )
    };
    match decided {
        Ok(()) => PASSED,
        Err(Dropped(event)) => event,
    }
}

/// What a packet costs this host now, ns, by the profile's timeline of overheads.
#[inline(always)]
pub(crate) fn overhead(timeline: u32, direction: Direction, now: MonoNanos) -> u64 {
    costs(timeline, direction as u32, now.instant().0)
}

/// The same, as a global function.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn costs(timeline: u32, direction: u32, now: u64) -> u64 {
    let Some(course) = TIMELINES.get(timeline) else {
        return 0;
    };
    let rows = Table(course.first);
    let course = course.started(origin(course, now));
    let index = course.at(&rows, 0, Instant(now));
    let Some(row) = rows.row(index) else { return 0 };
    let (send, receive) = row.overheads();
    if direction == Direction::Egress as u32 {
        send
    } else {
        receive
    }
}
