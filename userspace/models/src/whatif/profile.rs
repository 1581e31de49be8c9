//! The network of a scenario from a profile.
//!
//! Model. A message between groups is frames of TCP, one way (see [`Frames`]). One server is the bus: a topology's bus, or
//! the narrowest one of a host's own servers and its link, which is each group's own, unless the profile shares it. There
//! messages queue for bytes/bandwidth. The remote table has the rest of a lone message's time,
//!
//! ```text
//! sum of the latencies + the message at the narrowest server + its last frame at every other one - bytes/bandwidth
//! ```
//!
//! with s g + w G at a server for s frames of w wire bytes. Processors are occupied for o_s and o_r per frame, and for the
//! acknowledgments. Queues at other servers are left out, and so is what headers and gaps occupy of the bus. Messages
//! inside a group cross no network: their table stays the input's.

use perturb_profile::{Acknowledgments, Layout, Profile, Scope as ServerScope, Server};
use perturb_quantity::{ByteSize, BytesPerSecond, Micros, MicrosPerByte};

use super::bus::Scope;
use super::input::{BusInput, CollisionInput, Input, OverheadInput};
use super::table::Point;
use crate::frames::Frames;
use crate::route::{Route, RouteError, Source, Translation};

/// Keys of a profile that the translation reads; collisions are a bus's.
const USED: [&str; 8] = [
    "overhead",
    "overhead.acknowledgments",
    "latency",
    "gap",
    "bandwidth",
    "topology",
    "collisions",
    "mtu",
];

/// Sizes of the tables, in full frames; between them everything is nearly linear.
const FRAMES: [u64; 9] = [0, 1, 2, 4, 8, 16, 64, 256, 1024];

impl Input {
    /// Takes the times between groups, the bus and the overhead from a profile, in the place of the input's.
    ///
    /// # Errors
    /// When the profile emulates nothing, or has no room for as many hosts as there are groups.
    pub fn on_profile(&mut self, profile: &Profile) -> Result<Translation, RouteError> {
        let route = Route::of(profile, Some(self.groups() as u32))?;
        let mut translation = Translation {
            unused: route.unused(&USED),
            ..Translation::default()
        };
        for (key, there) in self.network_keys() {
            if there {
                translation.replaced.push(key);
            }
        }
        let bus = Bus::of(&route);
        let remote = table(route.segment, |bytes| bus.remaining(&route, bytes));
        let written = |points: &[Point]| {
            let of = |point: &Point| format!("{:.3}us for {} B", point.time.0, point.size.0);
            points.iter().map(of).collect::<Vec<_>>().join(", ")
        };
        translation.take("network.remote", written(&remote), Source::Profile);
        let overhead = overhead(&route);
        if let Some(overhead) = &overhead {
            let (send, receive) = (written(&overhead.send), written(&overhead.receive));
            translation.take("network.overhead.send", send, Source::Profile);
            translation.take("network.overhead.receive", receive, Source::Profile);
        }
        self.set_network(remote, overhead);
        let scope = if bus.shared { Scope::Shared } else { Scope::Host };
        let bandwidth = bus.server.as_ref().and_then(|server| server.bandwidth);
        let collisions = bus
            .server
            .as_ref()
            .and_then(|server| server.collisions)
            .filter(|_| bus.shared);
        self.set_bus(bandwidth.map(|bandwidth| {
            let shared = if bus.shared {
                "of all groups"
            } else {
                "of each group"
            };
            translation.take("bus.bandwidth", format!("{bandwidth}, {shared}"), Source::Profile);
            BusInput {
                bandwidth: Some(BytesPerSecond(bandwidth.bits_per_second() as f64 / 8.0)),
                scope,
                collisions: collisions.map(|collisions| CollisionInput {
                    slot: Micros::from(collisions.slot),
                    attempts: collisions.attempts.into(),
                    seed: profile.seed,
                }),
            }
        }));
        if let Some(collisions) = collisions {
            let said = format!("slot {}, {} attempts", collisions.slot, collisions.attempts);
            translation.take("bus.collisions", said, Source::Profile);
        }
        Ok(translation)
    }
}

/// The server at which messages of different senders, or of one, wait for each other.
struct Bus {
    server: Option<Server>,
    shared: bool,
}

