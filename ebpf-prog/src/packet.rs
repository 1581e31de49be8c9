//! Reads the headers that classify a packet. The common packet is read in place; every other access
//! goes through `bpf_skb_load_bytes`: it works on paged data too, and a short packet is an error
//! instead of a verifier puzzle.

use core::mem::MaybeUninit;

use aya_ebpf::{bindings::__sk_buff, helpers::bpf_skb_load_bytes, programs::TcContext};
use perturb_common::{
    abi::{Direction, Event, FlowKey, FragmentKey, FragmentPorts},
    departure::Load,
};

use crate::{
    account,
    maps::FRAGMENTS,
    scratch::{self, Scratch, Walk, forgotten},
    tunnel::{self, NOT_YET},
};

pub(crate) const ETHERNET: u32 = 14;
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const QINQ: u16 = 0x88a8;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// The byte of a TCP header whose high half says how long it is, in words.
pub(crate) const TCP_OFFSET: u32 = 12;
pub(crate) const UDP_HEADER: u64 = 8;

/// Extension headers that are walked; a longer chain counts as malformed.
const MAX_EXTENSIONS: u32 = 8;

/// The headers contradict the packet's length or each other.
pub(crate) struct Malformed;

/// The raw context.
#[inline(always)]
pub(crate) fn skb(ctx: &TcContext) -> &__sk_buff {
    // SAFETY: the context of a running program; its fields are read one by one, as the verifier wants.
    unsafe { &*ctx.skb.skb }
}

#[inline(always)]
pub(crate) fn load<T>(ctx: &TcContext, offset: u32) -> Result<T, Malformed> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper writes all of `value` or fails.
    unsafe {
        let error = bpf_skb_load_bytes(
            ctx.skb.skb.cast(),
            offset,
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
        );
        if error != 0 {
            return Err(Malformed);
        }
        Ok(value.assume_init())
    }
}

/// Notes the packet's ECN field in the walk of this CPU's scratch. A subprogram of its own, for the caller's stack: where
/// something is written there on one way only, the verifier walks on twice. No global function: without types of the kernel's (BTF)
/// the verifier takes a context for one only as that of a program.
#[inline(never)]
pub(crate) fn look(ctx: &TcContext) {
    let start = ctx.data() + ETHERNET as usize;
    let first = if start + 2 <= ctx.data_end() {
        // SAFETY: it lies before the end.
        unsafe { (start as *const [u8; 2]).read() }
    } else {
        load(ctx, ETHERNET).unwrap_or([0; 2])
    };
    let first = u32::from(u16::from_be_bytes(first));
    let ecn = match u16::from_be(skb(ctx).protocol as u16) {
        IPV4 => first & 3,
        IPV6 => first >> 4 & 3,
        _ => 0,
    };
    if let Some(scratch) = Scratch::here() {
        // SAFETY: this CPU's scratch; no reference to this part of it lives.
        unsafe { (*scratch).walk.flags |= Walk::LOOKED | u64::from(ecn) << Walk::ECN_SHIFT };
    }
}

/// Where the upper layer begins and whether it is there.
struct Upper {
    offset: u32,
    /// Identification of a fragmented datagram, and whether this is not its first fragment.
    fragment: Option<(u32, bool)>,
}

/// Parses a packet seen at an interface in a direction into `scratch`.
#[inline(always)]
pub(crate) fn parse(ctx: &TcContext, direction: Direction, scratch: &mut Scratch) -> Result<(), Malformed> {
    if plain(ctx, direction, scratch) || others(ctx, direction as u32, scratch) == 0 {
        Ok(())
    } else {
        Err(Malformed)
    }
}

/// All other packets; 0 if all is well. A subprogram of its own: the verifier comes back from it in one way.
#[inline(never)]
fn others(ctx: &TcContext, direction: u32, scratch: &mut Scratch) -> u32 {
    if headers(ctx, direction, scratch) != 0 {
        return 1;
    }
    tunnel::load(ctx, scratch)
}

