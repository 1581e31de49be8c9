use proptest::prelude::*;

use super::*;

/// Martin 1999, Table 6.1, with KB read as 1024 bytes.
const GAM: &str = include_str!("../../tests/data/pipeline/gam.yaml");

fn parse(yaml: &str) -> PipelineInput {
    serde_saphyr::from_str(yaml).unwrap()
}

/// The recursion of the module, fragment by fragment.
fn by_recursion(stages: &[StageCost], message: u64, fragment: u64) -> f64 {
    let mut free = vec![0.0_f64; stages.len()];
    let mut left = message;
    while left > 0 {
        let bytes = left.min(fragment);
        left -= bytes;
        let mut arrival = 0.0_f64;
        for (stage, free) in stages.iter().zip(&mut free) {
            arrival = arrival.max(*free) + stage.holds(bytes);
            *free = arrival;
        }
    }
    free.last().copied().unwrap()
}

#[test]
fn gam_input_is_table_6_1() {
    let table = include_str!("../../tests/data/tables/martin-6.1-gam-pipeline.csv");
    let input = parse(GAM);
    for (stage, row) in input.stages.iter().zip(table.lines().skip(2)) {
        let cells: Vec<&str> = row.split(',').collect();
        assert_eq!(stage.name, cells[0]);
        assert_eq!(stage.occupancy.0, cells[1].parse::<f64>().unwrap());
        assert!((stage.gap_per_byte.unwrap().0 * 1024.0 - cells[2].parse::<f64>().unwrap()).abs() < 1e-12);
    }
    assert_eq!(input.stages.len(), 5);
}

#[test]
fn gam_is_bound_by_the_sending_interface() {
    let prediction = predict(&parse(GAM)).unwrap();
    assert_eq!(prediction.bottleneck, "send_lanai");
    // 5.3 us + 4 x 24.5 us for 4 KiB: the 38 MB/s of Table 2.1 within 5 %.
    assert!((prediction.steady_bandwidth_mb_s - 4096.0 / 103.3).abs() < 1e-9);
    assert!((prediction.steady_bandwidth_mb_s / 38.0 - 1.0).abs() < 0.05);
    assert!(prediction.best_delay_us < prediction.cut.delay_us);
    assert_eq!(prediction.loggp.send_overhead_us, 6.7);
    assert_eq!(prediction.loggp.receive_overhead_us, 9.6);
    assert!((prediction.loggp.latency_us - 10.7).abs() < 1e-12);
    assert_eq!(prediction.loggp.gap_us, 9.6);
}

#[test]
fn departures_of_the_shared_recursion() {
    use perturb_common::departure::{Load, Outcome, Server, departure};
    use perturb_common::units::{GapPerByte, Instant, Nanos, Ticks};

    let costs = costs(&parse(GAM).stages).unwrap();
    let servers: Vec<Server> = costs
        .iter()
        .map(|cost| Server {
            gap: Nanos((cost.occupancy * 1e3) as u64).ticks(),
            per_byte: GapPerByte((cost.per_byte * 1e3 * f64::from(1 << 20)) as u64),
            ..Server::IDLE
        })
        .collect();
    let mut free = vec![Instant(0); servers.len()];
    for _ in 0..8 {
        let mut arrival = Instant(0);
        for (server, free) in servers.iter().zip(&mut free) {
            let Outcome::Served(service) = departure(
                server,
                *free,
                arrival,
                Load {
                    bytes: 4096,
                    segments: 1,
                },
            ) else {
                panic!("an unlimited server dropped a fragment");
            };
            *free = service.free;
            arrival = service.next;
        }
    }
    let emulated = Ticks(free.last().unwrap().0).nanos().0 as f64 / 1e3;
    let ours = delay(&costs, 8 * 4096, 4096).delay_us;
    assert!((emulated - ours).abs() < 0.1, "{emulated} {ours}");
}

#[test]
fn an_uneven_cut_can_be_the_best() {
    // Two stages, the second twice as fast: a small last fragment drains sooner.
    let costs = [
        StageCost {
            occupancy: 10.0,
            per_byte: 1.0,
        },
        StageCost {
            occupancy: 10.0,
            per_byte: 0.5,
        },
    ];
    let best = best_fragment(&costs, 100, 1);
    let even = delay(&costs, 100, 50).delay_us;
    assert!(
        best.delay_us < even && 100 % best.fragment_bytes != 0,
        "{best:?} {even}"
    );
}

#[test]
fn refusals() {
    let with = |stages: &str, rest: &str| {
        predict(&parse(&format!("stages: [{stages}]\n{rest}\n")))
            .unwrap_err()
            .to_string()
    };
    let wire = "{name: wire, occupancy: 1us, bandwidth: 1MB/s}";
    assert_eq!(
        with("", "message: 1B"),
        "stages is empty; give at least one stage"
    );
    assert!(with(&format!("{wire}, {wire}"), "message: 1B").contains("two stages are named `wire`"));
    assert!(with("{name: a, occupancy: 1us}", "message: 1B").contains("exactly one of"));
    assert!(with("{name: a, occupancy: 1us, bandwidth: 0B/s}", "message: 1B").contains("bandwidth of 0"));
    assert!(with(wire, "message: 0B").starts_with("message is 0 B"));
    assert!(with(wire, "message: 1.5B").starts_with("message is 1.5 B"));
    assert!(with(wire, "message: 8B\nfragment: 0B").starts_with("fragment is 0 B"));
    assert!(with("{name: a, occupancy: 0us, gap_per_byte: 0us/B}", "message: 1B").contains("any time"));
    assert!(serde_saphyr::from_str::<PipelineInput>("stages: []\nmessage: 1").is_err());
}

fn stages() -> impl Strategy<Value = Vec<StageCost>> {
    let stage =
        (0.0..20.0_f64, 0.0..0.1_f64).prop_map(|(occupancy, per_byte)| StageCost { occupancy, per_byte });
    prop::collection::vec(stage, 1..7)
}

proptest! {
    #[test]
    fn closed_form_is_the_recursion(stages in stages(), message in 1_u64..5000, fragment in 1_u64..6000) {
        let (ours, recursion) =
            (delay(&stages, message, fragment).delay_us, by_recursion(&stages, message, fragment));
        prop_assert!((ours - recursion).abs() <= 1e-9 * recursion.max(1.0), "{ours} {recursion}");
    }

    #[test]
    fn nothing_beats_the_best(stages in stages(), message in 1_u64..300) {
        let best = best_fragment(&stages, message, 1);
        for fragment in 1..=message {
            prop_assert!(best.delay_us <= delay(&stages, message, fragment).delay_us);
        }
    }

    /// A message never passes faster than its slowest stage can work, nor slower than without overlap.
    #[test]
    fn delay_is_between_its_bounds(stages in stages(), message in 1_u64..5000, fragment in 1_u64..6000) {
        let ours = delay(&stages, message, fragment).delay_us;
        let work: Vec<f64> = stages.iter().map(|stage| fragments::busy(stage, message, fragment)).collect();
        let slowest = work.iter().copied().fold(0.0, f64::max);
        prop_assert!(ours >= slowest - 1e-6 && ours <= work.iter().sum::<f64>() + 1e-6);
    }
}
