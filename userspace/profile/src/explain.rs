//! What a profile means, in numbers a person can check before applying it.
//!
//! Sums are over a path of servers: latency L = Σ latency; bottleneck = the smallest bandwidth; longest wait = Σ over
//! buffers of the time their content takes. All figures are for one full frame ([`Profile::frame`]) and one direction; a round
//! trip has both. It does not predict: offered load is not known here.

mod changes;
mod jitter;
mod text;
mod warnings;

pub use changes::{ChangeMeaning, Overheads, Stretch, bandwidths, overheads, stretches};
pub use jitter::{JitterMeaning, Spaced, Spread};
use perturb_quantity::{Duration, Probability, Rate, Size};
use serde::Serialize;
pub use warnings::Warning;

use crate::compile::Files;
use crate::delay;
use crate::keys::MAX_HORIZON;
use crate::model::{Acknowledgments, Class, Loss, Name, Overhead, Profile, ServerId, Slot};
use crate::topology::Topology;

/// What a profile means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The profile's name.
    pub name: Option<Name>,
    /// The longest a packet is held, given or derived.
    pub horizon: Duration,
    /// Memory that held packets may take at once, given or derived.
    pub held: Size,
    /// The frame that all figures are for.
    pub frame: Size,
    /// Every class, in order.
    pub classes: Vec<ClassMeaning>,
    /// Whether each host delays only what it sends, as it tells hosts apart by their own side.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub each_sends: bool,
    /// What TCP's acknowledgments cost the hosts, if packets cost them anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledgments: Option<Acknowledgments>,
    /// The generated network, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyMeaning>,
    /// What the jitter of each server means.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jitter: Vec<JitterMeaning>,
    /// How servers change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ChangeMeaning>,
    /// Whether packets wait for slots.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub slots: bool,
    /// What is probably not what was meant.
    pub warnings: Vec<Warning>,
}

/// What a topology generates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopologyMeaning {
    /// Its kind.
    pub kind: &'static str,
    /// Hosts that it has room for.
    pub hosts: usize,
    /// Its links, or those of each height of a tree, the lowest first.
    pub links: Vec<LinkMeaning>,
}

/// What a link of a topology does to a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkMeaning {
    /// Its bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Rate>,
    /// Its latency, one way.
    pub latency: Duration,
    /// The longest wait that its buffer allows; `None` if it has no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_wait: Option<Duration>,
}

/// What happens to a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClassMeaning {
    /// Its name.
    pub name: Name,
    /// Packets that this host sends; `None`: untouched.
    pub egress: Option<PathMeaning>,
    /// Packets that this host receives; `None`: untouched.
    pub ingress: Option<PathMeaning>,
}

/// What a path does to a frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathMeaning {
    /// The servers, in order.
    pub servers: Vec<Name>,
    /// Processor time burnt per wire packet.
    pub overhead: Duration,
    /// Sum of the latencies, one way.
    pub latency: Duration,
    /// Latencies, and the service of one frame at every server and its mean wait for a slot: the delay of a lone frame.
    pub lone_frame: Duration,
    /// The smallest bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Rate>,
    /// The largest gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Duration>,
    /// The longest wait that the buffers allow; `None` if one of them has no limit, or nothing makes packets wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_wait: Option<Duration>,
    /// Probability that a frame is lost to independent or burst loss, in the long run.
    pub loss: Probability,
    /// The same of ECN-capable frames, where some of them are marked instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capable_loss: Option<Probability>,
}

/// Without a `horizon` in the profile: at least this, so that a queue without a buffer is not cut short.
const LEAST_HORIZON: Duration = Duration::from_millis(10_000);
/// Without a `held` in the profile: at least and at most this.
pub(crate) const HELD: (u64, u64) = (64 << 20, 4 << 30);
/// A small packet takes so many times the memory of its bytes.
const MEMORY_OF_SMALL: u64 = 16;

/// The longest a packet is held: as the profile says, or twice the largest delay along a path, from 10 s to 60 s; 60 s
/// if it changes.
pub fn horizon(profile: &Profile) -> Duration {
    let paths = profile.classes.iter().flat_map(Class::paths).flatten();
    let longest = paths
        .map(|path| delay::bounded_delay(profile, path))
        .max()
        .unwrap_or_default();
    let least = if profile.is_changing() {
        MAX_HORIZON
    } else {
        LEAST_HORIZON
    };
    let derived = longest.saturating_add(longest).clamp(least, MAX_HORIZON);
    profile.horizon.unwrap_or(derived)
}

/// Memory that held packets may take at once: as the profile says, or what those of its paths take if they are small, from
/// 64 MiB to 4 GiB. The paths of a topology are known with its hosts: until then it may be all.
pub fn held(profile: &Profile) -> Size {
    let content = |path: &[ServerId]| {
        let rate = path
            .iter()
            .filter_map(|&id| profile.server(id)?.1.bandwidth)
            .min();
        let grows = |&id: &ServerId| {
            let (_, server) = profile.server(id)?;
            (delay::queues(server) && server.buffer.is_unlimited()).then_some(())
        };
        let longest = if path.iter().any(|id| grows(id).is_some()) {
            horizon(profile)
        } else {
            delay::bounded_delay(profile, path)
        };
        rate.map_or(HELD.1, |rate| {
            rate.bytes_in(longest).saturating_mul(MEMORY_OF_SMALL)
        })
    };
    let paths = profile
        .classes
        .iter()
        .flat_map(Class::paths)
        .flatten()
        .filter(|path| !path.is_empty());
    let derived = if profile.topology.is_some() {
        HELD.1
    } else {
        paths
            .fold(0u64, |sum, path| sum.saturating_add(content(path)))
            .clamp(HELD.0, HELD.1)
            .next_multiple_of(1 << 20)
    };
    profile.limits.held.unwrap_or(Size::from_bytes(derived))
}