/// The common packet, read in place and without a call: TCP or UDP, right behind an untagged Ethernet header and an
/// IP header without options or extensions, all in the linear part. Whether it was one.
#[inline(always)]
fn plain(ctx: &TcContext, direction: Direction, scratch: &mut Scratch) -> bool {
    let skb = skb(ctx);
    let ethertype = u16::from_be(skb.protocol as u16);
    let (start, end) = (ctx.data() + ETHERNET as usize, ctx.data_end());
    // SAFETY: every read lies before `end`, which the verifier checks. Machines that run this read
    // unaligned words; on those that do not, the kernel aligns the IP header and with it these fields.
    let (addresses, ports, class, protocol, upper) = unsafe {
        match ethertype {
            IPV4 => {
                if start + 24 > end {
                    return false;
                }
                let header = start as *const u8;
                let fragment = u16::from_be(*header.add(6).cast::<u16>());
                if *header != 0x45 || fragment & 0x3fff != 0 {
                    return false;
                }
                let mapped = |at| 0xffff_0000 | u64::from(*header.add(at).cast::<u32>()) << 32;
                let ports = u32::from_be(*header.add(20).cast::<u32>());
                (
                    [0, mapped(12), 0, mapped(16)],
                    ports,
                    *header.add(1),
                    *header.add(9),
                    20,
                )
            }
            IPV6 => {
                if start + 44 > end {
                    return false;
                }
                let header = start as *const u8;
                let first = u16::from_be(*header.cast::<u16>());
                if first >> 12 != 6 {
                    return false;
                }
                let words = header.add(8).cast::<[u32; 8]>();
                let word = |at: usize| u64::from((*words)[at]) | u64::from((*words)[at + 1]) << 32;
                let ports = u32::from_be(*header.add(40).cast::<u32>());
                (
                    [word(0), word(2), word(4), word(6)],
                    ports,
                    (first >> 4) as u8,
                    *header.add(6),
                    40,
                )
            }
            _ => return false,
        }
    };
    if protocol != TCP && protocol != UDP {
        return false;
    }
    let mut header = u64::from(ETHERNET + upper) + UDP_HEADER;
    if skb.gso_size != 0 {
        // There may be another packet in it.
        if protocol != TCP {
            return false;
        }
        let place = start + upper as usize + TCP_OFFSET as usize;
        if place + 1 > end {
            return false;
        }
        // SAFETY: as above.
        let offset = unsafe { *(place as *const u8) };
        header = u64::from(ETHERNET + upper) + tcp_header(offset);
    }
    let [a, b, c, d] = addresses;
    let small = u64::from(ports >> 16)
        | u64::from(ports & 0xffff) << 16
        | u64::from(ethertype) << 32
        | u64::from(protocol) << 48
        | u64::from(class >> 2) << 56;
    let last = u64::from(skb.mark) | (direction as u64) << 32;
    // SAFETY: the key is made of these words, the machine being little-endian.
    unsafe { scratch::write_words(&raw mut scratch.key, [a, b, c, d, small, last]) };
    scratch.load = wire_load(ctx, header);
    true
}

/// A subprogram of its own, for the stack's sake; 0 if all is well.
#[inline(never)]
fn headers(ctx: &TcContext, direction: u32, scratch: &mut Scratch) -> u32 {
    u32::from(read(ctx, direction, scratch).is_err())
}

/// The innermost EtherType, and where what it names begins.
#[inline(always)]
fn network_header(ctx: &TcContext) -> Result<(u16, u32), Malformed> {
    // `protocol` is that of the innermost tag the device took off; tags still in the data follow.
    untagged(ctx, u16::from_be(skb(ctx).protocol as u16), ETHERNET)
}

/// The same of a frame whose outermost EtherType is this one, and what it names lies here.
#[inline(always)]
pub(crate) fn untagged(
    ctx: &TcContext,
    mut ethertype: u16,
    mut offset: u32,
) -> Result<(u16, u32), Malformed> {
    for _ in 0..2 {
        if ethertype == VLAN || ethertype == QINQ {
            ethertype = u16::from_be_bytes(load(ctx, offset + 2)?);
            offset += 4;
        }
    }
    Ok((ethertype, offset))
}

