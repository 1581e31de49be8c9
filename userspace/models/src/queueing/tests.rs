use proptest::prelude::*;

use super::*;

fn parse(yaml: &str) -> NfsInput {
    serde_saphyr::from_str(yaml).unwrap()
}

fn file(name: &str) -> NfsInput {
    parse(match name {
        "scsi.yaml" => include_str!("../../tests/data/nfs/scsi.yaml"),
        "raid.yaml" => include_str!("../../tests/data/nfs/raid.yaml"),
        "scsi-measured.yaml" => include_str!("../../tests/data/nfs/scsi-measured.yaml"),
        "scsi-fitted.yaml" => include_str!("../../tests/data/nfs/scsi-fitted.yaml"),
        "raid-measured.yaml" => include_str!("../../tests/data/nfs/raid-measured.yaml"),
        "raid-fitted.yaml" => include_str!("../../tests/data/nfs/raid-fitted.yaml"),
        other => panic!("no such file: {other}"),
    })
}

/// Erlang C by its definition, in doubles: fine up to some 100 servers.
fn erlang_c_by_sum(servers: u32, offered: f64) -> f64 {
    let term = |k: u32| (1..=k).fold(1.0, |term, i| term * offered / f64::from(i));
    let last = term(servers) / (1.0 - offered / f64::from(servers));
    last / ((0..servers).map(term).sum::<f64>() + last)
}

#[test]
fn published_answers() {
    let expected: serde_json::Value =
        serde_json::from_str(include_str!("../../tests/data/nfs/expected.json")).unwrap();
    let mut checked = 0;
    for (name, expected) in expected
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| name.ends_with("yaml"))
    {
        let ours = serde_json::to_value(predict_nfs(&file(name)).unwrap()).unwrap();
        for (key, tolerance) in expected["tolerance"].as_object().unwrap() {
            let difference = ours[key].as_f64().unwrap() - expected[key].as_f64().unwrap();
            assert!(
                difference.abs() <= tolerance.as_f64().unwrap(),
                "{name} {key}: {difference}"
            );
            checked += 1;
        }
    }
    assert_eq!(checked, 12);
}

/// Section 5.3.2 by the stated service times: far off for SCSI.
#[test]
fn errors_against_measured_responses() {
    for (name, cpu_us, worst, place) in [
        ("scsi-measured.yaml", 900.0, 0.565, 6),
        ("raid-measured.yaml", 650.0, 0.272, 2),
    ] {
        let mut input = file(name);
        input.server.cpu_service = perturb_quantity::Micros(cpu_us);
        let found = predict_nfs(&input).unwrap();
        assert!(
            (found.worst_relative_error.unwrap() - worst).abs() < 5e-4,
            "{found:?}"
        );
        assert_eq!(
            found.relative_error[place].abs(),
            found.worst_relative_error.unwrap()
        );
        assert_eq!(found.relative_error.len(), input.measured.len());
    }
    // The largest magnitude is that of a model below the measured response.
    let found = predict_nfs(&file("raid-measured.yaml")).unwrap();
    assert!(
        found
            .relative_error
            .iter()
            .any(|error| (error + 0.311).abs() < 5e-4)
    );
    assert!((found.worst_relative_error.unwrap() - 0.311).abs() < 5e-4);
    let mut input = file("scsi-measured.yaml");
    input.measured[0].response = perturb_quantity::Micros(0.0);
    assert_eq!(
        predict_nfs(&input).unwrap_err(),
        NfsError::NoResponse { rate_op_s: 198.0 }
    );
    input.measured[0].rate = perturb_quantity::OperationsPerSecond(1e4);
    input.measured[0].response = perturb_quantity::Micros(1.0);
    assert!(
        predict_nfs(&input)
            .unwrap_err()
            .to_string()
            .starts_with("measured: 10000 op/s is not below")
    );
    let json = serde_json::to_value(predict_nfs(&file("scsi.yaml")).unwrap()).unwrap();
    assert!(json.get("relative_error").is_none() && json.get("worst_relative_error").is_none());
}

#[test]
fn saturation_of_the_processor_and_of_the_disks() {
    let prediction = predict_nfs(&file("raid.yaml")).unwrap();
    assert!((prediction.saturation_op_s.unwrap() - 1e6 / 650.0).abs() < 1e-9);
    // 28 disks of 12 ms each and 512 op/s from the cache.
    assert!((prediction.disk_saturation_op_s.unwrap() - (28.0 / 0.012 + 512.0)).abs() < 1e-9);
    let mut slow = file("raid.yaml");
    slow.network.added_overhead = perturb_quantity::Micros(50.0);
    slow.rates.truncate(3);
    let prediction = predict_nfs(&slow).unwrap();
    assert!((prediction.saturation_op_s.unwrap() - 1e6 / (650.0 + 2.4 * 50.0)).abs() < 1e-9);
}

#[test]
fn base_response_rises_by_two_per_latency() {
    let mut input = file("scsi-fitted.yaml");
    let before = predict_nfs(&input).unwrap().base_ms;
    input.network.added_latency = perturb_quantity::Micros(500.0);
    assert!((predict_nfs(&input).unwrap().base_ms - before - 1.0).abs() < 1e-9);
}

