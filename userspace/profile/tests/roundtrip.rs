//! What is printed is a profile again, the same one, and the JSON Schema accepts it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::sync::LazyLock;

use perturb_profile::{parse, schema};
use proptest::prelude::*;
use support::{configs, profile};

/// The YAML text as an editor sees it: by another YAML reader, with the core schema's types.
fn as_json(text: &str) -> serde_json::Value {
    serde_saphyr::from_str(text).unwrap()
}

static VALIDATOR: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::validator_for(&schema()).unwrap());

fn complaints(text: &str) -> Vec<String> {
    VALIDATOR
        .iter_errors(&as_json(text))
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn configs_survive_printing_and_satisfy_the_schema() {
    for (path, text) in configs() {
        let first =
            parse(&text).unwrap_or_else(|error| panic!("{}", error.of_source(path.display().to_string())));
        let printed = first.to_string();
        let second = parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert_eq!(first, second, "{}", path.display());
        assert_eq!(
            printed,
            second.to_string(),
            "{}: printing is not stable",
            path.display()
        );
        assert_eq!(complaints(&text), Vec::<String>::new(), "{}", path.display());
        assert_eq!(complaints(&printed), Vec::<String>::new(), "{printed}");
    }
}

#[test]
fn the_schema_refuses_what_an_editor_can_know_is_wrong() {
    for text in [
        "version: 2",
        "seed: 1",
        "{ version: 1, latncy: 20ms }",
        "{ version: 1, latency: 20 }",
        "{ version: 1, latency: fast }",
        "{ version: 1, bandwidth: 10Mbps }",
        "{ version: 1, seed: -1 }",
        "{ version: 1, latency: 1ms, servers: { a: {} } }",
        "{ version: 1, servers: { a: { colour: red } } }",
        "{ version: 1, servers: { a: { loss: { gilbert_elliott: { p: 1% } } } } }",
        "{ version: 1, classes: [{ name: a, match: {} }] }",
        "{ version: 1, classes: [{ name: a, match: { port: 70000 }, bypass: true }] }",
        "{ version: 1, classes: [{ name: a, match: { dscp: 64 }, bypass: true }] }",
        "{ version: 1, classes: [{ name: a, match: { source: [] }, bypass: true }] }",
        "{ version: 1, topology: { kind: ring } }",
    ] {
        assert!(!complaints(text).is_empty(), "the schema accepts {text}");
        assert!(parse(text).is_err(), "parse accepts {text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_profile_survives_printing(profile in profile()) {
        let printed = profile.to_string();
        let again = parse(&printed);
        prop_assert_eq!(again.as_ref(), Ok(&profile), "{}", printed);
    }

    #[test]
    fn the_schema_accepts_every_printed_profile(profile in profile()) {
        let printed = profile.to_string();
        let problems = complaints(&printed);
        prop_assert!(problems.is_empty(), "{:?}\n{}", problems, printed);
        let json = serde_json::to_value(&profile).unwrap();
        prop_assert!(VALIDATOR.is_valid(&json), "{}", json);
    }
}

/// As many servers and classes as there can be, with long paths.
#[test]
fn the_largest_profile_is_read_explained_and_compiled_quickly() {
    use std::fmt::Write as _;
    let mut text = String::from("version: 1\nservers:\n");
    for server in 0..16_384 {
        writeln!(
            text,
            "  s{server}: {{ bandwidth: 10Gbit/s, latency: 10us, buffer: 64KiB }}"
        )
        .unwrap();
    }
    text.push_str("classes:\n");
    for class in 0..4096 {
        let path = |from: usize| {
            (from..from + 16)
                .map(|server| format!("s{}", server % 16_384))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (egress, ingress) = (path(class * 7), path(class * 3 + 8000));
        writeln!(
            text,
            "  - {{ name: c{class}, match: {{ remote: 10.{}.{}.0/24 }}, egress: [{egress}], ingress: [{ingress}] }}",
            class / 256,
            class % 256
        )
        .unwrap();
    }
    let start = std::time::Instant::now();
    let profile = parse(&text).unwrap();
    let read = start.elapsed();
    let warnings = perturb_profile::explain(&profile, &perturb_profile::Files::default()).warnings;
    let tables = perturb_profile::compile(&profile, &perturb_profile::Files::default()).unwrap();
    let all = start.elapsed();
    eprintln!(
        "{} KiB read in {read:?}, explained and compiled after {all:?}",
        text.len() / 1024
    );
    assert_eq!(warnings, []);
    assert_eq!((tables.servers.len(), tables.classes.len()), (16_384, 4096));
    // Unoptimized it takes about 1.5 s; a quadratic step would take minutes.
    assert!(all < std::time::Duration::from_secs(20), "{all:?}");
}
