use serde_json::json;

use super::*;
use crate::sweep::report::{
    compare::Comparison,
    fixture::{self, Program},
};

/// Run times of a program on two hosts with 1000 and 500 packets of 100 bytes, which the machine disturbs by
/// `noise`: 2m Δo, m (g - 40 us) above 40 us, nothing for L, b ΔG.
fn sweep(noise: f64) -> Sweep {
    let program = Program {
        name: "w",
        micros: |knob| {
            1e5 + 2000.0 * (knob(Knob::Overhead) - 2.0)
                + 1000.0 * (knob(Knob::Gap) - 40.0).max(0.0)
                + 1e5 * (knob(Knob::Bandwidth) - 0.01)
        },
        packets: 1000,
        bytes: 100,
        keys: "",
    };
    fixture::sweep(&[program], noise)
}

#[test]
fn what_made_the_runs_is_found_again() {
    let report = serde_json::to_value(Report::of(&sweep(0.001))).unwrap();
    let workload = &report["workloads"][0];
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or(f64::NAN);
    let about = |value: &serde_json::Value, expected: f64| {
        assert!(
            (number(value) / expected - 1.0).abs() < 0.03,
            "{value}, expected {expected}"
        );
    };
    let baseline = &workload["baseline"];
    about(&baseline["run_time_s"], 0.1);
    assert_eq!(baseline["communication"]["matrix"], json!([[0, 1000], [500, 0]]));
    about(&baseline["communication"]["burstiness"], 2.5);
    let overhead = &workload["knobs"]["overhead"];
    assert_eq!(overhead["levels_us"], json!([2.0, 10.0, 20.0, 40.0, 60.0]));
    about(&overhead["slowdown"][4], 1.0 + 2000.0 * 58.0 / 1e5);
    about(&overhead["coefficient"], 2000.0);
    about(&overhead["slope"], 0.02);
    about(&overhead["tolerance_5pct_us"], 4.5);
    about(&overhead["models"]["loggp"]["coefficient"], 2000.0);
    about(&overhead["models"]["serial"]["coefficient"], 3000.0);
    let gap = &workload["knobs"]["gap"];
    assert_eq!(gap["shape"], "threshold");
    about(&gap["knee_us"], 40.0);
    about(&gap["coefficient"], 1000.0);
    assert!(gap["models"]["uniform"].is_object());
    let latency = &workload["knobs"]["latency"];
    assert_eq!(latency["shape"], "flat");
    assert_eq!(latency["tolerance_at_least_pct"], json!([1, 2, 5]));
    assert_eq!(latency["models"]["loggp"], serde_json::Value::Null);
    let bandwidth = &workload["knobs"]["bandwidth"];
    about(&bandwidth["levels_MB_s"][0], 50.0);
    about(&bandwidth["coefficient"], 1e5);
    // One µs over 100 bytes costs as much as one µs of gap.
    let ranking = &workload["ranking"];
    let text = ranking["text"].as_str().unwrap();
    assert!(
        text.starts_with("o > ") && text.ends_with("; no response to L"),
        "{text}"
    );
    about(
        &ranking["places"][1]["percent_per_us"],
        number(&ranking["places"][2]["percent_per_us"]),
    );
}

#[test]
fn the_same_sweep_agrees_with_itself_and_not_with_another_machine() {
    let (report, again) = (Report::of(&sweep(0.01)), Report::of(&sweep(0.01)));
    let same = Comparison::of(&report, &again);
    assert_eq!((same.compared, same.agreeing), (19, 19));
    let mut other = sweep(0.01);
    for record in other.parts.iter_mut().flat_map(|part| &mut part.records) {
        if !record.setting.is_empty() {
            record.value = record.value.map(|value| 1.5 * value);
        }
    }
    let differing = Comparison::of(&report, &Report::of(&other));
    assert!(differing.agreeing <= 1, "{differing}");
}

#[test]
fn programs_that_fail_are_still_told() {
    let responses = |sweep: &Sweep| {
        let report = Report::of(sweep);
        let response = report.responses(Knob::Latency).next().unwrap();
        let levels: Vec<f64> = response.slowdowns.iter().map(|(relative, _)| *relative).collect();
        assert_eq!(levels, [1.0, 2.5, 5.0, 10.0, 15.0, 20.0]);
        let measured = response
            .slowdowns
            .iter()
            .filter(|(_, slowdown)| slowdown.is_some());
        (measured.count(), response.broken, response.run_time_s.is_some())
    };
    let mut sweep = sweep(0.01);
    assert_eq!(responses(&sweep), (6, vec![], true));
    let fail = |sweep: &mut Sweep, which: fn(&Record) -> bool| {
        let records = sweep.parts[0].records.iter_mut();
        for record in records.filter(|record| which(record)) {
            (record.status, record.value) = (Status::Failed, None);
        }
    };
    fail(&mut sweep, |record| {
        record.setting.get("latency") == Some(&setting::Level::Value(400.0))
    });
    assert_eq!(responses(&sweep), (5, vec![20.0], true));
    fail(&mut sweep, |record| record.setting.is_empty());
    assert_eq!(responses(&sweep), (0, vec![1.0, 20.0], false));
}

#[test]
fn the_page_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let report = Report::of(&sweep(0.01));
    report.write(directory.path()).unwrap();
    let page = std::fs::read_to_string(directory.path().join("index.html")).unwrap();
    // Four curves and the matrix; one program needs no overview.
    assert_eq!(page.matches("<svg ").count(), 5);
    assert!(page.contains("Sensitivity, the greatest first") && page.contains("loggp (error)"));
    assert!(!page.contains("NaN") && !page.contains("<script"));
    let table = std::fs::read_to_string(directory.path().join("curves.csv")).unwrap();
    assert!(table.lines().all(|line| line.split(',').count() == 12));
    assert!(report.to_string().contains("knee at"));
}