#[test]
fn variations_leave_out_what_is_saturated() {
    let mut input = file("raid.yaml");
    input.vary = Some(serde_saphyr::from_str("overhead: [0us, 200us]").unwrap());
    let variations = predict_nfs(&input).unwrap().variations;
    assert_eq!(variations[0].rates_op_s.len(), 9);
    // 1 / (650 us + 2.4 * 200 us) = 885 op/s.
    assert_eq!(variations[1].rates_op_s, [494.0, 595.0, 696.0, 797.0]);
}

#[test]
fn erlang_c_of_textbooks() {
    // Kleinrock 1975: M/M/1 waits with probability rho; two servers at 1 Erlang with 1/3.
    assert!((erlang_c(1, 0.7) - 0.7).abs() < 1e-15);
    assert!((erlang_c(2, 1.0) - 1.0 / 3.0).abs() < 1e-15);
    assert_eq!(erlang_c(3, 3.0), 1.0);
    assert_eq!(erlang_c(3, 0.0), 0.0);
    // Where factorials overflow.
    assert!((0.0..1.0).contains(&erlang_c(10_000, 9_900.0)));
}

#[test]
fn refusals() {
    let server = |keys: &str, rates: &str| {
        predict_nfs(&parse(&format!(
            "server: {{cpu_service: 1ms, disks: 2, disk_service: 10ms{keys}}}\nrates: {rates}\n"
        )))
        .unwrap_err()
        .to_string()
    };
    let cached = ", cache: 100MB, touched_per_rate: 1MB";
    assert_eq!(
        server(cached, "[]"),
        "rates is empty; give at least one rate, e.g. `[200op/s]`"
    );
    assert!(
        server(cached, "[1000op/s]").starts_with("rates: 1000 op/s is not below saturation (300.0 op/s)")
    );
    assert!(server("", "[1op/s]").contains("none of them is given"));
    assert!(server(", cache: 1MB", "[1op/s]").contains("is missing"));
    assert!(server(", hit: 10%, cache: 1MB", "[1op/s]").contains("both are given"));
    assert!(server(", hit: 110%", "[1op/s]").contains("server.hit is 110"));
    let no_disks = "server: {cpu_service: 1ms, disks: 0, disk_service: 1ms, hit: 40%}\nrates: [1op/s]";
    assert!(
        predict_nfs(&parse(no_disks))
            .unwrap_err()
            .to_string()
            .contains("60 % of the operations miss")
    );
    for yaml in [
        "server: {cpu_service: 1ms, disks: -1, disk_service: 1ms, hit: 0%}\nrates: [1op/s]",
        "server: {cpu_service: 1ms, disks: 1, disk_service: 1ms, hit: 0%}\nrates: [1]",
        "server: {cpu_service: 1ms, disks: 1, disk_service: 1ms, hit: 0%}\nrates: [-1op/s]",
        "server: {cpu_service: 1ms, disks: 1, disk_service: 1ms, hit: 0%, x: 1}\nrates: [1op/s]",
        "server: {cpu_service: 1ms, disks: 1, disk_service: 1ms, hit: 0%}",
    ] {
        assert!(serde_saphyr::from_str::<NfsInput>(yaml).is_err(), "{yaml}");
    }
}

proptest! {
    #[test]
    fn erlang_c_is_its_sum(servers in 1_u32..60, utilization in 0.0..0.999_f64) {
        let offered = f64::from(servers) * utilization;
        let (ours, sum) = (erlang_c(servers, offered), erlang_c_by_sum(servers, offered));
        prop_assert!((ours - sum).abs() <= 1e-9 * sum.max(1e-300), "{ours} {sum}");
    }

    /// One disk, no cache, no delay, no processor: M/M/1.
    #[test]
    fn one_server_is_mm1(utilization in 0.0..0.999_f64, service in 1.0..1e6_f64) {
        let rate = utilization / service;
        let (one, many) = (mm1_response(rate, service), mmm_response(rate, service, 1));
        prop_assert!((one.unwrap() / many.unwrap() - 1.0).abs() < 1e-9);
    }

    /// Response never falls with load, added overhead or added latency.
    #[test]
    fn response_is_monotone(
        mut rates in prop::collection::vec(1.0..900.0_f64, 2..10),
        overhead in 0.0..50.0_f64,
        latency in 0.0..5000.0_f64,
    ) {
        rates.sort_by(f64::total_cmp);
        let server = file("scsi.yaml").server;
        let plain = Network::default();
        let slow = Network {
            added_overhead: perturb_quantity::Micros(overhead),
            added_latency: perturb_quantity::Micros(latency),
            ..plain
        };
        let curve: Vec<f64> = rates
            .iter()
            .map(|&rate| server.response(&plain, rate).unwrap().response_ms)
            .collect();
        prop_assert!(curve.windows(2).all(|pair| pair[0] <= pair[1] + 1e-9));
        for (&rate, &before) in rates.iter().zip(&curve) {
            prop_assert!(server.response(&slow, rate).unwrap().response_ms >= before);
        }
    }
}
