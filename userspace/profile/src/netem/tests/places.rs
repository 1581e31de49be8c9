//! Where netems stand: which of several, behind which filters, after which commands.

use super::*;

/// Of a text, what is imported; and what is lost, one sentence a line.
fn lost(text: &str, device: Option<&str>) -> (Profile, String) {
    let imported = import(text, device).unwrap_or_else(|error| panic!("{text}: {error}"));
    (imported.profile, imported.lost.join("\n"))
}

fn refused(text: &str, device: Option<&str>) -> String {
    import(text, device).unwrap_err().to_string()
}

#[test]
fn commands_come_one_after_the_other() {
    let root = "tc qdisc add dev eth0 root handle 1: netem delay 10ms 1ms 25% distribution normal corrupt 1% rate 1mbit";
    for (then, stands) in [
        // What is not said stays, or goes, as in the kernel.
        (
            "tc qdisc change dev eth0 root netem delay 20ms 2ms",
            "delay 20ms 2ms 25% distribution normal corrupt 1% rate 1Mbit",
        ),
        (
            "tc qdisc replace dev eth0 root netem loss 1% rate 2mbit",
            "loss 1% corrupt 1% rate 2Mbit",
        ),
        (
            "tc qdisc replace dev eth0 root handle 5: netem loss 1%",
            "loss 1%",
        ),
        (
            "tc qdisc del dev eth0 root; tc qdisc add dev eth0 root netem delay 3ms",
            "delay 3ms",
        ),
        (
            "tc qdisc del dev eth0 ingress",
            &root[root.find("delay").unwrap()..],
        ),
    ] {
        let netem = only(&format!("{root}\n{then}"));
        let expected = read(stands);
        // Its shape and correlation are of no effect without a jitter.
        let same = if expected.jitter > Duration::ZERO {
            netem == expected
        } else {
            netem.to_string()
                == stands
                    .replace("loss", "loss random")
                    .replace("random random", "random")
        };
        assert!(same, "{then}: {netem}");
    }
    let gone = refused(&format!("{root}\ntc qdisc del dev eth0 root"), None);
    assert!(gone.contains("no netem"), "{gone}");
    let twice = refused(&format!("{root}\n{root}"), None);
    assert!(twice.contains("write `replace`"), "{twice}");
    // Below the root, with it.
    let below = "tc qdisc add dev eth0 parent 1:1 handle 2: netem delay 5ms";
    assert_eq!(lost(&format!("{root}\n{below}"), None).0.servers.len(), 2);
    assert!(refused(&format!("{root}\n{below}\ntc qdisc del dev eth0 root"), None).contains("no netem"));
}

#[test]
fn scripts_are_read() {
    for text in [
        "ip netns exec web tc qdisc add dev eth0 root netem delay 10ms",
        "sudo ip netns exec web tc qdisc add dev eth0 root netem delay 10ms",
        "tc -n web qdisc add dev eth0 root netem delay 10ms",
        "ip link set eth0 up && tc qdisc add dev eth0 root netem delay 10ms # far away",
        "ip netns add web; tc qdisc add dev eth0 root netem delay 10ms; ping -c 1 web || exit 1",
    ] {
        assert_eq!(only(text), read("delay 10ms"), "{text}");
    }
    let two = "ip netns exec a tc qdisc add dev eth0 root netem delay 10ms\n\
               ip netns exec b tc qdisc add dev eth0 root netem delay 10ms";
    assert!(refused(two, None).contains("several network namespaces"));
}

#[test]
fn a_device_has_its_ifb() {
    let shown = "qdisc netem 1: dev eth0 root refcnt 2 limit 1000 delay 1ms\n\
                 qdisc netem 1: dev eth1 root refcnt 2 limit 1000 delay 2ms\n\
                 qdisc netem 1: dev ifb0 root refcnt 2 limit 1000 delay 3ms";
    let (profile, what) = lost(shown, Some("eth1"));
    let latencies: Vec<u64> = profile
        .servers
        .iter()
        .map(|(_, server)| server.latency.nanos())
        .collect();
    assert_eq!(latencies, [2_000_000, 3_000_000]);
    assert!(what.contains("redirect to ifb0"), "{what}");
    assert_eq!(lost(shown, Some("ifb0")).0.servers.len(), 1);

    let two = format!("{shown}\nqdisc netem 1: dev ifb1 root refcnt 2 limit 1000 delay 4ms");
    assert!(refused(&two, Some("eth0")).contains("ifb0, ifb1"));

    // Commands say what is redirected.
    let filters = "tc qdisc add dev eth0 root netem delay 1ms\n\
                   tc filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0\n\
                   tc filter add dev eth1 parent ffff: protocol ip u32 match u32 0 0 action mirred egress redirect dev ifb1\n\
                   tc qdisc add dev ifb0 root netem delay 3ms\n\
                   tc qdisc add dev ifb1 root netem delay 4ms";
    let (profile, what) = lost(filters, Some("eth0"));
    assert_eq!(
        (profile.servers.len(), profile.servers[1].1.latency, what.as_str()),
        (2, Duration::from_millis(3), "")
    );
}

