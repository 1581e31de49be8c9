//! The ends of tunnels to hosts on other machines: counts what goes in and what comes out, packet by packet. The devices' own
//! counters count super-packets, and do not know what is lost on the way.

use aya_ebpf::{
    macros::map,
    maps::{Array, HashMap},
    programs::TcContext,
};
use perturb_common::{
    departure::Load,
    ends::{MAX_ENDS, TunnelEnd},
};

use crate::{
    atomic,
    hold::{DISCARD, PASS},
    packet::{skb, wire_load},
    tunnel::{BRIDGED, inner_header, set_at, unbridged},
};

/// By interface.
#[map]
static ENDS: HashMap<u32, TunnelEnd> = HashMap::with_max_entries(MAX_ENDS, 0);
/// 1 once nothing more goes in.
#[map]
static CLOSED: Array<u64> = Array::with_max_entries(1, 0);
/// A multicast or broadcast packet of this host's own, which its kernel gives back to it (`PACKET_LOOPBACK`).
const OWN: u32 = 5;

/// A packet goes in. Before the other end is known to be there, and once this one is closed, it is dropped.
#[inline(always)]
pub(crate) fn sent(ctx: &TcContext) -> i32 {
    let interface = skb(ctx).ifindex;
    let (Some(end), Some(closed)) = (ENDS.get_ptr_mut(&interface), CLOSED.get_ptr(0)) else {
        return PASS;
    };
    // SAFETY: words of map values.
    unsafe {
        if atomic::load(&raw const (*end).is_heard) == 0 || atomic::load(closed) != 0 {
            return DISCARD;
        }
        atomic::fetch_add(&raw mut (*end).sent, packets(ctx));
    }
    PASS
}

/// A packet comes out.
#[inline(always)]
pub(crate) fn received(ctx: &TcContext) -> i32 {
    let skb = skb(ctx);
    let interface = skb.ifindex;
    let Some(end) = ENDS.get_ptr_mut(&interface).filter(|_| skb.pkt_type != OWN) else {
        return PASS;
    };
    // SAFETY: as above; all that write this word write the same.
    unsafe {
        atomic::fetch_add(&raw mut (*end).received, packets(ctx));
        (&raw mut (*end).is_heard).write_volatile(1);
    }
    PASS
}

/// How many a packet is on the wire.
#[inline(always)]
fn packets(ctx: &TcContext) -> u64 {
    let skb = skb(ctx);
    match (skb.gso_size, skb.gso_segs) {
        (0, _) => 1,
        // A guest's, or a TAP's (`virtio_net_hdr_to_skb`): nobody has counted them yet.
        (_, 0) => by_headers(ctx),
        (_, segments) => segments.into(),
    }
}

/// The same of a super-packet, by the headers of Ethernet, IP and TCP or UDP.
#[inline(always)]
fn by_headers(ctx: &TcContext) -> u64 {
    let mut place = Load::default();
    set_at(&mut place, BRIDGED, 0);
    let header = unbridged(ctx, &mut place).and_then(|()| inner_header(ctx, &mut place));
    wire_load(ctx, header.unwrap_or_default().into()).segments
}
