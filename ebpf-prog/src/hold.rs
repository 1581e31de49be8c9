//! The hold device: how a packet gets into it with its departure time, and out of it again.
//!
//! With the fq pacer the time travels in `skb->tstamp`, the way and the priority in `skb->tc_index`; with the user
//! pacer both travel in the place of the MAC addresses ([`Ticket`]), which wait in a [`Slot`]. A packet that is not IP
//! cannot carry its time to fq: a slot keeps it, with the mark, in whose place its label travels.
//! A local sender's packet is cloned: while its own buffer is held, TCP small queues would stop
//! the sender.

use aya_ebpf::{
    bindings::{BPF_F_INGRESS, TC_ACT_SHOT, TC_ACT_UNSPEC},
    helpers::{
        bpf_clone_redirect, bpf_redirect, bpf_set_hash, bpf_set_hash_invalid, bpf_skb_change_type,
        bpf_skb_load_bytes, bpf_skb_set_tstamp, bpf_skb_store_bytes,
    },
    programs::{SkBuffContext, TcContext},
};
use perturb_common::{
    abi::{Attachment, Event, NONE, PACER_USER, Slot, Tag, Ticket, carried_cgroup},
    priorities,
    shared::Word as _,
    slots::{self, Answer, CUT, Owner},
    units::MonoNanos,
};

use crate::{
    account,
    atomic::Shared,
    cgroup,
    maps::{NEXT_SLOT, PACER, PRIORITIES, SLOTS as SLOT_TABLE},
    memory,
    packet::{TCP, skb},
    scratch::Scratch,
    sight,
};

/// Not ours: go on to the next program.
pub(crate) const PASS: i32 = TC_ACT_UNSPEC;
/// Drops a packet on perturb's own devices.
pub(crate) const DISCARD: i32 = TC_ACT_SHOT;

/// BPF_SKB_TSTAMP_DELIVERY_MONO: survives redirects (`skb_clear_tstamp`, 5.18).
pub(crate) const STAMP_MONO: u32 = 1;
const STAMP_NONE: u32 = 0;
const MAC_BYTES: u32 = 12;
/// `PACKET_HOST` of linux/if_packet.h: what a local sender's packet is.
const PACKET_HOST: u32 = 0;
/// A frame begins two bytes off a word (`NET_IP_ALIGN`), and where unaligned reads are slow the verifier
/// admits none.
type MacWords = [u16; MAC_BYTES as usize / 2];

/// A packet that comes out of the hold device.
pub(crate) struct Held {
    pub(crate) tag: Tag,
    /// When it should have left. Of a part, which was only split: when it arrived, or 0 if nothing says.
    pub(crate) departure: MonoNanos,
}

/// Consumes a packet silently. `TC_ACT_SHOT` would look like local congestion to TCP, and TCX takes
/// `TC_ACT_STOLEN` for "pass"; a redirect to nowhere frees the packet and reports success
/// (`skb_do_redirect`).
#[inline(always)]
pub(crate) fn consume() -> i32 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_redirect(0, 0) as i32 }
}

/// Holds a packet until its departure; so many of it, 1 or 2, and [`CUT`](slots::CUT) as [`cut_by_tap`] says. Packets of one
/// `order` leave in the order in which they came.
#[inline(always)]
pub(crate) fn hold(
    ctx: &TcContext,
    attachment: &Attachment,
    tag: Tag,
    departure: MonoNanos,
    scratch: *mut Scratch,
    order: u32,
    packets: u64,
) -> i32 {
    // SAFETY: this CPU's scratch.
    let (now, half, cgroup) = unsafe { ((*scratch).job.now, (*scratch).job.half, (*scratch).key.cgroup) };
    let owner = Owner::new(departure, packets);
    let packets = (packets & !CUT) as u32;
    if !memory::charge(ctx, tag.direction, packets, half) {
        account::event(ctx, Event::MemoryLimit);
        sight::refused(scratch, Event::MemoryLimit as u32, departure);
        return consume();
    }
    let held = if PACER.load() == PACER_USER {
        ticket(ctx, departure, tag, cgroup, owner, now, order)
    } else {
        let order = cgroup::with(order, half, cgroup);
        stamp_time(ctx, departure, tag, owner, now, order)
    };
    if let Err(event) = held {
        memory::discharge(ctx, tag.direction, packets);
        account::event(ctx, event);
        sight::refused(scratch, event as u32, departure);
        return consume();
    }
    if packets > 1 {
        account::event(ctx, Event::Duplicated);
        if !send_clone(ctx, attachment.hold) {
            memory::discharge(ctx, tag.direction, 1);
            sight::refused(scratch, Event::HoldFull as u32, departure);
        }
    }
    if !owned(ctx) {
        return redirect(attachment.hold);
    }
    if !send_clone(ctx, attachment.hold) {
        memory::discharge(ctx, tag.direction, 1);
        sight::refused(scratch, Event::HoldFull as u32, departure);
    }
    consume()
}

