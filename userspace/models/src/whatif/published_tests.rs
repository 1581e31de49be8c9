//! Fig. 3 and 5 of the paper, row by row, and the format examples.

use std::path::PathBuf;

use serde_json::Value;

use super::input::Input;
use super::snapshot::EventRow;
use super::*;

fn data(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/whatif")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn load(name: &str) -> (Scenario, Vec<Event>) {
    let input: Input = serde_saphyr::from_str(&data(name)).unwrap();
    let events = data(input.events.as_deref().unwrap());
    let scenario = input.scenario().unwrap();
    let mut reader = LineReader::new();
    let events = events
        .lines()
        .filter_map(|line| reader.read(line.as_bytes(), &scenario.placement).unwrap())
        .collect();
    (scenario, events)
}

fn predict(name: &str) -> Prediction {
    let (scenario, events) = load(name);
    let mut predictor = Predictor::new(&scenario);
    for event in events {
        predictor.push(event).unwrap();
        while predictor.advance().is_some() {}
    }
    predictor.end_of_events();
    while predictor.advance().is_some() {}
    predictor.finish().unwrap()
}

/// Names events as the figure does: process, then number within the process.
struct Names(Vec<(u64, String)>);

impl Names {
    fn of(events: &[Event], placement: &Placement) -> Self {
        let mut counts = vec![0; placement.processes()];
        let names = events.iter().map(|event| {
            counts[event.process as usize] += 1;
            (
                event.line,
                format!(
                    "E{}{}",
                    placement.name(event.process),
                    counts[event.process as usize]
                ),
            )
        });
        Self(names.collect())
    }

    fn name(&self, line: u64) -> &str {
        self.0
            .iter()
            .find(|(known, _)| *known == line)
            .map(|(_, name)| name.as_str())
            .unwrap()
    }
}

fn compare(row: &Value, predictor: &Predictor, names: &Names) {
    let expected = row["events"].as_object().unwrap();
    let ours = predictor.snapshot();
    assert_eq!(ours.len(), expected.len(), "row {row}: {ours:?}");
    for (name, event) in expected {
        let ours: &EventRow = ours.iter().find(|ours| names.name(ours.line) == name).unwrap();
        assert_eq!(ours.earliest, event["earliest"].as_f64(), "{name} in row {row}");
        assert_eq!(
            Some(ours.remaining),
            event["remaining"].as_f64(),
            "{name} in row {row}"
        );
        assert_eq!(
            ours.wait,
            event.get("wait").and_then(Value::as_f64),
            "{name} in row {row}"
        );
    }
    let clocks: Vec<f64> = row["group_time"]
        .as_array()
        .unwrap()
        .iter()
        .map(|time| time.as_f64().unwrap())
        .collect();
    assert_eq!(predictor.prediction().group_time, clocks, "row {row}");
}

#[test]
fn every_row_of_fig_5() {
    let expected: Value = serde_json::from_str(&data("expected.json")).unwrap();
    let (scenario, events) = load("fig3.yaml");
    let names = Names::of(&events, &scenario.placement);
    let mut rows = expected["fig3.yaml"]["rows"].as_array().unwrap().iter();
    let mut predictor = Predictor::new(&scenario);
    compare(rows.next().unwrap(), &predictor, &names);
    for event in &events {
        let row = rows.next().unwrap();
        assert_eq!(row["arriving"], names.name(event.line));
        predictor.push(*event).unwrap();
        compare(row, &predictor, &names);
        while let Some(report) = predictor.advance() {
            let row = rows.next().unwrap();
            assert_eq!(row["reported"], names.name(report.event.line));
            compare(row, &predictor, &names);
        }
    }
    assert_eq!(rows.next(), None);
    predictor.end_of_events();
    assert_eq!(predictor.advance(), None);
    let found = predictor.finish().unwrap();
    assert_eq!((found.program_time, found.group_time), (7.0, vec![7.0, 6.0]));
    assert_eq!(predictor.counters().held, 0);
}

#[test]
fn the_switch_example_by_hand() {
    // P1 and P2 share a processor: b is sent at 200 (100 CPU each); P2 waits from 300 (50 CPU each), then
    // P1 has the processor for itself: a is sent at 350, and it exits at 650.
    let found = predict("four-switch.yaml");
    // b: 200 + 1750 = 1950 at P4, which sends c 400 later: 2350; 512 B take 1380 + 370/4 = 1472.5.
    assert!(
        (found.group_time[2] - (1950.0 + 400.0 + 60.0)).abs() < 1e-9,
        "{found:?}"
    );
    // c arrives at 3822.5; P2 exits 5 later; P1 was done long before.
    assert!((found.group_time[0] - 3827.5).abs() < 1e-9, "{found:?}");
    // a: 8192 B take 4510; P3 needs 700 more.
    assert!((found.group_time[1] - 5560.0).abs() < 1e-9, "{found:?}");
    assert_eq!(found.program_time, found.group_time[1]);
}

#[test]
fn the_bus_example_by_hand() {
    let found = predict("four-bus.yaml");
    // 10 Mbit/s is 0.8 us per byte. b is sent first, at 100: 2048 B until 1738.4. a is sent at 200: 8192 B
    // until 8292.0. P4 gets b and sends c at 2138.4; c passes behind a, until 8292 + 409.6.
    let expected = [500.0, 8292.0 + 409.6 + 5.0, 8292.0 + 700.0, 1738.4 + 400.0 + 60.0];
    for (ours, expected) in found.group_time.iter().zip(expected) {
        assert!((ours - expected).abs() < 1e-3, "{found:?}");
    }
}

#[test]
fn fig_6_tables_are_read_at_their_points() {
    // The one-way times of fig. 6, as a table, give each measured time back.
    let text = std::fs::read_to_string(
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/tables/lbf-fig6-message-times.csv"),
    )
    .unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip(2)
        .map(|line| line.split(',').collect())
        .collect();
    let points: Vec<table::Point> = rows
        .iter()
        .filter(|row| row[0] == "no" && row[1] == "no")
        .map(|row| table::Point {
            size: perturb_quantity::ByteSize(row[2].parse::<f64>().unwrap() * 1024.0),
            time: perturb_quantity::Micros(row[3].parse::<f64>().unwrap() * 1000.0),
        })
        .collect();
    assert_eq!(points.len(), 7);
    let table = table::Table::new("remote", &points).unwrap();
    for point in points {
        assert!((table.time(point.size.0) - point.time.0).abs() < 1e-6);
    }
    assert!((table.time(4096.0) - (1750.0 + (4510.0 - 1750.0) / 3.0)).abs() < 1e-6);
}
