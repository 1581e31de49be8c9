use super::super::super::{experiment::Signals, verdict::Errors};
use super::*;

#[test]
fn every_program_of_the_tables_is_swept() {
    let directory = tempfile::tempdir().unwrap();
    for (preset, table, knob) in [
        (SPLIT_C, tables::MARTIN_B_1, Knob::Overhead),
        (SPLIT_C, tables::MARTIN_B_2, Knob::Overhead),
        (SPLIT_C, tables::MARTIN_B_3, Knob::Gap),
        (SPLIT_C, tables::MARTIN_B_4, Knob::Latency),
        (SPLIT_C, tables::MARTIN_B_5, Knob::Bandwidth),
        (NPB, tables::MARTIN_B_6, Knob::Overhead),
        (NPB, tables::MARTIN_B_7, Knob::Gap),
        (NPB, tables::MARTIN_B_8, Knob::Latency),
        (NPB, tables::MARTIN_B_9, Knob::Bandwidth),
    ] {
        for quick in [false, true] {
            let setting = Setting {
                quick,
                directory: directory.path().into(),
                signals: Signals::default(),
            };
            let mut experiment = preset.programs(&setting).unwrap();
            preset.reduce(&mut experiment, knob, quick);
            assert_eq!(
                experiment.workloads.len() == preset.quick.len(),
                quick || preset.file == NPB.file
            );
            for workload in &experiment.workloads {
                let response = Response {
                    name: workload.name.as_str(),
                    hosts: workload.hosts,
                    run_time_s: None,
                    slowdowns: Vec::new(),
                    broken: Vec::new(),
                };
                let mut printed = run_times(table).into_iter();
                assert!(
                    printed.any(|curve| is_program(&response, &curve)),
                    "{}",
                    workload.name
                );
                assert_eq!(workload.knobs.len(), 1);
            }
            let swept = |curve: &MeasuredCurve| {
                let program = curve.name.replace('_', "-");
                experiment
                    .workloads
                    .iter()
                    .any(|workload| workload.published.as_deref() == Some(&program))
            };
            assert!(quick || run_times(table).iter().all(swept));
        }
    }
}

#[test]
fn what_was_asked_for_and_failed_counts_as_wrong() {
    let printed = run_times(tables::MARTIN_B_2);
    let printed = printed.iter().find(|curve| curve.name == "radix").unwrap();
    let base = printed.base.unwrap();
    let slowdowns = |till: usize| -> Vec<(f64, Option<f64>)> {
        let at = |place: usize| (printed.points[place].at / base, printed.points[place].measured);
        let slowdown = |place: usize| (at(place).0, (place < till).then(|| at(place).1 / at(0).1));
        (0..printed.points.len()).map(slowdown).collect()
    };
    let radix = |name, hosts, till| Response {
        name,
        hosts,
        run_time_s: None,
        slowdowns: slowdowns(till),
        broken: Vec::new(),
    };
    let errors = |quick, responses: &[Response<'_>]| {
        let curve = curve(quick, responses, (Knob::Overhead, 32), printed, OVERHEAD);
        let found = Errors::of(&Outcome::of_panels([Panel {
            title: String::new(),
            x: OVERHEAD,
            y: Scale::linear("slowdown", ""),
            curves: curve.into_iter().collect(),
        }]));
        (found.numbers, found.agreeing, found.missing)
    };
    let all = printed.points.len() - 1;
    for quick in [false, true] {
        assert_eq!(errors(quick, &[radix("radix", 4, all + 1)]), (all, all, 0));
        // The last level has failed, one in the middle, or the baseline.
        assert_eq!(errors(quick, &[radix("radix", 4, all)]), (all, all - 1, 1));
        let mut holed = radix("radix", 4, all + 1);
        holed.slowdowns[2].1 = None;
        assert_eq!(errors(quick, &[holed]), (all, all - 1, 1));
        assert_eq!(errors(quick, &[radix("radix", 4, 0)]), (all, 0, all));
        // One on fewer hosts does not stand in for it.
        let both = [radix("radix", 4, all + 1), radix("radix-8", 8, 0)];
        assert_eq!(errors(quick, &both), (all, 0, all));
    }
    assert_eq!(errors(true, &[]), (0, 0, 0));
}

#[test]
fn levels_stand_for_the_thesiss() {
    assert_eq!(there(Knob::Overhead, 2.9, 2.0), 5.8);
    assert_eq!(there(Knob::Bandwidth, 37.5, 2.0), 18.75);
}
