//! What people read: all errors of a profile at once, what a profile means, and the reference of its keys.
//! `UPDATE_GOLDEN=1 cargo test -p perturb-profile --test messages` writes the expected texts anew.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use perturb_profile::{Diagnostics, Problem, Warning, explain, load, parse, reference_markdown};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compares with, or writes, the expected text.
fn golden(path: &Path, actual: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} differs; now it is:\n{actual}",
        path.display()
    );
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = std::fs::read_to_string(here("tests/golden/mistakes.yaml")).unwrap();
    let errors = parse(&text).unwrap_err().of_source("mistakes.yaml");
    golden(&here("tests/golden/mistakes.txt"), &format!("{errors}\n"));
}

#[test]
fn explanations_show_sums_and_warnings() {
    for name in ["nfs-over-wan", "satellite", "plogpt-table2"] {
        let profile = load(&here(&format!("../../configs/{name}.yaml")))
            .unwrap()
            .profile;
        let shown = format!(
            "{profile}\n{}",
            explain(&profile, &perturb_profile::Files::default())
        );
        golden(&here(&format!("tests/golden/{name}.txt")), &shown);
    }
}

#[test]
fn the_reference_in_the_documentation_is_current() {
    const BEGIN: &str = "<!-- generated: UPDATE_GOLDEN=1 cargo test -p perturb-profile --test messages -->\n\
                         # Every key of a profile\n\nThe parser, the schema and this page have one table. \
                         [Profiles](../profile.md) says how a profile is read.\n\n";
    let path = here("../../docs/reference/keys.md");
    golden(&path, &(BEGIN.to_owned() + &reference_markdown()));
}

fn errors(text: &str) -> Vec<Problem> {
    parse(text)
        .unwrap_err()
        .errors
        .into_iter()
        .map(|error| error.problem)
        .collect()
}

fn only_error(text: &str) -> (usize, usize, String, String) {
    let Diagnostics { errors, .. } = parse(text).unwrap_err();
    let [error] = &errors[..] else {
        panic!("{text}: {errors:?}")
    };
    (error.line, error.column, error.key.clone(), error.text.clone())
}

#[test]
fn errors_point_at_the_offending_text() {
    let at = |line, column, key: &str, text: &str| (line, column, key.to_owned(), text.to_owned());
    assert_eq!(
        only_error("version: 1\nlatency: 20\n"),
        at(2, 10, "latency", "20")
    );
    assert_eq!(
        only_error("version: 1\nservers:\n  \"µ\": { gap: 1us }\n"),
        at(3, 3, "servers.µ", "\"µ\"")
    );
    // Columns count characters, not bytes.
    assert_eq!(
        only_error("{ version: 1, description: \"µµ\", latency: soon }"),
        at(1, 43, "latency", "soon")
    );
    assert_eq!(only_error("seed: 1\n"), at(1, 1, "", ""));
    assert_eq!(
        only_error("{ version: 1, classes: [{ name: a, match: {} }] }"),
        at(1, 25, "classes[0]", "")
    );
}

#[test]
fn yaml_that_means_something_else_is_refused() {
    use perturb_profile::Refused::*;
    let refused = |problem| vec![Problem::Refused(problem)];
    assert_eq!(errors("version: 1\nlatency: !!str 20ms\n"), refused(Tag));
    assert_eq!(errors("version: 1\nlatency: &a 20ms\n"), refused(Anchor));
    assert_eq!(errors("version: 1\nlatency: *a\n"), refused(Alias));
    assert_eq!(errors("version: 1\n<<: { latency: 20ms }\n"), refused(MergeKey));
    assert_eq!(errors("version: 1\n---\nversion: 1\n"), refused(SecondDocument));
    assert_eq!(errors("version: 1\n[a]: 1\n"), refused(KeyNotText));
    assert_eq!(
        errors("version: 1\nlatency: 1ms\nlatency: 2ms\n"),
        vec![Problem::DuplicateKey { first_line: 2 }]
    );
    for empty in ["", "# nothing\n", "---\n", "~"] {
        assert_eq!(errors(empty), vec![Problem::EmptyProfile], "{empty:?}");
    }
}

