//! The bit-vector classifier says the same as a linear scan for the first class that matches.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::net::{IpAddr, Ipv6Addr};

use perturb_common::abi::{Direction, NONE};
use perturb_common::tables::Tables;
use perturb_profile::*;
use proptest::prelude::*;

/// A packet's headers, as they would lie in the flow key.
#[derive(Debug, Clone)]
struct Headers {
    direction: Direction,
    ethertype: u16,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
    source_port: u16,
    destination_port: u16,
    dscp: u8,
    mark: u32,
    /// Path of the sender's; none of a packet that is received.
    cgroup: &'static str,
}

impl Headers {
    /// What the packet does not have is zero.
    fn normal(mut self) -> Self {
        let zero = Ipv6Addr::UNSPECIFIED;
        match self.ethertype {
            0x0800 => {
                let mapped =
                    |address: Ipv6Addr| Ipv6Addr::from(0xffff_0000_0000 | address.to_bits() & 0xffff_ffff);
                (self.source, self.destination) = (mapped(self.source), mapped(self.destination));
            }
            0x86dd => {}
            _ => (self.source, self.destination, self.protocol, self.dscp) = (zero, zero, 0, 0),
        }
        if !has_ports(self.protocol) {
            (self.source_port, self.destination_port) = (0, 0);
        }
        self
    }

    fn key(&self) -> [(u64, u64); 9] {
        let address = |address: Ipv6Addr| ((address.to_bits() >> 64) as u64, address.to_bits() as u64);
        let small = |value: u32| (0, u64::from(value));
        [
            address(self.source),
            address(self.destination),
            small(self.source_port.into()),
            small(self.destination_port.into()),
            small(self.ethertype.into()),
            small(self.protocol.into()),
            small(self.dscp.into()),
            small(self.mark),
            small(0),
        ]
    }
}

fn has_ports(protocol: u8) -> bool {
    [6, 17, 33, 132, 136].contains(&protocol)
}

/// Whether a cgroup is another, or below it.
fn is_in(cgroup: &str, other: &str) -> bool {
    cgroup == other || cgroup.starts_with(&format!("{other}/"))
}

/// The meaning of a match, condition by condition.
fn matches(matching: &Match, packet: &Headers) -> bool {
    let v4 = packet.ethertype == 0x0800;
    let ip = v4 || packet.ethertype == 0x86dd;
    let within = |list: &[Prefix], address: Ipv6Addr| {
        list.iter().any(|prefix| {
            let address = if v4 {
                IpAddr::V4(address.to_ipv4_mapped().unwrap())
            } else {
                IpAddr::V6(address)
            };
            ip && prefix.address().is_ipv4() == address.is_ipv4()
                && Prefix::containing(address, prefix.length()).unwrap() == *prefix
        })
    };
    let port_within = |list: &[PortRange], port: u16| {
        ip && has_ports(packet.protocol) && list.iter().any(|range| (range.low..=range.high).contains(&port))
    };
    let (local, remote, local_port, remote_port) = match packet.direction {
        Direction::Egress => (
            packet.source,
            packet.destination,
            packet.source_port,
            packet.destination_port,
        ),
        Direction::Ingress => (
            packet.destination,
            packet.source,
            packet.destination_port,
            packet.source_port,
        ),
    };
    let Match {
        source,
        destination,
        address,
        source_port,
        destination_port,
        port,
        ..
    } = matching;
    let family = match matching.family {
        Some(Family::Ipv4) => v4,
        Some(Family::Ipv6) => packet.ethertype == 0x86dd,
        None => true,
    };
    family
        && (!matching.non_ip || !ip)
        && (matching.ethertype.is_empty() || matching.ethertype.contains(&EtherType(packet.ethertype)))
        && (matching.protocol.is_empty() || ip && matching.protocol.contains(&Protocol(packet.protocol)))
        && (matching.dscp.is_empty() || ip && matching.dscp.contains(&Dscp(packet.dscp)))
        && (matching.fwmark.is_empty() || matching.fwmark.contains(&packet.mark))
        && (matching.cgroup.is_empty()
            || packet.direction == Direction::Egress
                && matching.cgroup.iter().any(|one| is_in(packet.cgroup, one.as_str())))
        && (source.is_empty() || within(source, packet.source))
        && (destination.is_empty() || within(destination, packet.destination))
        && (matching.local.is_empty() || within(&matching.local, local))
        && (matching.remote.is_empty() || within(&matching.remote, remote))
        // Nobody has looked it up.
        && matching.host.is_empty()
        && (address.is_empty() || within(address, packet.source) || within(address, packet.destination))
        && (source_port.is_empty() || port_within(source_port, packet.source_port))
        && (destination_port.is_empty() || port_within(destination_port, packet.destination_port))
        && (matching.local_port.is_empty() || port_within(&matching.local_port, local_port))
        && (matching.remote_port.is_empty() || port_within(&matching.remote_port, remote_port))
        && (port.is_empty()
            || port_within(port, packet.source_port)
            || port_within(port, packet.destination_port))
}

