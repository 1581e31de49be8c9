//! Expanded profiles as a whole.

mod many;
mod routes;

use std::time::Instant;

use perturb_common::abi::{NONE, SERVER_COLLISIONS};
use proptest::prelude::*;

use super::*;
use crate::{Files, compile, explain, parse};

/// The profile with topology `text`.
fn with(text: &str) -> Profile {
    parse(&format!("version: 1\ntopology: {text}\n")).unwrap_or_else(|error| panic!("{error}"))
}

fn tree(levels: u32, sharing: &str) -> String {
    let level = |height: u32| {
        format!(
            "{{ bandwidth: {}Mbit/s, buffer_delay: {height}ms }}",
            100 * height
        )
    };
    let levels: Vec<String> = (1..=levels).map(level).collect();
    format!(
        "{{ kind: tree, sharing: {sharing}, levels: [{}] }}",
        levels.join(", ")
    )
}

fn grid(kind: &str, dimensions: &[u16]) -> String {
    format!("{{ kind: {kind}, dimensions: {dimensions:?}, link: {{ bandwidth: 1Gbit/s }} }}")
}

/// Host i has 10.0.i.1 and fd00::i.
fn addresses(hosts: usize) -> Vec<Vec<IpAddr>> {
    (1..=hosts)
        .map(|i| {
            vec![
                IpAddr::from([10, 0, i as u8, 1]),
                format!("fd00::{i:x}").parse().unwrap(),
            ]
        })
        .collect()
}

fn expanded(text: &str, hosts: usize) -> Profile {
    expand(&with(text), &addresses(hosts)).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str, hosts: usize) -> ExpandError {
    expand(&with(text), &addresses(hosts)).unwrap_err()
}

/// The names of the servers between two hosts, from 1.
fn between(profile: &Profile, from: usize, to: usize) -> Vec<&str> {
    let name = format!("h{from}-h{to}");
    let class = profile
        .classes
        .iter()
        .find(|class| class.name.as_str() == name)
        .unwrap();
    let names = class.paths()[0].unwrap().iter();
    names.map(|&id| profile.server(id).unwrap().0.as_str()).collect()
}

fn pairs(hosts: usize) -> impl Iterator<Item = (usize, usize)> {
    (1..=hosts)
        .flat_map(move |from| (1..=hosts).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
}

#[test]
fn classes_tell_the_pairs_apart_and_only_the_sender_folds() {
    let profile = expanded(&tree(3, "unidirectional"), 3);
    assert_eq!(profile.topology, None);
    let texts = |list: &[Prefix]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let class = &profile.classes[3];
    assert_eq!(class.name.as_str(), "h2-h3");
    assert_eq!(texts(&class.matching.source), ["10.0.2.1", "fd00::2"]);
    assert_eq!(texts(&class.matching.destination), ["10.0.3.1", "fd00::3"]);
    assert!(profile.classes.iter().all(|class| class.paths()[1].is_none()));
    let mapped: IpAddr = "::ffff:10.0.2.1".parse().unwrap();
    let topology = with(&tree(3, "unidirectional"));
    let other = expand(&topology, &[vec![mapped], vec![IpAddr::from([10, 0, 3, 1])]]).unwrap();
    assert_eq!(texts(&other.classes[0].matching.source), ["10.0.2.1"]);
}

#[test]
fn the_receive_overhead_is_burnt_by_the_receiver() {
    let text = "{ version: 1, overhead: { receive: 5us }, topology: { kind: star, link: {} } }";
    let profile = expand(&parse(text).unwrap(), &addresses(3)).unwrap();
    assert!(profile.classes.iter().all(|class| class.paths()[1] == Some(&[])));
    assert_eq!(parse(&profile.to_string()).as_ref(), Ok(&profile));
}

const WITH_NICS: &str = "version: 1
servers:
  nic: { gap: 5us, scope: interface }
  wan: { latency: 20ms }
  bell: { latency: 1us }
classes:
  - { name: ssh, match: { port: 22 }, bypass: true }
  - { name: out, match: { remote: 192.0.2.0/24 }, egress: [wan, bell] }
topology: { kind: star, link: { bandwidth: 100Mbit/s }, egress: [nic, bell], ingress: [nic] }
";

#[test]
fn hosts_have_servers_of_their_own_before_and_after_the_network() {
    let profile = expand(&parse(WITH_NICS).unwrap(), &addresses(3)).unwrap();
    let path = ["h1-nic", "h1-bell", "h1-up", "h3-down", "h3-nic"];
    assert_eq!(between(&profile, 1, 3), path);
    let nic = profile
        .servers
        .iter()
        .find(|(name, _)| name.as_str() == "h3-nic")
        .unwrap();
    assert_eq!((nic.1.scope, nic.1.gap.nanos()), (Scope::Shared, 5_000));
    // The hand-written part comes first and means the same; the template has gone, for only hosts crossed it.
    let names: Vec<&str> = profile.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names[..3], ["ssh", "out", "h1-h2"]);
    let out: Vec<&str> = profile.classes[1].paths()[0]
        .unwrap()
        .iter()
        .map(|&id| profile.server(id).unwrap().0.as_str())
        .collect();
    assert_eq!(out, ["wan", "bell"]);
    assert!(profile.servers.iter().all(|(name, _)| name.as_str() != "nic"));
    assert_eq!(parse(&profile.to_string()).as_ref(), Ok(&profile));
}