#[test]
fn disciplines_of_other_interfaces_are_of_no_matter() {
    let shown = "qdisc netem 1: dev eth0 root refcnt 2 limit 1000 delay 1ms\n\
                 qdisc fq_codel 0: dev wlan0 root refcnt 2 limit 10240p";
    assert_eq!(lost(shown, None).1, "");
    let beside = shown.replace("wlan0", "eth0");
    assert!(lost(&beside, None).1.contains("fq_codel"));
}

#[test]
fn a_packet_crosses_one_of_several_classes() {
    let shown = "qdisc prio 1: dev eth0 root refcnt 2 bands 3\n\
                 qdisc netem 10: dev eth0 parent 1:1 limit 1000 delay 100ms\n\
                 qdisc netem 20: dev eth0 parent 1:2 limit 1000 delay 50ms";
    let error = refused(shown, None);
    assert!(error.contains("classes 1:1 and 1:2"), "{error}");
    let one: Vec<&str> = shown.lines().take(2).collect();
    let (profile, what) = lost(&one.join("\n"), None);
    assert_eq!(profile.servers.len(), 1);
    assert!(what.contains("filters before tc's class 1:1"), "{what}");
    // One below the other: each packet crosses both.
    let row = "qdisc netem 1: dev eth0 root refcnt 2 limit 1000 delay 100ms\n\
               qdisc netem 2: dev eth0 parent 1:1 limit 1000 delay 50ms";
    let (profile, what) = lost(row, None);
    assert_eq!((profile.servers.len(), what.as_str()), (2, ""));
}

/// tcconfig's rules as `name: out in` by servers' latencies in ms, in the order in which they match; and what is lost.
fn rules(outgoing: &str, incoming: &str) -> (Vec<[Option<u64>; 2]>, String) {
    let text = format!(r#"{{"eth0": {{"outgoing": {{{outgoing}}}, "incoming": {{{incoming}}}}}}}"#);
    let (profile, what) = lost(&text, None);
    let latency = |path: Option<&[crate::ServerId]>| {
        let (_, server) = profile.server(*path?.first()?)?;
        Some(server.latency.nanos() / 1_000_000)
    };
    (
        profile
            .classes
            .iter()
            .map(|class| class.paths().map(latency))
            .collect(),
        what,
    )
}

#[test]
fn narrow_rules_come_before_wide_ones() {
    let (paths, what) = rules(
        r#""dst-network=10.0.0.0/8": {"delay": "8ms"}, "dst-network=10.1.2.3/32": {"delay": "32ms"}"#,
        "",
    );
    assert_eq!(paths, [[Some(32), None], [Some(8), None]]);
    assert_eq!(what, "");
    let (paths, what) = rules(
        r#""dst-network=192.168.10.5/32": {"delay": "32ms"}"#,
        r#""src-network=192.168.10.0/24": {"delay": "24ms"}"#,
    );
    assert_eq!(paths, [[Some(32), Some(24)], [None, Some(24)]]);
    assert_eq!(what, "");
    let (_, what) = rules(
        r#""dst-network=10.0.0.0/8": {"delay": "8ms"}, "dst-port=80": {"delay": "80ms"}"#,
        "",
    );
    assert!(what.contains("which of `class-1` and `class-2`"), "{what}");
    let (_, what) = rules(
        r#""dst-network=10.0.0.0/8": {"delay": "8ms"}, "dst-network=11.0.0.0/8": {"delay": "80ms"}"#,
        "",
    );
    assert_eq!(what, "");
}

#[test]
fn rates_of_tcconfig_have_units() {
    for rate in ["250Kbit", "250 Kbit/s", "250Kbps", "250K"] {
        let text = format!(r#"{{"eth0": {{"outgoing": {{"protocol=ip": {{"rate": "{rate}"}}}}}}}}"#);
        assert_eq!(only(&text), read("rate 250kbit"), "{rate}");
    }
}

#[test]
fn netem_draws_otherwise() {
    assert!(lost("loss 1% seed 5", None).1.contains("draws otherwise"));
    let shown = "qdisc netem 1: dev eth0 root refcnt 2 limit 1000 loss 1% seed 5";
    assert_eq!(lost(shown, None).1, "");
    let mut profile = path(&["loss: 1%"]);
    profile.seed = 5;
    let exported = export(&profile, "eth0");
    assert!(!exported.commands[0].contains("seed"));
    assert!(exported.lost[0].contains("draws otherwise"));
}

#[test]
fn the_class_of_all_packets_is_exported() {
    let text = "version: 1\nseed: 1\nmtu: 1400B\nservers:\n  near: {latency: 1ms}\n  far: {latency: 2ms}\nclasses:\n  \
                - {name: web, match: {remote_port: 80}, egress: [near]}\n  - {name: all, egress: [far]}\n";
    let exported = export(&crate::parse(text).unwrap(), "eth0");
    assert!(exported.commands[0].contains("delay 2ms"), "{exported:?}");
    let what = exported.lost.join("\n");
    assert!(
        what.contains("class `web`: netem has no classes") && what.contains("`mtu`"),
        "{what}"
    );
}
