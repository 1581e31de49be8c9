//! Examples of tc-netem(8) and of the kernel's own tests (tc-testing/tc-tests/qdiscs/netem.json), and what iproute2 6.1 on Linux 6.1
//! shows of each (`shown.txt`: `=` the options, then `tc -s qdisc show` and `tc -j qdisc show`).

use super::*;
use crate::model::{Class, Profile, Treatment};

mod places;

/// The options, what tc shows of them, and that as JSON.
fn shown() -> Vec<(&'static str, &'static str, &'static str)> {
    let examples = include_str!("shown.txt")
        .split("= ")
        .filter(|one| !one.is_empty());
    let examples = examples.map(|one| {
        let mut lines = one.lines();
        let mut next = || lines.next().unwrap();
        (next(), next(), next())
    });
    let examples: Vec<_> = examples.collect();
    assert!(examples.len() >= 25, "{}", examples.len());
    examples
}

fn read(options: &str) -> Netem {
    let words: Vec<&str> = options.split_whitespace().collect();
    words::read(&words).unwrap_or_else(|error| panic!("{options}: {error}"))
}

fn only(text: &str) -> Netem {
    let mut netems = sources::read(text).unwrap().netems;
    assert_eq!(netems.len(), 1, "{text}");
    netems.remove(0).netem
}

/// What tc shows says no distribution, and a gap of 1 where packets are reordered.
fn as_shown(mut netem: Netem) -> Netem {
    netem.distribution = None;
    if let Some(Slot {
        between: Between::Table(name, ..),
        ..
    }) = &mut netem.slot
    {
        *name = None;
    }
    if !netem.reorder.is_none() {
        netem.gap = netem.gap.max(1);
    }
    netem
}

#[test]
fn options_are_printed_as_they_are_read() {
    for (options, ..) in shown() {
        let netem = read(options);
        assert_eq!(read(&netem.to_string()), netem, "{options}: {netem}");
    }
}

#[test]
fn what_tc_shows_is_what_it_was_told() {
    for (options, text, json) in shown() {
        let told = as_shown(read(options));
        assert_eq!(only(text), told, "{text}");
        assert_eq!(only(json), told, "{json}");
    }
}

#[test]
fn profiles_become_the_commands_they_came_from() {
    for (options, ..) in shown() {
        let first = import(options, None).unwrap_or_else(|error| panic!("{options}: {error}"));
        let written = first.profile.to_string();
        let parsed = crate::parse(&written).unwrap();
        assert_eq!(parsed, first.profile, "{options}");
        let exported = export(&first.profile, "eth0");
        let link = first.profile.servers[0].1.bandwidth.is_some();
        let wire = first.profile.servers[0].1.latency > Duration::ZERO;
        let known = exported
            .lost
            .iter()
            .all(|what| what == OTHER_RATES || link && wire && what.starts_with("the buffer by itself"));
        assert!(known, "{options}: {:?}", exported.lost);
        let again = import(&exported.commands.join("\n"), None).unwrap();
        assert_eq!(again.profile, first.profile, "{options}: {:?}", exported.commands);
        if first.lost.is_empty() {
            assert_eq!(again.lost, first.lost, "{options}");
        }
    }
}

#[test]
fn words_are_tcs() {
    let same = [
        ("delay 100ms 10ms 25%", "latency 0.1s 10000us 25"),
        ("loss 1%", "drop 1"),
        ("limit 2048 rate 8mbit", "lim 2k ra 1mbps"),
        ("delay 1us", "del 1000"),
        ("rate 8kibit", "rate 1KiBps"),
        ("loss gemodel 1% 99% 100% 0%", "loss gemodel 1"),
        ("loss state 1% 99% 0% 100% 0%", "loss state 1"),
        ("delay 10ms reorder 100% gap 5", "gap 5 delay 10ms"),
    ];
    for (one, other) in same {
        assert_eq!(read(one), read(other), "{other}");
    }
    let link = read("rate 5kbit -14 48 5").rate.unwrap();
    assert_eq!(
        (link.packet_overhead, link.cell_size, link.cell_overhead),
        (-14, 48, 5)
    );
}