/// [`CUT`] if a TAP may cut a packet of this IP protocol (`netif_skb_features`): of super-packets it takes TCP's whole that no
/// tunnel wraps, with one VLAN tag at most; from Linux 6.2 on UDP's, which look the same as those of a tunnel over UDP.
#[inline(always)]
pub(crate) fn cut_by_tap(ctx: &TcContext, protocol: u8) -> u64 {
    let whole = skb(ctx).gso_size == 0 || protocol == TCP && is_ip(ctx);
    if whole { 0 } else { CUT }
}

/// Sends a packet through the splitter, which has a super-packet cut into wire packets, and a checksum that was
/// left to the device filled in. The parts arrive when it does: what passes until they come out is no delay of theirs, and on a
/// busy processor it is more than the time between them.
#[inline(always)]
pub(crate) fn split(
    ctx: &TcContext,
    attachment: &Attachment,
    tag: Tag,
    cgroup: u16,
    arrival: MonoNanos,
) -> i32 {
    // SAFETY: helpers on the context of a running program; the verifier admits the store.
    unsafe {
        if tag.waits {
            cgroup::carry(ctx, cgroup);
        }
        (*ctx.skb.skb).tc_index = tag.encode_with(label(ctx));
        // Refused for what is not IP, whose parts arrive when they come out.
        bpf_skb_set_tstamp(ctx.skb.skb, arrival.0, STAMP_MONO);
    }
    if !owned(ctx) {
        return redirect(attachment.split);
    }
    send_clone(ctx, attachment.split);
    consume()
}

/// When a packet arrived that comes out of the splitter ([`split`]); 0 if it does not say.
#[inline(always)]
fn arrival_of_part(ctx: &TcContext) -> MonoNanos {
    if skb(ctx).tstamp_type != STAMP_MONO as u8 {
        return MonoNanos(0);
    }
    let arrival = MonoNanos(skb(ctx).tstamp);
    take_stamp(ctx);
    arrival
}

/// Takes off a stamp that has been read: receivers would take it for the time of arrival.
#[inline(always)]
fn take_stamp(ctx: &TcContext) {
    // SAFETY: a helper on the context of a running program.
    unsafe { bpf_skb_set_tstamp(ctx.skb.skb, 0, STAMP_NONE) };
}

/// Moves the packet to a device.
#[inline(always)]
fn redirect(device: u32) -> i32 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_redirect(device, 0) as i32 }
}

/// Sends a clone of it to a device: what a socket owns moves as one. Whether it got there; what the device or its qdisc drops,
/// it counts itself.
#[inline(always)]
fn send_clone(ctx: &TcContext, device: u32) -> bool {
    // SAFETY: the context of a running program.
    let sent = unsafe { bpf_clone_redirect(ctx.skb.skb, device, 0) } >= 0;
    if !sent {
        account::event(ctx, Event::HoldFull);
    }
    sent
}

#[inline(always)]
fn owned(ctx: &TcContext) -> bool {
    // SAFETY: reading the pointer, not what it points to.
    unsafe { !skb(ctx).__bindgen_anon_2.sk.is_null() }
}

