//! The load generator against the embedded server, over loopback.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use perturb_workloads::nfs::{
    Stop,
    client::{Options, Ports, Transport},
    data_set::DataSetError,
    load::{self, LoadError, Outcome, Plan},
    mix::{self, Mix},
    procedure::Procedure,
    record::{Arrivals, CutShort},
    server::{Config, Server, ServiceModel},
};

fn config() -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        export: "/".into(),
        capacity: 1 << 30,
        read_only: false,
        service: ServiceModel {
            fixed_delay: Duration::ZERO,
            cpu: None,
            disks: None,
            seed: 1,
        },
    }
}

fn plan(server: SocketAddr) -> Plan {
    Plan {
        export: format!("{}:/", server.ip()).parse().unwrap(),
        ports: Ports {
            nfs: Some(server.port()),
            mount: None,
        },
        options: Options {
            timeout: Duration::from_secs(5),
            ..Options::default()
        },
        mix: Mix::named("sfs2-v3").unwrap(),
        rate: 2_000.0,
        arrivals: Arrivals::Closed,
        warmup: Duration::from_secs(1),
        duration: Duration::from_secs(4),
        scale: 0.001,
        processes: Some(16),
        connections: Some(4),
        threads: Some(1),
        directory: "work".into(),
        reuse: false,
        seed: 42,
        histogram: false,
    }
}

async fn run(plan: Plan) -> Result<Outcome, LoadError> {
    tokio::task::spawn_blocking(move || load::run(&plan, &Stop::default(), &|_| {}))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_mix_runs_without_an_error_and_leaves_nothing() {
    for name in mix::NAMES {
        for arrivals in [Arrivals::Closed, Arrivals::Open] {
            for transport in [Transport::Tcp, Transport::Udp] {
                let server = Server::start(&config()).await.unwrap();
                let mut plan = plan(server.address());
                plan.mix = Mix::named(name).unwrap();
                plan.arrivals = arrivals;
                plan.options.transport = transport;
                plan.rate = 1_000.0;
                plan.warmup = Duration::from_millis(300);
                plan.duration = Duration::from_secs(1);
                let outcome = run(plan).await.unwrap();
                let record = outcome.record;
                assert_eq!(
                    record.errors, 0,
                    "{name} {arrivals:?} {transport:?}: {:?}",
                    outcome.examples
                );
                assert_eq!(record.cut_short, None);
                assert!(outcome.left_behind.is_none(), "{:?}", outcome.left_behind);
                assert!(record.delivered_op_s > 900.0, "{name} {record:?}");
                assert_eq!(server.objects(), 1, "only the root is left");
            }
        }
    }
}
