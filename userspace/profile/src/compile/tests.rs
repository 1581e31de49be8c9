use perturb_common::departure::Load;
use perturb_common::queue::{self, Law};

use super::*;
use crate::parse;

fn compiled(text: &str) -> Tables {
    compile(&parse(text).unwrap(), &Files::default()).unwrap()
}

#[test]
fn knobs_become_ticks_and_gaps_per_byte() {
    let tables =
        compiled("{ version: 1, latency: 20ms, bandwidth: 100Mbit/s, gap: 5.8us, buffer: 64KiB, seed: 7 }");
    assert_eq!(tables.server_names, ["out", "in"]);
    let out = tables.servers[0];
    assert_eq!(out.server.latency, Ticks(20_000_000 * 64));
    assert_eq!(out.server.gap, Ticks(5_800 * 64));
    assert_eq!(out.server.per_byte, GapPerByte(80 << 20)); // 80 ns per byte
    assert_eq!(out.server.buffer, Ticks(65_536 * 80 * 64));
    assert_eq!(out.salt, fate::salt(7, b"out"));
    assert_ne!(out.salt, tables.servers[1].salt);
    assert_eq!(out.flags, 0);
    assert_eq!((tables.classes.len(), tables.paths.len()), (1, 2));
    assert_eq!(tables.classes[0].path, [0, 1]);
}

#[test]
fn rates_round_to_the_nearest_gap() {
    let gap = |bits| gap_per_byte(Rate::from_bits_per_second(bits)).0;
    assert_eq!(gap(1_000), 8_388_608_000_000);
    assert_eq!(gap(10_000_000_000_000), 839); // 838.86
    assert_eq!(gap(304_000_000), 27_594_105); // 26.3158 ns per byte
}

#[test]
fn a_full_buffer_admits_exactly_its_bytes() {
    use perturb_common::departure::{Load, Outcome, departure};
    use perturb_common::units::Instant;
    let tables = compiled("{ version: 1, bandwidth: 7.3Mbit/s, buffer: 15140B }");
    let server = tables.servers[0].server;
    let arrival = Instant(1 << 40);
    let (mut free, mut admitted) = (Instant(0), 0);
    while let Outcome::Served(service) = departure(
        &server,
        free,
        arrival,
        Load {
            bytes: 1514,
            segments: 1,
        },
    ) {
        free = service.free;
        admitted += 1;
        assert!(admitted <= 10, "more than the buffer holds");
    }
    assert_eq!(admitted, 10);
}

