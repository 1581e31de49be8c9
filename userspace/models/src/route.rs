//! What a profile says of the way between two hosts, in the terms of the models.
//!
//! A packet crosses servers in a row. Without a topology they are those that the first class that emulates what hosts
//! send names in its `egress`. With a topology they are the sender's own, the links between the hosts that are farthest
//! apart, and the receiver's own. On such a way
//!
//! ```text
//! o_s, o_r   the profile's overhead, per packet
//! L          sum of the servers' latencies
//! g, 1/G     the largest gap and the smallest bandwidth of all servers: that of the narrowest
//! ```
//!
//! What a model does not know is named, not guessed: see [`Route::unused`].

use perturb_profile::{
    Acknowledgments, Class, Framing, Knob, Layout, Overhead, Profile, Queue, Server, ServerId, Sharing,
};
use serde::Serialize;

use crate::frames::segment;

/// The way of a packet between the two hosts of a network that are farthest apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Of a packet, at its sender and at its receiver.
    pub overhead: Overhead,
    /// Servers of the sending host; without a topology all that there are.
    pub first: Vec<Server>,
    /// Links of the topology, in the order in which they are crossed.
    pub between: Vec<Server>,
    /// Servers of the receiving host.
    pub last: Vec<Server>,
    /// The topology.
    pub layout: Option<Layout>,
    /// Data in a full frame, bytes.
    pub segment: u64,
    /// Whether `mtu` is given.
    has_mtu: bool,
    /// Whether `tcp.rto_min` is given.
    rto_min: bool,
}

/// What a network is that has no topology, for messages.
pub(crate) const NO_TOPOLOGY: &str = "row of servers without a topology";

/// Why a profile says nothing of a way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// Nothing is emulated.
    #[error("the profile emulates nothing that a host sends: it has no topology, and no class with `egress`")]
    NothingSent,
    /// More hosts than the topology has room for.
    #[error("the profile's {kind} has room for {room} hosts, not for {hosts}")]
    Hosts {
        /// The topology's word.
        kind: &'static str,
        /// How many it has room for.
        room: usize,
        /// How many are wanted.
        hosts: u32,
    },
    /// A network that is not the same all the time.
    #[error(
        "the profile changes with time (`timeline` or `trace`), and this model's network does not; take these keys out, or \
         predict for the values of one time"
    )]
    Changes,
    /// A topology that the model does not know.
    #[error("the profile's network is a {kind}, but this model's is {wanted}")]
    Topology {
        /// What it is.
        kind: &'static str,
        /// What the model takes.
        wanted: &'static str,
    },
    /// A bandwidth without limit, where the model needs one.
    #[error("the profile's {what} have no `bandwidth`, which this model needs")]
    Unlimited {
        /// Of what, in the plural.
        what: &'static str,
    },
}

/// Where a model's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// From the profile.
    Profile,
    /// From the model's own input, which says what a profile does not.
    Input,
    /// From neither: chosen by the model.
    Default,
}

/// A value of a model's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// The key of the model's input.
    pub key: &'static str,
    /// Its value, with its unit.
    pub value: String,
    /// Where it comes from.
    pub from: Source,
}

/// What a model took for its network, and what of the profile it has no use for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Translation {
    /// The values.
    pub taken: Vec<Taken>,
    /// Keys of the profile that the model does not know.
    pub unused: Vec<&'static str>,
    /// Keys of the input in whose place the profile's values are taken.
    pub replaced: Vec<&'static str>,
}

impl Translation {
    /// Adds a value.
    pub fn take(&mut self, key: &'static str, value: impl Into<String>, from: Source) {
        let value = value.into();
        self.taken.push(Taken { key, value, from });
    }
}

