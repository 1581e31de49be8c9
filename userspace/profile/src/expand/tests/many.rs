//! Networks of more hosts than there are classes for their pairs.

use std::time::Instant;

use perturb_common::abi::{MAX_CLASSES, NETWORK};
use perturb_common::network::Pair;
use perturb_common::tables::Tables;

use super::*;
use crate::compile_network;
use crate::expand::network::generate;

/// Host i has 10.0.(i / 256).(i % 256) and fd00::i.
fn hosts(count: usize) -> Vec<Vec<Prefix>> {
    (0..count)
        .map(|host| {
            let [high, low] = (host as u16).to_be_bytes();
            [format!("10.0.{high}.{low}"), format!("fd00::{host:x}")]
                .iter()
                .map(|text| Prefix::parse(text).unwrap())
                .collect()
        })
        .collect()
}

fn compiled(text: &str, count: usize) -> (Network, Tables) {
    let profile = parse(text).unwrap_or_else(|error| panic!("{error}"));
    let network = generate(&profile, profile.topology.as_ref().unwrap(), &hosts(count))
        .unwrap_or_else(|error| panic!("{error}"))
        .unwrap();
    let tables = compile_network(&network, &Files::default()).unwrap();
    (network, tables)
}

/// The servers that a pair crosses, and the positions at which it is held, as the programs join them.
fn joined(tables: &Tables, from: u32, to: u32) -> (Vec<&str>, u32) {
    let network = tables.settings.network;
    let mut path = perturb_common::abi::Path::default();
    let [outward, inward] =
        [network.outward(from), network.inward(to)].map(|list| &tables.paths[list as usize]);
    network.join(Pair { from, to }, outward, inward, &mut path);
    let servers = &path.servers[..path.len as usize];
    let names = servers
        .iter()
        .map(|&server| tables.server_names[server as usize].as_str());
    (names.collect(), path.cuts)
}

/// Whose address it is, as the programs search it.
fn host_of(tables: &Tables, address: &str) -> Option<u32> {
    let value = match address.parse().unwrap() {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(address),
    };
    let value = ((value >> 64) as u64, value as u64);
    let above = tables
        .hosts
        .partition_point(|bound| (bound.high, bound.low) <= value);
    Some(tables.hosts[above - 1].vector).filter(|&host| host != NONE)
}

const NICS: &str = "servers: { nic: { gap: 5us, scope: interface }, bell: { latency: 1us } }\n";

fn with_nics(topology: &str) -> String {
    let ends = ", egress: [nic, bell], ingress: [nic] }";
    let topology = topology.strip_suffix(" }").unwrap();
    format!("version: 1\n{NICS}topology: {topology}{ends}\n")
}

#[test]
fn pairs_cross_what_they_cross_when_all_are_written_out() {
    let topologies = [
        tree(3, "unidirectional"),
        tree(4, "bidirectional"),
        "{ kind: star, link: { bandwidth: 1Gbit/s } }".to_owned(),
        "{ kind: bus, link: { bandwidth: 10Mbit/s } }".to_owned(),
    ];
    for topology in topologies {
        let bare = format!("version: 1\ntopology: {topology}\n");
        for (text, count) in [(bare.clone(), 8), (with_nics(&topology), 7), (bare, 6)] {
            let (_, tables) = compiled(&text, count);
            let written = expand_prefixes(&parse(&text).unwrap(), &hosts(count)).unwrap();
            let reference = compile(&written, &Files::default()).unwrap();
            assert_eq!(tables.classes.last().unwrap().path, [NETWORK, NONE]);
            assert_eq!(tables.horizon, reference.horizon);
            assert_eq!(tables.settings.flags, reference.settings.flags);
            for (from, to) in pairs(count) {
                let name = format!("h{from}-h{to}");
                let class = reference
                    .class_names
                    .iter()
                    .position(|class| *class == name)
                    .unwrap();
                let path = reference.paths[reference.classes[class].path[0] as usize];
                let names: Vec<&str> = path.servers[..path.len as usize]
                    .iter()
                    .map(|&server| reference.server_names[server as usize].as_str())
                    .collect();
                let one = joined(&tables, from as u32 - 1, to as u32 - 1);
                assert_eq!(one, (names, path.cuts), "{topology}, {count} hosts, {name}");
            }
            for (server, name) in reference.servers.iter().zip(&reference.server_names) {
                let same = tables
                    .server_names
                    .iter()
                    .position(|other| other == name)
                    .unwrap();
                assert_eq!(tables.servers[same], *server, "{name}");
            }
        }
    }
}

