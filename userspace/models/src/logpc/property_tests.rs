//! Properties of the model.

use proptest::prelude::*;

use super::application;
use super::message::LogGp;
use super::network::{Cycle, Network, Wiring};
use super::*;

fn parameters() -> impl Strategy<Value = Parameters> {
    let kind = prop_oneof![Just(Kind::RequestReply), Just(Kind::OneWay), Just(Kind::Bulk)];
    let times = (0.0_f64..500.0, 1.0_f64..500.0, 1.0_f64..500.0);
    let bytes = (
        1.0_f64..20_000.0,
        0.01_f64..4.0,
        0.0_f64..64.0,
        proptest::option::of(0.0_f64..4.0),
    );
    let message = (times, bytes).prop_map(
        |((latency, send, receive), (bytes, gap_per_byte, header, gap_memory))| LogGp {
            latency,
            send,
            receive,
            bytes,
            gap_per_byte,
            header,
            gap_memory,
        },
    );
    let wiring = prop_oneof![
        Just(Wiring::Mesh),
        Just(Wiring::Torus),
        Just(Wiring::UnidirectionalTorus)
    ];
    (kind, message, 1_u32..5, 0.0_f64..20.0, wiring, 0.0_f64..1e4).prop_map(
        |(kind, message, dimensions, distance, wiring, work)| Parameters {
            network: Network {
                dimensions,
                distance,
                wiring,
            },
            shape: None,
            message,
            pattern: Pattern {
                kind,
                work,
                resource_contention: None,
                messages: 1,
            },
            application: None,
        },
    )
}

proptest! {
    #[test]
    fn contention_only_adds(parameters in parameters()) {
        let found = predict(&parameters);
        prop_assert!(found.logp_cycles <= found.lopc_cycles && found.lopc_cycles <= found.logpc_cycles);
        prop_assert!(found.network_contention_cycles.is_none_or(|wait| wait >= 0.0 && wait.is_finite()));
        if parameters.pattern.kind != Kind::OneWay {
            prop_assert!(found.utilization <= 1.0 + 1e-9, "{}", found.utilization);
        }
        if let (Some(inflation), Some(greatest)) = (found.inflation, found.greatest_inflation) {
            prop_assert!(inflation >= 1.0 && inflation <= greatest * (1.0 + 1e-12));
        }
    }

    #[test]
    fn the_root_solves_its_equation(parameters in parameters(), messages in 1.0_f64..8.0, waits in 0.5_f64..4.0, period in 0.0_f64..1e5) {
        let (network, bytes) = (parameters.network, parameters.message.bytes);
        prop_assume!(network.distance > 1.0);
        let contention = network.closed(Cycle { messages, waits, period }, bytes);
        let rho = network.utilization(messages / (period + waits * contention), bytes);
        prop_assert!(rho < 1.0 + 1e-9);
        // C (1 - rho) = K rho, without the division that saturation makes unstable.
        let (left, right) = (contention * (1.0 - rho), network.weight(bytes) * rho);
        prop_assert!((left - right).abs() <= 1e-6 * right.max(1e-6), "{left} {right}");
    }

    #[test]
    fn loggp_in_the_limit_of_no_load(parameters in parameters()) {
        // The rarer the messages, the smaller the contention, down to none.
        let mut parameters = parameters;
        let mut before = f64::INFINITY;
        for work in [1e6, 1e8, 1e10, 1e12] {
            parameters.pattern.work = work;
            let found = predict(&parameters);
            let contention = found.network_contention_cycles.unwrap();
            prop_assert!(contention <= before);
            // K a s / P with K a <= b^2 (n + 1) k_d.
            let limit = parameters.message.bytes.powi(2) * 6.0 * 20.0 * 2.0 / work;
            prop_assert!(work < 1e8 || contention <= 1.1 * limit, "{work}: {contention} {limit}");
            before = contention;
        }
        prop_assert!(before <= 1e-1);
        let found = predict(&parameters);
        let added = found.logpc_cycles - found.logp_cycles;
        prop_assert!(added <= 2.0 * before + 1e-9 * found.logp_cycles, "{added} {before}");
    }

    #[test]
    fn distance_and_size_never_help(parameters in parameters(), more in 1.0_f64..3.0) {
        let contention = |parameters: &Parameters| {
            predict(parameters).network_contention_cycles.unwrap_or(f64::INFINITY)
        };
        let base = contention(&parameters);
        let mut farther = parameters.clone();
        farther.network.distance *= more;
        prop_assert!(contention(&farther) >= base * (1.0 - 1e-9));
        if parameters.pattern.kind != Kind::Bulk {
            let mut larger = parameters.clone();
            larger.message.bytes *= more;
            prop_assert!(contention(&larger) >= base * (1.0 - 1e-9));
        }
    }

    #[test]
    fn a_long_message_ends_when_its_last_byte_is_there(parameters in parameters()) {
        // Fig. 3, byte by byte: the input queue fills from L on, and is drained after the interrupt. (2) leaves out
        // the last byte's own way to memory where the network is the slower one.
        let message = parameters.message;
        let gap_memory = message.gap_memory.unwrap_or(0.0);
        let bytes = message.bytes.round().max(1.0);
        let message = LogGp { bytes, header: message.header.round(), ..message };
        let first = message.send + message.latency;
        let mut drained = first + message.receive + message.header * message.gap_per_byte;
        let mut arrived = first;
        for byte in 0..bytes as u32 {
            arrived = first + f64::from(byte) * message.gap_per_byte;
            drained = drained.max(arrived) + gap_memory;
        }
        let seen = if message.gap_memory.is_some() { drained } else { arrived };
        let found = message.long();
        prop_assert!(found <= seen + 1e-6 && seen <= found + gap_memory + 1e-6, "{found} {seen}");
        if let Some(crossover) = message.crossover() {
            let interrupt = found - LogGp { gap_memory: None, ..message }.long();
            prop_assert!(bytes < crossover + 1e-6 || interrupt.abs() < 1e-6, "{crossover}: {interrupt}");
            prop_assert!(bytes > crossover - 1e-6 || interrupt > 0.0, "{crossover}: {interrupt}");
        }
    }
}

