//! The queueing model against a server with known service times.

use std::{collections::BTreeMap, time::Duration};

use perturb_models::queueing::{Network, NfsServer};
use perturb_quantity::{Micros, Share};
use perturb_workloads::nfs::{
    mix::Mix,
    procedure::Procedure,
    record::Arrivals,
    server::{Cache, Config, Disks, Distribution, Service, ServiceModel},
};

use perturb_stats::Sample;
use perturb_verdict::skipped;
use tokio::task::JoinSet;

use crate::common::{INSTANT, alone, config, plan, run, serve};

const UTILIZATIONS: [f64; 4] = [0.2, 0.4, 0.6, 0.8];
/// Loads of different seeds for each utilization.
const REPLICAS: u64 = 3;
const DURATION: Duration = Duration::from_secs(40);
/// A server that only delays: what it adds to this is the machine's, not the queues'.
const CONTROL_DELAY: Duration = Duration::from_millis(5);
const CONTROL_RATE: f64 = 200.0;
/// A control later than this says that other programs' queues are measured, too.
const BUSY_MS: f64 = 0.8;

/// M/M/1 and M/M/m by construction: within 10 % up to 80 % utilization, mean of three runs of 40 s. A control
/// without queues runs at the same time; by how much it is late (0.1 ms on an idle machine) is taken off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: cargo xtask test --full"]
async fn the_model_predicts_the_server() {
    let _guard = alone().await;
    let (cpu, disk, disks, hit, delay) = (2_000.0, 8_000.0, 4, 0.5, 1_000.0);
    let model = NfsServer {
        cpu_service: Micros(cpu),
        cache: None,
        touched_per_rate: None,
        hit: Some(Share(hit)),
        disks,
        disk_service: Micros(disk),
        fixed_delay: Micros(delay),
    };
    let exponential = |micros: f64| Service {
        mean: Duration::from_secs_f64(micros / 1e6),
        distribution: Distribution::Exponential,
    };
    let service = ServiceModel {
        fixed_delay: Duration::from_secs_f64(delay / 1e6),
        cpu: Some(exponential(cpu)),
        disks: Some(Disks {
            count: disks as usize,
            service: exponential(disk),
            cache: Cache::HitRatio(hit),
        }),
        burn: false,
        seed: 5,
    };
    let delaying = ServiceModel {
        fixed_delay: CONTROL_DELAY,
        ..INSTANT
    };
    let control = tokio::spawn(measure(0.0, CONTROL_RATE, 99, delaying));
    // All at the same time: they sleep nearly always.
    let mut loads = JoinSet::new();
    for utilization in UTILIZATIONS {
        for replica in 0..REPLICAS {
            let service = ServiceModel {
                seed: service.seed + replica,
                ..service
            };
            loads.spawn(measure(utilization, utilization / cpu * 1e6, replica, service));
        }
    }
    let mut measured: Vec<(f64, f64)> = loads.join_all().await;
    let late = control.await.unwrap().1 - 1e3 * CONTROL_DELAY.as_secs_f64();
    println!("the control is {late:.2} ms late");
    if late > BUSY_MS {
        return skipped(&format!(
            "this machine is busy: a control without queues is {late:.2} ms late; response times"
        ));
    }
    measured.sort_by(|left, right| left.0.total_cmp(&right.0));
    for replicas in measured.chunks(REPLICAS as usize) {
        let utilization = replicas[0].0;
        let sample = Sample::new(replicas.iter().map(|(_, mean)| *mean).collect()).unwrap();
        let modeled = model
            .response(&Network::default(), utilization / cpu * 1e6)
            .unwrap()
            .response_ms;
        let error = (sample.mean() - late) / modeled - 1.0;
        println!(
            "utilization {utilization}: measured {:.2} ms (standard error {:.2}), modeled {modeled:.2} ms, {:+.1} %, \
             without the control's lateness {:+.1} %",
            sample.mean(),
            sample.standard_error(),
            100.0 * (sample.mean() / modeled - 1.0),
            100.0 * error
        );
        assert!(error.abs() < 0.10, "{} ms, not {modeled} ms", sample.mean());
    }
}

/// One load on one server; its utilization and mean response time in ms.
async fn measure(utilization: f64, rate: f64, replica: u64, service: ServiceModel) -> (f64, f64) {
    let server = serve(&Config { service, ..config() }).await;
    let mut plan = plan(server.address());
    plan.mix = Mix::new("getattr", BTreeMap::from([(Procedure::Getattr, 100.0)])).unwrap();
    plan.arrivals = Arrivals::Open;
    plan.rate = rate;
    plan.scale = 1e-4;
    plan.seed = 100 + replica;
    plan.warmup = Duration::from_secs(2);
    plan.duration = DURATION;
    let record = run(plan).await.unwrap().record;
    assert_eq!(record.errors, 0);
    (utilization, record.mean_ms.unwrap())
}