#[test]
fn links_keep_their_cells() {
    for (options, keys) in [
        (
            "limit 1000000 rate 5kbit -14 48 5",
            "cell_size: 48, cell_overhead: 5, without_ethernet: true",
        ),
        (
            "limit 1000000 rate 5kbit 20 100",
            "packet_overhead: 20, cell_size: 100",
        ),
    ] {
        let imported = import(options, None).unwrap();
        assert_eq!(imported.lost, Vec::<String>::new());
        let (netem, lost) = exported(&[&format!("bandwidth: 5kbit/s, framing: {{{keys}}}")]);
        assert_eq!((netem.to_string(), lost), (options.to_owned(), String::new()));
        assert_eq!(
            import(&netem.to_string(), None).unwrap().profile,
            imported.profile
        );
        assert!(imported.profile.to_string().contains("cell_size"), "{keys}");
    }
    let lost = import("rate 1mbit -20 48 -5", None).unwrap().lost;
    assert!(
        lost[0].contains("overheads of `rate 1Mbit -20 48 -5`"),
        "{lost:?}"
    );
}

#[test]
fn mistakes_are_told() {
    for (text, part) in [
        ("dealy 10ms", "did you mean `delay`?"),
        ("delay", "lacks a value"),
        ("delay 10mss", "not `10mss`"),
        ("loss 101%", "0% to 100%"),
        ("loss 1% loss 2%", "one model of loss"),
        ("reorder 25%", "need a `delay`"),
        ("ecn", "needs a `loss`"),
        ("delay 10ms distribution normal", "with a jitter"),
        ("slot 20ms 10ms", "larger delay second"),
        ("rate fast", "not `fast`"),
        ("{\"eth0\":", "JSON"),
        ("[{\"kind\":\"fq\"}]", "no netem"),
        ("delay 70s", "a profile cannot say this"),
        ("delay 1e30s 1ms rate 1mbit", "a profile cannot say this"),
        ("delay 10ms 1e11s rate 1mbit", "a profile cannot say this"),
    ] {
        let error = import(text, None).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn one_interface_is_chosen() {
    let text = "qdisc netem 1: dev eth0 root refcnt 2 limit 1000 delay 1ms\n\
                qdisc netem 1: dev eth1 root refcnt 2 limit 1000 delay 2ms";
    assert!(
        import(text, None)
            .unwrap_err()
            .to_string()
            .contains("--device eth0")
    );
    let chosen = import(text, Some("eth1")).unwrap().profile;
    assert_eq!(chosen.servers[0].1.latency, Duration::from_millis(2));
    assert!(
        import(text, Some("eth2"))
            .unwrap_err()
            .to_string()
            .contains("on eth2")
    );
}

#[test]
fn an_ifb_takes_what_comes_in() {
    let text = "tc qdisc add dev eth0 root handle 1: netem delay 10ms 100ms rate 10Tbit\n\
                tc filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0\n\
                tc qdisc add dev ifb0 root netem delay 3ms";
    let imported = import(text, None).unwrap();
    assert_eq!(imported.lost, Vec::<String>::new());
    let servers = &imported.profile.servers;
    assert!(!servers[0].1.jitter.as_ref().unwrap().reorder);
    let [
        Class {
            treatment: Treatment::Emulate { egress, ingress },
            ..
        },
    ] = imported.profile.classes.as_slice()
    else {
        panic!("{}", imported.profile);
    };
    let place = |path: &Option<Vec<crate::ServerId>>| path.as_ref().unwrap()[0].index();
    assert_eq!((place(egress), place(ingress)), (0, 1));
    let exported = export(&imported.profile, "eth0");
    assert_eq!(import(&exported.commands.join("\n"), None).unwrap(), imported);
}

#[test]
fn tcconfigs_filters_become_classes() {
    // The example of its documentation, and a rule for all.
    let text = r#"{"eth0": {
        "outgoing": {
            "dst-network=192.168.0.10/32, dst-port=8080, protocol=ip": {
                "filter_id": "800::800", "delay": "10.0ms", "delay-distro": "2.0ms", "loss": "0.01%", "rate": "250Kbps"
            },
            "protocol=ip": {"delay": "1", "duplicate": 0.5, "reordering": "1%"}
        },
        "incoming": {"src-network=192.168.10.0/24, protocol=ip": {"corrupt": "0.02%", "rate": "1500Kbps"}}
    }}"#;
    let imported = import(text, None).unwrap();
    let profile = &imported.profile;
    let printed = profile.to_string();
    for part in [
        "remote: \"192.168.0.10\"",
        "remote_port: 8080",
        "remote: \"192.168.10.0/24\"",
        "bandwidth: 250kbit/s",
        "bandwidth: 1.5Mbit/s",
        "stddev: 2ms",
        "corrupt: 0.02%",
        "duplicate: 0.5%",
        "family: ipv4",
    ] {
        assert!(printed.contains(part), "{part} is not in {printed}");
    }
    assert_eq!((profile.servers.len(), profile.classes.len()), (3, 3));
    // What comes from there matches no wider class before, and what goes there is treated as all that goes.
    let names = |class: &Class| {
        class
            .paths()
            .map(|path| path.map(|path| path.iter().map(|id| id.index()).collect::<Vec<_>>()))
    };
    let paths: Vec<_> = profile.classes.iter().map(names).collect();
    assert_eq!(
        paths,
        [
            [Some(vec![0]), None],
            [Some(vec![1]), Some(vec![2])],
            [Some(vec![1]), None],
        ]
    );
}