fn with_classes(matches: Vec<Match>) -> Profile {
    let class = |(index, matching)| Class {
        name: Name::new(&format!("c{index}")).unwrap(),
        matching,
        treatment: Treatment::Bypass,
    };
    Profile {
        classes: matches.into_iter().enumerate().map(class).collect(),
        ..Profile::default()
    }
}

fn compiled(matches: Vec<Match>) -> Tables {
    compile(&with_classes(matches), &Files::default()).unwrap()
}

/// Values near those that the small matches below ask for, so that packets meet them often.
fn packet() -> impl Strategy<Value = Headers> {
    let address = || {
        prop_oneof![
            (0..8u32).prop_map(|low| Ipv6Addr::from(0xffff_0a00_0000 | u128::from(low))),
            (0..8u128).prop_map(|low| Ipv6Addr::from(0x2001_0db8 << 96 | low)),
            any::<u128>()
                .prop_map(Ipv6Addr::from)
                .prop_filter("mapped addresses are not sent", |address| address
                    .to_ipv4_mapped()
                    .is_none()),
        ]
    };
    let port = || prop_oneof![0..12u16, any::<u16>()];
    (
        any::<bool>(),
        prop_oneof![4 => Just(0x0800), 3 => Just(0x86dd), 1 => Just(0x0806), 1 => any::<u16>()],
        (address(), address()),
        prop_oneof![4 => Just(6), 2 => Just(17), 1 => Just(1), 1 => any::<u8>()],
        (port(), port()),
        prop_oneof![0..4u8, 0..64u8],
        prop_oneof![0..4u32, any::<u32>()],
        proptest::sample::select(vec!["", "a", "a/b", "a/b/c", "ab", "d"]),
    )
        .prop_map(
            |(egress, ethertype, addresses, protocol, ports, dscp, mark, cgroup)| Headers {
                direction: if egress {
                    Direction::Egress
                } else {
                    Direction::Ingress
                },
                ethertype,
                source: addresses.0,
                destination: addresses.1,
                protocol,
                source_port: ports.0,
                destination_port: ports.1,
                dscp,
                mark,
                cgroup,
            },
        )
        .prop_map(Headers::normal)
        .prop_filter("an IPv6 packet has no mapped address", |packet| {
            packet.ethertype == 0x0800
                || packet.source.to_ipv4_mapped().is_none() && packet.destination.to_ipv4_mapped().is_none()
        })
}

