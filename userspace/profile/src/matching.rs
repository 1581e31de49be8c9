//! The conditions of a class. Keys of one `match` are all required (AND); entries of one list are alternatives (OR).
//!
//! `local` and `remote` are seen from this host: local is the source of what it sends and the destination of what it
//! receives. `source` and `destination` are the header's. `port` and `address` mean either side.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cgroup::Cgroup;
use crate::model::Name;

/// The conditions of a class; an empty list is no condition. The default matches everything, IP or not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Match {
    /// IP version.
    pub family: Option<Family>,
    /// Everything that is not IP.
    pub non_ip: bool,
    /// EtherTypes, below any VLAN tags.
    pub ethertype: Vec<EtherType>,
    /// IP protocols.
    pub protocol: Vec<Protocol>,
    /// Source addresses of the header.
    pub source: Vec<Prefix>,
    /// Destination addresses of the header.
    pub destination: Vec<Prefix>,
    /// Addresses of this side.
    pub local: Vec<Prefix>,
    /// Addresses of the other side.
    pub remote: Vec<Prefix>,
    /// Names of the other side, whose addresses are looked up when the profile is put in force.
    pub host: Vec<HostName>,
    /// Groups of the other side.
    pub group: Vec<Name>,
    /// Groups of this side.
    pub local_group: Vec<Name>,
    /// Addresses of either side.
    pub address: Vec<Prefix>,
    /// Source ports of the header.
    pub source_port: Vec<PortRange>,
    /// Destination ports of the header.
    pub destination_port: Vec<PortRange>,
    /// Ports of this side.
    pub local_port: Vec<PortRange>,
    /// Ports of the other side.
    pub remote_port: Vec<PortRange>,
    /// Ports of either side.
    pub port: Vec<PortRange>,
    /// DiffServ code points.
    pub dscp: Vec<Dscp>,
    /// Firewall marks.
    pub fwmark: Vec<u32>,
    /// cgroups of the sender's socket, or above it.
    pub cgroup: Vec<Cgroup>,
}

impl Match {
    /// Whether it looks at an address.
    pub fn looks_at_addresses(&self) -> bool {
        [
            &self.source,
            &self.destination,
            &self.local,
            &self.remote,
            &self.address,
        ]
        .iter()
        .any(|list| !list.is_empty())
            || !self.host.is_empty()
            || !self.group.is_empty()
            || !self.local_group.is_empty()
    }

    /// Whether it looks at a port.
    pub fn looks_at_ports(&self) -> bool {
        [
            &self.source_port,
            &self.destination_port,
            &self.local_port,
            &self.remote_port,
            &self.port,
        ]
        .iter()
        .any(|list| !list.is_empty())
    }

    /// Whether it looks at anything that only IP packets have.
    pub fn looks_at_ip(&self) -> bool {
        self.looks_at_addresses()
            || self.looks_at_ports()
            || self.family.is_some()
            || !self.protocol.is_empty()
            || !self.dscp.is_empty()
    }

    /// Whether it tells this side from the other, so that it means different headers at egress and at ingress.
    pub fn looks_at_sides(&self) -> bool {
        !(self.local.is_empty()
            && self.remote.is_empty()
            && self.host.is_empty()
            && self.group.is_empty()
            && self.local_group.is_empty()
            && self.local_port.is_empty()
            && self.remote_port.is_empty()
            && self.cgroup.is_empty())
    }

    /// Whether it matches everything.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }
}

/// A host's name, as resolvers take it: labels of letters, digits, `-` and `_`, joined by dots.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// The longest name, and the longest label, bytes (RFC 1035).
    const LONGEST: (usize, usize) = (253, 63);

    /// Nothing if it is no name, or an address.
    pub fn new(text: &str) -> Option<Self> {
        let (name, label) = Self::LONGEST;
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_label = |text: &str| {
            (1..=label).contains(&text.len())
                && text.bytes().all(|byte| inner(byte) || byte == b'-')
                && !text.starts_with('-')
                && !text.ends_with('-')
        };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        // A name whose last label is a number is an address, if anything.
        let last = text.rsplit('.').next().unwrap_or_default();
        (text.len() <= name && text.split('.').all(is_label) && !is_number(last))
            .then(|| Self(text.to_owned()))
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// IP version.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    strum::AsRefStr,
    strum::Display,
    strum::EnumString,
    strum::VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// Words that stand for numbers of one kind.
pub(crate) struct Words(pub(crate) &'static [(&'static str, u16)]);

impl Words {
    pub(crate) fn number(&self, word: &str) -> Option<u16> {
        self.0
            .iter()
            .find(|(name, _)| *name == word)
            .map(|&(_, number)| number)
    }

    fn word(&self, number: u16) -> Option<&'static str> {
        self.0
            .iter()
            .find(|&&(_, value)| value == number)
            .map(|&(name, _)| name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|&(name, _)| name)
    }
}

pub(crate) const ETHERTYPES: Words = Words(&[
    ("ipv4", EtherType::IPV4.0),
    ("ipv6", EtherType::IPV6.0),
    ("arp", 0x0806),
    ("lldp", 0x88cc),
]);

pub(crate) const PROTOCOLS: Words = Words(&[
    ("tcp", 6),
    ("udp", 17),
    ("icmp", 1),
    ("icmpv6", 58),
    ("sctp", 132),
    ("udplite", 136),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
]);