impl Bus {
    fn of(route: &Route) -> Self {
        if let Some(Layout::Bus { link }) = &route.layout {
            return Self {
                server: Some(link.clone()),
                shared: true,
            };
        }
        let own = route.first.iter().chain(route.between.first());
        let server = own
            .filter(|server| server.bandwidth.is_some())
            .min_by_key(|server| server.bandwidth)
            .cloned();
        let shared = |server: &Server| route.layout.is_none() && server.scope == ServerScope::Shared;
        Self {
            shared: server.as_ref().is_some_and(shared),
            server,
        }
    }

    /// What a lone message takes beside the bus, us.
    fn remaining(&self, route: &Route, bytes: u64) -> f64 {
        let message = Frames::of(bytes.max(1), route.segment, true);
        let last = bytes.clamp(1, route.segment);
        let whole = |server: &Server| occupied(server, message.data, message.wire_bytes(bytes));
        let frame = |server: &Server| {
            occupied(
                server,
                1,
                Frames::of(last, route.segment, true).wire_bytes(last.min(bytes)),
            )
        };
        // Of the servers one has the whole message behind its first frame, that at which this takes longest.
        let longest = route
            .servers()
            .map(|server| whole(server) - frame(server))
            .fold(0.0, f64::max);
        let frames: f64 = route.servers().map(frame).sum();
        let latencies = route.knob(perturb_profile::Knob::Latency);
        let on_the_bus = self.server.as_ref().and_then(|server| server.bandwidth);
        let on_the_bus = on_the_bus.map_or(0.0, |rate| bytes as f64 * MicrosPerByte::from(rate).0);
        (latencies + longest + frames - on_the_bus).max(0.0)
    }
}

/// How long so many frames and wire bytes occupy a server, us.
fn occupied(server: &Server, frames: u64, wire: u64) -> f64 {
    let per_byte = server.bandwidth.map_or(0.0, |rate| MicrosPerByte::from(rate).0);
    frames as f64 * Micros::from(server.gap).0 + wire as f64 * per_byte
}

/// What a message takes of the sender's and of the receiver's processor; nothing if nothing is burnt.
fn overhead(route: &Route) -> Option<OverheadInput> {
    let overhead = route.overhead;
    if overhead.is_none() {
        return None;
    }
    let (sent, received) = (Micros::from(overhead.send).0, Micros::from(overhead.receive).0);
    let of = |data: f64, acknowledgment: f64| {
        table(route.segment, |bytes| {
            let frames = Frames::of(bytes.max(1), route.segment, true).data;
            let acknowledgments = match overhead.acknowledgments {
                Acknowledgments::Charged => frames.div_ceil(2),
                Acknowledgments::Free => 0,
            };
            frames as f64 * data + acknowledgments as f64 * acknowledgment
        })
    };
    Some(OverheadInput {
        send: of(sent, received),
        receive: of(received, sent),
    })
}