/// The cuts of the path between two hosts, as the tables have them.
fn cuts(profile: &Profile, from: usize, to: usize) -> u32 {
    let tables = compile(profile, &Files::default()).unwrap();
    let class = tables
        .class_names
        .iter()
        .position(|name| *name == format!("h{from}-h{to}"))
        .unwrap();
    let [egress, ingress] = tables.classes[class].path;
    assert_eq!(ingress, NONE);
    tables.paths[egress as usize].cuts
}

#[test]
fn paths_are_cut_where_those_of_other_hosts_join() {
    let profile = expanded(&tree(3, "unidirectional"), 8);
    // Six edges; to each but the first others get as well.
    assert_eq!(cuts(&profile, 3, 6), 0b111_110);
    let two = expanded(&tree(3, "unidirectional"), 2);
    assert_eq!(cuts(&two, 1, 2), 0, "the receiver hears one sender only");
    let bus = expanded("{ kind: bus, link: { bandwidth: 10Mbit/s } }", 8);
    assert_eq!(cuts(&bus, 1, 2), 0);
    let nics = expand(&parse(WITH_NICS).unwrap(), &addresses(3)).unwrap();
    // Whatever gets to h1-bell and h1-up comes by h1-nic; h3-down hears h2 as well, and h3 sends by h3-nic.
    assert_eq!(cuts(&nics, 1, 3), 0b11000);
}

#[test]
fn named_hosts_are_expanded_by_their_prefixes() {
    let text = "{ version: 1, hosts: { a: [10.1.0.0/16, 'fd01::/64'], b: 10.2.0.0/16 }, topology: { kind: star, link: {} } }";
    let profile = parse(text).unwrap();
    let expanded = expand_prefixes(&profile, &hosts_of(&profile)).unwrap();
    assert_eq!(expanded.classes[0].matching.source, profile.hosts[0].1);
    assert_eq!(expanded.classes[1].matching.source, profile.hosts[1].1);
    assert_eq!(parse(&expanded.to_string()).as_ref(), Ok(&expanded));
}

/// Table II of PlogPT has 32 nodes; their paths of at most 2 x 5 edges.
#[test]
fn the_tree_of_plogpt_is_expanded_for_its_32_nodes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/plogpt-table2.yaml");
    let profile = parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    for hosts in [8, 32] {
        let expanded = expand(&profile, &addresses(hosts)).unwrap();
        assert_eq!((&expanded.tcp, expanded.mtu), (&profile.tcp, profile.mtu));
        let longest = pairs(hosts)
            .map(|(from, to)| between(&expanded, from, to).len())
            .max();
        assert_eq!(longest, Some(2 * hosts.ilog2() as usize));
        assert_eq!(parse(&expanded.to_string()).as_ref(), Ok(&expanded));
    }
}

