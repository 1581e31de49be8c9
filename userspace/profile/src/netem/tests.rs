//! Examples of tc-netem(8) and of the kernel's own tests (tc-testing/tc-tests/qdiscs/netem.json), and what iproute2 6.1 on Linux 6.1
//! shows of each (`shown.txt`: `=` the options, then `tc -s qdisc show` and `tc -j qdisc show`).

use super::*;
use crate::model::{Class, Treatment};

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
        assert_eq!(exported.lost, Vec::<String>::new(), "{options}");
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
fn a_fifo_below_keeps_the_order_and_an_ifb_takes_what_comes_in() {
    let text = "tc qdisc add dev eth0 root handle 1: netem delay 10ms 100ms\n\
                tc qdisc add dev eth0 parent 1:1 pfifo limit 1000\n\
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

#[test]
fn correlated_losses_keep_their_rate() {
    let loss = import("loss 0.3% 25%", None).unwrap().profile.servers[0]
        .1
        .loss
        .burst
        .unwrap();
    let (p, r) = (loss.to_bad.billionths() as f64, loss.to_good.billionths() as f64);
    assert!((p / (p + r) - 0.003).abs() < 1e-9, "{}", p / (p + r));
    assert!((1.0 - (p + r) / 1e9 - 0.25).abs() < 1e-8);
}