#[test]
fn applications_of_the_input() {
    let text = |application: &str, kind: &str| {
        format!(
            "network: {{dimensions: 2, mean_distance_per_dimension: 2, latency: 21cycles}}\n\
             overheads: {{send: 15cycles, receive: 122cycles}}\n\
             pattern: {{kind: {kind}, message: 44B, resource_contention: 137cycles}}\n\
             application: {application}\n"
        )
    };
    let load = |application: &str, kind: &str| -> Result<Parameters, String> {
        let input: Input =
            serde_saphyr::from_str(&text(application, kind)).map_err(|error| error.to_string())?;
        input.parameters().map_err(|error| error.to_string())
    };
    let remap = load(
        "{name: all-to-all, elements: 1024, processors: 32}",
        "request-reply",
    )
    .unwrap();
    let time = application::time(&remap).unwrap();
    assert_eq!((time.messages, time.logp_cycles), (31.0, 31.0 * 316.0));
    assert!((time.logpc_cycles / 31.0 - 499.0).abs() < 0.5);
    // Long messages: T = 2 G B = 88 cycles, and T_c.
    let long = load("{name: all-to-all, elements: 1024, processors: 32}", "bulk").unwrap();
    let time = application::time(&long).unwrap();
    assert_eq!(time.logp_cycles, 31.0 * 88.0);
    assert_eq!(Some(time.logpc_cycles / 31.0), predict(&long).intermessage_cycles);
    // 5.3: 200 remote values per iteration, ten to a message, o_s + o_r = 137 for each.
    let em3d = "{name: em3d, nodes: 100, degree: 10, remote: 0.2, edge: 20cycles, values_per_message: 10, iterations: 2}";
    let time = application::time(&load(em3d, "one-way").unwrap()).unwrap();
    assert_eq!((time.messages, time.logp_cycles), (40.0, 40.0 * 137.0 + 40_000.0));
    assert_eq!(time.logp_cycles, time.logpc_cycles);
    // Fig. 11's program: 3,200 nodes on 32 processors, all edges remote.
    let em3d = "{name: em3d, nodes: 100, degree: 32, remote: 1, edge: 20cycles, values_per_message: 10, iterations: 100}";
    assert_eq!(
        application::time(&load(em3d, "one-way").unwrap())
            .unwrap()
            .messages,
        32_000.0
    );
    // A last block that is not full is a message, too; one value each if nothing is said.
    for (values, messages) in [("values_per_message: 7, ", 29.0), ("", 200.0)] {
        let em3d = format!("{{name: em3d, nodes: 100, degree: 10, remote: 0.2, {values}edge: 20cycles}}");
        assert_eq!(
            application::time(&load(&em3d, "one-way").unwrap())
                .unwrap()
                .messages,
            messages
        );
    }
    let local = "{name: em3d, nodes: 100, degree: 10, remote: 0, edge: 20cycles}";
    let time = application::time(&load(local, "one-way").unwrap()).unwrap();
    assert_eq!((time.messages, time.logpc_cycles), (0.0, 20_000.0));
    for (application, kind, expected) in [
        (
            "{name: em3d, nodes: 0, degree: 1, remote: 0, edge: 1cycles}",
            "one-way",
            "application.nodes: 0",
        ),
        (
            "{name: em3d, nodes: 1, degree: 1, remote: 2, edge: 1cycles}",
            "one-way",
            "application.remote: 2",
        ),
        (
            "{name: em3d, nodes: 1, degree: 1, remote: 1, edge: 1cycles, values_per_message: 0}",
            "one-way",
            "application.values_per_message: 0",
        ),
        (
            "{name: em3d, nodes: 1, degree: 1, remote: 1, edge: 1cycles}",
            "request-reply",
            "pattern.kind one-way",
        ),
        (
            "{name: diamond-dag, size: 4, processors: 8, point: 1cycles}",
            "bulk",
            "processors: 8",
        ),
        (
            "{name: diamond-dag, size: 4, processors: 1, point: 1cycles}",
            "bulk",
            "processors: 1; allowed: 2",
        ),
        (
            "{name: diamond-dag, size: 4, processors: 2, point: 1cycles, blocks: 5}",
            "bulk",
            "blocks: 5",
        ),
        (
            "{name: diamond-dag, size: 4, processors: 2, point: 1cycles, message: 0B}",
            "bulk",
            "message: 0",
        ),
    ] {
        let error = load(application, kind).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
