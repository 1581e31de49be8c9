//! A message on the wire, as TCP sends it.
//!
//! Model: a message of m bytes is ceil(m / 1448) frames (1500-byte packets, TCP with time stamps; others with another
//! [`segment`]) of 66 bytes beyond their data; where messages go both ways, so do acknowledgments of 66 bytes, one for two frames.

use perturb_profile::Profile;

/// IPv4 and TCP headers with the time stamp option.
const IP_AND_TCP: u64 = 52;
/// Those and Ethernet's.
pub const HEADERS: u64 = 66;
/// A rate that limits nothing, bit/s.
pub const UNLIMITED: f64 = 1e13;
/// A buffer that never fills, us.
pub const ENDLESS: f64 = 1e12;

/// Frames that a host sends for one message of its own and one that it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// With data.
    pub data: u64,
    /// Acknowledgments that share its link with data; none where messages go one way.
    pub acknowledgments: u64,
}

/// Data in a full frame between a profile's hosts.
#[must_use]
pub fn segment(profile: &Profile) -> u64 {
    u64::from(profile.mtu()) - IP_AND_TCP
}

impl Frames {
    /// Of a message of so many bytes, in segments of so many.
    #[must_use]
    pub fn of(message: u64, segment: u64, one_way: bool) -> Self {
        let data = message.div_ceil(segment);
        let acknowledgments = if one_way { 0 } else { data.div_ceil(2) };
        Self {
            data,
            acknowledgments,
        }
    }

    /// Bytes that a host sends for a message of so many bytes.
    #[must_use]
    pub fn wire_bytes(self, message: u64) -> u64 {
        message + HEADERS * (self.data + self.acknowledgments)
    }

    /// Packets that a host sends and receives for each message: where messages go both ways data and acknowledgments in
    /// both directions, else data in one and acknowledgments in the other.
    #[must_use]
    pub fn handled(self, one_way: bool) -> u64 {
        if one_way {
            self.data + self.data.div_ceil(2)
        } else {
            2 * (self.data + self.acknowledgments)
        }
    }
}