#[inline(always)]
fn read(ctx: &TcContext, direction: u32, scratch: &mut Scratch) -> Result<(), Malformed> {
    let skb = skb(ctx);
    let Scratch {
        key,
        load: wire,
        fragment,
        offset: place,
        ..
    } = scratch;
    // SAFETY: the key is made of these words, the machine being little-endian.
    unsafe {
        scratch::write_words(
            &raw mut *key,
            [0, 0, 0, 0, 0, u64::from(skb.mark) | u64::from(direction) << 32],
        );
    }

    let (ethertype, offset) = network_header(ctx)?;
    let offset = forgotten(place, offset);
    key.ethertype = ethertype;

    let upper = match ethertype {
        IPV4 => ipv4(ctx, offset, key)?,
        IPV6 => ipv6(ctx, offset, key, place)?,
        _ => {
            *wire = Load {
                bytes: u64::from(skb.len),
                segments: 1,
            };
            return Ok(());
        }
    };
    ports(ctx, &upper, key, fragment)?;
    let upper = u64::from(upper.offset);
    *wire = if skb.gso_size == 0 {
        wire_load(ctx, upper)
    } else if key.protocol == TCP {
        wire_load(ctx, upper + tcp_header(load(ctx, upper as u32 + TCP_OFFSET)?))
    } else {
        Load {
            bytes: upper,
            segments: NOT_YET,
        }
    };
    Ok(())
}

/// 1 if a packet that has been parsed is TCP's and carries neither data nor SYN, FIN or RST. A subprogram of its own, for
/// the stack's sake.
#[inline(never)]
pub(crate) fn acknowledges(ctx: &TcContext, scratch: &mut Scratch) -> u32 {
    u32::from(matches!(bare(ctx, scratch), Ok(true)))
}

/// Says it by the length in the IP header: frames are padded, and have trailers.
#[inline(always)]
fn bare(ctx: &TcContext, scratch: &mut Scratch) -> Result<bool, Malformed> {
    const FIN_SYN_RST: u8 = 7;
    let (key, place) = (&mut scratch.key, &mut scratch.offset);
    if key.protocol != TCP || skb(ctx).gso_size != 0 {
        return Ok(false);
    }
    let (_, offset) = network_header(ctx)?;
    let offset = forgotten(place, offset);
    let (upper, end) = if key.ethertype == IPV4 {
        let length: [u8; 2] = load(ctx, offset + 2)?;
        (
            ipv4(ctx, offset, key)?,
            offset + u32::from(u16::from_be_bytes(length)),
        )
    } else {
        let length: [u8; 2] = load(ctx, offset + 4)?;
        let end = offset + 40 + u32::from(u16::from_be_bytes(length));
        (ipv6(ctx, offset, key, place)?, end)
    };
    if upper.fragment.is_some() {
        return Ok(false);
    }
    let [length, flags]: [u8; 2] = load(ctx, upper.offset + TCP_OFFSET)?;
    let data = upper.offset + tcp_header(length) as u32;
    Ok(flags & FIN_SYN_RST == 0 && data >= end)
}

#[inline(always)]
fn ipv4(ctx: &TcContext, offset: u32, key: &mut FlowKey) -> Result<Upper, Malformed> {
    let header: [u8; 20] = load(ctx, offset)?;
    let length = u32::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || length < 20 {
        return Err(Malformed);
    }
    key.dscp = header[1] >> 2;
    key.protocol = header[9];
    key.source[10] = 0xff;
    key.source[11] = 0xff;
    key.destination[10] = 0xff;
    key.destination[11] = 0xff;
    key.source[12..16].copy_from_slice(&header[12..16]);
    key.destination[12..16].copy_from_slice(&header[16..20]);
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    let fragment = if fragment & 0x3fff == 0 {
        None
    } else {
        let id = u16::from_be_bytes([header[4], header[5]]);
        Some((u32::from(id), fragment & 0x1fff != 0))
    };
    Ok(Upper {
        offset: offset + length,
        fragment,
    })
}

