//! What private hosts have by their numbers: names, addresses, indices of devices.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most hosts: the last byte of an IPv4 address numbers them.
pub const MAX_HOSTS: u32 = 64;
/// Prefix lengths of the hosts' networks.
pub(super) const PREFIXES: (u8, u8) = (24, 64);

/// Name of the host with a number.
#[must_use]
pub fn name(number: u32) -> String {
    format!("h{number}")
}

/// Its addresses. The low 16 bits are the number, as `Attachment::rank` expects.
#[must_use]
pub fn addresses(number: u32) -> (Ipv4Addr, Ipv6Addr) {
    let low = number as u16;
    (
        Ipv4Addr::new(10, 77, (low >> 8) as u8, low as u8),
        Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, low),
    )
}

/// The addresses of `count` hosts, in order.
#[must_use]
pub fn all_addresses(count: u32) -> Vec<Vec<IpAddr>> {
    (1..=count)
        .map(|number| {
            let (v4, v6) = addresses(number);
            vec![v4.into(), v6.into()]
        })
        .collect()
}

/// Its interface's hardware address.
pub(super) fn hardware_address(number: u32) -> [u8; 6] {
    [0x02, 0x70, 0x65, 0x00, (number >> 8) as u8, number as u8]
}

/// Its interface's index; the next seven are for its other devices.
pub(super) const fn interface_index(number: u32) -> u32 {
    1000 + number * 8
}

/// Lines for a hosts file.
#[must_use]
pub fn hosts_file(count: u32) -> String {
    (1..=count)
        .map(|number| {
            let (v4, v6) = addresses(number);
            let name = name(number);
            format!("{v4}\t{name}\n{v6}\t{name}\n")
        })
        .collect()
}
