//! Cuts a super-packet into the frames that a wire would see, with their checksums, as the kernel does (`skb_segment`,
//! `tcp_gso_segment`, `__udp_gso_segment`).

use crate::user::HEADER;

/// Flag of a virtio_net header: the checksum of the upper layer is left to do.
const NEEDS_CSUM: u8 = 1;
const GSO_TYPE: u8 = 0x7f;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
pub(super) const GSO_UDP_L4: u8 = 5;

const ETHERNET: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Of TCP's flags.
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// The frames of a packet, each behind a virtio_net header that asks for nothing. What it does not understand, it leaves whole.
pub(super) fn cut(packet: &[u8]) -> Vec<Vec<u8>> {
    parts(packet).unwrap_or_else(|| vec![packet.to_vec()])
}

/// Where the layers of a frame lie.
struct Layers {
    /// Of the IP header.
    network: usize,
    is_v6: bool,
    /// Of TCP or UDP.
    upper: usize,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

/// The ones' complement sum of words.
fn sum(bytes: &[u8], mut sum: u64) -> u64 {
    let mut chunks = bytes.chunks_exact(2);
    for pair in &mut chunks {
        sum += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    if let [last] = chunks.remainder() {
        sum += u64::from(*last) << 8;
    }
    sum
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn parts(packet: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (header, frame) = packet.split_at_checked(HEADER)?;
    let native = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    let (size, start, offset) = (native(4), native(6), native(8));
    let kind = header[1] & GSO_TYPE;
    if kind == 0 {
        let mut whole = vec![0; HEADER];
        whole.extend_from_slice(frame);
        if header[0] & NEEDS_CSUM != 0 {
            let frame = &mut whole[HEADER..];
            // The field has the sum of the pseudo-header.
            let sum = folded(sum(frame.get(start..)?, 0));
            frame.get(start + offset..start + offset + 2)?;
            // 0 would say that there is none (UDP).
            put(frame, start + offset, if sum == 0 { 0xffff } else { sum });
        }
        return Some(vec![whole]);
    }
    if size == 0 || header[0] & NEEDS_CSUM == 0 {
        return None;
    }
    let layers = layers(frame, start)?;
    let protocol = match kind {
        GSO_TCPV4 | GSO_TCPV6 => TCP,
        GSO_UDP_L4 => UDP,
        _ => return None,
    };
    let upper_header = match protocol {
        TCP => usize::from(frame.get(layers.upper + 12)? >> 4) * 4,
        _ => 8,
    };
    if protocol == TCP && upper_header < 20 {
        return None;
    }
    let data = layers.upper + upper_header;
    let (headers, payload) = frame.split_at_checked(data)?;
    let count = payload.len().div_ceil(size);
    let part = |(number, chunk): (usize, &[u8])| {
        let mut part = vec![0; HEADER];
        part.extend_from_slice(headers);
        part.extend_from_slice(chunk);
        let own = &mut part[HEADER..];
        match protocol {
            TCP => tcp(own, layers.upper, number, number * size, number + 1 == count),
            _ => put(own, layers.upper + 4, (8 + chunk.len()) as u16),
        }
        address(own, &layers, number);
        checksum(own, &layers, protocol);
        part
    };
    Some(payload.chunks(size).enumerate().map(part).collect())
}

fn layers(frame: &[u8], upper: usize) -> Option<Layers> {
    let mut network = ETHERNET;
    let mut ethertype = word(frame, network - 2)?;
    while matches!(ethertype, 0x8100 | 0x88a8) {
        ethertype = word(frame, network + 2)?;
        network += 4;
    }
    let (is_v6, least) = match ethertype {
        0x0800 => (false, 20),
        0x86dd => (true, 40),
        _ => return None,
    };
    (upper >= network + least).then_some(Layers {
        network,
        is_v6,
        upper,
    })
}

/// The TCP header of the part of this number, whose data begins there in the whole.
fn tcp(frame: &mut [u8], upper: usize, number: usize, offset: usize, is_last: bool) {
    let sequence = &mut frame[upper + 4..upper + 8];
    let first = u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]);
    sequence.copy_from_slice(&first.wrapping_add(offset as u32).to_be_bytes());
    let flags = &mut frame[upper + 13];
    if !is_last {
        *flags &= !FIN_PSH;
    }
    if number > 0 {
        *flags &= !CWR;
    }
}

/// The IP header of the part of this number.
fn address(frame: &mut [u8], layers: &Layers, number: usize) {
    let (from, length) = (layers.network, frame.len() - layers.network);
    if layers.is_v6 {
        put(frame, from + 4, (length - 40) as u16);
        return;
    }
    put(frame, from + 2, length as u16);
    let id = u16::from_be_bytes([frame[from + 4], frame[from + 5]]);
    put(frame, from + 4, id.wrapping_add(number as u16));
    put(frame, from + 10, 0);
    let header = usize::from(frame[from] & 15) * 4;
    let sum = folded(sum(&frame[from..(from + header).min(layers.upper)], 0));
    put(frame, from + 10, sum);
}

/// The checksum of the upper layer.
fn checksum(frame: &mut [u8], layers: &Layers, protocol: u8) {
    let at = layers.upper + if protocol == TCP { 16 } else { 6 };
    put(frame, at, 0);
    let addresses = if layers.is_v6 { 8..40 } else { 12..20 };
    let addresses = &frame[layers.network + addresses.start..layers.network + addresses.end];
    let pseudo = sum(
        addresses,
        u64::from(protocol) + (frame.len() - layers.upper) as u64,
    );
    let sum = folded(sum(&frame[layers.upper..], pseudo));
    put(frame, at, if sum == 0 && protocol == UDP { 0xffff } else { sum });
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1000;

    /// A super-packet of TCP or UDP with so much data, behind a VLAN tag.
    fn whole(is_v6: bool, protocol: u8, data: usize) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x81, 0, 0, 5]);
        frame.extend(if is_v6 { [0x86, 0xdd] } else { [8, 0] });
        let upper_header = if protocol == TCP { 32 } else { 8 };
        if is_v6 {
            frame.extend([0x60, 0, 0, 0, 0, 0, protocol, 64]);
            frame.extend([0xfd; 32]);
        } else {
            frame.extend([0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, protocol, 0, 0]);
            frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let upper = frame.len();
        frame.extend([1, 2, 3, 4]);
        if protocol == TCP {
            frame.extend(0xffff_fff0_u32.to_be_bytes());
            frame.extend([0, 0, 0, 9, 0x80, 0x99, 1, 1, 0, 0, 0, 0]);
            frame.extend([1; 12]);
        } else {
            frame.extend([0, 0, 0, 0]);
        }
        assert_eq!(frame.len(), upper + upper_header);
        frame.extend((0..data).map(|at| (at % 251) as u8));
        let kind = match (protocol, is_v6) {
            (TCP, false) => GSO_TCPV4,
            (TCP, true) => GSO_TCPV6,
            _ => GSO_UDP_L4,
        };
        let mut packet = vec![NEEDS_CSUM, kind];
        for word in [
            upper + upper_header,
            SIZE,
            upper,
            if protocol == TCP { 16 } else { 6 },
        ] {
            packet.extend((word as u16).to_ne_bytes());
        }
        packet.extend(frame);
        packet
    }

    #[test]
    fn parts_are_the_whole_with_right_sums() {
        for (is_v6, protocol) in [(false, TCP), (true, TCP), (false, UDP), (true, UDP)] {
            let packet = whole(is_v6, protocol, 2 * SIZE + 501);
            let upper = usize::from(u16::from_ne_bytes([packet[6], packet[7]]));
            let data = usize::from(u16::from_ne_bytes([packet[2], packet[3]]));
            let parts = cut(&packet);
            assert_eq!(parts.len(), 3);
            let mut joined = Vec::new();
            for (number, part) in parts.iter().enumerate() {
                assert_eq!(part[..HEADER], [0; HEADER]);
                let frame = &part[HEADER..];
                joined.extend_from_slice(&frame[data..]);
                let ip = &frame[18..];
                let (addresses, length) = if is_v6 {
                    (&ip[8..40], 40 + u16::from_be_bytes([ip[4], ip[5]]))
                } else {
                    assert_eq!(folded(sum(&ip[..20], 0)), 0);
                    assert_eq!(
                        u16::from_be_bytes([ip[4], ip[5]]),
                        0xffff_u16.wrapping_add(number as u16)
                    );
                    (&ip[12..20], u16::from_be_bytes([ip[2], ip[3]]))
                };
                assert_eq!(usize::from(length), ip.len());
                let upper = &frame[upper..];
                let pseudo = sum(addresses, u64::from(protocol) + upper.len() as u64);
                assert_eq!(folded(sum(upper, pseudo)), 0);
                if protocol == TCP {
                    let sequence = u32::from_be_bytes([upper[4], upper[5], upper[6], upper[7]]);
                    assert_eq!(sequence, 0xffff_fff0_u32.wrapping_add((number * SIZE) as u32));
                    let flags = [0x90, 0x10, 0x19][number];
                    assert_eq!(upper[13], flags, "part {number}");
                } else {
                    assert_eq!(usize::from(u16::from_be_bytes([upper[4], upper[5]])), upper.len());
                }
            }
            assert_eq!(joined, packet[HEADER + data..]);
        }
    }

    #[test]
    fn what_is_not_understood_stays_whole() {
        let mut packet = whole(false, TCP, 3000);
        packet[1] = 3;
        assert_eq!(cut(&packet), [packet.clone()]);
        // A TCP header that is shorter than one.
        let mut packet = whole(false, TCP, 1);
        let upper = usize::from(u16::from_ne_bytes([packet[6], packet[7]]));
        packet[HEADER + upper + 12] = 0;
        packet.truncate(HEADER + upper + 13);
        assert_eq!(cut(&packet), [packet.clone()]);
        assert_eq!(cut(&[1, 2, 3]), [vec![1, 2, 3]]);
    }
}
