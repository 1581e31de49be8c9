//! What is probably not what was meant.

use perturb_quantity::{Duration, Rate, Size};
use serde::Serialize;

use super::{ChangeMeaning, ClassMeaning, horizon};
use crate::model::{Class, Name, Profile, Segmentation, ServerId};
use crate::{compile, delay};

/// A super-packet, at most.
const SUPER_PACKET: u64 = 64 << 10;

/// What is probably not what was meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// A queue without limit.
    #[error("server `{server}` has no buffer: its queue may grow until packets wait {horizon}; add `buffer`")]
    NoBuffer {
        /// The server.
        server: Name,
        /// The horizon.
        horizon: Duration,
    },
    /// o is not below g.
    #[error(
        "class `{class}`: the overhead ({overhead} per packet) is not below the gap ({gap}), so one sender never \
         notices the gap; lower `overhead` or raise `gap`"
    )]
    OverheadHidesGap {
        /// The class.
        class: Name,
        /// o.
        overhead: Duration,
        /// g.
        gap: Duration,
    },
    /// Nothing crosses a server.
    #[error("no class crosses server `{server}`; name it in `egress` or `ingress`, or remove it")]
    UnusedServer {
        /// The server.
        server: Name,
    },
    /// A class behind one that takes everything.
    #[error("class `{class}` never matches, because `{earlier}` before it takes everything; exchange them")]
    Unreachable {
        /// The class.
        class: Name,
        /// The one before it.
        earlier: Name,
    },
    /// No class at all.
    #[error("there is no class, so nothing is emulated; add `classes`, or put a server's keys at the top")]
    NothingEmulated,
    /// Slots that carry less than the bandwidth.
    #[error(
        "server `{server}`: its slots let go of {slots} of full frames in the mean, less than its bandwidth of {bandwidth}; \
         raise `packets` or `bytes`, or shorten the time to the next slot"
    )]
    SlowSlots {
        /// The server.
        server: Name,
        /// What they carry.
        slots: Rate,
        /// Its bandwidth.
        bandwidth: Rate,
    },
    /// A burst that RED's average cannot let in.
    #[error(
        "server `{server}`: red's average cannot be so slow that a burst of {burst} packets stays below `min`; it moves by 2^-{weight} \
         with each packet, the least there is, and drops or marks sooner; lower `burst`, or raise `min`"
    )]
    BurstOfRed {
        /// The server.
        server: Name,
        /// What was asked for, or the default.
        burst: u64,
        /// The largest W.
        weight: u32,
    },
    /// Jitter that would make the delay negative.
    #[error(
        "server `{server}`: the jitter reaches {jitter} below a latency of {latency}; what would be negative \
         counts as no delay, which raises the mean; lower the scale or raise `latency`"
    )]
    JitterCut {
        /// The server.
        server: Name,
        /// How far it reaches below.
        jitter: Duration,
        /// The latency.
        latency: Duration,
    },
    /// A trace that is a thousand times too fast or slow, probably.
    #[error(
        "server `{server}`: its trace has a bandwidth of {mean} in the mean over {length}; if that is 1000 times too much or \
         too little, look at the units of its file"
    )]
    Unit {
        /// The server.
        server: Name,
        /// The mean bandwidth.
        mean: String,
        /// The trace's length.
        length: Duration,
    },
    /// Super-packets that no longer fit.
    #[error(
        "server `{server}`: a buffer of {buffer} holds less than one super-packet of 64 KiB, and \
         `segmentation: whole` never splits them, so they are lost whole; choose `auto` or `exact`"
    )]
    SuperPackets {
        /// The server.
        server: Name,
        /// Its buffer.
        buffer: Size,
    },
}

impl Serialize for Warning {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

pub(super) fn warnings(
    profile: &Profile,
    classes: &[ClassMeaning],
    changes: &[ChangeMeaning],
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let horizon = horizon(profile);
    if profile.classes.is_empty() && profile.topology.is_none() {
        warnings.push(Warning::NothingEmulated);
    }
    let topology_ends = profile
        .topology
        .iter()
        .flat_map(|topology| topology.egress.iter().chain(&topology.ingress));
    let paths = profile.classes.iter().flat_map(Class::paths).flatten().flatten();
    let used: std::collections::HashSet<ServerId> = paths.chain(topology_ends).copied().collect();
    for (index, (name, server)) in profile.servers.iter().enumerate() {
        let server_name = || name.clone();
        if !ServerId::new(index).is_some_and(|id| used.contains(&id)) {
            warnings.push(Warning::UnusedServer {
                server: server_name(),
            });
            continue;
        }
        if (delay::queues(server) || server.trace.is_some()) && server.buffer.is_unlimited() {
            warnings.push(Warning::NoBuffer {
                server: server_name(),
                horizon,
            });
        }
        if let (Some(slots), Some(bandwidth)) = (delay::slot_rate(server, profile.frame()), server.bandwidth)
            && slots < bandwidth
        {
            warnings.push(Warning::SlowSlots {
                server: server_name(),
                slots,
                bandwidth,
            });
        }
        if let Some((burst, weight)) = compile::red_too_fast(server) {
            warnings.push(Warning::BurstOfRed {
                server: server_name(),
                burst,
                weight,
            });
        }
        let reach = delay::reach_below(server);
        if reach > server.latency {
            warnings.push(Warning::JitterCut {
                server: server_name(),
                jitter: reach,
                latency: server.latency,
            });
        }
        if let (Segmentation::Whole, Some(crate::Volume::Bytes(buffer))) =
            (profile.segmentation, server.buffer.volume)
            && buffer.bytes() < SUPER_PACKET
        {
            warnings.push(Warning::SuperPackets {
                server: server_name(),
                buffer,
            });
        }
    }
    for class in classes {
        for path in [&class.egress, &class.ingress].into_iter().flatten() {
            if let Some(gap) = path.gap.filter(|&gap| path.overhead >= gap) {
                warnings.push(Warning::OverheadHidesGap {
                    class: class.name.clone(),
                    overhead: path.overhead,
                    gap,
                });
            }
        }
    }
    for change in changes.iter().filter(|change| change.is_suspicious(profile)) {
        warnings.push(Warning::Unit {
            server: change.server.clone(),
            mean: change
                .bandwidth
                .map_or_else(|| "no limit".to_owned(), |[.., mean]| mean.to_string()),
            length: change.length,
        });
    }
    let mut earlier: Option<&Name> = None;
    for class in &profile.classes {
        match earlier {
            Some(earlier) => {
                warnings.push(Warning::Unreachable {
                    class: class.name.clone(),
                    earlier: earlier.clone(),
                });
            }
            None if class.matching.is_everything() => earlier = Some(&class.name),
            None => {}
        }
    }
    warnings
}