#[inline(always)]
fn stamp_time(
    ctx: &TcContext,
    departure: MonoNanos,
    tag: Tag,
    owner: Owner,
    now: MonoNanos,
    order: u32,
) -> Result<(), Event> {
    // SAFETY: helpers on the context of a running program; the verifier admits the store.
    unsafe {
        (*ctx.skb.skb).tc_index = tag.encode_with(label(ctx));
        // sch_fq lets control packets (priority 7) go at once, and has bands of others (`fq_classify`).
        (*ctx.skb.skb).priority = 0;
        // A receive queue that is noted here would choose the queue in place of the hash (`skb_tx_hash`).
        (*ctx.skb.skb).queue_mapping = 0;
        if bpf_skb_set_tstamp(ctx.skb.skb, departure.0, STAMP_MONO) != 0 {
            // Not IP: `stamp` writes the time on the way into fq. The mark says where it is found, and waits there, too.
            let index = claim(owner, now)?;
            let slot = SLOT_TABLE.get_ptr_mut(index).ok_or(Event::NoSlot)?;
            (*slot).mark = skb(ctx).mark;
            (*ctx.skb.skb).mark = slots::label(index, departure);
        }
        steer_by(ctx, order);
    }
    Ok(())
}

/// Has the hold device choose queue and processor by this hash.
#[inline(always)]
fn steer_by(ctx: &TcContext, hash: u32) {
    // Steering takes 0 for no hash (`get_rps_cpu`).
    // SAFETY: the context of a running program.
    unsafe { bpf_set_hash(ctx.skb.skb, if hash == 0 { 1 } else { hash }) };
}

/// The queue of a TAP for a packet that [`hold`] sends there: its hash, so that all packets of one order share a queue. The
/// kernel keeps 16 bits of it.
#[inline(always)]
pub(crate) fn steer(ctx: &SkBuffContext) -> i64 {
    // SAFETY: the context of a running program.
    i64::from(unsafe { (*ctx.skb.skb).hash })
}

#[inline(always)]
fn ticket(
    ctx: &TcContext,
    departure: MonoNanos,
    tag: Tag,
    cgroup: u16,
    owner: Owner,
    now: MonoNanos,
    order: u32,
) -> Result<(), Event> {
    let mac = mac_words(ctx).ok_or(Event::HoldFull)?;
    let index = claim(owner, now)?;
    let slot = SLOT_TABLE.get_ptr_mut(index).ok_or(Event::NoSlot)?;
    let ticket = Ticket::new(departure.0, index, tag);
    // SAFETY: helpers on the context of a running program; the slot is this packet's alone.
    unsafe {
        (&raw mut (*slot).mac).cast::<MacWords>().write(mac);
        (*slot).mark = skb(ctx).mark;
        (*slot).priority = skb(ctx).priority;
        (*slot).epoch = tag.epoch as u16;
        (*slot).cgroup = cgroup;
        if bpf_skb_store_bytes(ctx.skb.skb, 0, (&raw const ticket).cast(), MAC_BYTES, 0) != 0 {
            return Err(Event::HoldFull);
        }
    }
    steer_by(ctx, order);
    Ok(())
}

/// The MAC addresses, read in place if they lie in the linear part, as they do in all but odd packets.
#[inline(always)]
fn mac_words(ctx: &TcContext) -> Option<MacWords> {
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + MAC_BYTES as usize <= end {
        // SAFETY: the bytes lie before the end, which the verifier checks.
        return Some(unsafe { *(start as *const MacWords) });
    }
    let mut mac = MacWords::default();
    // SAFETY: the helper writes all of it or fails.
    let error = unsafe { bpf_skb_load_bytes(ctx.skb.skb.cast(), 0, (&raw mut mac).cast(), MAC_BYTES) };
    (error == 0).then_some(mac)
}

#[inline(always)]
fn claim(owner: Owner, now: MonoNanos) -> Result<u32, Event> {
    match claim_slot(owner.0, now.0) {
        NONE => Err(Event::NoSlot),
        index => Ok(index),
    }
}

/// Takes a slot; [`NONE`] if too many are taken. A global function, which takes numbers only: the verifier walks its
/// loop once.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn claim_slot(owner: u64, now: u64) -> u32 {
    let Some(cursor) = NEXT_SLOT.get_ptr_mut(0) else {
        return NONE;
    };
    // SAFETY: an aligned word of a map value.
    let cursor = unsafe { Shared::new(cursor) };
    slots::claim(&cursor, owner_of, Owner(owner), MonoNanos(now)).unwrap_or(NONE)
}

