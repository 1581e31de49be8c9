//! Frames made by hand.

use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// An Ethernet frame, behind tags with these TPIDs, outermost first.
pub(crate) fn ethernet(tags: &[u16], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for (tag, vlan) in tags.iter().zip(100u16..) {
        frame.extend(tag.to_be_bytes());
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

/// An IPv4 header with its payload.
#[derive(Clone, Debug)]
pub(crate) struct V4 {
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) protocol: u8,
    /// DSCP and ECN.
    pub(crate) tos: u8,
    pub(crate) id: u16,
    /// Flags and offset.
    pub(crate) fragment: u16,
    /// 32-bit words of options.
    pub(crate) options: u8,
    pub(crate) payload: Vec<u8>,
}

impl V4 {
    pub(crate) fn new(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: Vec<u8>) -> Self {
        let (source, destination) = (source.into(), destination.into());
        Self {
            source,
            destination,
            protocol,
            tos: 0,
            id: 0,
            fragment: 0,
            options: 0,
            payload,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let header = 20 + usize::from(self.options) * 4;
        let mut bytes = vec![0x45 + self.options, self.tos];
        bytes.extend(((header + self.payload.len()) as u16).to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(self.fragment.to_be_bytes());
        bytes.extend([64, self.protocol, 0, 0]);
        bytes.extend(self.source.octets());
        bytes.extend(self.destination.octets());
        bytes.resize(header, 1); // No-operation options.
        let sum = checksum(&bytes).to_be_bytes();
        bytes[10..12].copy_from_slice(&sum);
        bytes.extend(&self.payload);
        bytes
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        ethernet(&[], 0x0800, &self.bytes())
    }
}

/// RFC 1071.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| low.into()))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IPv6 header with its extensions and payload.
#[derive(Clone, Debug)]
pub(crate) struct V6 {
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    /// DSCP and ECN.
    pub(crate) class: u8,
    /// Extension headers: their number, and their bytes but for the first (which says what follows).
    pub(crate) extensions: Vec<(u8, Vec<u8>)>,
    pub(crate) protocol: u8,
    pub(crate) payload: Vec<u8>,
}

impl V6 {
    pub(crate) fn new(source: [u16; 8], destination: [u16; 8], protocol: u8, payload: Vec<u8>) -> Self {
        let (source, destination) = (source.into(), destination.into());
        Self {
            source,
            destination,
            class: 0,
            extensions: Vec::new(),
            protocol,
            payload,
        }
    }

    /// An extension header in units of 8 bytes, of this many units beyond the first.
    pub(crate) fn extension(kind: u8, more: u8) -> (u8, Vec<u8>) {
        let mut bytes = vec![more, 1, 4];
        bytes.resize(7 + usize::from(more) * 8, 0);
        (kind, bytes)
    }

    /// A fragment header: offset in units of 8 bytes.
    pub(crate) fn fragment(id: u32, offset: u16, more: bool) -> (u8, Vec<u8>) {
        let mut bytes = vec![0];
        bytes.extend((offset << 3 | u16::from(more)).to_be_bytes());
        bytes.extend(id.to_be_bytes());
        (44, bytes)
    }

    /// An authentication header with this many bytes (a multiple of 4) of integrity check value.
    pub(crate) fn authentication(icv: u8) -> (u8, Vec<u8>) {
        let mut bytes = vec![(12 + icv) / 4 - 2];
        bytes.resize(11 + usize::from(icv), 0);
        (51, bytes)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let kinds: Vec<u8> = self
            .extensions
            .iter()
            .map(|&(kind, _)| kind)
            .chain([self.protocol])
            .collect();
        for ((_, bytes), &next) in self.extensions.iter().zip(&kinds[1..]) {
            body.push(next);
            body.extend(bytes);
        }
        body.extend(&self.payload);
        let mut all = vec![0x60 | self.class >> 4, self.class << 4, 0, 0];
        all.extend((body.len() as u16).to_be_bytes());
        all.extend([kinds[0], 64]);
        all.extend(self.source.octets());
        all.extend(self.destination.octets());
        all.extend(body);
        all
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        ethernet(&[], 0x86dd, &self.bytes())
    }
}

/// A UDP datagram of `len` bytes, header included.
pub(crate) fn udp(source: u16, destination: u16, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend((len as u16).to_be_bytes());
    bytes.resize(len, 0);
    bytes
}

/// A TCP segment of `len` bytes, header included.
pub(crate) fn tcp(source: u16, destination: u16, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.resize(len, 0);
    bytes
}
