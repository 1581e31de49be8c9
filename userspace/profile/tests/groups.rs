//! Groups, and matrices between them: what a table becomes, and what is said about a wrong one.
//! `UPDATE_GOLDEN=1 cargo test -p perturb-profile --test groups` writes the expected messages anew.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use perturb_profile::{
    CompileError, Duration, Files, LoadError, Loaded, Name, Profile, Whose, compile, explain, load, load_for,
    parse,
};

const GROUPS: &str = "groups:\n  eu: { prefix: 10.1.0.0/16 }\n  us: { prefix: 10.2.0.0/16 }\n";

/// Loads a profile of these lines with `matrix.csv` beside it.
fn with(lines: &str, table: &str, whose: Whose) -> Result<Loaded, LoadError> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("matrix.csv"), table).unwrap();
    let path = directory.path().join("profile.yaml");
    std::fs::write(&path, format!("version: 1\n{lines}")).unwrap();
    load_for(&path, whose)
}

fn loaded(lines: &str, table: &str) -> Profile {
    with(lines, table, Whose::Machine)
        .unwrap_or_else(|error| panic!("{error}"))
        .profile
}

/// Latencies of the servers by name, ms.
fn latencies(profile: &Profile) -> BTreeMap<String, f64> {
    let of = |(name, server): &(Name, perturb_profile::Server)| {
        (name.to_string(), server.latency.nanos() as f64 / 1e6)
    };
    profile.servers.iter().map(of).collect()
}

fn map(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
    pairs
        .iter()
        .map(|&(name, value)| (name.to_owned(), value))
        .collect()
}

#[test]
fn a_table_is_servers_and_classes_written_by_hand() {
    let table = "# chosen\nfrom,to,latency [ms],bandwidth,loss [%],jitter,buffer\n\
                 eu, eu, 2,,,,\neu,us,40,100Mbit/s,0.1,1ms,64KiB\nus,eu,41500us,,,,\nelsewhere,us,1,,,,\n";
    let by_table = loaded(&format!("{GROUPS}matrix: matrix.csv\n"), table);
    let by_hand = "servers:
  eu-to-eu: { latency: 2ms }
  eu-to-us: { latency: 40ms, bandwidth: 100Mbit/s, loss: 0.1%, jitter: 1ms, buffer: 64KiB }
  us-to-eu: { latency: 41.5ms }
classes:
  - { name: eu-to-eu, match: { local_group: eu, group: eu }, egress: [eu-to-eu] }
  - { name: eu-to-us, match: { local_group: eu, group: us }, egress: [eu-to-us] }
  - { name: us-to-eu, match: { local_group: us, group: eu }, egress: [us-to-eu] }
";
    assert_eq!(by_table, loaded(&format!("{GROUPS}{by_hand}"), ""));
    assert_eq!(parse(&by_table.to_string()), Ok(by_table.clone()));
    let shown = explain(&by_table, &Files::default()).to_string();
    assert!(shown.contains("eu-to-us  egress     0s        40ms"), "{shown}");
    assert!(shown.contains("`here: GROUP`"), "{shown}");
}

#[test]
fn a_square_has_latencies_in_ms_or_its_corners_unit() {
    let profile = |table: &str| latencies(&loaded(&format!("{GROUPS}matrix: matrix.csv\n"), table));
    let expected = map(&[("eu-to-eu", 0.5), ("eu-to-us", 40.0), ("us-to-eu", 41.0)]);
    assert_eq!(profile(",eu,us\neu,0.5,40\nus,41,\n"), expected);
    // As Excel writes it, and in another order.
    let excel = "\u{feff}\"From \\ to [us]\",\"us\",asia,\"eu\"\r\n\"us\",,5,41000\r\neu,40ms,,500\r\n";
    assert_eq!(profile(excel), expected);
}

