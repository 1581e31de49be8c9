//! PlogPT's parameters from a profile.
//!
//! Model. A message of m bytes is s frames of data and their acknowledgments (see [`Frames`]), n packets that a host
//! sends and receives for each message, and w bytes on the wire. With the profile's o, g and G,
//!
//! ```text
//! g(m)        the longest of s g + w G at each of the host's own servers and its link, and of the host's n o
//! b(h), d(h)  the tree's levels; a buffer in bytes or packets as the time it takes to drain
//! J           the input's; else two full frames on a host's link
//! L           latencies on the way between the farthest hosts, o_s and o_r, and a frame's service at every server
//!             behind the first; or, where the latency of a small message was measured, that, and what a frame takes
//!             longer than it at these servers
//! RTO         the profile's rto_min; else the input's; else 200 ms (Linux' TCP_RTO_MIN)
//! ```
//!
//! A star is the tree of one switch: edges above the hosts' never limit. Other networks, and servers without a topology,
//! are no trees: for them there is PlogP, which knows no contention, with the narrowest server.

use perturb_profile::{Acknowledgments, Layout, Profile, Server, Volume};
use perturb_quantity::{ByteSize, BytesPerSecond, Micros};
use serde::Deserialize;

use super::input::{Competitors, GapPoint, Link, OpInput, Parameters, PlogptInput, ProgramInput, Sharing};
use super::parameters::heights;
use crate::frames::{ENDLESS, Frames, HEADERS, UNLIMITED};
use crate::route::{NO_TOPOLOGY, Route, RouteError, Source, Translation};

/// Linux' TCP_RTO_MIN.
const RTO: Micros = Micros(200_000.0);
/// Difference up to which two heights count as the same switch (see `P_S`).
const SWITCH_TOLERANCE: f64 = 0.001;
/// The jitter in times of a full frame on a host's link: the paper wants a few times what a packet takes.
const JITTER_FRAMES: f64 = 2.0;
/// The message with which a latency is measured: 4 bytes.
const SMALL: u64 = HEADERS + 4;
/// Keys of a profile that the translation reads.
const USED: [&str; 9] = [
    "overhead",
    "overhead.acknowledgments",
    "latency",
    "gap",
    "bandwidth",
    "buffer",
    "topology",
    "tcp.rto_min",
    "mtu",
];

/// What beside a profile makes up [`Parameters`]; what the profile says counts instead of the same key here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Beside {
    /// Number of nodes.
    pub nodes: Option<u32>,
    /// Replaced by the profile's.
    pub latency: Option<Micros>,
    /// TCP's retransmission time-out.
    pub rto: Option<Micros>,
    /// `J`.
    pub jitter: Option<Micros>,
    /// Difference up to which two heights count as the same switch.
    pub switch_tolerance: Option<f64>,
    /// Replaced by the profile's.
    pub links: Option<Vec<Link>>,
    /// Replaced by the profile's.
    pub one_way_links: Option<Vec<Link>>,
    /// Replaced by the profile's.
    pub gap: Option<Vec<GapPoint>>,
    /// Replaced by the profile's.
    pub sharing: Option<Sharing>,
    /// Which transfers can cost another one a time-out.
    pub competitors: Competitors,
    /// Measured one-way latency of a small message, in the place of the one that the profile says.
    #[serde(skip)]
    pub measured_latency: Option<Micros>,
}

/// A program that runs on the network of a profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnProfile {
    /// What the profile does not say.
    #[serde(default)]
    pub parameters: Beside,
    /// The program.
    pub program: ProgramInput,
}

impl OnProfile {
    /// The whole input on this profile's network, and what it rests on.
    ///
    /// # Errors
    /// When the profile emulates nothing, has no room for the nodes, or is no tree.
    pub fn input(&self, profile: &Profile) -> Result<(PlogptInput, Translation), RouteError> {
        let found = from_profile(profile, &Traffic::of(&self.program), &self.parameters)?;
        if let Some(kind) = found.no_tree {
            let wanted = "a tree of switches or a star";
            return Err(RouteError::Topology { kind, wanted });
        }
        let input = PlogptInput {
            parameters: found.parameters,
            program: self.program.clone(),
        };
        Ok((input, found.translation))
    }
}

/// What is sent over the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Number of nodes, if the program says it.
    pub nodes: Option<u32>,
    /// Whether messages go one way only, so that no acknowledgments share their links.
    pub one_way: bool,
    /// Sizes of its messages, bytes.
    pub sizes: Vec<u64>,
}

impl Traffic {
    /// That of a program.
    #[must_use]
    pub fn of(program: &ProgramInput) -> Self {
        let bytes = |size: ByteSize| size.0.round() as u64;
        let sends = program
            .ranks
            .iter()
            .flatten()
            .flatten()
            .filter_map(|op| match op {
                OpInput::Isend(send) => Some(bytes(send.size)),
                _ => None,
            });
        Self {
            nodes: program.ranks.as_ref().map(|ranks| ranks.len() as u32),
            one_way: program.collective.is_some_and(super::CollectiveKind::one_way),
            sizes: sends.chain(program.message.map(bytes)).collect(),
        }
    }
}

