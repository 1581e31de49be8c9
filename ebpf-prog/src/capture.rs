//! Takes packets off an interface: classify, burn the overhead, fold the path, move to the hold
//! device.

use aya_ebpf::{
    helpers::{bpf_ktime_get_ns, bpf_set_hash_invalid},
    programs::TcContext,
};
use perturb_common::{
    abi::{
        Attachment, CONTROL_GENERATION, CONTROL_LEASE, Class, Direction, Event, LEASE_PAUSED, MAX_CLASSES,
        NEAR_INTERFACES, NETWORK, NONE, SETTING_CHECKSUM, SETTING_EXACT, SETTING_FREE_ACKNOWLEDGMENTS,
        SETTING_OVERHEADS, Settings, Tag, in_half,
    },
    units::{MonoNanos, Nanos},
};

use crate::{
    account, cgroup, classify, flows, fold,
    hold::{self, PASS},
    lead,
    maps::{ATTACHMENTS, CLASSES, CONTROL, NEAR, SETTINGS},
    network, overhead,
    packet::{self, skb},
    scratch::{Job, Scratch},
    timeline,
};

/// The profile in force.
pub(crate) struct Profile {
    pub(crate) generation: u64,
    pub(crate) settings: &'static Settings,
}

impl Profile {
    /// The profile, unless the lease has run out.
    #[inline(always)]
    pub(crate) fn in_force(ctx: &TcContext, now: u64) -> Option<Self> {
        let generation = CONTROL.get_ptr(CONTROL_GENERATION)?;
        let lease = CONTROL.get_ptr(CONTROL_LEASE)?;
        // SAFETY: values of a map that lives as long as the program; the controller writes each with one store.
        let (generation, lease) = unsafe { (generation.read_volatile(), lease.read_volatile()) };
        if now > lease {
            let event = if lease == LEASE_PAUSED {
                Event::Paused
            } else {
                Event::LeaseExpired
            };
            account::event(ctx, event);
            return None;
        }
        let settings = SETTINGS.get((generation & 1) as u32)?;
        Some(Self { generation, settings })
    }

    /// The half of the tables that is in force.
    #[inline(always)]
    pub(crate) fn half(&self) -> u32 {
        (self.generation & 1) as u32
    }

    /// The class of the packet in `scratch`, and its path in a direction, or [`NONE`].
    ///
    /// # Safety
    /// `scratch` must be this CPU's.
    #[inline(always)]
    pub(crate) unsafe fn path(&self, scratch: *mut Scratch, direction: Direction) -> (u32, u32) {
        // By way of memory: the verifier then knows the same of a class, wherever it comes from, and walks on once.
        // SAFETY: the caller's.
        let class = unsafe {
            let place = &raw mut (*scratch).job.class;
            place.write_volatile(classify::class(scratch, self.generation));
            place.read_volatile()
        };
        if class >= MAX_CLASSES {
            return (NONE, NONE);
        }
        match CLASSES.get(in_half(self.half(), class)) {
            Some(Class { path }) => {
                let path = path[direction as usize];
                if path == NETWORK && network::join(self.half()) == 0 {
                    return (NONE, NONE);
                }
                (class, path)
            }
            None => (NONE, NONE),
        }
    }
}

/// What an interface is to the programs.
#[inline(always)]
pub(crate) fn attachment(index: u32) -> Option<&'static Attachment> {
    if index < NEAR_INTERFACES {
        return NEAR.get(index).filter(|attachment| attachment.target != 0);
    }
    // SAFETY: the map's values live as long as the program; they are written before it is attached.
    unsafe { ATTACHMENTS.get(index) }
}

/// A device's `gso_max_size` (`GSO_LEGACY_MAX_SIZE`): super-packets of lo, whose MTU is as large, may reach it.
const GSO_MAX_SIZE: u32 = 65_536;

/// How far ahead of now a sender may stamp its packets, less than the room that fq has above the profile's horizon
/// (`HORIZON_MARGIN` of the controller): a later stamp counts as this one.
pub(crate) const FARTHEST_STAMP: u64 = 500_000_000;

/// When a packet arrives: now, or when its sender would have it leave. That is what TCP's pacing (BBR, SO_MAX_PACING_RATE)
/// and Cilium's bandwidth manager leave to sch_fq on the interface, in `skb->tstamp`; the way through the hold device
/// takes the stamp off. TCP stamps all that it sends, mostly with a time that has passed.
#[inline(always)]
fn arrival(ctx: &TcContext, direction: Direction, now: MonoNanos) -> MonoNanos {
    let arrival = lead::arrival(now);
    let skb = skb(ctx);
    if direction as u32 != Direction::Egress as u32 || skb.tstamp_type != hold::STAMP_MONO as u8 {
        return arrival;
    }
    // Both are ahead of the clock by the same lead.
    let ahead = skb.tstamp.saturating_sub(now.0).min(FARTHEST_STAMP);
    MonoNanos(arrival.0.saturating_add(ahead))
}

