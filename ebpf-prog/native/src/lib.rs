//! The programs of `ebpf-prog/src`, compiled for this processor: the same files, over [`perturb_machine`] in place of `aya_ebpf`.
//! Only `atomic.rs`, which is instructions of BPF, has a counterpart here.
//!
//! What is absent: who gives frames to the programs, and holds what they hold (`perturb-dataplane`).

#![expect(
    clippy::needless_borrows_for_generic_args,
    reason = "the source is the eBPF programs', whose stack is small"
)]

extern crate perturb_machine as aya_ebpf;
extern crate perturb_machine as aya_log_ebpf;

#[path = "../../src/account.rs"]
mod account;
mod atomic;
#[path = "../../src/buffer.rs"]
mod buffer;
#[path = "../../src/capture.rs"]
mod capture;
#[path = "../../src/cgroup.rs"]
mod cgroup;
#[path = "../../src/classify.rs"]
mod classify;
#[path = "../../src/collide.rs"]
mod collide;
#[path = "../../src/fate.rs"]
mod fate;
#[path = "../../src/flows.rs"]
mod flows;
#[path = "../../src/fold.rs"]
mod fold;
#[path = "../../src/framing.rs"]
mod framing;
#[path = "../../src/grants.rs"]
mod grants;
#[path = "../../src/hold.rs"]
#[expect(dead_code, reason = "what only devices of the kernel run")]
mod hold;
#[path = "../../src/instance.rs"]
mod instance;
#[path = "../../src/lead.rs"]
mod lead;
#[path = "../../src/maps.rs"]
mod maps;
#[path = "../../src/memory.rs"]
mod memory;
#[path = "../../src/network.rs"]
mod network;
#[path = "../../src/overhead.rs"]
mod overhead;
#[path = "../../src/packet.rs"]
mod packet;
#[path = "../../src/queue.rs"]
mod queue;
#[path = "../../src/release.rs"]
mod release;
#[path = "../../src/scratch.rs"]
mod scratch;
#[path = "../../src/sight.rs"]
mod sight;
#[path = "../../src/ties.rs"]
mod ties;
#[path = "../../src/timeline.rs"]
mod timeline;
#[path = "../../src/tunnel.rs"]
mod tunnel;

use std::{fmt, sync::OnceLock};

use perturb_common::{abi::Direction, flow::Secret};
use perturb_machine::{
    Global,
    frame::Frame,
    maps::{Shape, Shaped},
    programs::TcContext,
    region::Region,
    seat::{Seat, Table},
};

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on as if perturb were not there.
    Pass,
    /// It goes to [`Frame::redirected`].
    Redirect,
    /// It is dropped.
    Discard,
}

impl Verdict {
    fn of(action: i32) -> Self {
        match action {
            hold::PASS => Self::Pass,
            hold::DISCARD => Self::Discard,
            _ => Self::Redirect,
        }
    }
}

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// At an interface.
    Capture(Direction),
    /// Where held frames come out.
    Release,
}

/// Runs a program on a frame.
///
/// # Safety
/// The memory of the seat's tables must be mapped, and nobody else must sit there meanwhile.
pub unsafe fn run(seat: &Seat, program: Program, frame: &mut Frame) -> Verdict {
    let ctx = TcContext::new((&raw mut *frame).cast());
    let work = || match program {
        Program::Capture(Direction::Egress) => capture::capture(&ctx, Direction::Egress),
        Program::Capture(Direction::Ingress) => capture::capture(&ctx, Direction::Ingress),
        Program::Release => release::release(&ctx),
    };
    // SAFETY: the caller's.
    let action = unsafe { seat.sit(work) };
    frame.redirected = seat.take_redirect();
    Verdict::of(action)
}

/// All maps, in the order of their places.
static MAPS: &[&dyn Shaped] = &[
    &maps::CONTROL,
    &maps::SETTINGS,
    &maps::ATTACHMENTS,
    &maps::NEAR,
    &maps::SERVERS,
    &maps::PATHS,
    &maps::CLASSES,
    &maps::JITTER,
    &maps::COLLISIONS,
    &maps::TIMELINES,
    &maps::SEGMENTS,
    &maps::HINTS,
    &maps::QUEUES,
    &maps::GRANTS,
    &maps::CLOCKS,
    &maps::NTH,
    &maps::SPANS,
    &maps::BOUNDS,
    &maps::VECTORS,
    &maps::RULES,
    &maps::STATES,
    &maps::CONTENTION,
    &maps::ORDINALS,
    &maps::RING,
    &maps::INSTANCES,
    &maps::FLOWS,
    &maps::PAIRS,
    &maps::JOINED,
    &maps::FRAGMENTS,
    &maps::NOTED,
    &maps::REQUESTS,
    &maps::SIGHTINGS,
    &maps::UNSEEN,
    &maps::SLOTS,
    &maps::NEXT_SLOT,
    &maps::PRIORITIES,
    &maps::HELD,
    &maps::HELD_HERE,
    &maps::EVENTS_SEEN,
    &maps::CLASS_COUNTERS,
    &maps::SERVER_COUNTERS,
    &maps::LATENESS,
    &maps::SOJOURNS,
    &maps::PACER_STATS,
    &lead::LEAD,
    &scratch::SCRATCH,
    &sight::STAGE,
];

/// The maps' shapes, in the order of their places: as large as they can be.
pub fn shapes() -> impl Iterator<Item = Shape> {
    static PLACED: OnceLock<()> = OnceLock::new();
    PLACED.get_or_init(|| {
        for (map, place) in MAPS.iter().zip(1..) {
            map.put(place);
        }
        let words: [&Global<u32>; 6] = [
            &maps::HAVE_JIT,
            &maps::PACER,
            &maps::HAVE_CGROUPS,
            &maps::FLOW_MASK,
            &maps::INSTANCE_MASK,
            &maps::FLOW_HOME,
        ];
        for (word, place) in words.into_iter().zip(1..) {
            word.put(place);
        }
        for (word, place) in maps::SECRET.iter().zip(words.len() as u32 + 1..) {
            word.put(place);
        }
    });
    MAPS.iter().map(|map| map.shape())
}

/// What the controller sets before the programs run.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// One less than the places of the flow cache, a power of two.
    pub flow_mask: u32,
    /// The same of the table of instances.
    pub instance_mask: u32,
    /// The slot of a server per flow at whose instances the flow cache lies, or `NONE`.
    pub flow_home: u32,
    /// What flows are hashed by.
    pub secret: Secret,
}

impl Constants {
    /// In the order of their places.
    fn words(&self) -> Vec<u64> {
        const HAVE_JIT: u64 = 1;
        // Departures travel beside frames, and so in what fq's do.
        const PACER: u64 = perturb_common::abi::PACER_FQ as u64;
        const HAVE_CGROUPS: u64 = 0;
        let own = [self.flow_mask, self.instance_mask, self.flow_home].map(u64::from);
        [HAVE_JIT, PACER, HAVE_CGROUPS]
            .into_iter()
            .chain(own)
            .chain(self.secret)
            .collect()
    }
}

/// A seat at a region, of this number.
#[must_use]
pub fn seat(
    region: &Region,
    number: u32,
    constants: &Constants,
    say: Option<fn(fmt::Arguments<'_>)>,
) -> Seat {
    let table = |shape: Shape| {
        region
            .map(shape.name)
            .map_or(Table::NONE, |map| map.table(number))
    };
    Seat::new(shapes().map(table).collect(), constants.words(), say)
}
