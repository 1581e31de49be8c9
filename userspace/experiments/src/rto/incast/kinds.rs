//! What is measured: loads, ports, kinds of TCP.

use std::time::Duration;

use perturb_profile::{Buffer, Layout, Profile, Queue, Size, Volume};

/// What the servers send.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// So many bytes each: the SRU of Phanishayee et al.
    Each(u64),
    /// So many bytes together: the block of Vasudevan et al.
    Together(u64),
}

impl Load {
    /// The pieces of so many servers.
    pub(super) fn pieces(self, servers: u32) -> Vec<u64> {
        match self {
            Self::Each(piece) => vec![piece; servers as usize],
            Self::Together(block) => {
                let (piece, more) = (block / u64::from(servers), block % u64::from(servers));
                let longer = |number| piece + u64::from(u64::from(number) < more);
                (0..servers).map(longer).collect()
            }
        }
    }
}

/// A kind of TCP; what is absent is as the profile says.
#[derive(Clone, Debug, Default)]
pub struct Kind {
    /// Congestion control, by the kernel's name.
    pub control: Option<String>,
    /// The smallest time-out.
    pub rto_min: Option<Duration>,
    /// RACK and tail loss probes: `tcp_recovery` and `tcp_early_retrans`, both with SACK, without which neither works.
    pub rack_tlp: Option<bool>,
    /// Whether it asks for ECN; one that needs it, as DCTCP, does so anyway.
    pub ecn: Option<bool>,
}

/// What the ports of a star are like; what is absent is as the profile says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Port {
    /// Its buffer.
    pub buffer: Option<Size>,
    /// Packets that wait for longer are marked.
    pub mark_above: Option<Duration>,
}

/// The profile with these ports; nothing if they are to be changed, and it has no star.
#[must_use]
pub fn with_port(mut profile: Profile, port: Port) -> Option<Profile> {
    if port.buffer.is_none() && port.mark_above.is_none() {
        return Some(profile);
    }
    let layout = profile.topology.as_mut().map(|topology| &mut topology.layout);
    let Some(Layout::Star { link }) = layout else {
        return None;
    };
    if let Some(size) = port.buffer {
        link.buffer = Buffer {
            volume: Some(Volume::Bytes(size)),
            packets: None,
        };
    }
    if let Some(wait) = port.mark_above {
        link.queue = Queue::Step {
            threshold: Volume::Delay(wait.into()),
            l4s: false,
        };
        // Else no packet may be marked, but for the congestion controls that ask themselves.
        profile.tcp.ecn = Some(true);
    }
    Some(profile)
}

impl Kind {
    /// The profile with this TCP. The congestion control is that of the connections.
    pub(super) fn of(&self, profile: &Profile) -> Profile {
        let mut profile = profile.clone();
        let tcp = &mut profile.tcp;
        // A number of servers would begin with the thresholds of the one before.
        tcp.no_metrics_save.get_or_insert(true);
        if self.control.is_some() {
            tcp.congestion_control = None;
        }
        if let Some(least) = self.rto_min {
            tcp.rto_min = Some(least.into());
        }
        if self.ecn.is_some() {
            tcp.ecn = self.ecn;
        }
        if let Some(on) = self.rack_tlp {
            tcp.sack = Some(true);
            (tcp.recovery, tcp.early_retrans) = if on {
                (Some(1), Some(3))
            } else {
                (Some(0), Some(0))
            };
        }
        profile
    }
}