/// The word of a slot.
#[inline(always)]
fn owner_of(index: u32) -> Option<Shared> {
    let slot: *mut Slot = SLOT_TABLE.get_ptr_mut(index)?;
    // SAFETY: an aligned word of a map value: [`Owner`] is nothing else.
    Some(unsafe { Shared::new((&raw mut (*slot).owner).cast()) })
}

/// Reads tag and time off a packet that leaves the hold device, and gives it back what holding took. An error is the
/// reason to drop it.
#[inline(always)]
pub(crate) fn reclaim(ctx: &TcContext, scratch: *mut Scratch) -> Result<Held, Event> {
    // SAFETY: this CPU's scratch.
    let cgroup = unsafe { &raw mut (*scratch).cgroup };
    if PACER.load() == PACER_USER {
        // Out of the splitter packets come with a tag, out of the TAP with a ticket.
        return match Tag::decode_with(skb(ctx).tc_index) {
            Some((tag, label)) => {
                give_priority(ctx, label);
                let departure = arrival_of_part(ctx);
                cgroup::of_part(ctx, tag, cgroup);
                Ok(Held { tag, departure })
            }
            None => open(ctx, cgroup),
        };
    }
    let skb = skb(ctx);
    let (tag, label) = Tag::decode_with(skb.tc_index).ok_or(Event::Foreign)?;
    // SAFETY: as above.
    unsafe { cgroup.write_volatile(carried_cgroup(skb.hash).into()) };
    let mut departure = MonoNanos(skb.tstamp);
    if tag.position != 0 {
        memory::discharge(ctx, tag.direction, 1);
    }
    if tag.position == 0 {
        departure = arrival_of_part(ctx);
        cgroup::of_part(ctx, tag, cgroup);
    } else if skb.tstamp_type != STAMP_MONO as u8 {
        // One that was not IP when it was held left its time in a slot. It may be IP by now: the far end has taken a VLAN tag
        // out of its data (`skb_vlan_untag`).
        let index = slots::labeled(skb.mark);
        let slot = SLOT_TABLE.get_ptr_mut(index).ok_or(Event::Foreign)?;
        let word = owner_of(index).ok_or(Event::Foreign)?;
        departure = slots::departure_of(skb.mark, Owner(word.load())).ok_or(Event::SlotReused)?;
        // SAFETY: the slot may be another packet's, which writes to it meanwhile: what is read counts only if it was not.
        let mark = unsafe { (&raw const (*slot).mark).read_volatile() };
        match slots::give_back(&word, departure) {
            Answer::Own => {}
            Answer::Part => {
                account::count(Event::Captured);
            }
            Answer::Foreign => return Err(Event::SlotReused),
        }
        // SAFETY: the context of a running program; the verifier admits the store.
        unsafe { (*ctx.skb.skb).mark = mark };
    } else {
        take_stamp(ctx);
    }
    // The hash was for fq; steering must compute the real one.
    // SAFETY: the context of a running program.
    unsafe { bpf_set_hash_invalid(ctx.skb.skb) };
    give_priority(ctx, label);
    Ok(Held { tag, departure })
}

/// The label of a packet's priority, which the hop to the other end of a pair clears.
#[inline(always)]
fn label(ctx: &TcContext) -> u32 {
    match skb(ctx).priority {
        0 => 0,
        priority => label_of(priority),
    }
}

/// A global function, which takes a number only: the verifier walks its loop once.
#[cfg_attr(target_arch = "bpf", unsafe(no_mangle))]
#[inline(never)]
extern "C" fn label_of(priority: u32) -> u32 {
    priorities::label(priority_at, priority)
}

/// Gives a packet back its priority.
#[inline(always)]
fn give_priority(ctx: &TcContext, label: u32) {
    if label != 0 {
        let priority = priorities::priority(priority_at, label);
        // SAFETY: the context of a running program; the verifier admits the store.
        unsafe { (*ctx.skb.skb).priority = priority };
    }
}