/// Matches over few values.
fn near_match() -> impl Strategy<Value = Match> {
    let prefix = || {
        prop_oneof![
            (0..8u32, 28..=32u8).prop_map(|(low, length)| Prefix::containing(
                IpAddr::V4((0x0a00_0000 | low).into()),
                length
            )
            .unwrap()),
            (0..8u128, 124..=128u8).prop_map(|(low, length)| {
                Prefix::containing(IpAddr::V6((0x2001_0db8 << 96 | low).into()), length).unwrap()
            }),
            Just(Prefix::containing(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0).unwrap()),
        ]
    };
    let prefixes = move || proptest::collection::vec(prefix(), 0..3);
    let ports = || {
        proptest::collection::vec(
            (0..12u16, 0..4u16).prop_map(|(low, more)| PortRange {
                low,
                high: low + more,
            }),
            0..3,
        )
    };
    let seldom = |strategy: BoxedStrategy<Vec<Prefix>>| prop_oneof![3 => Just(Vec::new()), 1 => strategy];
    let seldom_port =
        |strategy: BoxedStrategy<Vec<PortRange>>| prop_oneof![3 => Just(Vec::new()), 1 => strategy];
    (
        prop_oneof![
            6 => Just((None, false, Vec::new())),
            1 => Just((Some(Family::Ipv4), false, Vec::new())),
            1 => Just((Some(Family::Ipv6), false, Vec::new())),
            1 => Just((None, true, Vec::new())),
            1 => Just((None, false, vec![EtherType(0x0806), EtherType::IPV4])),
        ],
        prop_oneof![2 => Just(Vec::new()), 1 => Just(vec![Protocol(6)]), 1 => Just(vec![Protocol(1), Protocol(17)])],
        (
            seldom(prefixes().boxed()),
            seldom(prefixes().boxed()),
            seldom(prefixes().boxed()),
            seldom(prefixes().boxed()),
            seldom(prefixes().boxed()),
        ),
        (
            seldom_port(ports().boxed()),
            seldom_port(ports().boxed()),
            seldom_port(ports().boxed()),
            seldom_port(ports().boxed()),
            seldom_port(ports().boxed()),
        ),
        prop_oneof![3 => Just(Vec::new()), 1 => Just(vec![Dscp(1), Dscp(2)])],
        prop_oneof![3 => Just(Vec::new()), 1 => Just(vec![0, 3])],
    )
        .prop_map(|((family, non_ip, ethertype), protocol, addresses, ports, dscp, fwmark)| Match {
            family,
            non_ip,
            ethertype,
            protocol,
            source: addresses.0,
            destination: addresses.1,
            local: addresses.2,
            remote: addresses.3,
            address: addresses.4,
            source_port: ports.0,
            destination_port: ports.1,
            local_port: ports.2,
            remote_port: ports.3,
            port: ports.4,
            dscp,
            fwmark,
            ..Match::default()
        })
}

