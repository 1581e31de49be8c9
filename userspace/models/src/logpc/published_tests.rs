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

#[test]
fn table_4() {
    let expected: Value = serde_json::from_str(&data("logpc/expected.json")).unwrap();
    let mut compared = 0;
    for (file, answer) in expected
        .as_object()
        .unwrap()
        .iter()
        .filter(|(file, _)| file.ends_with(".yaml"))
    {
        let ours = serde_json::to_value(predict(&load(file))).unwrap();
        for (key, tolerance) in answer["tolerance"].as_object().unwrap() {
            let (ours, paper) = (ours[key].as_f64().unwrap(), answer[key].as_f64().unwrap());
            assert!(
                (ours - paper).abs() <= tolerance.as_f64().unwrap(),
                "{file} {key}: {ours} against {paper}"
            );
            // To the printed integer.
            assert!(
                (ours - paper).abs() <= 0.5,
                "{file} {key}: {ours} against {paper}"
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 8);
}

#[test]
fn long_messages() {
    let found = predict(&load("long-messages.yaml"));
    // T = 10000 B x 0.5; (k_d + 2 + sqrt((k_d - 2)^2 + 8 (n + 1)(k_d - 1))) / 4 for k_d = 1.9375.
    let inflation = (3.9375 + (0.0625_f64.powi(2) + 24.0 * 0.9375).sqrt()) / 4.0;
    assert!((found.inflation.unwrap() - inflation).abs() < 1e-12, "{found:?}");
    assert!((found.intermessage_cycles.unwrap() - 5000.0 * inflation).abs() < 1e-8);
    assert!((found.greatest_inflation.unwrap() - inflation).abs() < 1e-12);
    assert_eq!(found.logp_cycles, 25.0 + 5000.0 + 8.0 + 129.0);
    // A shape says the same as its mean distance.
    let text = data("logpc/long-messages.yaml").replace(
        "dimensions: 2\n  mean_distance_per_dimension: 1.9375",
        "topology: mesh\n  shape: [4, 8]",
    );
    let input: Input = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(predict(&input.parameters().unwrap()), found);
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
    assert_eq!(long.message.channel / long.bytes, row[5]);
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
}
