//! Captured traffic as requests: pcap and pcapng files, read as streams.
//!
//! A request is a packet's (source, destination) pair of IP addresses. Understood are Ethernet (with
//! VLAN tags), raw IP, Linux cooked captures (both versions) and BSD loopback. What is not IP, or cut too
//! short to show its addresses, is skipped and counted. A file that ends inside a packet, as after a
//! killed capture, counts up to there.
//!
//! A reader of its own rather than the crate pcap-file: version 2 of that takes a length that cannot be for the end of the
//! file, so that damage would look like a capture that was killed.

mod packet;

use std::io::{self, Read};
use std::net::IpAddr;

use packet::{Found, addresses, check_link};

/// The largest packet that is believed.
const LARGEST: u32 = 1 << 26;

/// A capture that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A link layer that is not understood.
    #[error(
        "link type {link} is not understood; capture on an Ethernet, loopback or tun interface, or with `-i any`"
    )]
    LinkType {
        /// Its number.
        link: u32,
    },
    /// Lengths that cannot be.
    #[error("the file is damaged at byte {offset}: a {what} of {length} bytes")]
    Damaged {
        offset: u64,
        /// What it would be.
        what: &'static str,
        /// Its length.
        length: u32,
    },
    /// A packet of an interface that was not described.
    #[error("the file is damaged at byte {offset}: interface {interface} is not described")]
    Interface { offset: u64, interface: u32 },
}

/// What was passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Skipped {
    /// Packets that are not IP.
    pub not_ip: u64,
    /// Packets cut before their addresses.
    pub short: u64,
    /// The file ends inside a packet.
    pub truncated: bool,
}

/// Whether a file that begins like this is a capture.
#[must_use]
pub(crate) fn is_capture(start: &[u8]) -> bool {
    start
        .first_chunk::<4>()
        .is_some_and(|magic| *magic == SECTION || classic(*magic).is_some())
}

const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The byte order of a classic pcap file by its magic: microseconds or nanoseconds, either order.
fn classic(magic: [u8; 4]) -> Option<Order> {
    match magic {
        [0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d] => Some(Order::Big),
        [0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1] => Some(Order::Little),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Big => u16::from_be_bytes(bytes),
            Self::Little => u16::from_le_bytes(bytes),
        }
    }

    fn u32(self, bytes: &[u8]) -> Option<u32> {
        let bytes = *bytes.first_chunk()?;
        Some(match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        })
    }
}

/// A stream that counts what it has given and tells an end from a cut.
struct Source<R> {
    input: R,
    offset: u64,
}