#[test]
fn laws_have_their_parameters() {
    let server = |keys: &str| compiled(&format!("{{ version: 1, {keys} }}")).servers[0];
    let small = |bytes, segments| Load { bytes, segments };
    let tail = server("bandwidth: 8Mbit/s");
    assert_eq!((tail.law, tail.flags & SERVER_LAW), (Law::TAIL, 0));
    let codel = server("bandwidth: 8Mbit/s, queue: { kind: codel, ecn: true }");
    let expected = Law {
        kind: queue::CODEL,
        flags: queue::LAW_ECN,
        target: Ticks(5_000_000 * 64),
        interval: Ticks(100_000_000 * 64),
        small: small(1514, 1),
        ..Law::TAIL
    };
    assert_eq!((codel.law, codel.flags & SERVER_LAW), (expected, SERVER_LAW));
    // A full frame takes 12.112 ms.
    let slow = server("bandwidth: 1Mbit/s, queue: { kind: codel, ce_threshold: 1kB }");
    let takes = |server: &ServerConfig| server.law.small_takes(server.server.gap, server.server.per_byte);
    assert_eq!(
        (takes(&slow), slow.law.threshold),
        (Ticks(12_112_000 * 64), Ticks(8_000_000 * 64))
    );
    let gaps = server("gap: 10ms, queue: { kind: codel }");
    assert_eq!(takes(&gaps), Ticks(10_000_000 * 64));
    let step = server("gap: 1us, queue: { kind: step, threshold: 1ms, l4s: true }");
    let expected = Law {
        kind: queue::STEP,
        flags: queue::LAW_L4S,
        threshold: Ticks(1_000_000 * 64),
        ..Law::TAIL
    };
    assert_eq!(step.law, expected);
    let pie =
        server("bandwidth: 8Mbit/s, queue: { kind: pie, ecn: true, derandomize: true, max_burst: 9ms }");
    let expected = Law {
        kind: queue::PIE,
        flags: queue::LAW_ECN | queue::LAW_DERANDOMIZE,
        target: Ticks(15_000_000 * 64),
        interval: Ticks(15_000_000 * 64),
        burst: Ticks(9_000_000 * 64),
        small: small(3028, 2),
        probability: queue::pie::ONE / 10,
        ..Law::TAIL
    };
    assert_eq!(pie.law, expected);
    let red = server("bandwidth: 8Mbit/s, queue: { kind: red, min: 30kB, max: 90ms, burst: 55 }");
    let expected = Law {
        kind: queue::RED,
        target: Ticks(30_000_000 * 64),
        burst: Ticks(90_000_000 * 64),
        small: small(1000, 1),
        probability: queue::pie::ONE / 50,
        // 26 of (1 - (1 - W)^55) / W: 15.8 with 1/16, 26.4 with 1/32.
        weight: 5,
        ..Law::TAIL
    };
    assert_eq!(red.law, expected);
    // 50 without `burst`.
    let red = server("bandwidth: 8Mbit/s, queue: { kind: red, min: 30kB, max: 90ms, adaptive: true }");
    assert_eq!((red.law.weight, red.law.flags), (5, queue::LAW_ADAPTIVE));
    let fast = "bandwidth: 10Gbit/s";
    let splits = |keys: &str| splits(&parse(&format!("{{ version: 1, {fast}{keys} }}")).unwrap());
    assert!(!splits("") && splits(", queue: { kind: codel }"));
}

#[test]
fn fates_set_their_flags() {
    let flags = |key: &str| compiled(&format!("{{ version: 1, latency: 5ms, {key} }}")).servers[0].flags;
    assert_eq!(flags("seed: 3"), 0);
    assert_eq!(flags("loss: 1%"), SERVER_FATE);
    assert_eq!(flags("duplicate: 1%"), SERVER_FATE);
    assert_eq!(flags("corrupt: 1%"), SERVER_FATE);
    assert_eq!(flags("jitter: 1ms"), SERVER_FATE | SERVER_KEEP_ORDER);
    assert_eq!(flags("jitter: { scale: 1ms, reorder: true }"), SERVER_FATE);
    assert_eq!(flags("loss: { nth: [3, 1] }"), SERVER_FATE | SERVER_NTH);
    assert_eq!(
        flags("loss: { gilbert_elliott: { p: 1%, r: 10% } }"),
        SERVER_FATE | SERVER_BURST
    );
    let nth = compiled("{ version: 1, loss: { nth: [3, 1] } }").nth;
    let key = |index, server| NthKey {
        index,
        server,
        reserved: 0,
    };
    assert_eq!(nth, [key(1, 0), key(3, 0), key(1, 1), key(3, 1)]);
}

#[test]
fn equal_distributions_share_a_table() {
    let tables = compiled(
        "version: 1
servers:
  a: { latency: 9ms, jitter: { distribution: normal, stddev: 1ms } }
  b: { latency: 9ms, jitter: { distribution: normal, stddev: 2ms } }
  c: { latency: 9ms, jitter: 1ms }
classes: [{ name: all, match: {}, egress: [a, b, c] }]
",
    );
    let numbers: Vec<u32> = tables.servers.iter().map(|server| server.jitter_table).collect();
    assert_eq!((numbers, tables.jitter.len()), (vec![0, 0, 1], 2));
    assert_eq!(tables.servers[1].jitter_scale, 2 * tables.servers[0].jitter_scale);
}