#[inline(always)]
fn ipv6(ctx: &TcContext, offset: u32, key: &mut FlowKey, at: &mut u32) -> Result<Upper, Malformed> {
    let header: [u8; 40] = load(ctx, offset)?;
    if header[0] >> 4 != 6 {
        return Err(Malformed);
    }
    key.dscp = ((header[0] & 15) << 2) | (header[1] >> 6);
    key.source.copy_from_slice(&header[8..24]);
    key.destination.copy_from_slice(&header[24..40]);
    let mut next = header[6];
    let mut offset = offset + 40;
    let mut fragment = None;
    for _ in 0..MAX_EXTENSIONS {
        let length = match next {
            // Hop-by-hop, routing, destination options, mobility, HIP, shim6: units of 8 bytes, the first not counted.
            0 | 43 | 60 | 135 | 139 | 140 => {
                let [following, length]: [u8; 2] = load(ctx, offset)?;
                next = following;
                8 + u32::from(length) * 8
            }
            // Authentication header: units of 4 bytes, minus 2.
            51 => {
                let [following, length]: [u8; 2] = load(ctx, offset)?;
                next = following;
                8 + u32::from(length) * 4
            }
            44 => {
                let header: [u8; 8] = load(ctx, offset)?;
                next = header[0];
                let place = u16::from_be_bytes([header[2], header[3]]);
                let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                fragment = Some((id, place & 0xfff8 != 0));
                8
            }
            _ => {
                key.protocol = next;
                return Ok(Upper { offset, fragment });
            }
        };
        offset = forgotten(at, offset + length);
        // What follows a later fragment's header is payload, not a header.
        if let Some((_, true)) = fragment {
            key.protocol = next;
            return Ok(Upper { offset, fragment });
        }
    }
    Err(Malformed)
}

/// Fills in the ports; a later fragment takes those of its first.
#[inline(always)]
fn ports(
    ctx: &TcContext,
    upper: &Upper,
    key: &mut FlowKey,
    datagram: &mut FragmentKey,
) -> Result<(), Malformed> {
    if !matches!(key.protocol, TCP | UDP | DCCP | SCTP | UDP_LITE) {
        return Ok(());
    }
    let Some((id, later)) = upper.fragment else {
        let [a, b, c, d]: [u8; 4] = load(ctx, upper.offset)?;
        key.source_port = u16::from_be_bytes([a, b]);
        key.destination_port = u16::from_be_bytes([c, d]);
        return Ok(());
    };
    *datagram = FragmentKey {
        source: key.source,
        destination: key.destination,
        id,
        protocol: u32::from(key.protocol),
    };
    if later {
        // SAFETY: a stale value names the ports of another datagram with the same identification at worst.
        match unsafe { FRAGMENTS.get(&*datagram) } {
            Some(ports) => {
                key.source_port = ports.source;
                key.destination_port = ports.destination;
            }
            None => account::event(ctx, Event::FragmentUnknown),
        }
    } else {
        let [a, b, c, d]: [u8; 4] = load(ctx, upper.offset)?;
        key.source_port = u16::from_be_bytes([a, b]);
        key.destination_port = u16::from_be_bytes([c, d]);
        let ports = FragmentPorts {
            source: key.source_port,
            destination: key.destination_port,
        };
        // A full map evicts the least recently used datagram; its later fragments are counted.
        let _ = FRAGMENTS.insert(&*datagram, &ports, 0);
    }
    Ok(())
}

/// Bytes and packets on the wire: a super-packet repeats its `header` bytes in each segment
/// (`qdisc_pkt_len_init` does the same sum, but not at ingress).
#[inline(always)]
pub(crate) fn wire_load(ctx: &TcContext, header: u64) -> Load {
    let skb = skb(ctx);
    let bytes = u64::from(skb.len);
    let size = u64::from(skb.gso_size);
    if size == 0 || bytes <= header {
        return Load { bytes, segments: 1 };
    }
    let segments = (bytes - header).div_ceil(size);
    Load {
        bytes: bytes + (segments - 1) * header,
        segments,
    }
}

/// Length of a TCP header, by its byte 12.
#[inline(always)]
pub(crate) fn tcp_header(offset: u8) -> u64 {
    u64::from(offset >> 4) * 4
}
