//! Properties of the model.

use perturb_quantity::{ByteSize, Cycles};
use proptest::prelude::*;

use super::application::{self, Application};
use super::message::LogGp;
use super::network::{Network, Wiring};
use super::*;

fn parameters() -> impl Strategy<Value = Parameters> {
    let kind = prop_oneof![Just(Kind::RequestReply), Just(Kind::OneWay), Just(Kind::Bulk)];
    let message = (0.0_f64..500.0, 1.0_f64..500.0, 1.0_f64..500.0, 1.0_f64..20_000.0);
    let wiring = prop_oneof![
        Just(Wiring::Mesh),
        Just(Wiring::Torus),
        Just(Wiring::UnidirectionalTorus)
    ];
    (kind, message, 1_u32..5, 0.0_f64..20.0, wiring, 0.0_f64..1e4).prop_map(
        |(kind, (latency, send, receive, channel), dimensions, distance, wiring, work)| Parameters {
            network: Network {
                dimensions,
                distance,
                wiring,
            },
            shape: None,
            message: LogGp {
                latency,
                send,
                receive,
                channel,
            },
            bytes: channel,
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
    fn the_root_solves_its_equation(parameters in parameters(), messages in 1.0_f64..8.0, period in 0.0_f64..1e5) {
        let (network, channel) = (parameters.network, parameters.message.channel);
        prop_assume!(network.distance > 1.0);
        let contention = network.closed(messages, period, channel);
        let rho = network.utilization(messages / (period + contention), channel);
        prop_assert!(rho < 1.0 + 1e-9);
        // C (1 - rho) = K rho, without the division that saturation makes unstable.
        let (left, right) = (contention * (1.0 - rho), network.weight(channel) * rho);
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
            let limit = parameters.message.channel.powi(2) * 6.0 * 20.0 * 2.0 / work;
            prop_assert!(work < 1e8 || contention <= 1.1 * limit, "{work}: {contention} {limit}");
            before = contention;
        }
        prop_assert!(before <= 1e-1);
        let found = predict(&parameters);
        prop_assert!((found.logpc_cycles / found.logp_cycles - 1.0).abs() < 1e-9);
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
            larger.message.channel *= more;
            prop_assert!(contention(&larger) >= base * (1.0 - 1e-9));
        }
    }

    #[test]
    fn the_best_number_of_blocks_is_the_best(parameters in parameters(), size in 2_u64..200, share in 0.0_f64..1.0, point in 0.1_f64..50.0) {
        let processors = 1 + ((size - 1) as f64 * share) as u64;
        let with = |blocks| {
            let mut parameters = parameters.clone();
            parameters.application = Some(Application::DiamondDag {
                size, processors, point: Cycles(point), bytes_per_point: ByteSize(8.0), blocks,
            });
            application::time(&parameters).unwrap()
        };
        let best = with(None);
        for blocks in 1..=size {
            prop_assert!(with(Some(blocks)).logpc_cycles >= best.logpc_cycles);
        }
    }

    #[test]
    fn without_contention_the_best_number_is_the_closed_form(size in 100_u64..3000, point in 0.5_f64..5.0) {
        let processors = 16;
        let mut parameters = Parameters {
            // Neighbors only.
            network: Network { dimensions: 1, distance: 1.0, wiring: Wiring::Mesh },
            shape: None,
            message: LogGp { latency: 21.0, send: 15.0, receive: 122.0, channel: 44.0 },
            bytes: 44.0,
            pattern: Pattern { kind: Kind::OneWay, work: 0.0, resource_contention: None, messages: 1 },
            application: None,
        };
        parameters.application = Some(Application::DiamondDag {
            size, processors, point: Cycles(point), bytes_per_point: ByteSize(8.0), blocks: None,
        });
        let found = application::time(&parameters).unwrap();
        let (n, p) = (size as f64, processors as f64);
        let closed = ((p - 1.0) * (n * n * point / p + n * 8.0) / 137.0).sqrt().clamp(1.0, n);
        prop_assert!((found.blocks.unwrap() as f64 - closed).abs() <= 1.0, "{found:?} {closed}");
        prop_assert_eq!(found.network_contention_cycles, Some(0.0));
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
    let em3d = "{name: em3d, nodes: 100, degree: 10, remote: 0.2, edge: 20cycles, iterations: 2}";
    let time = application::time(&load(em3d, "request-reply").unwrap()).unwrap();
    assert_eq!(
        (time.messages, time.logp_cycles),
        (400.0, 400.0 * 316.0 + 40_000.0)
    );
    let local = "{name: em3d, nodes: 100, degree: 10, remote: 0, edge: 20cycles}";
    let time = application::time(&load(local, "one-way").unwrap()).unwrap();
    assert_eq!((time.messages, time.logpc_cycles), (0.0, 20_000.0));
    assert!(
        load(
            "{name: em3d, nodes: 0, degree: 1, remote: 0, edge: 1cycles}",
            "one-way"
        )
        .unwrap_err()
        .contains("application.nodes: 0")
    );
    assert!(
        load(
            "{name: em3d, nodes: 1, degree: 1, remote: 2, edge: 1cycles}",
            "one-way"
        )
        .unwrap_err()
        .contains("application.remote: 2")
    );
    assert!(
        load("{name: all-to-all, elements: 4, processors: 2}", "bulk")
            .unwrap_err()
            .contains("short")
    );
    assert!(
        load(
            "{name: diamond-dag, size: 4, processors: 8, point: 1cycles}",
            "bulk"
        )
        .unwrap_err()
        .contains("processors")
    );
}
