use perturb_quantity::ByteSize;
use proptest::prelude::*;

use super::*;

const RADIX: &str = include_str!("../../tests/data/loggp/radix.yaml");
const FILES: [(&str, &str, &str); 5] = [
    ("radix.yaml", RADIX, "run_time_s"),
    (
        "radix-gap.yaml",
        include_str!("../../tests/data/loggp/radix-gap.yaml"),
        "burst_s",
    ),
    (
        "ft-bandwidth.yaml",
        include_str!("../../tests/data/loggp/ft-bandwidth.yaml"),
        "run_time_s",
    ),
    (
        "is-bandwidth.yaml",
        include_str!("../../tests/data/loggp/is-bandwidth.yaml"),
        "run_time_s",
    ),
    (
        "mg-bandwidth.yaml",
        include_str!("../../tests/data/loggp/mg-bandwidth.yaml"),
        "run_time_s",
    ),
];
const EXPECTED: &str = include_str!("../../tests/data/loggp/expected.json");

fn parse(yaml: &str) -> LoggpInput {
    serde_saphyr::from_str(yaml).unwrap()
}

fn refused(yaml: &str) -> LoggpError {
    predict(&parse(yaml)).unwrap_err()
}

/// A program that every knob has a model for.
fn complete(vary: &str) -> LoggpInput {
    parse(&format!(
        "baseline: {{run_time: 10s, overhead: 3us, gap: 6us, latency: 5us, bandwidth: 40MB/s}}\n\
         messages: {{maximum: 1000000, interval: 8us, reads: 50%, bulk_bytes: 100MB}}\n\
         vary: {{{vary}}}\n"
    ))
}

#[test]
fn published_answers() {
    let expected: serde_json::Value = serde_json::from_str(EXPECTED).unwrap();
    for (name, yaml, key) in FILES {
        let expected = &expected[name];
        let ours = serde_json::to_value(predict(&parse(yaml)).unwrap()).unwrap();
        for knob in ["overhead_us", "gap_us", "bandwidth_MB_s"] {
            assert_eq!(ours.get(knob), expected.get(knob), "{name}");
        }
        let tolerance = expected["tolerance_s"].as_f64().unwrap();
        let (ours, expected) = (ours[key].as_array().unwrap(), expected[key].as_array().unwrap());
        assert_eq!(ours.len(), expected.len());
        for (ours, expected) in ours.iter().zip(expected) {
            assert!(
                (ours.as_f64().unwrap() - expected.as_f64().unwrap()).abs() <= tolerance,
                "{name}: {ours} {expected}"
            );
        }
    }
}

#[test]
fn keys_of_the_other_knobs_are_absent() {
    let json = serde_json::to_value(predict(&parse(RADIX)).unwrap()).unwrap();
    for key in ["gap_us", "latency_us", "bandwidth_MB_s", "burst_s", "uniform_s"] {
        assert!(json.get(key).is_none(), "{key}");
    }
    let gap = serde_json::to_value(predict(&complete("gap: [6us, 7us, 28us]")).unwrap()).unwrap();
    assert_eq!(gap["gap_us"], serde_json::json!([6.0, 7.0, 28.0]));
    assert_eq!(gap["burst_s"], serde_json::json!([10.0, 11.0, 32.0]));
    assert_eq!(gap["uniform_s"], serde_json::json!([10.0, 10.0, 30.0]));
    assert_eq!(gap["run_time_s"], gap["burst_s"]);
    assert_eq!(gap["slowdown"], serde_json::json!([1.0, 1.1, 3.2]));
}

#[test]
fn latency_counts_round_trips() {
    // 10^6 messages, half of them reads or their replies: 250 000 round trips of 2 us more each.
    let prediction = predict(&complete("latency: [5us, 6us, 105us]")).unwrap();
    assert_eq!(prediction.run_time_s, [10.0, 10.5, 60.0]);
    assert_eq!(prediction.latency_us.unwrap(), [5.0, 6.0, 105.0]);
}

