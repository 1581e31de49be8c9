use perturb_quantity::{ByteSize, BytesPerSecond, Micros};
use proptest::prelude::*;

use super::*;

mod profile;
mod reference;
mod timeouts;

const FIG9: &str = include_str!("../../tests/data/plogpt/fig9.yaml");
const TABLE2_A: &str = include_str!("../../tests/data/plogpt/table2-alltoall-a.yaml");
const TABLE2_B: &str = include_str!("../../tests/data/plogpt/table2-alltoall-b.yaml");
const EXPECTED: &str = include_str!("../../tests/data/plogpt/expected.json");

fn parse(yaml: &str) -> PlogptInput {
    serde_saphyr::from_str(yaml).unwrap()
}

fn expected(file: &str) -> serde_json::Value {
    serde_json::from_str::<serde_json::Value>(EXPECTED).unwrap()[file].clone()
}

fn refused(yaml: &str) -> String {
    predict(&parse(yaml)).unwrap_err().to_string()
}

/// Four nodes as in fig. 9, with another program.
fn fig9_with(program: &str) -> String {
    let parameters = FIG9.split("program:").next().unwrap();
    format!("{parameters}program: {program}\n")
}

/// A tree of these bandwidths per node and height (B/us) and buffers (us), with `g(m) = m / b(1)`.
fn tree(nodes: u32, per_node: &[f64], buffers: &[f64]) -> Parameters {
    Parameters {
        nodes,
        latency: Micros(3.0),
        rto: Micros(10_000.0),
        jitter: Micros(1.0),
        switch_tolerance: 0.001,
        links: per_node
            .iter()
            .zip(buffers)
            .enumerate()
            .map(|(height, (rate, delay))| Link {
                bandwidth: BytesPerSecond(rate * 2_f64.powi(height as i32) * 1e6),
                buffer_delay: Micros(*delay),
            })
            .collect(),
        one_way_links: None,
        gap: [0.0, 1e6]
            .map(|size| GapPoint {
                size: ByteSize(size),
                gap: Micros(size / per_node[0]),
            })
            .to_vec(),
        sharing: Sharing::FullDuplex,
        competitors: Competitors::Starting,
    }
}

/// The worst case of a collective, without what else a prediction tells.
fn worst_case(parameters: &Parameters, kind: CollectiveKind, bytes: f64) -> (Network, Timing) {
    let network = Network::new(parameters, kind.one_way()).unwrap();
    let program = Program::collective(kind, bytes, 0, &network).unwrap();
    let timing = simulate(&network, &program, Timeouts::AllThatQualify).unwrap();
    (network, timing)
}

fn collective(parameters: &Parameters, kind: CollectiveKind, bytes: f64) -> PlogptPrediction {
    predict(&PlogptInput {
        parameters: parameters.clone(),
        program: ProgramInput {
            ranks: None,
            collective: Some(kind),
            message: Some(ByteSize(bytes)),
            root: None,
        },
    })
    .unwrap()
}

#[test]
fn fig_9() {
    let expected = expected("fig9.yaml");
    let json = serde_json::to_value(predict(&parse(FIG9)).unwrap()).unwrap();
    assert_eq!(json["total_us"].as_f64(), expected["total_us"].as_f64());
    assert_eq!(
        json["retransmission_timeouts"],
        expected["retransmission_timeouts"]
    );
    assert!(json.get("plogp_us").is_none(), "not a collective");
    for rank in json["operations"].as_array().unwrap() {
        assert_eq!(rank[1]["op"], "isend");
        assert_eq!(
            rank[1]["finish_us"].as_f64(),
            expected["first_isends_finish_us"].as_f64()
        );
        assert_eq!(rank[3]["op"], "wait");
        assert_eq!(
            rank[3]["leave_us"].as_f64(),
            expected["irecv_waits_leave_us"].as_f64()
        );
    }
    // Fig. 12: alone on the edge of height 2 the last message goes at b(1).
    assert_eq!(json["operations"][0][4]["finish_us"].as_f64(), Some(23.0));
}

#[test]
fn table_2() {
    let a = predict(&parse(TABLE2_A)).unwrap();
    assert_eq!(
        Some(u64::from(a.retransmission_timeouts)),
        expected("table2-alltoall-a.yaml")["retransmission_timeouts"].as_u64()
    );
    let b = predict(&parse(TABLE2_B)).unwrap();
    let expected = expected("table2-alltoall-b.yaml");
    assert_eq!(
        Some(u64::from(b.retransmission_timeouts)),
        expected["timeout_delays_on_the_longest_path"].as_u64()
    );
    assert!(
        b.total_us > a.total_us,
        "B is the slower one when time-outs occur"
    );
    assert!(
        b.total_without_timeouts_us.unwrap() < a.total_us,
        "and else the faster one"
    );
    let json = serde_json::to_value(&b).unwrap();
    assert_eq!(json["switch_between_heights"], expected["switch_between_heights"]);
}