#[test]
fn a_machine_by_itself_emulates_both_ways() {
    let lines = format!("{GROUPS}matrix: {{ file: matrix.csv, here: eu }}\n");
    let table = "from,to,latency\neu,eu,2ms\neu,us,40ms\nus,eu,41ms\nus,us,3ms\n";
    let by_hand =
        "servers: { eu-to-eu: { latency: 2ms }, eu-to-us: { latency: 40ms }, us-to-eu: { latency: 41ms } }
classes:
  - { name: eu-to-eu, match: { group: eu }, egress: [eu-to-eu], ingress: [eu-to-eu] }
  - { name: eu-to-us, match: { group: us }, egress: [eu-to-us], ingress: [us-to-eu] }
";
    assert_eq!(loaded(&lines, table), loaded(&format!("{GROUPS}{by_hand}"), ""));
    // Private hosts are whoever they are.
    let everyone = with(&lines, table, Whose::Everyone).unwrap().profile;
    assert_eq!(everyone, loaded(&format!("{GROUPS}matrix: matrix.csv\n"), table));
}

#[test]
fn halves_and_both_ways() {
    let matrix = |keys: &str, table: &str| {
        let lines = format!("{GROUPS}matrix: {{ file: matrix.csv, {keys} }}\n");
        latencies(&loaded(&lines, table))
    };
    let one_way = "from,to,latency\neu,us,40ms\n";
    assert_eq!(
        matrix("symmetric: true", one_way),
        map(&[("eu-to-us", 40.0), ("us-to-eu", 40.0)])
    );
    assert_eq!(
        matrix("symmetric: true, round_trip: true", one_way),
        map(&[("eu-to-us", 20.0), ("us-to-eu", 20.0)])
    );
    // What stands there is not replaced.
    assert_eq!(
        matrix("symmetric: true", "from,to,latency\neu,us,40ms\nus,eu,50ms\n"),
        map(&[("eu-to-us", 40.0), ("us-to-eu", 50.0)])
    );
}

#[test]
fn hand_written_parts_use_the_pairs() {
    let lines = format!(
        "{GROUPS}matrix: matrix.csv\nservers: {{ nic: {{ latency: 1ms }} }}\n\
         classes: [{{ name: bulk, match: {{ group: us, port: 9 }}, egress: [nic, eu-to-us] }}]\n\
         timeline: {{ steps: [{{ at: 5s, server: eu-to-us, latency: 90ms }}] }}\n"
    );
    // Known from the text alone, but of no use without the table.
    let unread = parse(&format!("version: 1\n{lines}")).unwrap();
    assert_eq!(
        compile(&unread, &Files::default()).unwrap_err(),
        CompileError::NoMatrix {
            file: "matrix.csv".to_owned()
        }
    );
    let profile = loaded(&lines, ",eu,us\neu,,40\nus,41,\n");
    let tables = compile(&profile, &Files::default()).unwrap();
    assert_eq!(tables.class_names, ["bulk", "eu-to-us", "us-to-eu"]);
    assert_eq!(tables.server_names, ["nic", "eu-to-us", "us-to-eu"]);
    assert_eq!(tables.timelines.len(), 1);
}