impl<R: Read> Source<R> {
    /// Fills the buffer; `false` at the end of the file, whether inside the buffer or before it.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    filled += count;
                    self.offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Reads a capture and gives every request to `request`.
///
/// # Errors
/// When reading fails, the file is damaged, or its link layer is not understood.
pub(crate) fn read(
    input: impl Read,
    mut request: impl FnMut(IpAddr, IpAddr),
) -> Result<Skipped, CaptureError> {
    let mut source = Source { input, offset: 0 };
    let mut magic = [0; 4];
    let mut skipped = Skipped::default();
    if !source.fill(&mut magic)? {
        return Ok(Skipped {
            truncated: true,
            ..skipped
        });
    }
    let mut packet = |link: u32, bytes: &[u8], skipped: &mut Skipped| match addresses(link, bytes) {
        Found::Pair(from, to) => request(from, to),
        Found::NotIp => skipped.not_ip += 1,
        Found::Short => skipped.short += 1,
    };
    let complete = match classic(magic) {
        Some(order) => read_classic(&mut source, order, &mut skipped, &mut packet)?,
        None => read_blocks(&mut source, &mut skipped, &mut packet)?,
    };
    skipped.truncated = !complete;
    Ok(skipped)
}

fn read_classic<R: Read>(
    source: &mut Source<R>,
    order: Order,
    skipped: &mut Skipped,
    packet: &mut impl FnMut(u32, &[u8], &mut Skipped),
) -> Result<bool, CaptureError> {
    let mut header = [0; 20];
    if !source.fill(&mut header)? {
        return Ok(false);
    }
    // The upper bits say how long a frame check sequence is.
    let link = order.u32(&header[16..]).unwrap_or_default() & 0x0fff_ffff;
    check_link(link)?;
    let mut body = Vec::new();
    loop {
        let start = source.offset;
        let mut record = [0; 16];
        if !source.fill(&mut record)? {
            return Ok(source.offset == start);
        }
        let length = order.u32(&record[8..]).unwrap_or_default();
        if length > LARGEST {
            return Err(CaptureError::Damaged {
                offset: start,
                what: "packet",
                length,
            });
        }
        body.resize(length as usize, 0);
        if !source.fill(&mut body)? {
            return Ok(false);
        }
        packet(link, &body, skipped);
    }
}

/// Block types of pcapng.
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const SECTION_HEADER: u32 = 0x0a0d_0d0a;

/// pcapng, after the four bytes of the first section's type.
fn read_blocks<R: Read>(
    source: &mut Source<R>,
    skipped: &mut Skipped,
    packet: &mut impl FnMut(u32, &[u8], &mut Skipped),
) -> Result<bool, CaptureError> {
    let mut order = Order::Little;
    let mut interfaces: Vec<u32> = Vec::new();
    let mut kind = SECTION.to_vec();
    let mut body = Vec::new();
    loop {
        let start = source.offset - 4;
        let mut length_bytes = [0; 4];
        if !source.fill(&mut length_bytes)? {
            return Ok(false);
        }
        let mut read = 8;
        // The section header's type is a palindrome: its byte order is in the magic behind the length.
        if kind == SECTION {
            let mut magic = [0; 4];
            if !source.fill(&mut magic)? {
                return Ok(false);
            }
            order = if magic == [0x1a, 0x2b, 0x3c, 0x4d] {
                Order::Big
            } else {
                Order::Little
            };
            interfaces.clear();
            read += 4;
        }
        let length = order.u32(&length_bytes).unwrap_or_default();
        if length < read + 4 || !length.is_multiple_of(4) || length > LARGEST {
            return Err(CaptureError::Damaged {
                offset: start,
                what: "block",
                length,
            });
        }
        body.resize((length - read) as usize, 0);
        if !source.fill(&mut body)? {
            return Ok(false);
        }
        // The length is repeated at the end.
        let content = &body[..body.len() - 4];
        let field = |at: usize| content.get(at..).and_then(|rest| order.u32(rest));
        let block = order.u32(&kind).unwrap_or_default();
        let damaged = CaptureError::Damaged {
            offset: start,
            what: "block",
            length,
        };
        match block {
            INTERFACE => {
                let Some(link) = content.first_chunk().map(|bytes| order.u16(*bytes)) else {
                    return Err(damaged);
                };
                interfaces.push(u32::from(link));
            }
            ENHANCED_PACKET | OLD_PACKET => {
                let (Some(interface), Some(captured)) = (field(0), field(12)) else {
                    return Err(damaged);
                };
                // The old packet block has a 16-bit interface and drop count there.
                let interface = if block == ENHANCED_PACKET {
                    interface
                } else {
                    content
                        .first_chunk()
                        .map_or(0, |bytes| u32::from(order.u16(*bytes)))
                };
                let Some(bytes) = content.get(20..).and_then(|rest| rest.get(..captured as usize)) else {
                    return Err(damaged);
                };
                packet(link_of(&interfaces, interface, start)?, bytes, skipped);
            }
            SIMPLE_PACKET => {
                let Some(original) = field(0) else {
                    return Err(damaged);
                };
                let bytes = &content[4..];
                let bytes = &bytes[..bytes.len().min(original as usize)];
                packet(link_of(&interfaces, 0, start)?, bytes, skipped);
            }
            _ => {}
        }
        let before = source.offset;
        if !source.fill(&mut kind)? {
            return Ok(source.offset == before);
        }
        if block == SECTION_HEADER && kind == SECTION {
            interfaces.clear();
        }
    }
}

fn link_of(interfaces: &[u32], interface: u32, offset: u64) -> Result<u32, CaptureError> {
    let link = *interfaces
        .get(interface as usize)
        .ok_or(CaptureError::Interface { offset, interface })?;
    check_link(link)?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(from: u8, to: u8) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend([10, 0, 0, from, 10, 0, 0, to]);
        packet
    }

    fn ethernet(kind: [u8; 2], payload: &[u8]) -> Vec<u8> {
        [&[0; 12], &kind[..], payload].concat()
    }

    fn pcap(order: Order, link: u32, packets: &[Vec<u8>]) -> Vec<u8> {
        let word = |value: u32| match order {
            Order::Big => value.to_be_bytes(),
            Order::Little => value.to_le_bytes(),
        };
        let mut file = [word(0xa1b2_c3d4), [0; 4], [0; 4], [0; 4], word(65535), word(link)].concat();
        for packet in packets {
            let length = word(packet.len() as u32);
            file.extend([[0; 4], [0; 4], length, length].concat());
            file.extend(packet);
        }
        file
    }

    fn block(kind: u32, content: &[u8]) -> Vec<u8> {
        let mut padded = content.to_vec();
        padded.resize(content.len().next_multiple_of(4), 0);
        let length = (padded.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, &padded, &length].concat()
    }