/// Parameters that stand for a profile.
#[derive(Clone, Debug)]
pub struct FromProfile {
    /// The parameters. If the network is no tree, its edges never limit.
    pub parameters: Parameters,
    /// What the network is, if it is no tree: only PlogP holds then.
    pub no_tree: Option<&'static str>,
    /// What they rest on.
    pub translation: Translation,
}

/// The network of a profile, as the traffic sees it.
///
/// # Errors
/// When the profile emulates nothing, or has no room for the nodes.
pub fn from_profile(
    profile: &Profile,
    traffic: &Traffic,
    beside: &Beside,
) -> Result<FromProfile, RouteError> {
    let named = (!profile.hosts.is_empty()).then_some(profile.hosts.len() as u32);
    let (nodes, nodes_from) = match (traffic.nodes.or(beside.nodes), named) {
        (Some(nodes), _) => (nodes, Source::Input),
        (None, Some(named)) => (named, Source::Profile),
        (None, None) => match &profile.topology {
            Some(topology) if topology.layout.capacity() < perturb_profile::MAX_HOSTS => {
                (topology.layout.capacity() as u32, Source::Profile)
            }
            _ => (2, Source::Default),
        },
    };
    let route = Route::of(profile, Some(nodes))?;
    let (levels, no_tree): (Vec<Server>, _) = match &route.layout {
        Some(Layout::Tree { levels, .. }) => (levels.clone(), None),
        Some(Layout::Star { link }) => (vec![link.clone()], None),
        Some(other) => (vec![narrowest(&route)], Some(other.kind())),
        None => (vec![narrowest(&route)], Some(NO_TOPOLOGY)),
    };
    let own: Vec<&Server> = route
        .first
        .iter()
        .chain(&route.last)
        .chain(levels.first())
        .collect();
    let slowest = own.iter().map(|server| rate(server)).fold(UNLIMITED, f64::min);
    let links = links(nodes, &levels, slowest, route.segment + HEADERS);
    let gap = |&size: &u64| GapPoint {
        size: ByteSize(size as f64),
        gap: Micros(gap(
            &route,
            &own,
            Frames::of(size, route.segment, traffic.one_way),
            size,
            traffic.one_way,
        )),
    };
    let mut sizes = traffic.sizes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let longest = sizes.last().copied().unwrap_or(route.segment);
    let latency = latency(&route, longest, beside.measured_latency);
    let (rto, rto_from) = match (profile.tcp.rto_min, beside.rto) {
        (Some(minimum), _) => (Micros::from(minimum), Source::Profile),
        (None, Some(rto)) => (rto, Source::Input),
        (None, None) => (RTO, Source::Default),
    };
    let frame = (route.segment + HEADERS) as f64 * 8e6 / slowest;
    let (jitter, jitter_from) = match beside.jitter {
        Some(jitter) => (jitter, Source::Input),
        None => (Micros(JITTER_FRAMES * frame), Source::Profile),
    };
    let (switch_tolerance, tolerance_from) = match beside.switch_tolerance {
        Some(tolerance) => (tolerance, Source::Input),
        None => (SWITCH_TOLERANCE, Source::Default),
    };
    let parameters = Parameters {
        nodes,
        latency,
        rto,
        jitter,
        switch_tolerance,
        links,
        one_way_links: None,
        gap: sizes.iter().map(gap).collect(),
        sharing: match route.bidirectional() {
            true => Sharing::HalfDuplex,
            false => Sharing::FullDuplex,
        },
        competitors: beside.competitors,
    };
    let mut translation = Translation {
        unused: route.unused(&USED),
        replaced: replaced(beside, profile.tcp.rto_min.is_some()),
        ..Translation::default()
    };
    let micros = |time: Micros| format!("{}us", significant(time.0));
    translation.take("nodes", nodes.to_string(), nodes_from);
    let latency_from = match beside.measured_latency {
        Some(_) => Source::Input,
        None => Source::Profile,
    };
    translation.take("latency", micros(parameters.latency), latency_from);
    translation.take("rto", micros(parameters.rto), rto_from);
    translation.take("jitter", micros(parameters.jitter), jitter_from);
    translation.take("switch_tolerance", switch_tolerance.to_string(), tolerance_from);
    let limit = |value: f64, limit: f64, unit: &str| match value < limit {
        true => format!("{}{unit}", significant(value)),
        false => "unlimited".to_owned(),
    };
    let edges: Vec<String> = parameters
        .links
        .iter()
        .map(|link| {
            let rate = limit(link.bandwidth.0 * 8e-6, UNLIMITED / 1e6, "Mbit/s");
            format!("{rate} and {}", limit(link.buffer_delay.0, ENDLESS, "us"))
        })
        .collect();
    translation.take("links", edges.join(", "), Source::Profile);
    let gaps: Vec<String> = parameters
        .gap
        .iter()
        .map(|point| format!("{} for {} B", micros(point.gap), point.size.0))
        .collect();
    translation.take("gap", gaps.join(", "), Source::Profile);
    Ok(FromProfile {
        parameters,
        no_tree,
        translation,
    })
}