#[test]
fn bandwidth_counts_bytes() {
    // 10^8 bytes at 40 MB/s take 2.5 s, at 10 MB/s 10 s.
    let prediction = predict(&complete("bandwidth: [40MB/s, 10MB/s, 80Mbit/s]")).unwrap();
    assert_eq!(prediction.bandwidth_mb_s.unwrap(), [40.0, 10.0, 10.0]);
    assert_eq!(prediction.run_time_s, [10.0, 17.5, 17.5]);
}

#[test]
fn mpi_is_a_staircase_in_the_size() {
    let of = |size: &str| {
        let yaml = format!(
            "baseline: {{run_time: 1s, overhead: 10us}}\n\
             mpi: {{sizes: [{{size: {size}, count: 100}}]}}\n\
             vary: {{overhead: [110us]}}"
        );
        predict(&parse(&yaml)).unwrap().run_time_s[0]
    };
    // 100 messages, 100 us more for each of 4 overheads and 2 per fragment.
    for (size, overheads) in [
        ("0B", 4.0),
        ("1B", 6.0),
        ("4KiB", 6.0),
        ("4097B", 8.0),
        ("64KiB", 36.0),
    ] {
        assert!(
            (of(size) - (1.0 + overheads * 0.01)).abs() < 1e-12,
            "{size}: {}",
            of(size)
        );
    }
}

#[test]
fn sensitivity_and_tolerance() {
    let prediction = predict(&complete("overhead: [3us]")).unwrap();
    let overhead = prediction
        .sensitivities
        .iter()
        .find(|sensitivity| sensitivity.knob == Parameter::OVERHEAD)
        .unwrap();
    assert_eq!(overhead.run_time_s_per_us, 2.0);
    assert_eq!(overhead.slowdown_per_us, 0.2);
    let values: Vec<f64> = overhead
        .tolerance
        .iter()
        .map(|limit| limit.value_us.unwrap())
        .collect();
    for (value, expected) in values.iter().zip([3.05, 3.1, 3.25]) {
        assert!((value - expected).abs() < 1e-12);
    }
    let models: Vec<_> = prediction
        .sensitivities
        .iter()
        .map(|of| (of.knob, of.model))
        .collect();
    assert_eq!(
        models,
        [
            (Parameter::LATENCY, None),
            (Parameter::OVERHEAD, None),
            (Parameter::GAP, Some("burst")),
            (Parameter::GAP, Some("uniform")),
            (Parameter::BANDWIDTH, None),
            (Parameter::FragmentOverhead, None),
        ]
    );
}

#[test]
fn summary_of_a_trace() {
    let mut summary = CommunicationSummary::default();
    assert!(summary.messages().is_none());
    for process in ["1", "2", "3"] {
        summary.thread(process);
    }
    for (process, bytes) in [("1", 10.0), ("2", 500.0), ("1", 20.0), ("1", 30.0)] {
        summary.sent(process, None, bytes);
    }
    let messages = summary.messages().unwrap();
    assert_eq!(
        (messages.maximum, messages.bulk_bytes),
        (3, Some(ByteSize(500.0)))
    );
    assert!((messages.average.unwrap() - 4.0 / 3.0).abs() < 1e-12);
    // Sends alone do not tell who waits.
    assert_eq!(messages.round_trips, None);
}

