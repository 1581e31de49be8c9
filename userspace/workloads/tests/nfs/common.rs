//! A server and a plan of load that the tests vary.

use std::{net::SocketAddr, time::Duration};

use perturb_workloads::nfs::{
    Stop,
    client::{Options, Ports},
    load::{self, LoadError, Outcome, Plan, Progress},
    mix::Mix,
    record::Arrivals,
    server::{Config, Server, ServiceModel},
};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) const INSTANT: ServiceModel = ServiceModel {
    fixed_delay: Duration::ZERO,
    cpu: None,
    burn: false,
    disks: None,
    seed: 1,
};

pub(crate) fn config() -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        export: "/".into(),
        capacity: 1 << 30,
        read_only: false,
        service: INSTANT,
    }
}

pub(crate) async fn serve(config: &Config) -> Server {
    Server::start(config).await.unwrap()
}

pub(crate) fn plan(server: SocketAddr) -> Plan {
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
        rate: 1_000.0,
        arrivals: Arrivals::Closed,
        warmup: Duration::from_millis(300),
        duration: Duration::from_secs(1),
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

pub(crate) async fn run(plan: Plan) -> Result<Outcome, LoadError> {
    run_and(plan, Stop::default(), |_| {}).await
}

pub(crate) async fn run_and(
    plan: Plan,
    stop: Stop,
    progress: impl Fn(Progress) + Send + Sync + 'static,
) -> Result<Outcome, LoadError> {
    tokio::task::spawn_blocking(move || load::run(&plan, &stop, &progress))
        .await
        .unwrap()
}

static MACHINE: RwLock<()> = RwLock::const_new(());

/// Held by a test that times something: no other runs meanwhile.
pub(crate) async fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().await
}

/// Held by a test that does not mind others.
pub(crate) async fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().await
}