#[test]
fn a_bus_keeps_its_collisions() {
    let text = "{ kind: bus, link: { bandwidth: 10Mbit/s }, collisions: { slot: 51.2us, attempts: 9 } }";
    let profile = expanded(text, 3);
    let collisions = profile.servers[0].1.collisions.unwrap();
    assert_eq!((collisions.slot.nanos(), collisions.attempts), (51_200, 9));
    assert_eq!(parse(&profile.to_string()).as_ref(), Ok(&profile));
    let tables = compile(&profile, &Files::default()).unwrap();
    let bus = tables.servers[0];
    assert_eq!((bus.collision_slot, bus.collision_table), (51_200 * 64, 0));
    assert_eq!((bus.flags, tables.collisions.len()), (SERVER_COLLISIONS, 1));
    let refused = |text: &str| parse(text).unwrap_err().to_string();
    let timeless = refused("{ version: 1, topology: { kind: bus, link: {}, collisions: { slot: 1us } } }");
    assert!(timeless.contains("never meet"), "{timeless}");
    let apart = refused(
        "{ version: 1, servers: { s: { gap: 1us, scope: host, collisions: { slot: 1us } } }, classes: [{ name: a, match: {}, egress: [s] }] }",
    );
    assert!(apart.contains("scope shared only"), "{apart}");
}

#[test]
fn without_a_topology_nothing_changes() {
    let profile = parse("{ version: 1, latency: 20ms }").unwrap();
    assert_eq!(expand(&profile, &[]), Ok(profile.clone()));
    assert_eq!(expand(&profile, &addresses(100)), Ok(profile));
}

#[test]
fn limits_say_which() {
    let star = "{ kind: star, link: { bandwidth: 1Gbit/s } }";
    assert_eq!(refused(star, 1), ExpandError::TooFewHosts { hosts: 1 });
    let room = ExpandError::NoRoom {
        kind: "tree",
        hosts: 9,
        capacity: 8,
    };
    assert_eq!(refused(&tree(3, "unidirectional"), 9), room);
    let pairs = ExpandError::TooManyPairs {
        hosts: 65,
        pairs: 4160,
        written: 0,
        max: 4096,
    };
    assert_eq!(refused(star, 65), pairs);
    let long = ExpandError::LongPath {
        from: 1,
        to: 26,
        servers: 25,
        max: 24,
    };
    assert_eq!(refused(&grid("mesh", &[28]), 28), long);
    assert_eq!(expanded(&grid("mesh", &[28]), 25).classes.len(), 600);
    let packets = refused(
        "{ kind: star, link: { bandwidth: 1Gbit/s, buffer: 100000 packets } }",
        2,
    );
    assert!(
        matches!(packets, ExpandError::TooMany { count: 400_000, .. }),
        "{packets}"
    );
    let slow = refused("{ kind: star, link: { latency: 31s } }", 2);
    assert!(
        matches!(slow, ExpandError::LongDelay { from: 1, to: 2, .. }),
        "{slow}"
    );
}

#[test]
fn hosts_need_addresses_of_their_own() {
    let star = with("{ kind: star, link: {} }");
    let mut hosts = addresses(3);
    hosts[1].clear();
    assert_eq!(expand(&star, &hosts), Err(ExpandError::NoAddress { host: 2 }));
    let prefix = |text: &str| Prefix::parse(text).unwrap();
    let clash = |lists: &[&[&str]]| {
        let hosts: Vec<Vec<Prefix>> = lists
            .iter()
            .map(|list| list.iter().map(|text| prefix(text)).collect())
            .collect();
        expand_prefixes(&star, &hosts).map(|profile| profile.classes.len())
    };
    let twice = vec![prefix("10.0.0.1"), prefix("10.0.0.1")];
    let once = expand_prefixes(&star, &[twice, vec![prefix("10.0.0.2")]]).unwrap();
    assert_eq!(once.classes[0].matching.source, [prefix("10.0.0.1")]);
    let same = |host, other, text| {
        Err(ExpandError::SameAddress {
            host,
            other,
            address: prefix(text),
        })
    };
    assert_eq!(
        clash(&[&["10.0.0.0/8"], &["10.9.0.0/16"]]),
        same(2, 1, "10.9.0.0/16")
    );
    assert_eq!(
        clash(&[&["10.9.0.1"], &["10.0.0.0/8", "10.9.0.0/16"]]),
        same(1, 2, "10.9.0.1")
    );
    assert_eq!(clash(&[&["::1"], &["::1"]]), same(2, 1, "::1"));
    assert_eq!(clash(&[&["::/0"], &["0.0.0.0/0"]]), Ok(2), "IPv6 holds no IPv4");
    assert_eq!(
        clash(&[&["10.0.0.0/9", "10.0.0.0/10", "10.0.0.0/9"], &["10.128.0.0/9"]]),
        Ok(2)
    );
}

