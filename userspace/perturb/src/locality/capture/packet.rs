//! The addresses of a captured packet, by its link layer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::CaptureError;

/// Link types (tcpdump.org/linktypes).
mod link {
    pub(super) const NULL: u32 = 0;
    pub(super) const ETHERNET: u32 = 1;
    pub(super) const RAW: [u32; 3] = [12, 14, 101];
    pub(super) const LOOP: u32 = 108;
    pub(super) const COOKED: u32 = 113;
    pub(super) const IPV4: u32 = 228;
    pub(super) const IPV6: u32 = 229;
    pub(super) const COOKED_2: u32 = 276;
}

/// Whether the link layer is understood.
pub(super) fn check_link(link: u32) -> Result<(), CaptureError> {
    match link {
        link::NULL
        | link::ETHERNET
        | link::LOOP
        | link::COOKED
        | link::IPV4
        | link::IPV6
        | link::COOKED_2 => Ok(()),
        link if link::RAW.contains(&link) => Ok(()),
        link => Err(CaptureError::LinkType { link }),
    }
}

/// What a packet shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Source and destination.
    Pair(IpAddr, IpAddr),
    /// Another protocol.
    NotIp,
    /// Cut before its addresses.
    Short,
}

/// The addresses of a packet.
pub(super) fn addresses(link: u32, bytes: &[u8]) -> Found {
    let kind_at = |at: usize| {
        bytes
            .get(at..at + 2)
            .map(|kind| u16::from_be_bytes([kind[0], kind[1]]))
    };
    match link {
        link::ETHERNET => {
            let mut at = 12;
            loop {
                match kind_at(at) {
                    None => return Found::Short,
                    // VLAN tags.
                    Some(0x8100 | 0x88a8 | 0x9100) => at += 4,
                    Some(kind) => return network(kind, &bytes[at + 2..]),
                }
            }
        }
        link::COOKED => kind_at(14).map_or(Found::Short, |kind| network(kind, &bytes[16..])),
        link::COOKED_2 => match (kind_at(0), bytes.get(20..)) {
            (Some(kind), Some(rest)) => network(kind, rest),
            _ => Found::Short,
        },
        // Behind four bytes of address family, whose values differ between systems.
        link::NULL | link::LOOP => bytes.get(4..).map_or(Found::Short, internet),
        _ => internet(bytes),
    }
}

fn network(kind: u16, bytes: &[u8]) -> Found {
    match kind {
        0x0800 | 0x86dd => internet(bytes),
        _ => Found::NotIp,
    }
}

fn internet(bytes: &[u8]) -> Found {
    match bytes.first().map(|first| first >> 4) {
        None => Found::Short,
        Some(4) => {
            let address = |at: usize| {
                let bytes: [u8; 4] = *bytes.get(at..)?.first_chunk()?;
                Some(IpAddr::V4(Ipv4Addr::from(bytes)))
            };
            address(12)
                .zip(address(16))
                .map_or(Found::Short, |(from, to)| Found::Pair(from, to))
        }
        Some(6) => {
            let address = |at: usize| {
                let bytes: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
                Some(IpAddr::V6(Ipv6Addr::from(bytes)))
            };
            address(8)
                .zip(address(24))
                .map_or(Found::Short, |(from, to)| Found::Pair(from, to))
        }
        Some(_) => Found::NotIp,
    }
}