/// The program at an interface.
#[inline(always)]
pub(crate) fn capture(ctx: &TcContext, direction: Direction) -> i32 {
    let skb = skb(ctx);
    if let Some(tag) = Tag::decode(skb.tc_index)
        && tag.direction == direction as u32
    {
        // It has been held already. Further interfaces must not take the tag for theirs.
        // SAFETY: the context of a running program; the verifier admits this store.
        unsafe { (*ctx.skb.skb).tc_index = 0 };
        return PASS;
    }
    let Some(attachment) = attachment(skb.ifindex) else {
        return PASS;
    };
    // SAFETY: the helper has no preconditions.
    let mut now = MonoNanos(unsafe { bpf_ktime_get_ns() });
    let Some(profile) = Profile::in_force(ctx, now.0) else {
        return PASS;
    };
    let Some(scratch) = Scratch::here() else {
        return PASS;
    };
    // SAFETY: this CPU's scratch, and the reference ends with the call.
    if packet::parse(ctx, direction, unsafe { &mut *scratch }).is_err() {
        account::event(ctx, Event::Malformed);
        return PASS;
    }
    let levels = profile.settings.cgroup_levels;
    if direction as u32 == Direction::Egress as u32 && levels != 0 {
        let cgroup = cgroup::of_sender(ctx, profile.half(), levels);
        // SAFETY: this CPU's scratch.
        unsafe { (&raw mut (*scratch).key.cgroup).write_volatile(cgroup as u16) };
    }
    // SAFETY: this CPU's scratch.
    let ((class, path), load) = unsafe { (profile.path(scratch, direction), (*scratch).load) };
    if path == NONE {
        if class == NONE {
            account::event(ctx, Event::Unmatched);
        } else {
            account::class(direction, class, load, Some(Nanos(0)));
        }
        return PASS;
    }
    let overhead = if profile.settings.flags & SETTING_OVERHEADS != 0 {
        timeline::overhead(profile.settings.overheads, direction, now)
    } else {
        match direction {
            Direction::Egress => profile.settings.overhead_send,
            Direction::Ingress => profile.settings.overhead_receive,
        }
    };
    let free = profile.settings.flags & SETTING_FREE_ACKNOWLEDGMENTS != 0;
    // SAFETY: as above.
    if overhead != 0 && !(free && unsafe { packet::acknowledges(ctx, &mut *scratch) } != 0) {
        overhead::burn(overhead, load.segments);
        // SAFETY: the helper has no preconditions.
        now = MonoNanos(unsafe { bpf_ktime_get_ns() });
    }
    // SAFETY: as above; nothing that is called while it is looked at writes to it.
    let key = unsafe { &(*scratch).key };
    let remote = match direction {
        Direction::Egress => &key.destination,
        Direction::Ingress => &key.source,
    };
    if !attachment.emulates(remote) {
        if direction == Direction::Egress {
            // The receiver's socket sees the hash of the packet's contents, once it has been held; the other host's receive
            // flow steering, which comes before, must see the same, and not that of the sender's socket (`sk_txhash`).
            // SAFETY: the context of a running program.
            unsafe { bpf_set_hash_invalid(ctx.skb.skb) };
        }
        return PASS;
    }
    if flows::watched(now.0) {
        flows::log(now.0, class);
    }
    let half = profile.half();
    let Some(servers) = fold::path(half, path) else {
        account::event(ctx, Event::Inconsistent);
        return PASS;
    };
    if servers.len == 0 {
        account::class(direction, class, load, Some(Nanos(0)));
        return PASS;
    }
    // All packets, not only super-packets: a small one must not overtake those that are being cut.
    let super_packet = skb.gso_size != 0;
    let prepares = if super_packet {
        SETTING_EXACT
    } else {
        SETTING_EXACT | SETTING_CHECKSUM
    };
    // A hold device would cut a larger one itself (`gso_features_check`), and its parts would share what the packet carries.
    let too_large = super_packet && skb.len >= GSO_MAX_SIZE;
    if (profile.settings.flags & prepares != 0 || too_large) && attachment.split != 0 {
        if super_packet {
            account::event(ctx, Event::Split);
        }
        let tag = Tag {
            direction: direction as u32,
            position: 0,
            waits: levels != 0,
            epoch: 0,
        };
        // SAFETY: this CPU's scratch.
        let cgroup = unsafe { (&raw const (*scratch).key.cgroup).read_volatile() };
        return hold::split(ctx, attachment, tag, cgroup, arrival(ctx, direction, now));
    }
    let job = Job {
        now,
        arrival: arrival(ctx, direction, now),
        half,
        class,
        path,
        position: 0,
        epoch: Tag::epoch(profile.settings.epoch),
    };
    account::count(Event::Captured);
    // SAFETY: as above.
    unsafe { (*scratch).job = job };
    fold::run(ctx, attachment, scratch)
}