/// Keys of the input that the profile stands for.
fn replaced(beside: &Beside, rto: bool) -> Vec<&'static str> {
    [
        ("parameters.latency", beside.latency.is_some()),
        ("parameters.links", beside.links.is_some()),
        ("parameters.one_way_links", beside.one_way_links.is_some()),
        ("parameters.gap", beside.gap.is_some()),
        ("parameters.sharing", beside.sharing.is_some()),
        ("parameters.rto", rto && beside.rto.is_some()),
    ]
    .into_iter()
    .filter_map(|(key, there)| there.then_some(key))
    .collect()
}

/// The edges of all heights; `slowest` is a host's own, bit/s.
fn links(nodes: u32, levels: &[Server], slowest: f64, frame: u64) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::new();
    for height in 0..heights(nodes.max(1)).max(1) {
        let below = links
            .last()
            .map_or(slowest, |link: &Link| link.bandwidth.0 * 8.0 * 2.0);
        let level = levels.get(height).or(levels.last());
        let bandwidth = match (height, levels.get(height)) {
            (0, _) => slowest,
            (_, Some(level)) => rate(level).min(below),
            (_, None) => below,
        };
        links.push(Link {
            bandwidth: BytesPerSecond(bandwidth / 8.0),
            buffer_delay: Micros(level.map_or(ENDLESS, |level| buffer_delay(level, bandwidth, frame))),
        });
    }
    links
}

/// `g(m)`, us.
fn gap(route: &Route, own: &[&Server], frames: Frames, message: u64, one_way: bool) -> f64 {
    let wire = frames.wire_bytes(message) as f64;
    let servers = own
        .iter()
        .map(|server| Micros::from(server.gap).0 * frames.data as f64 + wire * 8e6 / rate(server))
        .fold(0.0, f64::max);
    let overhead = route.overhead;
    let packets = match overhead.acknowledgments {
        Acknowledgments::Charged => frames.handled(one_way),
        Acknowledgments::Free if one_way => frames.data,
        Acknowledgments::Free => 2 * frames.data,
    };
    // Where messages go both ways a host sends as many packets as it receives.
    let (send, receive) = (Micros::from(overhead.send).0, Micros::from(overhead.receive).0);
    let per_packet = if one_way {
        send.max(receive)
    } else {
        (send + receive) / 2.0
    };
    servers.max(per_packet * packets as f64)
}

/// `L`, us.
fn latency(route: &Route, longest: u64, measured: Option<Micros>) -> Micros {
    let frame = (longest.min(route.segment) + HEADERS) as f64;
    let behind = || route.servers().skip(1);
    let service = |bytes: f64| behind().map(|server| bytes * 8e6 / rate(server)).sum::<f64>();
    match measured {
        Some(measured) => Micros(measured.0 + service(frame - SMALL as f64).max(0.0)),
        None => {
            let gaps: f64 = behind().map(|server| Micros::from(server.gap).0).sum();
            let ends = Micros::from(route.overhead.send).0 + Micros::from(route.overhead.receive).0;
            Micros(route.knob(perturb_profile::Knob::Latency) + gaps + ends + service(frame))
        }
    }
}

/// Bit/s.
fn rate(server: &Server) -> f64 {
    server
        .bandwidth
        .map_or(UNLIMITED, |rate| rate.bits_per_second() as f64)
}

/// Of all servers.
fn narrowest(route: &Route) -> Server {
    route
        .servers()
        .min_by(|one, other| rate(one).total_cmp(&rate(other)))
        .cloned()
        .unwrap_or_default()
}

/// The time that a full buffer needs to drain, us.
fn buffer_delay(server: &Server, bits_per_second: f64, frame: u64) -> f64 {
    let of_bytes = |bytes: f64| bytes * 8e6 / bits_per_second;
    let by_volume = server.buffer.volume.map(|volume| match volume {
        Volume::Bytes(size) => of_bytes(size.bytes() as f64),
        Volume::Delay(delay) => Micros::from(delay).0,
    });
    let by_packets = server
        .buffer
        .packets
        .map(|packets| of_bytes(f64::from(packets) * frame as f64));
    match (by_volume, by_packets) {
        (Some(one), Some(other)) => one.min(other),
        (one, other) => one.or(other).unwrap_or(ENDLESS),
    }
}

/// Six digits.
fn significant(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