#[test]
fn names_of_the_topology_are_not_taken_twice() {
    let taken = |text: &str| {
        expand(&parse(text).unwrap(), &addresses(2))
            .unwrap_err()
            .to_string()
    };
    let topology = "topology: { kind: bus, link: {}, egress: [nic] }";
    let text = format!("version: 1\nservers: {{ bus: {{}}, nic: {{}} }}\n{topology}\n");
    assert!(taken(&text).starts_with("server `bus`"));
    let class = "classes: [{ name: h1-h2, match: {}, egress: [] }]";
    let text = format!("version: 1\nservers: {{ nic: {{}} }}\n{class}\n{topology}\n");
    assert!(taken(&text).starts_with("class `h1-h2`"));
    let long = "n".repeat(Name::MAX);
    let text = format!("version: 1\nservers: {{ nic: {{}} }}\n{topology}\n").replace("nic", &long);
    assert!(taken(&text).contains(&format!("`h1-{long}`")));
}

#[test]
fn the_largest_number_of_hosts_is_expanded_and_compiled_quickly() {
    let topologies = [
        tree(6, "unidirectional"),
        tree(6, "bidirectional"),
        grid("torus", &[8, 8]),
        grid("mesh", &[8, 8]),
        "{ kind: star, link: { bandwidth: 1Gbit/s } }".to_owned(),
        "{ kind: bus, link: { bandwidth: 1Gbit/s } }".to_owned(),
    ];
    for text in topologies {
        let topology = with(&text);
        let start = Instant::now();
        let profile = expand(&topology, &addresses(64)).unwrap();
        let written = start.elapsed();
        let tables = compile(&profile, &Files::default()).unwrap();
        let all = start.elapsed();
        eprintln!("{text}: expanded in {written:?}, compiled after {all:?}");
        assert_eq!(
            (tables.classes.len(), tables.servers.len()),
            (4032, profile.servers.len())
        );
        // Unoptimized it takes 0.3 to 0.7 s; the margin is for busy machines, a quadratic step would take minutes.
        assert!(all < std::time::Duration::from_secs(5), "{text}: {all:?}");
    }
}

fn any_topology() -> impl Strategy<Value = (String, usize)> {
    let sharing = prop_oneof![Just("unidirectional"), Just("bidirectional")];
    let kind = prop_oneof![Just("mesh"), Just("torus")];
    let grids = (kind, proptest::collection::vec(2..=4u16, 1..=3)).prop_map(|(kind, dimensions)| {
        let nodes = dimensions.iter().copied().map(usize::from).product();
        (grid(kind, &dimensions), nodes)
    });
    prop_oneof![
        (1..=5u32, sharing).prop_map(|(levels, sharing)| (tree(levels, sharing), 1 << levels)),
        grids,
        Just(("{ kind: star, link: { latency: 1ms } }".to_owned(), 20)),
        Just((
            "{ kind: bus, link: { bandwidth: 10Mbit/s, buffer: 64KiB } }".to_owned(),
            20
        )),
    ]
    .prop_flat_map(|(text, room)| (Just(text), 2..=room.min(20)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_expanded_profile_is_a_profile((text, hosts) in any_topology()) {
        let profile = expanded(&text, hosts);
        let printed = profile.to_string();
        let again = parse(&printed);
        prop_assert_eq!(again.as_ref(), Ok(&profile), "{}", printed);
        prop_assert!(compile(&profile, &Files::default()).is_ok());
        prop_assert_eq!(profile.classes.len(), hosts * (hosts - 1));
        let unused = explain(&profile, &Files::default()).warnings.into_iter().find(|warning| {
            matches!(warning, crate::Warning::UnusedServer { .. })
        });
        prop_assert_eq!(unused, None);
        // Expanding is done once.
        prop_assert_eq!(expand(&profile, &addresses(hosts)), Ok(profile));
    }
}