#[test]
fn a_billion_laughs_and_deep_nesting_end_quickly() {
    let mut laughs = String::from("version: 1\na0: &a0 [x, x]\n");
    for level in 1..40 {
        laughs.push_str(&format!("a{level}: &a{level} [*a{0}, *a{0}, *a{0}]\n", level - 1));
    }
    assert!(parse(&laughs).unwrap_err().errors.len() <= 1000);
    for bracket in ["[", "{", "- ", "? "] {
        assert!(
            matches!(errors(&bracket.repeat(100_000))[..], [Problem::Syntax { .. }]),
            "{bracket}"
        );
    }
    assert!(matches!(
        errors(&" ".repeat(17 << 20))[..],
        [Problem::TooLong { .. }]
    ));
}

#[test]
fn delays_beyond_the_horizon_are_errors() {
    let horizon = |text: &str| matches!(errors(text)[..], [Problem::BeyondHorizon { .. }]);
    assert!(horizon(
        "{ version: 1, latency: 59s, bandwidth: 1kbit/s, buffer: 2kB }"
    ));
    assert!(horizon("{ version: 1, latency: 2s, horizon: 1s }"));
    assert!(horizon(
        "version: 1\nservers: { a: { latency: 40s }, b: { latency: 40s } }\nclasses: [{ name: x, match: {}, ingress: [a, b] }]\n"
    ));
    assert!(parse("{ version: 1, latency: 59s }").is_ok());
}

#[test]
fn a_full_packet_fits_every_buffer() {
    let unfit = |text: &str| matches!(errors(text)[..], [Problem::Unfit { .. }]);
    assert!(unfit(
        "{ version: 1, bandwidth: 8Mbit/s, buffer: 9013B, mtu: 9000B }"
    ));
    assert!(unfit(
        "{ version: 1, bandwidth: 8Mbit/s, buffer: 9013us, mtu: 9000B }"
    ));
    assert!(unfit(
        "{ version: 1, mtu: 3584B, topology: { kind: star, link: { bandwidth: 1Mbit/s, buffer: 2kB } } }"
    ));
    for good in ["buffer: 9014B", "buffer: 9014us", "buffer: 1 packets"] {
        let text = format!("{{ version: 1, bandwidth: 8Mbit/s, {good}, mtu: 9000B }}");
        let meaning = explain(&parse(&text).unwrap(), &perturb_profile::Files::default());
        assert_eq!(meaning.frame.bytes(), 9014, "{good}");
        assert!(meaning.to_string().contains("for a frame of 9014 bytes"));
        // 9014 bytes at 1 byte per us.
        let wait = meaning.classes[0].egress.as_ref().unwrap().longest_wait.unwrap();
        assert_eq!(wait.nanos(), 9_014_000, "{good}");
    }
}

#[test]
fn marks_in_place_of_losses_need_a_loss() {
    let text = |loss: &str| format!("{{ version: 1, loss: {{ {loss} }} }}");
    let needs = Problem::Needs {
        other: "random",
        why: "it marks what would be lost (`random: 0%` where a timeline or a trace says when)",
    };
    assert_eq!(errors(&text("ecn: true")), vec![needs]);
    // The correlation is of random losses, which there are none of.
    assert!(parse(&text("correlation: 5%, ecn: true")).is_err());
    for good in [
        "random: 0%, ecn: true",
        "nth: 3, ecn: true",
        "gilbert_elliott: { p: 1%, r: 10% }, ecn: true",
    ] {
        let profile = parse(&text(good)).unwrap();
        assert_eq!(parse(&profile.to_string()).unwrap(), profile);
    }
    let two = "{ version: 1, servers: { a: { loss: { random: 10%, ecn: true } }, b: { loss: 20% } }, \
               classes: [{ name: x, match: {}, egress: [a, b], ingress: [b] }] }";
    let meaning = explain(&parse(two).unwrap(), &perturb_profile::Files::default());
    let class = &meaning.classes[0];
    let losses = |path: &Option<perturb_profile::PathMeaning>| {
        let path = path.as_ref().unwrap();
        (
            path.loss.to_string(),
            path.capable_loss.map(|loss| loss.to_string()),
        )
    };
    assert_eq!(losses(&class.egress), ("28%".into(), Some("20%".into())));
    assert_eq!(losses(&class.ingress), ("20%".into(), None));
    assert!(meaning.to_string().contains("28%, ECN-capable 20%"));
}