#[test]
fn links_are_those_of_table_2() {
    let table = include_str!("../../tests/data/tables/plogpt-table2-links.csv");
    for (row, link) in table.lines().skip(2).zip(parse(TABLE2_B).parameters.links) {
        let cells: Vec<f64> = row.split(',').map(|cell| cell.parse().unwrap()).collect();
        let (height, twice_delay, per_node) = (cells[0] as i32, cells[3], cells[4]);
        assert!((link.buffer_delay.0 - twice_delay / 2.0).abs() < 1e-9);
        assert!((link.bandwidth.0 * 8e-6 - per_node * 2_f64.powi(height - 1)).abs() < 1e-6);
    }
}

#[test]
fn half_duplex_edges_share_both_directions() {
    let mut parameters = tree(2, &[2.0], &[10.0]);
    let full = collective(&parameters, CollectiveKind::AlltoallA, 100.0);
    parameters.sharing = Sharing::HalfDuplex;
    let half = collective(&parameters, CollectiveKind::AlltoallA, 100.0);
    assert_eq!((full.total_us, half.total_us), (53.0, 103.0));
}

#[test]
fn one_way_links_are_for_one_way_collectives() {
    let mut parameters = tree(2, &[2.0], &[10.0]);
    parameters.one_way_links = Some(vec![Link {
        bandwidth: BytesPerSecond(4e6),
        buffer_delay: Micros(10.0),
    }]);
    let total = |kind| collective(&parameters, kind, 100.0).total_us;
    // b(1) g(m) bytes at b(1): a lone message takes g(m) whatever b(1) is.
    assert_eq!(total(CollectiveKind::Broadcast), 53.0);
    assert_eq!(total(CollectiveKind::AlltoallB), 53.0);
    let network = Network::new(&parameters, true).unwrap();
    assert_eq!(network.bandwidth(1), 4.0);
}

#[test]
fn compute_and_idle_ranks() {
    let prediction = predict(&parse(&fig9_with(
        "{ranks: [[{compute: 100us}, {isend: {to: 1, size: 24B}}], [{irecv: {from: 0}}, {wait: 0}], [], []]}",
    )))
    .unwrap();
    let rank = |rank| prediction.operations.of_rank(rank).collect::<Vec<_>>();
    assert_eq!(rank(0)[0].leave_us, 100.0);
    assert_eq!(rank(0)[1].finish_us, Some(108.0));
    assert_eq!(rank(1)[1].leave_us, 111.0);
    assert_eq!(prediction.total_us, 111.0);
    assert_eq!(rank(2), []);
}

#[test]
fn matching_is_first_in_first_out_per_pair() {
    let prediction = predict(&parse(&fig9_with(
        "{ranks: [[{isend: {to: 1, size: 24B}}, {wait: 0}, {isend: {to: 1, size: 24B}}, {wait: 2}],\n\
         [{irecv: {from: 0, size: 24B}}, {irecv: {from: 0, size: 24B}}, {wait: 1}, {wait: 0}], [], []]}",
    )))
    .unwrap();
    let ops: Vec<Operation> = prediction.operations.of_rank(1).collect();
    assert_eq!((ops[0].finish_us, ops[1].finish_us), (Some(11.0), Some(19.0)));
    assert_eq!((ops[2].leave_us, ops[3].leave_us), (19.0, 19.0));
}

#[test]
fn programs_that_never_end() {
    let error = refused(&fig9_with(
        "{ranks: [[{irecv: {from: 1, size: 24B}}, {wait: 0}], [], [], []]}",
    ));
    assert_eq!(
        error,
        "deadlock: 1 of the ranks never end; rank 0 waits in operation 1 for its irecv (operation 0) with \
         rank 1, which has no matching isend"
    );
    let cycle = "[{irecv: {from: 1, size: 24B}}, {wait: 0}, {isend: {to: 1, size: 24B}}],\n\
                 [{irecv: {from: 0, size: 24B}}, {wait: 0}, {isend: {to: 0, size: 24B}}]";
    let error = refused(&fig9_with(&format!("{{ranks: [{cycle}, [], []]}}")));
    assert!(error.starts_with("deadlock: 2 of the ranks"), "{error}");
    assert!(
        error.ends_with("whose matching isend is never reached"),
        "{error}"
    );
}

