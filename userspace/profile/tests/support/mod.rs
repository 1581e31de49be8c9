//! Arbitrary valid profiles, and the profiles of the repository.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod fates;
mod groups;
mod queue;
mod tcp;
mod timeline;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use fates::{correlated, framing, jitter, loss, reorder, slot};
use perturb_profile::*;
use proptest::collection::vec;
use proptest::{option::of, prelude::*};
use queue::{ecn, queue};

/// The profiles in configs/, by path, with their texts.
pub(crate) fn configs() -> Vec<(PathBuf, String)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let mut paths: Vec<PathBuf> = [directory.clone(), directory.join("scenarios")]
        .iter()
        .flat_map(|directory| std::fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 10, "configs/ has lost its profiles");
    paths
        .into_iter()
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

fn duration(max_nanos: u64) -> BoxedStrategy<Duration> {
    prop_oneof![0..=max_nanos, 0..=max_nanos.min(100_000)]
        .prop_map(Duration::from_nanos)
        .boxed()
}

fn share() -> BoxedStrategy<Probability> {
    prop_oneof![
        Just(Probability::ZERO),
        Just(Probability::ONE),
        (0..=1_000_000_000u64).prop_map(Probability::from_billionths)
    ]
    .boxed()
}

fn rate() -> BoxedStrategy<Rate> {
    prop_oneof![
        (1_000..=10_000_000_000_000u64).prop_map(Rate::from_bits_per_second),
        (1_000..=10_000u64).prop_map(|mega| format!("{mega}kB/s").parse().unwrap()),
    ]
    .boxed()
}

fn name() -> BoxedStrategy<Name> {
    "[A-Za-z0-9][A-Za-z0-9_.-]{0,8}|null|true|no|1e3|0x10"
        .prop_map(|text| Name::new(&text).unwrap())
        .boxed()
}

/// A buffer that suits a bandwidth of at least 1 Mbit/s.
fn buffer() -> BoxedStrategy<Buffer> {
    let volume = prop_oneof![
        (1514..=1_000_000u64).prop_map(|bytes| Volume::Bytes(Size::from_bytes(bytes))),
        (13_000_000..=100_000_000u64).prop_map(|nanos| Volume::Delay(Duration::from_nanos(nanos))),
    ];
    (of(volume), of(1..=100u32))
        .prop_map(|(volume, packets)| Buffer { volume, packets })
        .boxed()
}

fn scope() -> BoxedStrategy<Scope> {
    prop_oneof![
        Just(Scope::Shared),
        Just(Scope::Interface),
        Just(Scope::Host),
        Just(Scope::Flow)
    ]
    .boxed()
}

pub(crate) fn server() -> BoxedStrategy<Server> {
    (
        scope(),
        duration(1_000_000),
        of(rate()),
        duration(1_000_000_000),
        (buffer(), of(ecn()), queue()),
        (of(jitter()), loss()),
        correlated(),
        correlated(),
        (of(reorder()), framing(), of(slot())),
    )
        .prop_map(
            |(
                scope,
                gap,
                bandwidth,
                latency,
                (mut buffer, ecn, mut queue),
                (jitter, loss),
                duplicate,
                corrupt,
                (reorder, framing, slot),
            )| {
                let fast = bandwidth.filter(|rate| rate.bits_per_second() >= 1_000_000);
                if fast.is_none() {
                    buffer.volume = None;
                }
                if scope != Scope::Shared || fast.is_none() {
                    buffer.packets = None;
                }
                let red = matches!(queue, Queue::Red { .. });
                let suits_red = fast.is_some_and(|rate| rate.bits_per_second() <= 1_000_000_000);
                if scope != Scope::Shared || bandwidth.is_none() || (red && !suits_red) {
                    queue = Queue::Tail;
                }
                let ecn = ecn.filter(|_| bandwidth.is_some() && queue == Queue::Tail);
                let framing = if bandwidth.is_some() && buffer.volume.is_none() {
                    framing
                } else {
                    Framing::default()
                };
                let reorder = reorder.filter(|_| latency > Duration::ZERO || jitter.is_some());
                Server {
                    scope,
                    gap,
                    bandwidth,
                    framing,
                    latency,
                    buffer,
                    jitter,
                    loss,
                    duplicate,
                    corrupt,
                    reorder,
                    ecn,
                    slot: slot.filter(|_| {
                        scope == Scope::Shared && queue == Queue::Tail && buffer.volume.is_none()
                    }),
                    queue,
                    collisions: None,
                    trace: None,
                }
            },
        )
        .boxed()
}

fn prefix() -> BoxedStrategy<Prefix> {
    prop_oneof![
        (any::<u32>(), 0..=32u8).prop_map(|(bits, length)| Prefix::containing(
            IpAddr::V4(Ipv4Addr::from(bits)),
            length
        )
        .unwrap()),
        (any::<u128>(), 0..=128u8).prop_map(|(bits, length)| Prefix::containing(
            IpAddr::V6(Ipv6Addr::from(bits)),
            length
        )
        .unwrap()),
    ]
    .boxed()
}