#[test]
fn queues_say_what_does_not_fit() {
    let server = |keys: &str| format!("{{ version: 1, servers: {{ s: {{ {keys} }} }} }}");
    let queue = |keys: &str| server(&format!("bandwidth: 20Mbit/s, queue: {{ {keys} }}"));
    for kind in ["fq_codel", "cake", "dualpi2"] {
        let found = parse(&queue(&format!("kind: {kind}"))).unwrap_err().to_string();
        for said in [
            "a packet that comes later changes when earlier ones leave",
            "`step`",
        ] {
            assert!(found.contains(said), "{found}");
        }
    }
    assert!(matches!(
        errors(&queue("kind: blue"))[..],
        [Problem::NotOneOf { .. }]
    ));
    let unfit = |text: &str| matches!(errors(text)[..], [Problem::Unfit { .. }]);
    assert!(unfit(&queue("kind: tail, target: 5ms")));
    assert!(unfit(&queue("kind: codel, threshold: 5ms")));
    assert!(unfit(&queue("kind: step, threshold: 5ms, ecn: true")));
    assert!(unfit(&queue("kind: pie, interval: 5ms")));
    assert!(unfit(&queue("kind: codel, max_burst: 5ms")));
    assert!(unfit(&queue("kind: red, min: 5ms, max: 5ms")));
    assert!(unfit(&queue("kind: red, min: 30kB, max: 90kB, burst: 5")));
    assert!(unfit(&queue("kind: red, min: 1kB, max: 90kB")));
    assert!(unfit(&queue("kind: red, min: 5ms, max: 9ms, target: 5ms")));
    let range = |text: &str| matches!(errors(text)[..], [Problem::OutOfRange { .. }]);
    assert!(range(&queue("kind: pie, t_update: 100us")));
    assert!(range(&queue("kind: pie, mark_ecnth: 101%")));
    assert!(unfit(&server(
        "bandwidth: 1Mbit/s, scope: host, queue: { kind: codel }"
    )));
    // A threshold in bytes is of one rate.
    let steps = "timeline: { steps: [{ at: 1s, server: s, bandwidth: 9Mbit/s }] }";
    let of_server = |queue: &str| {
        let server = format!("{{ bandwidth: 1Mbit/s, queue: {{ {queue} }} }}");
        format!("{{ version: 1, servers: {{ s: {server} }}, {steps} }}")
    };
    assert!(unfit(&of_server("kind: step, threshold: 30kB")));
    assert_eq!(
        parse(&of_server("kind: codel"))
            .map(drop)
            .map_err(|e| e.to_string()),
        Ok(())
    );
    let link = "version: 1, topology: { kind: star, link: { bandwidth: 1Mbit/s, queue: { kind: step, threshold: 9kB } } }";
    let steps = "timeline: { steps: [{ at: 1s, link: all, bandwidth: 9Mbit/s }] }";
    assert!(unfit(&format!("{{ {link}, {steps} }}")));
    assert!(unfit(&server(
        "trace: { file: a.csv }, queue: { kind: step, threshold: 9kB }"
    )));
    // Of a tree, the levels that have one.
    let of_tree = |step: &str| {
        let levels =
            "[{ bandwidth: 1Mbit/s, queue: { kind: codel, ce_threshold: 9kB } }, { bandwidth: 2Mbit/s }]";
        let topology = format!("topology: {{ kind: tree, levels: {levels} }}");
        let text = format!("{{ version: 1, {topology}, timeline: {{ steps: [{{ at: 1s, {step} }}] }} }}");
        parse(&text).map_err(|error| error.to_string())
    };
    for step in ["level: 1, bandwidth: 9Mbit/s", "link: all, bandwidth: 9Mbit/s"] {
        let said = of_tree(step).unwrap_err();
        assert!(said.contains("give the threshold as a time"), "{said}");
    }
    for step in [
        "level: 2, bandwidth: 9Mbit/s",
        "level: 1, latency: 9ms",
        "partition: [[h1], [h2]], for: 1s",
    ] {
        assert_eq!(of_tree(step).map(drop), Ok(()), "{step}");
    }
    assert!(matches!(
        errors(&queue("kind: step"))[..],
        [Problem::MissingKey { .. }]
    ));
    assert!(matches!(
        errors(&queue("kind: red"))[..],
        [Problem::MissingKey { .. }, Problem::MissingKey { .. }]
    ));
    let needs = |text: &str| matches!(errors(text)[..], [Problem::Needs { .. }]);
    assert!(needs(&server("queue: { kind: codel }")));
    assert!(needs(&server("queue: { kind: pie }")));
    assert!(needs(&server(
        "gap: 1us, queue: { kind: red, min: 5kB, max: 9ms }"
    )));
    assert!(needs(&server("gap: 1us, queue: { kind: step, threshold: 1kB }")));
    let excludes = |text: &str| matches!(errors(text)[..], [Problem::Excludes { .. }]);
    let codel = "bandwidth: 1Mbit/s, queue: { kind: codel }";
    for other in ["ecn: 1ms", "collisions: { slot: 1us }"] {
        assert!(excludes(&server(&format!("{codel}, {other}"))), "{other}");
    }
    assert!(excludes(&format!(
        "{{ version: 1, topology: {{ kind: bus, link: {{ {codel} }}, collisions: {{ slot: 1us }} }} }}"
    )));
    // Tail drop is what there is without.
    assert_eq!(parse(&queue("kind: tail")), parse(&server("bandwidth: 20Mbit/s")));
}