impl Route {
    /// The way between the farthest of so many hosts; of as many as the topology has room for if not given.
    ///
    /// # Errors
    /// When nothing is emulated, or the topology is too small.
    pub fn of(profile: &Profile, hosts: Option<u32>) -> Result<Self, RouteError> {
        if profile.is_changing() {
            return Err(RouteError::Changes);
        }
        let own = |ids: &[ServerId]| -> Vec<Server> {
            ids.iter()
                .filter_map(|&id| profile.server(id))
                .map(|(_, server)| server.clone())
                .collect()
        };
        let mut route = Self {
            overhead: profile.overhead,
            first: Vec::new(),
            between: Vec::new(),
            last: Vec::new(),
            layout: None,
            segment: segment(profile),
            has_mtu: profile.mtu.is_some(),
            rto_min: profile.tcp.rto_min.is_some(),
        };
        let Some(topology) = &profile.topology else {
            let mut sent = profile.classes.iter().filter_map(|class| {
                let [egress, _] = Class::paths(class);
                egress
            });
            route.first = own(sent.next().ok_or(RouteError::NothingSent)?);
            return Ok(route);
        };
        let layout = &topology.layout;
        let room = layout.capacity();
        if let Some(hosts) = hosts.filter(|&hosts| hosts as usize > room) {
            let kind = layout.kind();
            return Err(RouteError::Hosts { kind, room, hosts });
        }
        route.first = own(&topology.egress);
        route.between = links(layout, hosts.unwrap_or(room as u32));
        route.last = own(&topology.ingress);
        route.layout = Some(layout.clone());
        Ok(route)
    }

    /// All servers, in the order in which they are crossed.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.first.iter().chain(&self.between).chain(&self.last)
    }

    /// A knob's value on the way, in its unit: µs, and µs per byte for the bandwidth. The overhead is the mean of the
    /// sender's and the receiver's.
    #[must_use]
    pub fn knob(&self, knob: Knob) -> f64 {
        let values = self.servers().map(|server| knob.of(server, &self.overhead));
        match knob {
            Knob::Overhead => {
                let [send, receive] = [self.overhead.send, self.overhead.receive];
                (send.nanos() as f64 + receive.nanos() as f64) / 2e3
            }
            _ => knob.along(values),
        }
    }

    /// Keys that the profile has on this way, but not among `used`.
    #[must_use]
    pub fn unused(&self, used: &[&str]) -> Vec<&'static str> {
        let any = |has: fn(&Server) -> bool| self.servers().any(has);
        let collisions = |layout: &Layout| layout.links().iter().any(|link| link.collisions.is_some());
        [
            ("overhead", !self.overhead.is_none()),
            (
                "overhead.acknowledgments",
                !self.overhead.is_none() && self.overhead.acknowledgments == Acknowledgments::Free,
            ),
            ("latency", any(|server| server.latency.nanos() > 0)),
            ("gap", any(|server| server.gap.nanos() > 0)),
            ("bandwidth", any(|server| server.bandwidth.is_some())),
            ("framing", any(|server| server.framing != Framing::default())),
            ("buffer", any(|server| !server.buffer.is_unlimited())),
            ("jitter", any(|server| server.jitter.is_some())),
            (
                "loss",
                any(|server| server.loss != perturb_profile::Loss::default()),
            ),
            ("duplicate", any(|server| !server.duplicate.is_never())),
            ("corrupt", any(|server| !server.corrupt.is_never())),
            ("reorder", any(|server| server.reorder.is_some())),
            ("ecn", any(|server| server.ecn.is_some())),
            ("queue", any(|server| server.queue != Queue::Tail)),
            ("slot", any(|server| server.slot.is_some())),
            (
                "collisions",
                any(|server| server.collisions.is_some()) || self.layout.as_ref().is_some_and(collisions),
            ),
            ("topology", self.layout.is_some()),
            ("tcp.rto_min", self.rto_min),
            ("mtu", self.has_mtu),
        ]
        .into_iter()
        .filter(|(key, there)| *there && !used.contains(key))
        .map(|(key, _)| key)
        .collect()
    }

    /// Whether the two directions of the topology's links share them.
    #[must_use]
    pub fn bidirectional(&self) -> bool {
        matches!(
            self.layout,
            Some(Layout::Tree {
                sharing: Sharing::Bidirectional,
                ..
            })
        )
    }
}