#[test]
fn groups_are_their_addresses_and_their_hosts() {
    let by_group = "version: 1\nhosts: { b: 10.0.0.2 }\ngroups: { g: { prefix: 10.1.0.0/16, host: [a.example, b] } }\n\
                    servers: { s: {} }\nclasses: [{ match: { group: g, local_group: g }, egress: [s] }]\n";
    let addresses = "[10.1.0.0/16, 192.0.2.1, 10.0.0.2]";
    let by_address = format!(
        "version: 1\nservers: {{ s: {{}} }}\nclasses: [{{ match: {{ remote: {addresses}, local: {addresses} }}, egress: [s] }}]\n"
    );
    let by_group = parse(by_group).unwrap();
    assert_eq!(
        by_group.named_hosts().into_iter().collect::<Vec<_>>(),
        ["a.example"]
    );
    let mut files = Files::default();
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    files.hosts.insert("a.example".to_owned(), vec![address]);
    let classifier = |profile: &Profile, files: &Files| compile(profile, files).unwrap().classifier;
    assert_eq!(
        classifier(&by_group, &files),
        classifier(&parse(&by_address).unwrap(), &Files::default())
    );
    // An interface's networks are its peers.
    let behind = by_group
        .to_string()
        .replace("a.example", "b")
        .replace("host: [b, b]", "host: b, interface: br0");
    let behind = parse(&behind).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(behind.named_interfaces().into_iter().collect::<Vec<_>>(), ["br0"]);
    let mut networks = Files::default();
    let network = perturb_profile::Prefix::containing(address, 32).unwrap();
    networks.networks.insert("br0".to_owned(), vec![network]);
    assert_eq!(classifier(&behind, &networks), classifier(&by_group, &files));
    // One of the members moves into another group.
    let two = "version: 1\ngroups: { g: { prefix: 192.0.2.0/24 }, h: { host: a.example } }\nlatency: 1ms\n";
    let two = parse(two).unwrap();
    assert!(compile(&two, &Files::default()).is_ok());
    let error = compile(&two, &files).unwrap_err().to_string();
    assert_eq!(
        error,
        "the groups `h` and `g` both have 192.0.2.1; give every address to one group"
    );
}

/// Forty machines in five regions, and forty regions: 1600 pairs, each with its own latency.
#[test]
fn many_groups_fit() {
    for (groups, hosts) in [(5usize, 8usize), (40, 1), (64, 1)] {
        let mut lines = String::from("groups:\n");
        let mut table = (0..groups).fold("[us]".to_owned(), |line, to| format!("{line},g{to}"));
        for from in 0..groups {
            let hosts: Vec<String> = (0..hosts).map(|host| format!("10.{from}.0.{host}")).collect();
            lines += &format!("  g{from}: {{ prefix: [{}] }}\n", hosts.join(", "));
            let row = (0..groups).map(|to| (1 + 1000 * from + to).to_string());
            table += &format!("\ng{from},{}", row.collect::<Vec<_>>().join(","));
        }
        let profile = loaded(&format!("{lines}matrix: matrix.csv\n"), &table);
        let tables = compile(&profile, &Files::default()).unwrap();
        assert_eq!(
            (tables.classes.len(), tables.servers.len()),
            (groups * groups, groups * groups)
        );
        for (name, server) in &profile.servers {
            let (from, to) = name.as_str().split_once("-to-").unwrap();
            let number = |name: &str| name.strip_prefix('g').unwrap().parse::<u64>().unwrap();
            let expected = Duration::from_nanos(1000 * (1 + 1000 * number(from) + number(to)));
            assert_eq!(server.latency, expected, "{name}");
        }
    }
    let lines: String = (0..65)
        .map(|group| format!("  g{group}: {{ host: h{group} }}\n"))
        .collect();
    let errors = parse(&format!("version: 1\ngroups:\n{lines}matrix: x.csv\n")).unwrap_err();
    assert!(errors.to_string().contains("those of 64 groups"), "{errors}");
    let here = format!("version: 1\ngroups:\n{lines}matrix: {{ file: x.csv, here: g3 }}\n");
    assert_eq!(parse(&here).unwrap().classes.len(), 65);
}

