//! Super-packets in tunnels: each of their segments has the outer and the inner headers.

use aya_ebpf::programs::TcContext;
use perturb_common::departure::Load;

use crate::{
    packet::{
        ETHERNET, IPV4, IPV6, Malformed, TCP, TCP_OFFSET, UDP, UDP_HEADER, load as read, skb, tcp_header,
        untagged, wire_load,
    },
    scratch::Scratch,
};

/// IP in IP: `ipip`, `sit`, `ip6tnl`.
const IPV4_INSIDE: u8 = 4;
const IPV6_INSIDE: u8 = 41;
const GRE: u8 = 47;
/// An Ethernet frame in a tunnel (`ETH_P_TEB`).
pub(crate) const BRIDGED: u16 = 0x6558;
/// Flag of a VXLAN header, which all have (`VXLAN_HF_VNI`).
const VXLAN_HAS_NETWORK: u8 = 8;

/// In place of the segments of a super-packet that a tunnel may carry; its bytes then say where its upper layer begins. The
/// verifier would walk the headers inside for each way through those outside.
pub(crate) const NOT_YET: u64 = 0;

/// Bytes and packets on the wire of a super-packet that a tunnel may carry. A subprogram of its own, for the stack's sake.
#[inline(never)]
pub(crate) fn load(ctx: &TcContext, scratch: &mut Scratch) -> u32 {
    if scratch.load.segments != NOT_YET {
        return 0;
    }
    let upper = scratch.load.bytes;
    let place = &mut scratch.load;
    let header = match carried(ctx, place, scratch.key.protocol)
        .and_then(|()| unbridged(ctx, place))
        .and_then(|()| inner_header(ctx, place))
    {
        Ok(header) => header.into(),
        // Datagrams of its own.
        Err(Malformed) => upper + UDP_HEADER,
    };
    scratch.load = wire_load(ctx, header);
    0
}

/// Where the header named by an EtherType lies. In a map value, of which the verifier forgets what it knows: each step is walked
/// once, whatever the one before found.
#[inline(always)]
fn at(place: &Load) -> (u16, u32) {
    // SAFETY: references to words.
    unsafe {
        (
            (&raw const place.segments).read_volatile() as u16,
            (&raw const place.bytes).read_volatile() as u32,
        )
    }
}

#[inline(always)]
pub(crate) fn set_at(place: &mut Load, ethertype: u16, offset: u32) {
    // SAFETY: references to words.
    unsafe {
        (&raw mut place.segments).write_volatile(ethertype.into());
        (&raw mut place.bytes).write_volatile(offset.into());
    }
}

/// From the upper layer of a packet to what a tunnel carries in it: IP, or an Ethernet frame.
#[inline(always)]
fn carried(ctx: &TcContext, place: &mut Load, protocol: u8) -> Result<(), Malformed> {
    let (_, offset) = at(place);
    match protocol {
        IPV4_INSIDE => set_at(place, IPV4, offset),
        IPV6_INSIDE => set_at(place, IPV6, offset),
        GRE => {
            let [flags, version, high, low]: [u8; 4] = read(ctx, offset)?;
            if version & 7 != 0 {
                return Err(Malformed);
            }
            // Checksum, key, sequence number.
            let words = u32::from(flags >> 7) + u32::from(flags >> 5 & 1) + u32::from(flags >> 4 & 1);
            set_at(place, u16::from_be_bytes([high, low]), offset + 4 + words * 4);
        }
        UDP => {
            let [first, _, high, low]: [u8; 4] = read(ctx, offset + UDP_HEADER as u32)?;
            let (ethertype, offset) = (u16::from_be_bytes([high, low]), offset + UDP_HEADER as u32 + 8);
            if ethertype == BRIDGED || ethertype == IPV4 || ethertype == IPV6 {
                // Geneve: the low bits say how many words of options it has.
                set_at(place, ethertype, offset + u32::from(first & 63) * 4);
            } else if first & VXLAN_HAS_NETWORK != 0 {
                set_at(place, BRIDGED, offset);
            } else {
                return Err(Malformed);
            }
        }
        _ => return Err(Malformed),
    }
    Ok(())
}

/// From an Ethernet frame to what it carries.
#[inline(always)]
pub(crate) fn unbridged(ctx: &TcContext, place: &mut Load) -> Result<(), Malformed> {
    let (ethertype, offset) = at(place);
    if ethertype == BRIDGED {
        let next: [u8; 2] = read(ctx, offset + ETHERNET - 2)?;
        let (ethertype, offset) = untagged(ctx, u16::from_be_bytes(next), offset + ETHERNET)?;
        set_at(place, ethertype, offset);
    }
    Ok(())
}

/// Where the data begins behind the headers of IP and TCP or UDP. The kernel knows by `skb->encapsulation` that a tunnel carries
/// a super-packet; here the headers must fit: only those of such a one say that it reaches to the end, for datagrams of
/// `UDP_SEGMENT` are cut into whole ones.
#[inline(always)]
pub(crate) fn inner_header(ctx: &TcContext, place: &mut Load) -> Result<u32, Malformed> {
    let (ethertype, offset) = at(place);
    // In a header of IPv4 the length lies at 2 and the protocol at 9, in one of IPv6 at 4 and 6.
    let header: [u8; 10] = read(ctx, offset)?;
    let (length, upper, protocol) = match ethertype {
        IPV4 => (
            u32::from(u16::from_be_bytes([header[2], header[3]])),
            offset + u32::from(header[0] & 15) * 4,
            header[9],
        ),
        IPV6 => (
            40 + u32::from(u16::from_be_bytes([header[4], header[5]])),
            offset + 40,
            header[6],
        ),
        _ => return Err(Malformed),
    };
    if offset + length != skb(ctx).len {
        return Err(Malformed);
    }
    set_at(place, protocol.into(), upper);
    let (protocol, upper) = at(place);
    if protocol == UDP.into() {
        Ok(upper + UDP_HEADER as u32)
    } else if protocol == TCP.into() {
        Ok(upper + tcp_header(read(ctx, upper + TCP_OFFSET)?) as u32)
    } else {
        Err(Malformed)
    }
}