/// The links between the farthest of so many hosts.
fn links(layout: &Layout, hosts: u32) -> Vec<Server> {
    match layout {
        Layout::Bus { link } => vec![link.clone()],
        Layout::Star { link } => vec![link.clone(); 2],
        Layout::Tree { levels, .. } => {
            let heights = (u32::BITS - hosts.saturating_sub(1).leading_zeros()) as usize;
            let levels = &levels[..heights.min(levels.len())];
            levels.iter().chain(levels.iter().rev()).cloned().collect()
        }
        Layout::Mesh {
            dimensions,
            link,
            wrap,
        } => {
            let hops = dimensions.iter().map(|&length| match wrap {
                true => usize::from(length / 2),
                false => usize::from(length).saturating_sub(1),
            });
            vec![link.clone(); hops.sum()]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str, hosts: Option<u32>) -> Result<Route, RouteError> {
        Route::of(&perturb_profile::parse(text).unwrap(), hosts)
    }

    #[test]
    fn the_farthest_hosts_of_a_topology() {
        let of = |kind: &str, hosts| {
            let text = format!(
                "{{ version: 1, servers: {{ nic: {{ gap: 3us, latency: 1us }} }}, topology: {{ kind: {kind}, egress: [nic] }} }}"
            );
            route(&text, hosts).unwrap()
        };
        let link = "link: { bandwidth: 8Mbit/s, latency: 10us }";
        for (kind, hosts, hops) in [
            (format!("bus, {link}"), None, 1),
            (format!("star, {link}"), Some(8), 2),
            (format!("mesh, dimensions: [4, 8], {link}"), None, 10),
            (format!("torus, dimensions: [4, 8], {link}"), None, 6),
            (
                "tree, levels: [{ latency: 10us }, { latency: 10us }, { latency: 10us, bandwidth: 8Mbit/s }]"
                    .into(),
                None,
                6,
            ),
        ] {
            let route = of(&kind, hosts);
            assert_eq!(route.between.len(), hops, "{kind}");
            assert_eq!(route.knob(Knob::Latency), 1.0 + 10.0 * hops as f64, "{kind}");
            assert_eq!(
                (route.knob(Knob::Gap), route.knob(Knob::Bandwidth)),
                (3.0, 1.0),
                "{kind}"
            );
        }
        // Two hosts are below the first edges.
        let low = of("tree, levels: [{ latency: 10us }, { latency: 70us }]", Some(2));
        assert_eq!(low.knob(Knob::Latency), 21.0);
    }

    #[test]
    fn without_a_topology_what_a_host_sends() {
        let found = route(
            "{ version: 1, latency: 5ms, bandwidth: 1Mbit/s, overhead: { send: 2us, receive: 4us } }",
            None,
        )
        .unwrap();
        assert_eq!(
            (found.knob(Knob::Latency), found.knob(Knob::Bandwidth)),
            (5e3, 8.0)
        );
        assert_eq!(found.knob(Knob::Overhead), 3.0);
        assert_eq!(found.unused(&["latency", "bandwidth"]), ["overhead"]);
    }

    #[test]
    fn what_no_model_knows_is_named() {
        let found = route(
            "{ version: 1, latency: 5ms, jitter: 1ms, loss: 1%, buffer: 9 packets, gap: 1us, tcp: { rto_min: 5ms } }",
            None,
        )
        .unwrap();
        assert_eq!(
            found.unused(&["latency", "gap"]),
            ["buffer", "jitter", "loss", "tcp.rto_min"]
        );
    }

    #[test]
    fn refusals() {
        let changing = "{ version: 1, latency: 1ms, timeline: { steps: [{ at: 1s, latency: 2ms }] } }";
        assert_eq!(route(changing, None), Err(RouteError::Changes));
        assert_eq!(route("version: 1", None), Err(RouteError::NothingSent));
        let small = "{ version: 1, topology: { kind: tree, levels: [{ latency: 1us }] } }";
        let refused = route(small, Some(3)).unwrap_err().to_string();
        assert_eq!(refused, "the profile's tree has room for 2 hosts, not for 3");
    }
}
