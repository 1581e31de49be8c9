//! Tables 1, 2 and 4 of the paper.

use std::path::PathBuf;

use serde_json::Value;

use super::*;

fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn load(name: &str) -> Parameters {
    let input: Input = serde_saphyr::from_str(&data(&format!("logpc/{name}"))).unwrap();
    input.parameters().unwrap()
}

/// Compares the numbers of `paper` that have a tolerance; returns how many.
fn compare(file: &str, ours: &Value, paper: &Value, tolerance: &Value) -> usize {
    let mut compared = 0;
    for (key, tolerance) in tolerance.as_object().into_iter().flatten() {
        let (ours, paper) = (ours[key].as_f64().unwrap(), paper[key].as_f64().unwrap());
        let tolerance = tolerance.as_f64().unwrap();
        assert!(
            (ours - paper).abs() <= tolerance,
            "{file} {key}: {ours} against {paper}"
        );
        // Table 4 to the printed integer.
        let exact = !file.starts_with("table4") || (ours - paper).abs() <= 0.5;
        assert!(exact, "{file} {key}: {ours} against {paper}");
        compared += 1;
    }
    compared
}

#[test]
fn every_published_answer() {
    let expected: Value = serde_json::from_str(&data("logpc/expected.json")).unwrap();
    let mut compared = 0;
    for (file, answer) in expected.as_object().unwrap() {
        if file.starts_with('_') {
            continue;
        }
        let parameters = load(file);
        let ours = serde_json::to_value(predict(&parameters)).unwrap();
        if let Some(application) = answer.get("application") {
            let ours = serde_json::to_value(application::time(&parameters)).unwrap();
            compared += compare(file, &ours, application, &answer["tolerance"]);
        } else {
            compared += compare(file, &ours, answer, &answer["tolerance"]);
        }
    }
    assert_eq!(compared, 14);
}

#[test]
fn long_messages() {
    let found = predict(&load("long-messages.yaml"));
    // T = 2 G B = 10000; (k_d + 2 + sqrt((k_d - 2)^2 + 8 (n + 1)(k_d - 1))) / 4 for k_d = 1.9375.
    let inflation = (3.9375 + (0.0625_f64.powi(2) + 24.0 * 0.9375).sqrt()) / 4.0;
    assert!((found.inflation.unwrap() - inflation).abs() < 1e-12, "{found:?}");
    assert!((found.intermessage_cycles.unwrap() - 10_000.0 * inflation).abs() < 1e-8);
    assert!((found.greatest_inflation.unwrap() - inflation).abs() < 1e-12);
    // (1), 5.1.3.
    assert_eq!(found.logp_cycles, 25.0 + 8.0 + 9999.0 * 0.5);
    assert_eq!(found.iteration_cycles, Some(25.0 + 9999.0 * 0.5 + 9999.0 * 0.5));
    assert_eq!(found.crossover_bytes, None);
    // A shape says the same as its mean distance.
    let text = data("logpc/long-messages.yaml").replace(
        "dimensions: 2\n  mean_distance_per_dimension: 1.9375",
        "topology: mesh\n  shape: [4, 8]",
    );
    let input: Input = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(predict(&input.parameters().unwrap()), found);
}

#[test]
fn contention_is_that_of_the_rate_that_it_leaves() {
    // (9), (10) as printed, with the rate of the answer.
    let waits = |rate: f64, bytes: f64| {
        let (n, k) = (2.0, 2.0);
        (n + 1.0) * (k - 1.0) * bytes * bytes * rate / 2.0 / (1.0 - rate * bytes * k / 2.0)
    };
    let long = predict(&load("remap-long.yaml"));
    let printed = 25.0 + 9999.0 * 0.5 + 8.0 + waits(long.rate, 10_000.0);
    assert!(
        (long.logpc_cycles / printed - 1.0).abs() < 1e-9,
        "{long:?} {printed}"
    );
    assert!((1.0 / long.rate - 10_000.0 - waits(long.rate, 10_000.0)).abs() < 1e-5);
    let reply = predict(&load("table4-synchronous.yaml"));
    let printed = 2.0 * (15.0 + 21.0 + waits(reply.rate, 44.0) + 122.0) + 137.0;
    assert!(
        (reply.logpc_cycles / printed - 1.0).abs() < 1e-9,
        "{reply:?} {printed}"
    );
    let one_way = predict(&load("table4-asynchronous.yaml"));
    assert_eq!(one_way.rate, 1.0 / 137.0);
    assert!((one_way.network_contention_cycles.unwrap() - waits(1.0 / 137.0, 44.0)).abs() < 1e-9);
}