/// The word of a label.
#[inline(always)]
fn priority_at(label: u32) -> Option<Shared> {
    let word = PRIORITIES.get_ptr_mut(label)?;
    // SAFETY: an aligned word of a map value.
    Some(unsafe { Shared::new(word) })
}

#[inline(always)]
fn open(ctx: &TcContext, cgroup: *mut u64) -> Result<Held, Event> {
    let mut ticket = Ticket::default();
    // SAFETY: the helper writes the whole ticket or fails.
    if unsafe { bpf_skb_load_bytes(ctx.skb.skb.cast(), 0, (&raw mut ticket).cast(), MAC_BYTES) } != 0 {
        return Err(Event::Foreign);
    }
    let (index, tag) = ticket.open().ok_or(Event::Foreign)?;
    let departure = MonoNanos(ticket.departure);
    let slot = SLOT_TABLE.get_ptr_mut(index).ok_or(Event::Foreign)?;
    // SAFETY: the slot may be another packet's, which writes to it meanwhile: what is read counts only if it was not.
    let (mac, mark, priority, epoch) = unsafe {
        cgroup.write_volatile((&raw const (*slot).cgroup).read_volatile().into());
        (
            (&raw const (*slot).mac).cast::<MacWords>().read_volatile(),
            (&raw const (*slot).mark).read_volatile(),
            (&raw const (*slot).priority).read_volatile(),
            (&raw const (*slot).epoch).read_volatile(),
        )
    };
    let word = owner_of(index).ok_or(Event::Foreign)?;
    match slots::give_back(&word, departure) {
        Answer::Own => {}
        // The TAP has made several packets of the one that was captured.
        Answer::Part => {
            account::count(Event::Captured);
        }
        Answer::Foreign => return Err(Event::SlotReused),
    }
    // SAFETY: helpers on the context of a running program; the verifier admits the stores.
    unsafe {
        if bpf_skb_store_bytes(ctx.skb.skb, 0, (&raw const mac).cast(), MAC_BYTES, 0) != 0 {
            return Err(Event::Foreign);
        }
        (*ctx.skb.skb).mark = mark;
        (*ctx.skb.skb).priority = priority;
    }
    let tag = Tag {
        epoch: epoch.into(),
        ..tag
    };
    Ok(Held { tag, departure })
}

/// Sends a packet on to its interface, tagged so that capture lets it pass.
#[inline(always)]
pub(crate) fn deliver(ctx: &TcContext, attachment: &Attachment, direction: u32) -> i32 {
    // SAFETY: the context of a running program; the verifier admits the store.
    unsafe {
        (*ctx.skb.skb).tc_index = Tag {
            direction,
            position: Tag::DELIVER,
            waits: false,
            epoch: 0,
        }
        .encode();
        // The hold device's queue is none of this interface's (`get_rps_cpu` warns of one that it does not have).
        (*ctx.skb.skb).queue_mapping = 0;
        let flags = if direction == 0 {
            // The hold device took it for another's (`eth_type_trans`). lo, unlike a wire, hands that on to the receiver.
            bpf_skb_change_type(ctx.skb.skb, PACKET_HOST);
            0
        } else {
            u64::from(BPF_F_INGRESS)
        };
        bpf_redirect(attachment.target, flags) as i32
    }
}

/// The program at the near end's egress, before fq: a plain store of the time, which nothing clears
/// between here and fq.
#[inline(always)]
pub(crate) fn stamp(ctx: &TcContext) -> i32 {
    let skb = skb(ctx);
    // One whose slot is another's goes at once, and is dropped where it comes out.
    if skb.tstamp == 0
        && Tag::decode_with(skb.tc_index).is_some()
        && let Some(word) = owner_of(slots::labeled(skb.mark))
        && let Some(departure) = slots::departure_of(skb.mark, Owner(word.load()))
    {
        // SAFETY: the context of a running program; the verifier admits the store.
        unsafe { (*ctx.skb.skb).tstamp = departure.0 };
    }
    PASS
}

#[inline(always)]
fn is_ip(ctx: &TcContext) -> bool {
    let protocol = u16::from_be(skb(ctx).protocol as u16);
    protocol == 0x0800 || protocol == 0x86dd
}