fn agree(matches_: &[Match], tables: &Tables, packet: &Headers) -> Result<(), TestCaseError> {
    let scanned = matches_.iter().position(|matching| matches(matching, packet));
    let scanned = scanned.map_or(NONE, |class| class as u32);
    let mut key = packet.key();
    // What the programs know of a sender: the deepest of the profile's cgroups that it is in, by its number.
    let profile = with_classes(matches_.to_vec());
    let named = profile.named_cgroups();
    let named: Vec<_> = named.into_iter().collect();
    let own = named.iter().rposition(|one| is_in(packet.cgroup, one.as_str()));
    if packet.direction == Direction::Egress {
        key[8].1 = own.map_or(0, |at| at as u64 + 1);
    }
    let found = tables.classifier[packet.direction as usize].classify(key);
    prop_assert_eq!(found, scanned, "{:?}", packet);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn agrees_with_a_linear_scan(
        classes in proptest::collection::vec(prop_oneof![3 => near_match(), 1 => support::matching()], 0..30),
        packets in proptest::collection::vec(packet(), 60),
    ) {
        let tables = compiled(classes.clone());
        for packet in &packets {
            agree(&classes, &tables, packet)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A host's name means its addresses, given or looked up.
    #[test]
    fn names_mean_addresses(classes in proptest::collection::vec(near_match(), 1..20), looked_up in any::<bool>()) {
        let by_address = with_classes(classes);
        let mut by_name = by_address.clone();
        let mut files = Files::default();
        for (number, class) in by_name.classes.iter_mut().enumerate() {
            let addresses = std::mem::take(&mut class.matching.remote);
            if addresses.is_empty() {
                continue;
            }
            let name = format!("host-{number}.example");
            class.matching.host = vec![HostName::new(&name).unwrap()];
            let whole = |prefix: &Prefix| prefix.length() == if prefix.address().is_ipv4() { 32 } else { 128 };
            if looked_up && addresses.iter().all(whole) {
                files.hosts.insert(name, addresses.iter().map(Prefix::address).collect());
            } else {
                by_name.hosts.push((Name::new(&name).unwrap(), addresses));
            }
        }
        let by_name = compile(&by_name, &files).unwrap();
        let by_address = compile(&by_address, &Files::default()).unwrap();
        prop_assert_eq!(by_name.classifier, by_address.classifier);
    }
}

#[test]
fn an_unknown_host_is_no_packets() {
    let mut matching = Match {
        host: vec![HostName::new("nobody.example").unwrap()],
        ..Match::default()
    };
    let tables = compiled(vec![matching.clone(), Match::default()]);
    assert!(tables.classifier.iter().all(|classifier| classifier.rules == [1]));
    matching.host.clear();
    assert!(matching.is_everything());
}

#[test]
fn addresses_are_no_names_of_hosts() {
    for name in ["db", "db.example", "a-b_c.d1", "1a", "xn--bcher-kva.example"] {
        assert!(HostName::new(name).is_some(), "{name}");
    }
    let long = "a".repeat(64);
    for name in [
        "",
        ".",
        "db.",
        "-a",
        "a-",
        "a..b",
        "10.0.0.1",
        "fe80::1",
        "10",
        "b\u{fc}cher",
        "a b",
        "a/24",
        &long,
    ] {
        assert!(HostName::new(name).is_none(), "{name}");
    }
}

/// 4096 classes with a port of their own, at either side.
fn many_ports() -> Vec<Match> {
    let class = |index: u16| Match {
        protocol: vec![Protocol(6)],
        port: vec![PortRange {
            low: 1000 + index,
            high: 1000 + index,
        }],
        ..Match::default()
    };
    (0..4096).map(class).collect()
}

/// 4096 classes with a remote network and a local port of their own.
fn many_hosts() -> Vec<Match> {
    let class = |index: u16| Match {
        protocol: vec![Protocol(6)],
        remote: vec![
            Prefix::containing(IpAddr::V4((0x0a00_0000 + u32::from(index) * 4).into()), 30).unwrap(),
        ],
        local_port: vec![PortRange {
            low: 1000 + index,
            high: 1000 + index,
        }],
        ..Match::default()
    };
    (0..4096).map(class).collect()
}

#[test]
fn the_largest_profiles_compile_and_agree() {
    for classes in [many_ports(), many_hosts()] {
        large_profile(&classes);
    }
}

fn large_profile(classes: &[Match]) {
    let profile = with_classes(classes.to_vec());
    let timed = || {
        let start = std::time::Instant::now();
        let tables = compile(&profile, &Files::default()).unwrap();
        (start.elapsed(), tables)
    };
    // The fastest of 5: what the work takes, not what else the machine does.
    let (elapsed, tables) = (0..5)
        .map(|_| timed())
        .min_by_key(|(elapsed, _)| *elapsed)
        .unwrap();
    eprintln!("4096 classes compiled in {elapsed:?}, fastest of 5");
    // The bound is stated for optimized code.
    if !cfg!(debug_assertions) {
        assert!(elapsed < std::time::Duration::from_millis(50), "{elapsed:?}");
    }
    for index in (0..4096u16).step_by(97) {
        let remote = Ipv6Addr::from(0xffff_0a00_0000 + u128::from(index) * 4 + 1);
        for (source_port, destination_port) in
            [(1000 + index, 5), (5, 1000 + index), (5, 999 + index), (5, 5)]
        {
            let packet = Headers {
                direction: Direction::Ingress,
                ethertype: 0x0800,
                source: remote,
                destination: Ipv6Addr::from(0xffff_0101_0101),
                protocol: 6,
                source_port,
                destination_port,
                dscp: 0,
                mark: 0,
                cgroup: "",
            };
            agree(classes, &tables, &packet).unwrap();
        }
    }
}

#[test]
fn too_many_rules_are_refused() {
    let either_side = |index: u16| Match {
        address: vec![Prefix::containing(IpAddr::V4((0x0a00_0000 + u32::from(index)).into()), 32).unwrap()],
        port: vec![PortRange {
            low: index,
            high: index,
        }],
        ..Match::default()
    };
    let classes = with_classes((0..2049).map(either_side).collect());
    let error = compile(&classes, &Files::default()).unwrap_err();
    assert!(
        matches!(
            error,
            CompileError::TooMany {
                count: 8196,
                max: 8192,
                ..
            }
        ),
        "{error}"
    );
}