#[test]
fn refusals() {
    let with = |messages: &str, vary: &str| {
        refused(&format!(
            "baseline: {{run_time: 1s, overhead: 3us, gap: 5us, latency: 5us, bandwidth: 0B/s}}\n\
             messages: {{maximum: 1000000{messages}}}\nvary: {{{vary}}}\n"
        ))
    };
    assert_eq!(with("", ""), LoggpError::NotOneKnob { found: 0 });
    assert_eq!(
        with("", "overhead: [3us], gap: [6us]"),
        LoggpError::NotOneKnob { found: 2 }
    );
    assert_eq!(
        with("", "overhead: []"),
        LoggpError::NoValues {
            knob: Parameter::OVERHEAD
        }
    );
    assert_eq!(
        with("", "latency: [6us]"),
        LoggpError::Missing {
            knob: Parameter::LATENCY,
            key: "messages.reads"
        }
    );
    assert_eq!(
        with(", reads: 101%", "latency: [6us]"),
        LoggpError::ShareAboveOne {
            key: "messages.reads",
            percent: 101.0
        }
    );
    assert_eq!(
        with(", bulk_bytes: 1MB", "bandwidth: [1MB/s]"),
        LoggpError::NoBandwidth {
            key: "baseline.bandwidth"
        }
    );
    assert_eq!(
        with(", average: 1000001", "gap: [6us]"),
        LoggpError::AverageAboveMaximum {
            average: 1_000_001.0,
            maximum: 1_000_000
        }
    );
    assert_eq!(
        with(", average: .nan", "gap: [6us]").to_string(),
        "messages.average NaN is not a number of messages; give a finite number, 0 or more"
    );
    assert!(matches!(
        with("", "overhead: [2us]"),
        LoggpError::NothingLeft { .. }
    ));
    assert_eq!(
        refused("baseline: {run_time: 0s}\nmessages: {maximum: 1}\nvary: {}"),
        LoggpError::NoRunTime
    );
    assert_eq!(
        refused("baseline: {run_time: 1s}\nvary: {}"),
        LoggpError::NoCommunication
    );
    for yaml in [
        "baseline: {run_time: 1}\nmessages: {maximum: 1}\nvary: {overhead: [1us]}",
        "baseline: {run_time: -1s}\nmessages: {maximum: 1}\nvary: {overhead: [1us]}",
        "baseline: {run_time: 1s}\nmessages: {maximum: -1}\nvary: {overhead: [1us]}",
        "baseline: {run_time: 1s}\nmessages: {maximum: 1, extra: 2}\nvary: {overhead: [1us]}",
        "baseline: {run_time: 1s}\nmessages: {maximum: 1}\nvary: {overhead: [.inf]}",
        "baseline: {run_time: 1s}\nmessages: {maximum: 1}\nvary: {overhead: [nan us]}",
        "baseline: {run_time: 1e400s}\nmessages: {maximum: 1}\nvary: {overhead: [1us]}",
    ] {
        assert!(serde_saphyr::from_str::<LoggpInput>(yaml).is_err(), "{yaml}");
    }
}

proptest! {
    /// More overhead, gap or latency, or less bandwidth, never makes a program faster; burst is never
    /// below uniform.
    #[test]
    fn slowdown_is_monotone(
        run_time in 0.001..1e6_f64,
        maximum in 0_u64..1_000_000_000,
        mut values in prop::collection::vec(10.0..1e4_f64, 2..8),
    ) {
        values.sort_by(f64::total_cmp);
        let list = |unit: &str| {
            values.iter().map(|value| format!("{value}{unit}")).collect::<Vec<_>>().join(", ")
        };
        for vary in [
            format!("overhead: [{}]", list("us")),
            format!("gap: [{}]", list("us")),
            format!("latency: [{}]", list("us")),
        ] {
            let prediction = predict(&parse(&format!(
                "baseline: {{run_time: {run_time}s, overhead: 3us, gap: 6us, latency: 5us}}\n\
                 messages: {{maximum: {maximum}, interval: 20us, reads: 50%}}\n\
                 vary: {{{vary}}}\n"
            ))).unwrap();
            prop_assert!(prediction.slowdown[0] >= 1.0);
            prop_assert!(prediction.slowdown.is_sorted());
            if let (Some(burst), Some(uniform)) = (prediction.burst_s, prediction.uniform_s) {
                prop_assert!(burst.iter().zip(&uniform).all(|(burst, uniform)| burst >= uniform));
            }
        }
    }

    /// At the tolerance of a knob the slowdown is the tolerated one.
    #[test]
    fn tolerances_are_where_the_slowdown_is(maximum in 1_u64..1_000_000, percent in 0_usize..3) {
        let yaml = |value: f64| format!(
            "baseline: {{run_time: 10s, overhead: 3us}}\n\
             messages: {{maximum: {maximum}}}\nvary: {{overhead: [{value}us]}}\n"
        );
        let first = predict(&parse(&yaml(3.0))).unwrap();
        let limit = first.sensitivities[0].tolerance[percent];
        let there = predict(&parse(&yaml(limit.value_us.unwrap()))).unwrap().slowdown[0];
        prop_assert!((there - 1.0 - limit.slowdown_percent / 100.0).abs() < 1e-9);
    }
}