#[test]
fn fates_that_cannot_be_are_errors() {
    let server = |keys: &str| format!("{{ version: 1, servers: {{ a: {{ {keys} }} }} }}");
    let needs = |text: &str| matches!(errors(&server(text))[..], [Problem::Needs { .. }]);
    assert!(needs("bandwidth: 10Mbit/s, reorder: 25%"));
    for what in ["latency: 1ms", "jitter: 1ms", "latency: 0s"] {
        let text = server(&format!("{what}, reorder: 25%"));
        let profile = parse(&text).unwrap();
        assert_eq!(parse(&profile.to_string()).unwrap(), profile, "{text}");
    }
    let unfit = |states: &str| {
        let text = server(&format!("loss: {{ state: {{ {states} }} }}"));
        matches!(errors(&text)[..], [Problem::Unfit { .. }])
    };
    assert!(unfit("p13: 60%, p14: 60%"));
    assert!(unfit("p13: 1%, p31: 60%, p32: 60%"));
    let states = |states: &str| {
        let profile = parse(&server(&format!("loss: {{ state: {{ {states} }} }}"))).unwrap();
        profile.servers[0].1.loss.states.unwrap().p31.to_string()
    };
    assert_eq!(states("p13: 1%"), "99%");
    assert_eq!(states("p13: 1%, p32: 50%"), "50%");
}

#[test]
fn contradictory_matches_are_errors() {
    let matching =
        |text: &str| format!("{{ version: 1, classes: [{{ name: a, match: {text}, bypass: true }}] }}");
    for bad in [
        "{ protocol: icmp, port: 22 }",
        "{ non_ip: true, source: 10.0.0.0/8 }",
        "{ ethertype: arp, dscp: ef }",
        "{ non_ip: true, ethertype: ipv4 }",
        "{ family: ipv4, source: 2001:db8::/32 }",
        "{ local: 10.0.0.1, remote: 2001:db8::1 }",
        "{ ethertype: ipv6, address: 10.0.0.1 }",
    ] {
        assert!(
            matches!(errors(&matching(bad))[..], [Problem::NeverMatches(_)]),
            "{bad}: {:?}",
            errors(&matching(bad))
        );
    }
    for good in [
        "{ protocol: [icmp, tcp], port: 22 }",
        "{ source: [10.0.0.0/8, 2001:db8::/32], destination: 2001:db8::1 }",
        "{ ethertype: [arp, ipv4], source: 10.0.0.1 }",
        "{ non_ip: true, fwmark: 0x10 }",
    ] {
        assert!(parse(&matching(good)).is_ok(), "{good}");
    }
}

#[test]
fn a_threshold_in_bytes_is_of_one_rate() {
    let profile = |server: &str| {
        format!(
            "{{ version: 1, servers: {{ s: {{ {server} }} }}, timeline: {{ steps: [{{ at: 1s, server: s, bandwidth: 2Mbit/s }}] }} }}"
        )
    };
    let trace = |server: &str| {
        format!("{{ version: 1, servers: {{ s: {{ trace: {{ file: t, format: mahimahi }}, {server} }} }} }}")
    };
    for threshold in ["ecn: 30kB", "queue: { kind: step, threshold: 30kB }"] {
        let changing = profile(&format!("bandwidth: 1Mbit/s, {threshold}"));
        for bad in [changing, trace(threshold)] {
            assert!(
                matches!(errors(&bad)[..], [Problem::Unfit { why, .. }] if why.contains("of one rate")),
                "{bad}: {:?}",
                errors(&bad)
            );
        }
    }
    for threshold in ["ecn: 30ms", "queue: { kind: step, threshold: 30ms }"] {
        for good in [
            profile(&format!("bandwidth: 1Mbit/s, {threshold}")),
            trace(threshold),
        ] {
            assert!(parse(&good).is_ok(), "{good}: {:?}", errors(&good));
        }
    }
}