/// The servers as a profile, which all packets cross on their way out.
fn path(servers: &[&str]) -> Profile {
    let names: Vec<String> = (0..servers.len()).map(|number| format!("s{number}")).collect();
    let listed = names.iter().zip(servers);
    let listed: Vec<String> = listed
        .map(|(name, keys)| format!("  {name}: {{{keys}}}\n"))
        .collect();
    let text = format!(
        "version: 1\nseed: 1\nservers:\n{}classes:\n  - {{name: all, egress: [{}]}}\n",
        listed.concat(),
        names.join(", ")
    );
    crate::parse(&text).unwrap_or_else(|errors| panic!("{text}{errors}"))
}

/// What a profile's netem is, and what it does not do.
fn exported(servers: &[&str]) -> (Netem, String) {
    let Exported { commands, lost } = export(&path(servers), "eth0");
    (only(&commands.join("\n")), lost.join("\n"))
}

#[test]
fn the_limit_has_room_for_what_is_under_way() {
    for servers in [
        [
            "bandwidth: 10Mbit/s, buffer: 20 packets, latency: 1ms",
            "latency: 99ms",
        ],
        [
            "latency: 99ms",
            "bandwidth: 10Mbit/s, buffer: 30280B, latency: 1ms",
        ],
        ["bandwidth: 10Mbit/s, buffer: 20 packets", "latency: 100ms"],
    ] {
        let (netem, lost) = exported(&servers);
        // 125 000 B in 100 ms are 82.6 frames.
        assert_eq!(netem.limit, 20 + 83, "{servers:?}");
        assert!(lost.contains("83 full frames are added"), "{servers:?}: {lost}");
    }
    // Nothing is under way without a latency, and a buffer that is not said has no end.
    assert_eq!(exported(&["bandwidth: 10Mbit/s, buffer: 20 packets"]).0.limit, 20);
    for servers in [
        ["bandwidth: 1Gbit/s, latency: 100ms"],
        ["latency: 100ms"],
        ["bandwidth: 1Gbit/s"],
    ] {
        let (netem, lost) = exported(&servers);
        assert_eq!(
            (netem.limit, lost.as_str()),
            (Netem::UNLIMITED, ""),
            "{servers:?}"
        );
        let again = import(&netem.to_string(), None).unwrap();
        assert_eq!(again.lost, Vec::<String>::new());
        assert_eq!(again.profile.servers[0].1, path(&servers).servers[0].1);
    }
    assert_eq!(exported(&["loss: 1%"]).0.limit, Netem::LIMIT);
}

#[test]
fn what_would_be_lost_is_marked_both_ways() {
    let imported = import("loss gemodel 1% 10% ecn", None).unwrap();
    assert_eq!(imported.lost, Vec::<String>::new());
    assert!(imported.profile.servers[0].1.loss.ecn);
    let (netem, lost) = exported(&["latency: 1ms", "loss: { random: 3%, ecn: true }"]);
    assert!(netem.ecn && lost.is_empty(), "{lost}");
    let (netem, _) = exported(&["loss: 3%", "loss: { nth: 4, ecn: true }"]);
    assert!(!netem.ecn);
}

#[test]
fn of_a_limit_the_buffer_is_what_waits() {
    let buffer = |options: &str| {
        let imported = import(options, None).unwrap();
        (
            imported.profile.servers[0].1.buffer.packets,
            imported.lost.join("\n"),
        )
    };
    // 125 000 B are 82.6 frames.
    assert_eq!(
        buffer("rate 10mbit delay 100ms"),
        (Some(1000 - 83), String::new())
    );
    assert_eq!(buffer("rate 10mbit"), (Some(1000), String::new()));
    let (packets, lost) = buffer("rate 10mbit delay 100ms limit 200");
    assert_eq!(packets, Some(200 - 83));
    assert!(
        lost.contains("small packets under way in the `limit` of 200"),
        "{lost}"
    );
    // 1000 frames in 100 ms are 121 Mbit/s.
    let (_, lost) = buffer("rate 1gbit delay 100ms");
    assert!(
        lost.contains("the `limit` of 1000: netem passes no more"),
        "{lost}"
    );
}