fn table(segment: u64, time: impl Fn(u64) -> f64) -> Vec<Point> {
    let point = |frames: u64| {
        let bytes = frames * segment;
        Point {
            size: ByteSize(bytes as f64),
            time: Micros(time(bytes)),
        }
    };
    FRAMES.into_iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whatif::Scenario;
    use crate::whatif::bus::Collisions;

    fn on(profile: &str) -> Result<(Scenario, Translation), RouteError> {
        let mut input: Input = serde_saphyr::from_str("groups: [[1], [2]]\nevents: none\n").unwrap();
        let translation = input.on_profile(&perturb_profile::parse(profile).unwrap())?;
        Ok((input.scenario().unwrap(), translation))
    }

    /// A lone message's time from its send: the bus's part and the table's.
    fn lone(scenario: &Scenario, bytes: f64) -> f64 {
        let bus = scenario
            .bus
            .as_ref()
            .map_or(0.0, |bus| bytes / bus.bandwidth.unwrap() * 1e6);
        bus + scenario.remote.as_ref().unwrap().time(bytes)
    }

    #[test]
    fn a_bus() {
        let (scenario, translation) = on(
            "{ version: 1, seed: 9, topology: { kind: bus, link: { bandwidth: 10Mbit/s, latency: 50us }, \
             collisions: { slot: 51.2us } } }",
        )
        .unwrap();
        let bus = scenario.bus.clone().unwrap();
        assert_eq!((bus.bandwidth, bus.scope), (Some(1.25e6), Scope::Shared));
        assert_eq!(bus.collisions, Some(Collisions::new(51.2, 16, 9)));
        assert!((lone(&scenario, 2896.0) - (50.0 + (2896.0 + 132.0) * 0.8)).abs() < 1e-9);
        assert!((lone(&scenario, 0.0) - (50.0 + 66.0 * 0.8)).abs() < 1e-9);
        assert_eq!(scenario.overhead, None);
        let keys: Vec<&str> = translation.taken.iter().map(|taken| taken.key).collect();
        assert_eq!(keys, ["network.remote", "bus.bandwidth", "bus.collisions"]);
    }

    #[test]
    fn links_of_their_own() {
        let (scenario, translation) = on(
            "{ version: 1, overhead: { send: 2us, receive: 5us }, servers: { nic: { bandwidth: 80Mbit/s, gap: 3us } }, \
             topology: { kind: star, egress: [nic], link: { bandwidth: 40Mbit/s, latency: 10us, buffer: 9 packets } } }",
        )
        .unwrap();
        let bus = scenario.bus.clone().unwrap();
        assert_eq!((bus.bandwidth, bus.scope), (Some(5e6), Scope::Host));
        // Four frames at the narrowest, and one at the NIC and at the receiver's link.
        let wire = 4.0 * 1514.0;
        let expected = 20.0 + wire / 5.0 + (3.0 + 1514.0 / 10.0) + 1514.0 / 5.0;
        assert!((lone(&scenario, 4.0 * 1448.0) - expected).abs() < 1e-9);
        let overhead = scenario.overhead.unwrap();
        // Four frames, two acknowledgments.
        assert_eq!(
            (
                overhead.send.time(4.0 * 1448.0),
                overhead.receive.time(4.0 * 1448.0)
            ),
            (4.0 * 2.0 + 2.0 * 5.0, 4.0 * 5.0 + 2.0 * 2.0)
        );
        assert_eq!(translation.unused, ["buffer"]);
    }

    #[test]
    fn larger_frames_with_an_mtu() {
        let (scenario, translation) =
            on("{ version: 1, mtu: 9000B, overhead: { send: 2us, receive: 2us }, bandwidth: 8Mbit/s }")
                .unwrap();
        // At 1 byte per us: 16 segments of 8948 bytes with 66 bytes of headers each.
        assert!((lone(&scenario, 16.0 * 8948.0) - 16.0 * 9014.0).abs() < 1e-9);
        // Sent 16 times, and eight acknowledgments received.
        assert_eq!(scenario.overhead.unwrap().send.time(16.0 * 8948.0), 2.0 * 24.0);
        assert!(translation.unused.is_empty(), "{:?}", translation.unused);
    }

    #[test]
    fn servers_without_a_topology() {
        let shared = "{ version: 1, servers: { out: { bandwidth: 8Mbit/s } }, classes: [{ name: all, match: {}, egress: [out] }] }";
        assert_eq!(on(shared).unwrap().0.bus.unwrap().scope, Scope::Shared);
        let own = shared.replace("8Mbit/s", "8Mbit/s, scope: interface");
        assert_eq!(on(&own).unwrap().0.bus.unwrap().scope, Scope::Host);
        let (delay, _) = on("{ version: 1, latency: 5ms }").unwrap();
        assert_eq!((delay.bus, delay.remote.unwrap().time(1e6)), (None, 5e3));
    }

    #[test]
    fn what_the_input_says_is_replaced() {
        let text = "{groups: [[1], [2]], events: none, network: {local: [{size: 0B, time: 3us}], \
                    remote: [{size: 0B, time: 1ms}]}, bus: {bandwidth: 1Mbit/s}}";
        let mut input: Input = serde_saphyr::from_str(text).unwrap();
        let profile = perturb_profile::parse("{ version: 1, latency: 5ms }").unwrap();
        let translation = input.on_profile(&profile).unwrap();
        assert_eq!(translation.replaced, ["network.remote", "bus"]);
        let scenario = input.scenario().unwrap();
        assert_eq!(scenario.bus, None);
        assert_eq!(scenario.local.unwrap().time(0.0), 3.0);
        assert_eq!(scenario.remote.unwrap().time(0.0), 5e3);
    }
}