#[test]
fn warnings_name_what_is_probably_not_meant() {
    let warnings = |text: &str| explain(&parse(text).unwrap(), &perturb_profile::Files::default()).warnings;
    let has = |text: &str, wanted: fn(&Warning) -> bool| {
        assert!(warnings(text).iter().any(wanted), "{:?}", warnings(text));
    };
    has("{ version: 1, bandwidth: 1Mbit/s }", |warning| {
        matches!(warning, Warning::NoBuffer { .. })
    });
    has("{ version: 1, gap: 5us, overhead: { send: 5us } }", |warning| {
        matches!(warning, Warning::OverheadHidesGap { .. })
    });
    has("{ version: 1, servers: { a: {}, b: {} } }", |warning| {
        matches!(warning, Warning::UnusedServer { .. })
    });
    has("version: 1", |warning| {
        matches!(warning, Warning::NothingEmulated)
    });
    has("{ version: 1, latency: 1ms, jitter: 2ms }", |warning| {
        matches!(warning, Warning::JitterCut { .. })
    });
    has(
        "{ version: 1, classes: [{ name: a, match: {}, bypass: true }, { name: b, match: { port: 1 }, bypass: true }] }",
        |warning| matches!(warning, Warning::Unreachable { .. }),
    );
    has(
        "{ version: 1, bandwidth: 1Gbit/s, buffer: 32KiB, segmentation: whole }",
        |warning| matches!(warning, Warning::SuperPackets { .. }),
    );
    let slots = "{ version: 1, bandwidth: 1Mbit/s, buffer: 9 packets, latency: 1ms, slot: { min: 30ms, packets: 2 } }";
    has(slots, |warning| matches!(warning, Warning::SlowSlots { .. }));
    assert!(explain(&parse(slots).unwrap(), &perturb_profile::Files::default()).slots);
    // 2^-16 lets in fewer than 2^16 packets above `min`, whatever the burst (Floyd and Jacobson, equation 3).
    let red = |burst: u64| {
        format!(
            "{{ version: 1, bandwidth: 1Gbit/s, buffer: 1s, queue: {{ kind: red, min: 1ms, max: 9ms, burst: {burst} }} }}"
        )
    };
    let too_fast = |warning: &Warning| {
        matches!(
            warning,
            Warning::BurstOfRed {
                burst: 70_000,
                weight: 16,
                ..
            }
        )
    };
    has(&red(70_000), too_fast);
    assert_eq!(warnings(&red(1_000)), []);
    assert_eq!(
        warnings("{ version: 1, latency: 20ms, bandwidth: 1Mbit/s, buffer: 64KiB }"),
        []
    );
}

#[test]
fn everything_crosses_a_lone_server() {
    let server = "version: 1\nservers: { wan: { latency: 20ms } }\n";
    let long = parse(&format!(
        "{server}classes: [{{ name: all, match: {{}}, egress: [wan], ingress: [wan] }}]"
    ));
    assert_eq!(parse(server), long);
    assert!(parse(&format!("{server}classes: []")).unwrap().classes.is_empty());
}

#[test]
fn shorthand_is_one_independent_server_each_way() {
    let short = parse("{ version: 1, latency: 20ms, loss: 1% }").unwrap();
    let long = parse(
        "version: 1
servers:
  out: { latency: 20ms, loss: 1% }
  in: { latency: 20ms, loss: 1% }
classes: [{ name: all, match: {}, egress: [out], ingress: [in] }]
",
    );
    assert_eq!(Ok(short), long);
    for other in [
        "servers: { a: {} }",
        "classes: []",
        "topology: { kind: bus, link: { bandwidth: 10Mbit/s } }",
    ] {
        let text = format!("{{ version: 1, latency: 20ms, {other} }}");
        assert!(matches!(errors(&text)[..], [Problem::Excludes { .. }]), "{other}");
    }
    // What is wrong in the section that may stay is said as well.
    let both = errors("{ version: 1, latency: 20ms, servers: { a: { gapp: 5us } } }");
    assert!(
        matches!(both[..], [Problem::Excludes { .. }, Problem::UnknownKey { .. }]),
        "{both:?}"
    );
}