#[test]
fn a_correlation_changes_netems_rates() {
    for options in [
        "loss 5% 25%",
        "duplicate 5% 25%",
        "corrupt 5% 25%",
        "delay 10ms 1ms 25%",
        "delay 10ms reorder 5% 25%",
    ] {
        let imported = import(options, None).unwrap();
        assert_eq!(imported.lost, [OTHER_RATES], "{options}");
        assert_eq!(export(&imported.profile, "eth0").lost, [OTHER_RATES], "{options}");
    }
    for options in ["loss 5%", "delay 10ms 1ms", "loss gemodel 1% 10%"] {
        assert_eq!(import(options, None).unwrap().lost, Vec::<String>::new());
    }
    // More than a profile takes.
    for (options, what) in [
        ("delay 10ms 2ms 100%", "delay"),
        ("loss 1% 100%", "loss"),
        ("duplicate 1% 99.95%", "duplicates"),
        ("corrupt 1% 100%", "damage"),
        ("delay 10ms reorder 5% 100%", "reordering"),
    ] {
        let imported = import(options, None).unwrap();
        assert!(imported.lost[0].contains(what), "{:?}", imported.lost);
        assert!(
            imported.lost[0].ends_with("it is 99.9% here"),
            "{:?}",
            imported.lost
        );
        assert!(imported.profile.to_string().contains("correlation: 99.9%"));
    }
    let states = import("loss state 60% 70% 50% 50% 60%", None).unwrap();
    assert_eq!(
        states.lost,
        [
            "the p13 of 60% beside a p14 of 60%: it is 40% here",
            "the p31 of 70% beside a p32 of 50%: it is 50% here"
        ]
    );
}

#[test]
fn what_goes_ahead_does_so_otherwise_beside_a_rate_and_needs_a_delay() {
    let lost = |options| import(options, None).unwrap().lost;
    assert_eq!(lost("delay 10ms reorder 25%"), Vec::<String>::new());
    assert!(lost("delay 10ms rate 1mbit reorder 25%")[0].contains("here it waits with them"));
    let (netem, lost) = exported(&["jitter: 1ms, reorder: 25%"]);
    assert!(
        netem.reorder.is_none() && lost.contains("with a `delay` only"),
        "{lost}"
    );
}

#[test]
fn with_a_rate_the_order_is_kept() {
    let reorders = |text: &str| {
        let imported = import(text, None).unwrap();
        let jitter = imported.profile.servers[0].1.jitter.clone().unwrap();
        (jitter.reorder, imported)
    };
    assert!(reorders("delay 50ms 10ms").0);
    assert!(!reorders("rate 10mbit delay 50ms 10ms").0);
    let (reorder, with_fifo) = reorders(
        "tc qdisc add dev eth0 root handle 1: netem delay 10ms 5ms\n\
         tc qdisc add dev eth0 parent 1:1 pfifo limit 1000",
    );
    assert!(reorder);
    assert!(
        with_fifo.lost[0].contains("the FIFO below"),
        "{:?}",
        with_fifo.lost
    );

    let ordered = "latency: 50ms, jitter: {distribution: uniform, scale: 10ms, reorder: false}";
    let overtaking = "latency: 50ms, jitter: {distribution: uniform, scale: 10ms, reorder: true}";
    let (netem, lost) = exported(&[ordered]);
    assert_eq!(
        (netem.rate, netem.limit, lost.as_str()),
        (Some(Link::plain(IN_ORDER)), Netem::UNLIMITED, "")
    );
    let again = import(&netem.to_string(), None).unwrap();
    assert_eq!(again.lost, Vec::<String>::new());
    assert_eq!(again.profile.servers[0].1, path(&[ordered]).servers[0].1);
    assert_eq!(exported(&[overtaking]).0.rate, None);
    for servers in [
        [overtaking, "bandwidth: 10Mbit/s"],
        ["bandwidth: 10Mbit/s", overtaking],
    ] {
        let (_, lost) = exported(&servers);
        assert_eq!(
            lost, "`reorder: true`: with a rate netem keeps the order",
            "{servers:?}"
        );
    }
}

#[test]
fn one_rate_is_left_of_two() {
    for servers in [
        [
            "bandwidth: 20Mbit/s, buffer: 30 packets",
            "bandwidth: 10Mbit/s, buffer: 20 packets",
        ],
        [
            "bandwidth: 10Mbit/s, buffer: 20 packets",
            "bandwidth: 20Mbit/s, buffer: 30 packets",
        ],
    ] {
        let (netem, lost) = exported(&servers);
        let rate = netem.rate.unwrap().rate;
        assert_eq!((rate.bits_per_second(), netem.limit), (10_000_000, 20));
        assert!(
            lost.contains("server `s1`: its bandwidth or another one"),
            "{lost}"
        );
    }
}