#[test]
fn addresses_tell_the_hosts() {
    let (network, tables) = compiled(&with_nics(&tree(3, "unidirectional")), 8);
    assert_eq!(host_of(&tables, "10.0.0.0"), Some(0));
    assert_eq!(host_of(&tables, "10.0.0.7"), Some(7));
    assert_eq!(host_of(&tables, "10.0.0.8"), None);
    assert_eq!(host_of(&tables, "9.255.255.255"), None);
    assert_eq!(host_of(&tables, "fd00::3"), Some(3));
    assert_eq!(host_of(&tables, "fd00::8"), None);
    let class = network.profile().classes.last().unwrap();
    assert_eq!((class.name.as_str(), class.matching.source.len()), ("tree", 16));
}

#[test]
fn only_what_has_no_room_as_pairs_becomes_a_network() {
    let star = with("{ kind: star, link: { bandwidth: 1Gbit/s } }");
    let count = |hosts| (hosts * (hosts - 1)) as u32;
    assert!(count(64) <= MAX_CLASSES && count(65) > MAX_CLASSES);
    assert_eq!(network(&star, &hosts(64)), Ok(None));
    assert!(network(&star, &hosts(65)).unwrap().is_some());
    let mesh = with(&grid("torus", &[8, 9]));
    assert_eq!(network(&mesh, &hosts(72)), Ok(None));
    assert!(matches!(
        expand_prefixes(&mesh, &hosts(72)),
        Err(ExpandError::TooManyPairs { hosts: 72, .. })
    ));
    let taken = "{ version: 1, topology: { kind: star, link: {} }, classes: [{ name: star, match: {}, bypass: true }] }";
    assert!(matches!(
        network(&parse(taken).unwrap(), &hosts(65)),
        Err(ExpandError::NameTaken { what: "class", .. })
    ));
}

/// As a file, from the text to the tables. What is written out pair by pair for 64 hosts is the control.
#[test]
fn a_thousand_hosts_are_compiled_quickly() {
    let text = |topology: &str, count: usize| {
        let mut text = format!("version: 1\ntopology: {topology}\nhosts:\n");
        for (host, prefixes) in hosts(count).iter().enumerate() {
            let prefixes: Vec<String> = prefixes.iter().map(|prefix| format!("'{prefix}'")).collect();
            text += &format!("  n{host}: [{}]\n", prefixes.join(", "));
        }
        text
    };
    let load = |text: &str| {
        let start = Instant::now();
        let profile = parse(text).unwrap();
        let hosts = hosts_of(&profile);
        let tables = match network(&profile, &hosts).unwrap() {
            Some(network) => compile_network(&network, &Files::default()),
            None => compile(&expand_prefixes(&profile, &hosts).unwrap(), &Files::default()),
        };
        (tables.unwrap(), start.elapsed())
    };
    let deep = tree(10, "unidirectional");
    for topology in [deep.as_str(), "{ kind: star, link: { bandwidth: 1Gbit/s } }"] {
        let (_, control) = load(&text(topology, 64));
        let (tables, all) = load(&text(topology, 1024));
        eprintln!("{topology}: 1024 hosts in {all:?}, 64 pair by pair in {control:?}");
        assert_eq!(tables.settings.network.hosts, 1024);
        assert_eq!(tables.paths.len() - tables.settings.network.first as usize, 2048);
        let longest = joined(&tables, 0, 1023).0;
        assert_eq!((longest[0], *longest.last().unwrap()), ("h1-up", "h1024-down"));
        assert!(all < 10 * control, "{all:?}, 64 hosts pair by pair {control:?}");
    }
}