#[test]
fn mistakes_are_reported_with_their_places() {
    let matrix = format!("{GROUPS}matrix: matrix.csv\n");
    let mut out = String::new();
    let cases: &[(&str, &str, &str)] = &[
        ("no reverse pair", &matrix, "from,to,latency\neu,us,40ms\n"),
        (
            "no pair at all",
            &matrix,
            "from,to,latency\neu,eu,1ms\nus,us,1ms\n",
        ),
        (
            "an unknown group",
            "groups: { eu: { host: h1 }, uss: { host: h2 } }\nmatrix: matrix.csv\n",
            ",eu,us\neu,,1\nus,1,\n",
        ),
        (
            "cells",
            &matrix,
            "from,to,latency,bandwidth [Mbit/s],loss,buffer\neu,us,40,10,0.1%,64KiB\nus,eu,,,,\n\
             eu,us,1ms,,,\nu s,eu,1ms,,,\neu,eu,1ms,,,64KiB\nus,us,70s,,101%,\nus,eu,1ms\n",
        ),
        ("a header", &matrix, "from,until,delay [parsec],from\n"),
        ("a unit", &matrix, "from,to,latency [parsec]\n"),
        ("a square", &matrix, "[ms],eu,us,eu\n"),
        (
            "cells of a square",
            &matrix,
            "[ms],eu,us\neu,1,soon\nus,1\neu,2,3\n",
        ),
        ("no table", &matrix, "# nothing\n"),
        ("one column", &matrix, "eu\n"),
        ("no file", &format!("{GROUPS}matrix: elsewhere.csv\n"), ""),
        (
            "no matrix of this name",
            &format!("{GROUPS}matrix: aws-region\n"),
            "",
        ),
        ("no groups", "matrix: matrix.csv\n", ",eu\neu,1\n"),
        (
            "keys",
            &format!("{GROUPS}matrix: {{ symmetric: yes, here: uss }}\n"),
            "",
        ),
        (
            "groups",
            "groups:\n  a: {}\n  b: { prefix: 10.0.0.0/8 }\n  c: { prefix: 10.1.0.0/16, host: x }\n  d: { host: x }\n\
             latency: 1ms\nmatrix: matrix.csv\nclasses: [{ match: { group: e }, egress: [] }]\n",
            "",
        ),
        (
            "beside a topology, and a name that is taken",
            &format!(
                "{matrix}topology: {{ kind: star, link: {{ latency: 1ms }} }}\nservers: {{ eu-to-us: {{}} }}\n"
            ),
            ",eu,us\neu,,1\nus,1,\n",
        ),
    ];
    for (what, lines, table) in cases {
        let error = with(lines, table, Whose::Machine).unwrap_err().to_string();
        // The directory is another one each time.
        let lines = error.lines().map(|line| match line.split_once("/profile.yaml:") {
            Some((_, rest)) => format!("profile.yaml:{rest}\n"),
            None => match line.split_once("/matrix.csv:") {
                Some((_, rest)) => format!("matrix.csv:{rest}\n"),
                None => line
                    .split_once("/elsewhere")
                    .map_or_else(|| format!("{line}\n"), |(_, rest)| format!("elsewhere{rest}\n")),
            },
        });
        out += &format!("# {what}\n{}\n", lines.collect::<String>());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/matrices.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &out).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), out);
}

/// Figures of the published tables, as their pages have them: a round trip from London to Washington DC takes 76 ms; CometBFT's
/// table has 38 ms from London to N. Virginia.
#[test]
fn matrices_that_perturb_has_are_those_published() {
    let between = |matrix: &str, from: &str, to: &str| {
        let lines = format!("groups: {{ {from}: {{ host: h1 }}, {to}: {{ host: h2 }} }}\nmatrix: {matrix}\n");
        latencies(&loaded(&lines, ""))
    };
    let ibm = between("ibm-regions", "eu-gb", "us-east");
    assert_eq!((ibm["eu-gb-to-us-east"], ibm["us-east-to-eu-gb"]), (38.0, 38.0));
    // The mean of 1.39, 0.74 and 0.67 ms, and half of it.
    assert!((ibm["eu-gb-to-eu-gb"] - 0.47).abs() < 0.004, "{ibm:?}");
    let aws = between("aws-regions", "ap-northeast-1", "ap-northeast-2");
    assert_eq!(
        aws,
        map(&[
            ("ap-northeast-1-to-ap-northeast-2", 16.0),
            ("ap-northeast-2-to-ap-northeast-1", 17.0)
        ])
    );
    for name in ["three-regions", "branch-offices"] {
        let profile = load(Path::new(name)).unwrap().profile;
        assert!(profile.matrix.is_none() && !profile.classes.is_empty(), "{name}");
        assert!(explain(&profile, &Files::default()).warnings.is_empty(), "{name}");
    }
}