fn ports() -> BoxedStrategy<Vec<PortRange>> {
    let range = (any::<u16>(), any::<u16>()).prop_map(|(a, b)| PortRange {
        low: a.min(b),
        high: a.max(b),
    });
    distinct(range).boxed()
}

/// Up to three different values.
fn distinct<T: PartialEq + Clone + std::fmt::Debug + 'static>(
    one: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Vec<T>> {
    vec(one, 0..3)
        .prop_map(|mut values| {
            values.dedup();
            values
        })
        .boxed()
}

pub(crate) fn matching() -> BoxedStrategy<Match> {
    let ip = (
        of(prop_oneof![Just(Family::Ipv4), Just(Family::Ipv6)]),
        distinct(any::<u8>().prop_map(Protocol)),
        (0..5usize, distinct(prefix())),
        (0..5usize, distinct(prefix())),
        (0..5usize, ports()),
        (0..5usize, ports()),
        distinct((0..64u8).prop_map(Dscp)),
    )
        .prop_map(|(family, protocol, first, second, third, fourth, dscp)| {
            let mut matching = Match {
                family,
                protocol,
                dscp,
                ..Match::default()
            };
            for (place, list) in [first, second] {
                let fields = [
                    &mut matching.source,
                    &mut matching.destination,
                    &mut matching.local,
                    &mut matching.remote,
                    &mut matching.address,
                ];
                *fields.into_iter().nth(place).unwrap() = list;
            }
            for (place, list) in [third, fourth] {
                let fields = [
                    &mut matching.source_port,
                    &mut matching.destination_port,
                    &mut matching.local_port,
                    &mut matching.remote_port,
                    &mut matching.port,
                ];
                *fields.into_iter().nth(place).unwrap() = list;
            }
            matching
        });
    let ethertypes = || distinct(any::<u16>().prop_map(EtherType));
    let other = (any::<bool>(), ethertypes()).prop_map(|(non_ip, mut ethertype)| {
        ethertype.retain(|ethertype| !ethertype.is_ip());
        Match {
            non_ip,
            ethertype,
            ..Match::default()
        }
    });
    (prop_oneof![4 => ip, 1 => other], distinct(any::<u32>()))
        .prop_map(|(matching, fwmark)| Match { fwmark, ..matching })
        .prop_flat_map(|matching| {
            let cgroup = prop_oneof![Just("a"), Just("a/b"), Just("a/b/x"), Just("d")];
            let cgroup = cgroup.prop_map(|path| Cgroup::new(path).unwrap());
            prop_oneof![3 => Just(Vec::new()), 1 => distinct(cgroup.boxed())].prop_map(move |cgroup| Match {
                cgroup,
                ..matching.clone()
            })
        })
        .prop_flat_map(|matching| {
            let host = prop_oneof![Just("db"), Just("a.b-c_d.example")];
            let host = host.prop_map(|name| HostName::new(name).unwrap());
            distinct(host.boxed()).prop_map(move |host| Match {
                host: if matching.remote.is_empty() && !matching.non_ip {
                    host
                } else {
                    Vec::new()
                },
                ..matching.clone()
            })
        })
        .prop_filter("can match", |matching| {
            let text = Profile {
                classes: vec![Class {
                    name: Name::new("one").unwrap(),
                    matching: matching.clone(),
                    treatment: Treatment::Bypass,
                }],
                ..Profile::default()
            };
            parse(&text.to_string()).is_ok()
        })
        .boxed()
}

fn classes(servers: usize) -> BoxedStrategy<Vec<Class>> {
    let path = move || {
        of(vec(0..servers.max(1), 0..5).prop_map(move |mut indices| {
            let mut seen = std::collections::HashSet::new();
            indices.retain(|index| *index < servers && seen.insert(*index));
            indices.into_iter().filter_map(ServerId::new).collect()
        }))
    };
    let treatment = prop_oneof![
        1 => Just(Treatment::Bypass),
        4 => (path(), path()).prop_filter("one way at least", |(a, b)| a.is_some() || b.is_some())
            .prop_map(|(egress, ingress)| Treatment::Emulate { egress, ingress }),
    ];
    vec((name(), matching(), treatment), 0..5)
        .prop_map(|mut classes| {
            for (_, matching, treatment) in &mut classes {
                // What comes in has no sender here.
                if matches!(treatment, Treatment::Emulate { ingress: Some(_), .. }) {
                    matching.cgroup.clear();
                }
            }
            let mut seen = std::collections::HashSet::new();
            let mut classes: Vec<_> = classes
                .into_iter()
                .map(|(name, matching, treatment)| Class {
                    name,
                    matching,
                    treatment,
                })
                .collect();
            classes.retain(|class| seen.insert(class.name.clone()));
            classes
        })
        .boxed()
}

