//! What a packet's headers say, read with slices from the standards' texts: the reference for the
//! programs' parser. It shares no code with them.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use perturb_common::abi::Direction;

/// The fields that classify a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) direction: Direction,
    /// Below any tags that were read.
    pub(crate) ethertype: u16,
    /// Source and destination.
    pub(crate) addresses: Option<(IpAddr, IpAddr)>,
    pub(crate) protocol: Option<u8>,
    /// Source and destination.
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) dscp: Option<u8>,
    pub(crate) mark: u32,
    /// A later fragment whose first was not seen.
    pub(crate) orphan: bool,
}

impl Headers {
    pub(crate) fn is_ip(&self) -> bool {
        self.addresses.is_some()
    }

    /// The addresses of this side and of the other.
    pub(crate) fn sides(&self) -> Option<(IpAddr, IpAddr)> {
        let (source, destination) = self.addresses?;
        Some(match self.direction {
            Direction::Egress => (source, destination),
            Direction::Ingress => (destination, source),
        })
    }

    /// The ports of this side and of the other.
    pub(crate) fn side_ports(&self) -> Option<(u16, u16)> {
        let (source, destination) = self.ports?;
        Some(match self.direction {
            Direction::Egress => (source, destination),
            Direction::Ingress => (destination, source),
        })
    }
}

/// The headers are truncated or contradict themselves, or the chain of extensions is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads packets one after the other: fragments need a memory.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    datagrams: HashMap<(IpAddr, IpAddr, u8, u32), (u16, u16)>,
}

/// A chain of extension headers longer than this is not followed.
const MOST_HEADERS: usize = 8;

impl Reader {
    pub(crate) fn read(
        &mut self,
        frame: &[u8],
        mark: u32,
        direction: Direction,
    ) -> Result<Headers, Malformed> {
        let mut ethertype = two(frame, 12)?;
        let mut at = 14;
        for _ in 0..2 {
            if matches!(ethertype, 0x8100 | 0x88a8) {
                ethertype = two(frame, at + 2)?;
                at += 4;
            }
        }
        let mut headers = Headers {
            direction,
            ethertype,
            addresses: None,
            protocol: None,
            ports: None,
            dscp: None,
            mark,
            orphan: false,
        };
        let (payload, fragment) = match ethertype {
            0x0800 => v4(frame, at, &mut headers)?,
            0x86dd => v6(frame, at, &mut headers)?,
            _ => return Ok(headers),
        };
        self.ports(frame, payload, fragment, &mut headers)?;
        Ok(headers)
    }

    fn ports(
        &mut self,
        frame: &[u8],
        at: usize,
        fragment: Option<Fragment>,
        headers: &mut Headers,
    ) -> Result<(), Malformed> {
        // TCP, UDP, DCCP, SCTP, UDP-Lite.
        let Some(protocol @ (6 | 17 | 33 | 132 | 136)) = headers.protocol else {
            return Ok(());
        };
        let Some((source, destination)) = headers.addresses else {
            return Ok(());
        };
        let datagram = |fragment: Fragment| (source, destination, protocol, fragment.id);
        if let Some(later) = fragment.filter(|fragment| !fragment.first) {
            headers.ports = self.datagrams.get(&datagram(later)).copied();
            headers.orphan = headers.ports.is_none();
            return Ok(());
        }
        let ports = (two(frame, at)?, two(frame, at + 2)?);
        headers.ports = Some(ports);
        if let Some(fragment) = fragment {
            self.datagrams.insert(datagram(fragment), ports);
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Fragment {
    id: u32,
    first: bool,
}

/// RFC 791.
fn v4(frame: &[u8], at: usize, headers: &mut Headers) -> Result<(usize, Option<Fragment>), Malformed> {
    let header = frame.get(at..at + 20).ok_or(Malformed)?;
    let (version, words) = (header[0] >> 4, usize::from(header[0] & 0x0f));
    if version != 4 || words < 5 {
        return Err(Malformed);
    }
    let address = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(
            header[at],
            header[at + 1],
            header[at + 2],
            header[at + 3],
        ))
    };
    headers.addresses = Some((address(12), address(16)));
    headers.protocol = Some(header[9]);
    headers.dscp = Some(header[1] >> 2);
    let (more, offset) = (header[6] & 0x20 != 0, two(header, 6)? & 0x1fff);
    let fragment = (more || offset != 0).then_some(Fragment {
        id: two(header, 4)?.into(),
        first: offset == 0,
    });
    Ok((at + words * 4, fragment))
}

/// RFC 8200.
fn v6(frame: &[u8], start: usize, headers: &mut Headers) -> Result<(usize, Option<Fragment>), Malformed> {
    let header = frame.get(start..start + 40).ok_or(Malformed)?;
    if header[0] >> 4 != 6 {
        return Err(Malformed);
    }
    let address = |at: usize| {
        let octets: [u8; 16] = header[at..at + 16].try_into().unwrap();
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    headers.addresses = Some((address(8), address(24)));
    headers.dscp = Some(((two(header, 0)? >> 4) as u8) >> 2);
    let mut next = header[6];
    let mut at = start + 40;
    let mut fragment = None;
    for _ in 0..MOST_HEADERS {
        let len = match next {
            0 | 43 | 60 | 135 | 139 | 140 => 8 * (1 + usize::from(byte(frame, at + 1)?)),
            51 => 4 * (2 + usize::from(byte(frame, at + 1)?)),
            44 => {
                frame.get(at..at + 8).ok_or(Malformed)?;
                let id = u32::from(two(frame, at + 4)?) << 16 | u32::from(two(frame, at + 6)?);
                fragment = Some(Fragment {
                    id,
                    first: two(frame, at + 2)? >> 3 == 0,
                });
                8
            }
            upper => {
                headers.protocol = Some(upper);
                return Ok((at, fragment));
            }
        };
        next = byte(frame, at)?;
        at += len;
        if fragment.is_some_and(|fragment| !fragment.first) {
            headers.protocol = Some(next);
            return Ok((at, fragment));
        }
    }
    Err(Malformed)
}

fn byte(bytes: &[u8], at: usize) -> Result<u8, Malformed> {
    bytes.get(at).copied().ok_or(Malformed)
}

fn two(bytes: &[u8], at: usize) -> Result<u16, Malformed> {
    Ok(u16::from_be_bytes([byte(bytes, at)?, byte(bytes, at + 1)?]))
}