/// RFC 2474 (class selectors), 2597 (af), 3246 (ef), 5865 (voice-admit), 8622 (le).
pub(crate) const DSCPS: Words = Words(&[
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("voice-admit", 44),
    ("le", 1),
]);

/// An EtherType, or the length of an 802.3 frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);

    /// Whether it is IPv4 or IPv6.
    pub fn is_ip(self) -> bool {
        self == Self::IPV4 || self == Self::IPV6
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ETHERTYPES.word(self.0) {
            Some(word) => f.write_str(word),
            None => write!(f, "0x{:04x}", self.0),
        }
    }
}

/// An IP protocol number: that of the upper layer, after IPv6 extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub u8);

impl Protocol {
    /// The protocols whose headers begin with a source and a destination port.
    pub const WITH_PORTS: [Self; 5] = [Self(6), Self(17), Self(33), Self(132), Self(136)];
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PROTOCOLS.word(self.0.into()) {
            Some(word) => f.write_str(word),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A DiffServ code point, 0 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dscp(pub u8);

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DSCPS.word(self.0.into()) {
            Some(word) => f.write_str(word),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A range of ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRange {
    /// Lowest port.
    pub low: u16,
    /// Highest port, not below the lowest.
    pub high: u16,
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high {
            write!(f, "{}", self.low)
        } else {
            write!(f, "{}-{}", self.low, self.high)
        }
    }
}

/// An IPv4 or IPv6 prefix, with no bits beyond its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Why a text is not a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrefixError {
    Malformed,
    HostBits(Prefix),
}

impl Prefix {
    /// An address alone; one of IPv4 within IPv6 (`::ffff:a.b.c.d`) is one of IPv4.
    pub fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }

    /// The prefix of `length` bits that `address` lies in; `None` if there is no such length.
    pub fn containing(address: IpAddr, length: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) => {
                let rest = 32u32.checked_sub(length.into())?;
                IpAddr::V4(Ipv4Addr::from(
                    v4.to_bits() & u32::MAX.checked_shl(rest).unwrap_or(0),
                ))
            }
            IpAddr::V6(v6) => {
                let rest = 128u32.checked_sub(length.into())?;
                IpAddr::V6(Ipv6Addr::from(
                    v6.to_bits() & u128::MAX.checked_shl(rest).unwrap_or(0),
                ))
            }
        };
        Some(Self { address, length })
    }

    pub(crate) fn parse(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) if length.bytes().all(|byte| byte.is_ascii_digit()) => (
                address,
                Some(length.parse::<u8>().map_err(|_| PrefixError::Malformed)?),
            ),
            Some(_) => return Err(PrefixError::Malformed),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Malformed)?;
        let full = if address.is_ipv4() { 32 } else { 128 };
        let prefix = Self::containing(address, length.unwrap_or(full)).ok_or(PrefixError::Malformed)?;
        if prefix.address == address {
            Ok(prefix)
        } else {
            Err(PrefixError::HostBits(prefix))
        }
    }

    /// The lowest address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Leading bits that count.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// IP version.
    pub fn family(&self) -> Family {
        if self.address.is_ipv4() {
            Family::Ipv4
        } else {
            Family::Ipv6
        }
    }

    /// Lowest and highest address as 128-bit numbers, IPv4 as `::ffff:a.b.c.d`.
    pub fn range(&self) -> (u128, u128) {
        let (low, free_bits) = match self.address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().to_bits(), 32 - u32::from(self.length)),
            IpAddr::V6(v6) => (v6.to_bits(), 128 - u32::from(self.length)),
        };
        let free = u128::MAX.checked_shr(128 - free_bits).unwrap_or(0);
        (low, low | free)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let full = if self.address.is_ipv4() { 32 } else { 128 };
        if self.length == full {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_cover_their_addresses() {
        let range = |text: &str| Prefix::parse(text).unwrap().range();
        assert_eq!(range("10.0.0.0/8"), (0xffff_0a00_0000, 0xffff_0aff_ffff));
        assert_eq!(range("10.1.2.3"), (0xffff_0a01_0203, 0xffff_0a01_0203));
        assert_eq!(range("0.0.0.0/0"), (0xffff_0000_0000, 0xffff_ffff_ffff));
        assert_eq!(range("::/0"), (0, u128::MAX));
        assert_eq!(range("::1"), (1, 1));
    }

    #[test]
    fn host_bits_are_not_silently_dropped() {
        let meant = Prefix::parse("10.0.0.0/8").unwrap();
        assert_eq!(Prefix::parse("10.0.0.1/8"), Err(PrefixError::HostBits(meant)));
        for text in [
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "host",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "",
        ] {
            assert_eq!(Prefix::parse(text), Err(PrefixError::Malformed), "{text}");
        }
    }

    #[test]
    fn words_and_numbers_stand_for_the_same() {
        assert_eq!(Dscp(46).to_string(), "ef");
        assert_eq!(Dscp(3).to_string(), "3");
        assert_eq!(EtherType(0x88b5).to_string(), "0x88b5");
        assert_eq!(Protocol(6).to_string(), "tcp");
        assert_eq!(PortRange { low: 1, high: 9 }.to_string(), "1-9");
    }
}