fn topology(servers: usize) -> BoxedStrategy<Topology> {
    let link = || {
        server().prop_map(|server| Server {
            scope: Scope::Shared,
            ..server
        })
    };
    let collisions = (1..=10_000_000u64, 1..=16u8).prop_map(|(slot, attempts)| Collisions {
        slot: Duration::from_nanos(slot),
        attempts,
    });
    let layout = prop_oneof![
        (link(), of(collisions)).prop_map(|(link, collisions)| {
            let busy = link.bandwidth.is_some() || link.gap > Duration::ZERO;
            Layout::Bus {
                link: Server {
                    collisions: collisions.filter(|_| busy),
                    queue: Queue::Tail,
                    ..link
                },
            }
        }),
        link().prop_map(|link| Layout::Star { link }),
        (vec(link(), 1..=5), any::<bool>()).prop_map(|(levels, both)| Layout::Tree {
            levels,
            sharing: if both {
                Sharing::Bidirectional
            } else {
                Sharing::Unidirectional
            },
        }),
        (vec(2..6u16, 1..4), link(), any::<bool>()).prop_map(|(dimensions, link, wrap)| Layout::Mesh {
            dimensions,
            link,
            wrap
        }),
    ];
    (layout, vec(0..servers.max(1), 0..2))
        .prop_map(move |(layout, ends)| {
            let egress = ends
                .into_iter()
                .filter(|&index| index < servers)
                .filter_map(ServerId::new)
                .collect();
            Topology {
                layout,
                egress,
                ingress: Vec::new(),
            }
        })
        .boxed()
}

/// Any valid profile.
pub(crate) fn profile() -> BoxedStrategy<Profile> {
    let servers = vec((name(), server()), 0..4).prop_map(|mut servers| {
        let mut seen = std::collections::HashSet::new();
        servers.retain(|(name, _)| seen.insert(name.clone()));
        servers
    });
    let network = servers.prop_flat_map(|servers| {
        let count = servers.len();
        let timeline = prop_oneof![2 => Just(Timeline::default()), 1 => timeline::timeline(count)];
        (Just(servers), classes(count), of(topology(count)), timeline)
    });
    let hosts = vec((name(), prefix()), 0..2).prop_map(|mut hosts| {
        let mut seen = std::collections::HashSet::new();
        hosts.retain(|(name, _)| seen.insert(name.clone()));
        hosts
            .into_iter()
            .map(|(name, prefix)| (name, vec![prefix]))
            .collect()
    });
    let segmentation = prop_oneof![
        Just(Segmentation::Auto),
        Just(Segmentation::Exact),
        Just(Segmentation::Whole)
    ];
    let overhead =
        (duration(1_000_000), duration(1_000_000), any::<bool>()).prop_map(|(send, receive, free)| {
            Overhead {
                send,
                receive,
                acknowledgments: if free {
                    Acknowledgments::Free
                } else {
                    Acknowledgments::Charged
                },
            }
        });
    let limits = (1024..=4_194_304u32, of(1u64 << 20..=64 << 30)).prop_map(|(flows, held)| Limits {
        flows,
        held: held.map(Size::from_bytes),
    });
    (
        (of(name()), of("\\PC{0,40}|[\u{0}-\u{ff}]{0,20}|\\s*")),
        any::<u64>(),
        prop_oneof![Just(Overhead::default()), overhead],
        (
            segmentation,
            prop_oneof![Just(None), Just(Some(Duration::from_nanos(60_000_000_000)))],
        ),
        limits,
        network,
        hosts,
        (
            prop_oneof![Just(Tcp::default()), tcp::tcp()],
            of(1280..=65_521u64),
        ),
        (groups::groups(), vec((0..8u8, 0..8u8), 0..3), groups::matrix()),
    )
        .prop_map(
            |(
                (name, description),
                seed,
                overhead,
                (segmentation, horizon),
                limits,
                network,
                hosts,
                (tcp, mtu),
                (sets, chosen, matrix),
            )| {
                let (mut servers, classes, topology, timeline) = network;
                timeline::take_laws(&timeline, &mut servers);
                // A buffer that is given may be as small as a frame of 1514 bytes.
                let links = topology.iter().flat_map(|one: &Topology| one.layout.links());
                let mut all = servers.iter().map(|(_, server)| server).chain(links);
                let largest = if all.all(|server| server.buffer.volume.is_none()) {
                    65_521
                } else {
                    1500
                };
                let mtu = mtu.map(|mtu| Size::from_bytes(mtu.min(largest)));
                let mut profile = Profile {
                    name,
                    description,
                    seed,
                    overhead,
                    segmentation,
                    horizon,
                    limits,
                    servers,
                    classes,
                    hosts,
                    topology,
                    tcp,
                    mtu,
                    timeline,
                    ..Profile::default()
                };
                groups::put(&mut profile, sets, &chosen, matrix);
                profile
            },
        )
        .boxed()
}