#[test]
fn refusals() {
    let ranks = |list: &str| refused(&fig9_with(&format!("{{ranks: [{list}, [], []]}}")));
    assert!(ranks("[]").contains("3 lists for 4 nodes"));
    assert!(ranks("[{isend: {to: 4, size: 1B}}], []").contains("there is no rank 4; ranks are 0 to 3"));
    assert!(ranks("[{isend: {to: 0, size: 1B}}], []").contains("with itself"));
    assert!(ranks("[{wait: 0}], []").contains("wait names operation 0"));
    assert!(ranks("[{compute: 1us}, {wait: 0}], []").contains("no earlier isend or irecv"));
    assert!(
        ranks("[{isend: {to: 1, size: 2B}}], [{irecv: {from: 0, size: 1B}}]")
            .contains("irecv expects 1 B from rank 0, whose matching isend has 2 B")
    );
    for (program, error) in [
        ("{}", "either `ranks` or `collective`"),
        ("{collective: ring}", "either `ranks` or `collective`"),
        (
            "{collective: ring, message: 1B, ranks: []}",
            "either `ranks` or `collective`",
        ),
        (
            "{ranks: [[], [], [], []], message: 1B}",
            "program.message has no meaning",
        ),
        (
            "{collective: ring, message: 1B, root: 1}",
            "program.root has no meaning",
        ),
        ("{collective: gather, message: 1B, root: 4}", "program.root is 4"),
    ] {
        assert!(refused(&fig9_with(program)).contains(error), "{program}");
    }
    let parameters = |from: &str, to: &str| {
        assert!(TABLE2_B.contains(from));
        refused(&TABLE2_B.replace(from, to))
    };
    assert!(
        parameters("nodes: 32", "nodes: 33").contains("has 5 heights, but a binary tree of 33 nodes has 6")
    );
    assert!(parameters("nodes: 32", "nodes: 0").contains("nodes is 0"));
    assert!(parameters("switch_tolerance: 0.001", "switch_tolerance: -1").contains("switch_tolerance is -1"));
    assert!(
        parameters("switch_tolerance: 0.001", "switch_tolerance: .nan").contains("switch_tolerance is NaN")
    );
    assert!(parameters("580.2Mbit/s", "0Mbit/s").contains("links[0].bandwidth is 0"));
    assert!(parameters("{size: 1kB, gap: 25us}", "{size: 0B, gap: 25us}").contains("two entries for 0 B"));
    for (from, to) in [
        ("latency: 60us", "latency: 60"),
        ("latency: 60us", "latency: -60us"),
        ("rto: 200ms", "rto: 200ms\n  extra: 1"),
        ("collective: alltoall-b", "collective: alltoall-c"),
        ("nodes: 32", "nodes: -1"),
    ] {
        let yaml = TABLE2_B.replace(from, to);
        assert!(serde_saphyr::from_str::<PlogptInput>(&yaml).is_err(), "{to}");
    }
    let odd = TABLE2_A
        .replace("nodes: 32", "nodes: 6")
        .replace("alltoall-a", "recursive-doubling");
    assert!(refused(&odd).contains("power of two nodes, not 6"));
}

#[test]
fn nobody_to_talk_to() {
    for kind in [
        "alltoall-a",
        "alltoall-b",
        "ring",
        "recursive-doubling",
        "broadcast",
        "gather",
    ] {
        let yaml = TABLE2_A
            .replace("nodes: 32", "nodes: 1")
            .replace("alltoall-a", kind);
        let prediction = predict(&parse(&yaml)).unwrap();
        assert_eq!(
            (prediction.total_us, prediction.plogp_us),
            (0.0, Some(0.0)),
            "{kind}"
        );
    }
}