/// What `profile` means, with the files it names. What stands beside changes is the constant network.
pub fn explain(profile: &Profile, files: &Files) -> Explanation {
    let meaning = |class: &Class| {
        let [egress, ingress] = class.paths();
        let Overhead { send, receive, .. } = profile.overhead;
        ClassMeaning {
            name: class.name.clone(),
            egress: egress.map(|path| path_meaning(profile, path, send)),
            ingress: ingress.map(|path| path_meaning(profile, path, receive)),
        }
    };
    let classes: Vec<ClassMeaning> = profile.classes.iter().map(meaning).collect();
    let changes = changes::meanings(profile, files);
    Explanation {
        name: profile.name.clone(),
        horizon: horizon(profile),
        held: held(profile),
        frame: profile.frame(),
        topology: profile
            .topology
            .as_ref()
            .map(|topology| topology_meaning(topology, profile.frame())),
        jitter: profile
            .servers
            .iter()
            .filter_map(|(name, server)| jitter::meaning(name, server))
            .collect(),
        slots: profile.servers.iter().any(|(_, server)| server.slot.is_some()),
        warnings: warnings::warnings(profile, &classes, &changes),
        changes,
        acknowledgments: (!profile.overhead.is_none()).then_some(profile.overhead.acknowledgments),
        each_sends: profile.tells_own_side(),
        classes,
    }
}

fn topology_meaning(topology: &Topology, frame: Size) -> TopologyMeaning {
    let link = |server: &crate::Server| LinkMeaning {
        bandwidth: server.bandwidth,
        latency: server.latency,
        longest_wait: delay::longest_wait(server, frame),
    };
    TopologyMeaning {
        kind: topology.layout.kind(),
        hosts: topology.layout.capacity(),
        links: topology.layout.links().iter().map(link).collect(),
    }
}

fn path_meaning(profile: &Profile, path: &[ServerId], overhead: Duration) -> PathMeaning {
    let servers: Vec<_> = path.iter().filter_map(|&id| profile.server(id)).collect();
    let sum = |duration: fn(&crate::Server) -> Duration| {
        servers.iter().fold(Duration::ZERO, |sum, (_, server)| {
            sum.saturating_add(duration(server))
        })
    };
    let service = |server: &crate::Server| {
        let frame = server
            .bandwidth
            .map_or(Duration::ZERO, |rate| rate.time_of(profile.frame().bytes()));
        frame.saturating_add(server.gap)
    };
    let latency = sum(|server| server.latency);
    let waits: Option<Vec<Duration>> = servers
        .iter()
        .filter(|(_, server)| delay::queues(server))
        .map(|(_, server)| delay::longest_wait(server, profile.frame()))
        .collect();
    let losses: Vec<&Loss> = servers.iter().map(|(_, server)| &server.loss).collect();
    let certain: Vec<&Loss> = losses.iter().copied().filter(|loss| !loss.ecn).collect();
    PathMeaning {
        servers: servers.iter().map(|(name, _)| (*name).clone()).collect(),
        overhead,
        latency,
        lone_frame: servers.iter().fold(latency, |total, (_, server)| {
            let slot = server.slot.as_ref().map_or(Duration::ZERO, Slot::mean);
            total.saturating_add(service(server)).saturating_add(slot)
        }),
        bandwidth: servers.iter().filter_map(|(_, server)| server.bandwidth).min(),
        gap: servers
            .iter()
            .map(|(_, server)| server.gap)
            .max()
            .filter(|&gap| gap > Duration::ZERO),
        longest_wait: waits
            .filter(|waits| !waits.is_empty())
            .map(|waits| waits.into_iter().fold(Duration::ZERO, Duration::saturating_add)),
        loss: loss(&losses),
        capable_loss: (certain.len() < losses.len()).then(|| loss(&certain)),
    }
}

/// Long-run loss over independent servers: 1 - Π (1 - p), the bad state's share being p/(p+r).
fn loss(losses: &[&Loss]) -> Probability {
    let share =
        |probability: Probability| probability.billionths() as f64 / Probability::ONE.billionths() as f64;
    let survival: f64 = losses
        .iter()
        .map(|loss| {
            let burst = loss.burst.map_or(0.0, |burst| {
                let (p, r) = (share(burst.to_bad), share(burst.to_good));
                let bad = if p + r > 0.0 { p / (p + r) } else { 0.0 };
                bad * share(burst.bad_loss) + (1.0 - bad) * share(burst.good_loss)
            });
            let states = loss.states.map_or(0.0, |states| {
                let [p13, p31, p32, p23, p14] =
                    [states.p13, states.p31, states.p32, states.p23, states.p14].map(share);
                // Per visit of state 1, those of 3, 2 and 4.
                let bursts = p13 / p31.max(f64::MIN_POSITIVE);
                let gaps = if p32 > 0.0 {
                    bursts * p32 / p23.max(f64::MIN_POSITIVE)
                } else {
                    0.0
                };
                (bursts + p14) / (1.0 + bursts + gaps + p14)
            });
            (1.0 - share(loss.random)) * (1.0 - burst) * (1.0 - states)
        })
        .product();
    Probability::from_billionths(((1.0 - survival) * Probability::ONE.billionths() as f64).round() as u64)
}