#[test]
fn work_and_count_of_long_messages() {
    let text = data("logpc/long-messages.yaml") + "  work: 10000cycles\n  messages: 3\n";
    let input: Input = serde_saphyr::from_str(&text).unwrap();
    let found = predict(&input.parameters().unwrap());
    let idle = predict(&load("long-messages.yaml"));
    // Work is part of T, and neither of a message's way nor of the bound.
    assert_eq!(found.logp_cycles, idle.logp_cycles);
    assert_eq!(found.iteration_cycles, idle.iteration_cycles);
    assert_eq!(found.greatest_inflation, idle.greatest_inflation);
    let (contended, contention) = (
        found.intermessage_cycles.unwrap(),
        found.network_contention_cycles.unwrap(),
    );
    assert!((contended - 20_000.0 - contention).abs() < 1e-9);
    assert!((found.inflation.unwrap() - contended / 20_000.0).abs() < 1e-12);
    assert!((found.total_cycles - found.logpc_cycles - 2.0 * contended).abs() < 1e-9);
}

#[test]
fn a_message_below_the_crossover() {
    // (2): 25 + 8 + 129 + 8 x 0.5 + 200 x 0.3625; the crossover is (129 + 9 x 0.5) / (0.5 - 0.3625).
    let found = predict(&load("one-long-message.yaml"));
    assert!((found.logp_cycles - 238.5).abs() < 1e-9, "{found:?}");
    assert!((found.crossover_bytes.unwrap() - 133.5 / 0.1375).abs() < 1e-9);
    // 5.1.3 with a header: 25 + 199 x 0.5 + 191 x 0.5.
    assert_eq!(found.iteration_cycles, Some(220.0));
}

#[test]
fn tables_1_and_2_are_the_inputs() {
    let table = data("tables/logpc-table1-short-messages.csv");
    let row: Vec<f64> = table
        .lines()
        .last()
        .unwrap()
        .split(',')
        .map(|cell| cell.parse().unwrap())
        .collect();
    let message = load("table4-synchronous.yaml").message;
    assert_eq!([message.latency, message.send, message.receive], row[1..4]);
    let table = data("tables/logpc-table2-long-messages.csv");
    let row: Vec<f64> = table
        .lines()
        .last()
        .unwrap()
        .split(',')
        .map(|cell| cell.parse().unwrap())
        .collect();
    let long = load("long-messages.yaml");
    assert_eq!(
        [long.message.latency, long.message.send, long.message.receive],
        row[..3]
    );
    assert_eq!(long.message.gap_per_byte, row[5]);
}

#[test]
fn refusals_name_the_key() {
    let base = data("logpc/table4-synchronous.yaml");
    let error = |from: &str, to: &str| {
        let text = base.replace(from, to);
        assert_ne!(text, base, "{from}");
        match serde_saphyr::from_str::<Input>(&text) {
            Err(error) => error.to_string(),
            Ok(input) => input.parameters().unwrap_err().to_string(),
        }
    };
    assert!(error("  dimensions: 2\n", "").contains("network: give either"));
    assert!(error("dimensions: 2\n", "dimensions: 0\n").contains("network.dimensions: 0"));
    assert!(error("dimension: 2", "dimension: -1").contains("mean_distance_per_dimension: -1"));
    assert!(error("message: 44B", "message: 0B").contains("pattern.message: 0 B"));
    assert!(error("message: 44B", "message: 44").contains("`44` has no unit"));
    assert!(error("kind: request-reply", "kind: gossip").contains("gossip"));
    assert!(error("137cycles", "137us").contains("resource_contention"));
    assert!(error("latency: 21cycles", "latency: 21cycles\n  hops: 3").contains("hops"));
    assert!(error("latency: 21cycles", "latency: -21cycles").contains("`-21cycles` is negative"));
    assert!(error("dimensions: 2\n", "dimensions: 3\n  shape: [4, 8]\n").contains("network.dimensions: 3"));
    assert!(error("dimensions: 2\n", "shape: [4, 0]\n").contains("dimension of 0 nodes"));
    assert!(error("latency: 21cycles", "latency: 21cycles\n  header: 8").contains("`8` has no unit"));
    assert!(error("latency: 21cycles", "latency: 21cycles\n  gap_memory: 1us/B").contains("gap_memory"));
    let base = data("logpc/long-messages.yaml").replace("0.5cycles/B", "0cycles/B");
    let input: Input = serde_saphyr::from_str(&base).unwrap();
    assert_eq!(input.parameters(), Err(InputError::NoInterval));
}