    fn pcapng(packets: &[Vec<u8>]) -> Vec<u8> {
        let mut file = block(
            SECTION_HEADER,
            &[[0x4d, 0x3c, 0x2b, 0x1a], [1, 0, 0, 0], [255; 4], [255; 4]].concat(),
        );
        file.extend(block(INTERFACE, &[1, 0, 0, 0, 0, 0, 4, 0]));
        file.extend(block(5, &[0; 12]));
        for packet in packets {
            let length = (packet.len() as u32).to_le_bytes();
            let content = [&[0; 12][..], &length, &length, packet].concat();
            file.extend(block(ENHANCED_PACKET, &content));
        }
        file.extend(block(
            SIMPLE_PACKET,
            &[&(packets[0].len() as u32).to_le_bytes()[..], &packets[0]].concat(),
        ));
        file
    }

    fn requests(file: &[u8]) -> (Vec<String>, Skipped) {
        assert!(is_capture(file));
        let mut found = Vec::new();
        let skipped = read(file, |from, to| found.push(format!("{from}>{to}"))).unwrap();
        (found, skipped)
    }

    #[test]
    fn classic_files_in_either_order() {
        for order in [Order::Big, Order::Little] {
            let vlan = [&[0, 5, 0x08, 0x00][..], &ipv4(3, 4)].concat();
            let packets = [
                ethernet([8, 0], &ipv4(1, 2)),
                ethernet([0x81, 0], &vlan),
                ethernet([8, 6], &[0; 28]),
                vec![0; 9],
            ];
            let (found, skipped) = requests(&pcap(order, 1, &packets));
            assert_eq!(found, ["10.0.0.1>10.0.0.2", "10.0.0.3>10.0.0.4"]);
            assert_eq!(
                skipped,
                Skipped {
                    not_ip: 1,
                    short: 1,
                    truncated: false
                }
            );
        }
    }

    #[test]
    fn other_link_layers() {
        let mut six = vec![0x60; 8];
        six.extend([[0; 15].as_slice(), &[1], &[0; 15], &[2]].concat());
        let cases = [
            (101, six),
            (0, [&[2, 0, 0, 0][..], &ipv4(1, 2)].concat()),
            (113, [&[0; 14][..], &[8, 0], &ipv4(1, 2)].concat()),
            (276, [&[8, 0][..], &[0; 18], &ipv4(1, 2)].concat()),
        ];
        for (link, packet) in cases {
            let (found, skipped) = requests(&pcap(Order::Little, link, &[packet]));
            assert_eq!(
                (found.len(), skipped),
                (1, Skipped::default()),
                "link type {link}"
            );
        }
        let error = read(&pcap(Order::Little, 105, &[])[..], |_, _| ()).unwrap_err();
        assert!(matches!(error, CaptureError::LinkType { link: 105 }));
    }

    #[test]
    fn pcapng_blocks() {
        let (found, skipped) = requests(&pcapng(&[
            ethernet([8, 0], &ipv4(1, 2)),
            ethernet([8, 0], &ipv4(7, 9)),
        ]));
        assert_eq!(
            found,
            ["10.0.0.1>10.0.0.2", "10.0.0.7>10.0.0.9", "10.0.0.1>10.0.0.2"]
        );
        assert_eq!(skipped, Skipped::default());
    }

    #[test]
    fn files_cut_short_count_up_to_there() {
        let packets = [ethernet([8, 0], &ipv4(1, 2)), ethernet([8, 0], &ipv4(3, 4))];
        for whole in [pcap(Order::Big, 1, &packets), pcapng(&packets)] {
            for length in 4..whole.len() {
                match read(&whole[..length], |_, _| ()) {
                    Ok(_) => {}
                    Err(error) => panic!("{length} of {}: {error}", whole.len()),
                }
            }
            let (_, skipped) = requests(&whole[..whole.len() - 3]);
            assert!(skipped.truncated);
        }
        assert!(!is_capture(b"1 2 3"));
    }

    #[test]
    fn damage_is_an_error_not_a_panic() {
        let mut file = pcap(Order::Little, 1, &[ethernet([8, 0], &ipv4(1, 2))]);
        file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(
            read(&file[..], |_, _| ()),
            Err(CaptureError::Damaged { offset: 24, .. })
        ));
        let mut file = pcapng(&[ethernet([8, 0], &ipv4(1, 2))]);
        file[4] = 7;
        assert!(matches!(
            read(&file[..], |_, _| ()),
            Err(CaptureError::Damaged { .. })
        ));
    }
}