#[test]
fn super_packets_are_split_where_it_shows() {
    let exact = |text: &str| compiled(&format!("{{ version: 1, {text} }}")).settings.flags == SETTING_EXACT;
    assert!(!exact("latency: 20ms"));
    assert!(!exact("bandwidth: 10Gbit/s, latency: 20ms"));
    assert!(exact("bandwidth: 100Mbit/s"));
    assert!(exact("gap: 10us"));
    assert!(exact("latency: 20ms, loss: 1%"));
    assert!(exact("latency: 20ms, segmentation: exact"));
    assert!(!exact("bandwidth: 100Mbit/s, segmentation: whole"));
}

#[test]
fn damage_needs_complete_checksums() {
    let flags = |text: &str| compiled(&format!("{{ version: 1, {text} }}")).settings.flags;
    assert_eq!(flags("corrupt: 1%"), SETTING_EXACT | SETTING_CHECKSUM);
    assert_eq!(flags("corrupt: 1%, segmentation: whole"), SETTING_CHECKSUM);
    assert_eq!(flags("duplicate: 1%"), SETTING_EXACT);
}

/// The cuts of class `c`'s egress path.
fn cuts(servers: &str, classes: &str) -> u32 {
    let tables = compiled(&format!("version: 1\nservers: {servers}\nclasses: [{classes}]\n"));
    tables.paths[tables.classes[0].path[0] as usize].cuts
}

#[test]
fn paths_are_cut_where_others_may_come_in_between() {
    let three = "{ a: {}, b: {}, c: {} }";
    let only = "{ name: x, match: {}, egress: [a, b, c] }";
    assert_eq!(cuts(three, only), 0, "nobody else gets to b or c");
    let shortcut = format!("{only}, {{ name: y, match: {{}}, ingress: [b] }}");
    assert_eq!(
        cuts(three, &shortcut),
        0b010,
        "b is reached another way; c only behind a and b"
    );
    let other_order = format!("{only}, {{ name: y, match: {{}}, egress: [b, a, c] }}");
    assert_eq!(cuts(three, &other_order), 0b110);
    assert_eq!(
        cuts("{ a: { scope: interface }, b: {}, c: {} }", only),
        0b110,
        "another interface's a"
    );
    assert_eq!(
        cuts(
            "{ a: { scope: host }, b: { scope: flow }, c: { scope: host } }",
            only
        ),
        0b100
    );
    let overtaking =
        "{ a: { latency: 2ms, jitter: { scale: 1ms, reorder: true } }, b: {}, c: { scope: flow } }";
    assert_eq!(cuts(overtaking, only), 0b010);
}

#[test]
fn a_queue_and_the_rest_of_its_path_stay_within_the_horizon() {
    let tables = compiled("{ version: 1, latency: 3s, bandwidth: 1Mbit/s, horizon: 4s }");
    assert_eq!(tables.horizon, Ticks(4_000_000_000 * 64));
    // 3 s of latency and 12.112 ms for a frame leave this for the queue.
    assert_eq!(
        tables.servers[0].server.horizon,
        Ticks((1_000_000_000 - 12_112_000) * 64)
    );
}

#[test]
fn an_empty_profile_compiles_to_nothing() {
    let tables = compiled("version: 1");
    assert!(tables.servers.is_empty() && tables.classes.is_empty() && tables.paths.is_empty());
    assert!(
        tables
            .classifier
            .iter()
            .all(|classifier| classifier.rules.is_empty() && classifier.bounds.is_empty())
    );
    assert_eq!(tables.settings.rule_words, [0, 0]);
}

#[test]
fn overhead_alone_is_an_empty_path() {
    let tables = compiled("{ version: 1, overhead: { send: 80us } }");
    assert_eq!(tables.settings.overhead_send, 80_000);
    assert_eq!(tables.classes[0].path, [0, 0]);
    assert_eq!(tables.paths[0].len, 0);
}

#[test]
fn a_missing_jitter_file_is_an_error() {
    let text = "{ version: 1, latency: 5ms, jitter: { distribution: table, scale: 1ms, table: a.dist } }";
    let profile = parse(text).unwrap();
    let error = compile(&profile, &Files::default()).unwrap_err();
    assert!(
        matches!(error, CompileError::NoFile { ref file, .. } if file == "a.dist"),
        "{error}"
    );
}