/// Trees of up to 5 heights whose bandwidth per node falls towards the root.
fn trees() -> impl Strategy<Value = Parameters> {
    (
        1_u32..6,
        prop::collection::vec(0.2..1.0_f64, 5),
        prop::collection::vec(prop_oneof![Just(50.0), 20.0..200.0_f64], 5),
        0.1..50.0_f64,
    )
        .prop_map(|(heights, narrowing, buffers, first)| {
            let mut rate = first;
            let rates: Vec<f64> = narrowing
                .iter()
                .map(|factor| {
                    let here = rate;
                    // Half of the heights double exactly.
                    rate *= if *factor > 0.6 { 1.0 } else { *factor };
                    here
                })
                .collect();
            tree(1 << heights, &rates, &buffers)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Eq. 18, 19, 23 and 25.
    #[test]
    fn closed_forms_are_the_simulation(parameters in trees(), gap in 1.5..400.0_f64) {
        let bytes = gap * parameters.links[0].bandwidth.0 / 1e6;
        for kind in [CollectiveKind::AlltoallA, CollectiveKind::AlltoallB] {
            let (network, simulated) = worst_case(&parameters, kind, bytes);
            let form = closed_form(&network, kind, bytes).unwrap().unwrap();
            prop_assert!((simulated.total / form.total - 1.0).abs() < 1e-9, "{} {form:?}", simulated.total);
            prop_assert_eq!(simulated.path_timeouts, form.timeouts);
        }
    }

    /// A tree without bottlenecks is PlogP, and no tree beats it.
    #[test]
    fn no_contention_is_plogp(heights in 1_u32..6, gap in 0.0..400.0_f64, narrow in trees()) {
        for kind in [
            CollectiveKind::AlltoallA,
            CollectiveKind::AlltoallB,
            CollectiveKind::Ring,
            CollectiveKind::RecursiveDoubling,
            CollectiveKind::Broadcast,
            CollectiveKind::Gather,
        ] {
            let (network, wide) = worst_case(&tree(1 << heights, &[1.0; 5], &[10.0; 5]), kind, gap);
            let expected = plogp(&network, kind, gap).unwrap();
            prop_assert!((wide.total - expected).abs() <= 1e-9 * expected, "{kind}: {}", wide.total);
            prop_assert_eq!(wide.timeouts, 0);
            let (network, slow) = worst_case(&narrow, kind, gap);
            prop_assert!(slow.total >= plogp(&network, kind, gap).unwrap() * (1.0 - 1e-9), "{kind}");
        }
    }

    /// Random programs give the same times as a simulation that looks at everything at every event
    /// and starts over after every decision.
    #[test]
    fn simulation_is_the_reference(
        parameters in trees(),
        messages in prop::collection::vec(
            (0_u32..32, prop_oneof![Just(0), 0_u32..32], 0_usize..4, any::<bool>()),
            0..40,
        ),
        jitter in prop_oneof![Just(0.0), 0.1..100.0_f64],
        competitors in prop_oneof![Just(Competitors::Starting), Just(Competitors::Overlapping)],
    ) {
        let mut parameters = Parameters { jitter: Micros(jitter), competitors, ..parameters };
        for link in &mut parameters.links {
            link.buffer_delay.0 /= 50.0;
        }
        let ranks = reference::ranks(parameters.nodes, &messages);
        let network = Network::new(&parameters, false).unwrap();
        let input = ProgramInput { ranks: Some(ranks), collective: None, message: None, root: None };
        let program = Program::new(&input, &network).unwrap();
        for timeouts in [Timeouts::Never, Timeouts::AllThatQualify] {
            let ours = simulate(&network, &program, timeouts).unwrap();
            let theirs = reference::simulate(&network, &program, timeouts);
            for (index, (ours, theirs)) in ours.ops.iter().zip(&theirs).enumerate() {
                prop_assert!(
                    (ours.enter - theirs.enter).abs() < 1e-3
                        && (ours.finish - theirs.finish).abs() < 1e-3
                        && ours.timed_out == theirs.timed_out,
                    "{timeouts:?}, operation {index}: {ours:?} {theirs:?}"
                );
            }
        }
    }

    /// The worst case is never better than no time-outs, and it waits whole time-outs only.
    #[test]
    fn timeouts_only_add(parameters in trees(), gap in 1.5..400.0_f64) {
        let bytes = gap * parameters.links[0].bandwidth.0 / 1e6;
        let (network, worst) = worst_case(&parameters, CollectiveKind::AlltoallB, bytes);
        let program = Program::collective(CollectiveKind::AlltoallB, bytes, 0, &network).unwrap();
        let never = simulate(&network, &program, Timeouts::Never).unwrap();
        let added = (worst.total - never.total) / parameters.rto.0;
        prop_assert!((added - f64::from(worst.path_timeouts)).abs() < 1e-6);
        let one = simulate(&network, &program, Timeouts::OneOfThem { seed: 1 }).unwrap();
        // Delaying only one may take contention from the others, but it is delayed as well.
        prop_assert!((one.timeouts > 0) == (worst.timeouts > 0), "{} {}", one.timeouts, worst.timeouts);
    }
}
