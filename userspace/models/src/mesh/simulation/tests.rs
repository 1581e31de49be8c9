use super::*;
use crate::logpc::network::{Network, Wiring};

const MESSAGE: LogGp = LogGp {
    latency: 21.0,
    send: 15.0,
    receive: 122.0,
    bytes: 44.0,
    gap_per_byte: 1.0,
    header: 0.0,
    gap_memory: None,
};

fn settings(traffic: Traffic, messages: u64) -> Settings {
    Settings {
        traffic,
        message: MESSAGE,
        hop: 1.0,
        messages,
        seed: 5,
    }
}

fn network(mesh: &Mesh) -> Network {
    Network {
        dimensions: mesh.shape().len() as u32,
        distance: mesh.mean_distance_per_dimension(),
        wiring: mesh.wiring(),
    }
}

#[test]
fn a_single_pair_never_waits() {
    let mesh = Mesh::new(&[2], Wiring::Mesh).unwrap();
    let seen = simulate(&mesh, settings(Traffic::Periodic { interval: 100.0 }, 1000));
    assert_eq!(
        (seen.network_contention_cycles, seen.hops, seen.period_cycles),
        (0.0, 1.0, 100.0)
    );
    assert!((seen.utilization - 0.44).abs() < 0.01, "{seen:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let mesh = Mesh::new(&[4, 4], Wiring::Torus).unwrap();
    let traffic = Traffic::Poisson { interval: 200.0 };
    let seen = simulate(&mesh, settings(traffic, 5000));
    assert_eq!(seen, simulate(&mesh, settings(traffic, 5000)));
    assert_ne!(
        seen,
        simulate(
            &mesh,
            Settings {
                seed: 6,
                ..settings(traffic, 5000)
            }
        )
    );
}

#[test]
fn one_dimension_of_two_nodes_is_an_m_d_1_queue() {
    // Poisson messages to the only neighbor: the mean wait is rho b / (2 (1 - rho)).
    let mesh = Mesh::new(&[2], Wiring::Mesh).unwrap();
    let seen = simulate(&mesh, settings(Traffic::Poisson { interval: 88.0 }, 400_000));
    let expected = 0.5 * 44.0 / (2.0 * 0.5);
    assert!(
        (seen.network_contention_cycles / expected - 1.0).abs() < 0.03,
        "{seen:?}"
    );
}

#[test]
fn model_and_simulation_agree_where_the_load_is_moderate() {
    // An 8 x 8 torus, traffic spread evenly: the model's own ground.
    let mesh = Mesh::new(&[8, 8], Wiring::Torus).unwrap();
    let network = network(&mesh);
    for (rho, tolerance) in [(0.1, 0.35), (0.3, 0.35), (0.5, 0.35)] {
        let rate = rho / network.load(MESSAGE.bytes);
        let seen = simulate(
            &mesh,
            settings(Traffic::Poisson { interval: 1.0 / rate }, 100_000),
        );
        let model = network.open(rate, MESSAGE.bytes).unwrap();
        let error = model / seen.network_contention_cycles - 1.0;
        assert!(
            error.abs() < tolerance,
            "rho {rho}: model {model}, simulated {seen:?}"
        );
        assert!((seen.utilization - rho).abs() < 0.05, "{seen:?}");
    }
}

#[test]
fn request_reply_shows_both_contentions() {
    // Table 4's machine and remap: 32 nodes as a 4 x 8 mesh.
    let mesh = Mesh::new(&[4, 8], Wiring::Mesh).unwrap();
    let seen = simulate(&mesh, settings(Traffic::RequestReply { work: 0.0 }, 100_000));
    // The cycle is its free time and the waits that were seen.
    let sum = 316.0 + 2.0 * (seen.network_contention_cycles + seen.processor_wait_cycles);
    assert!((seen.period_cycles - sum).abs() < 0.01 * sum, "{seen:?}");
    // The paper measured 486 cycles.
    assert!((seen.period_cycles / 486.0 - 1.0).abs() < 0.05, "{seen:?}");
    // Without channels to wait for, what is left is C_r; the paper's is 137.
    let mut free = settings(Traffic::RequestReply { work: 0.0 }, 100_000);
    free.message.bytes = 0.0;
    let seen = simulate(&mesh, free);
    assert!(
        (2.0 * seen.processor_wait_cycles / 137.0 - 1.0).abs() < 0.05,
        "{seen:?}"
    );
}
