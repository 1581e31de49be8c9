//! What goes wrong is counted, said clearly, and never hangs.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use perturb_stats::SplitMix64;
use perturb_workloads::nfs::{
    Stop,
    client::Transport,
    data_set::DataSetError,
    load::{LoadError, Progress},
    record::{Arrivals, CutShort},
    server::{Config, Server},
};
use tokio::net::UdpSocket;

use crate::common::{beside_others, config, plan, run, run_and, serve};

/// The server goes after a second of a run of a minute; calls may take a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_run_ends_it() {
    let _guard = beside_others().await;
    for (arrivals, transport) in [
        (Arrivals::Closed, Transport::Tcp),
        (Arrivals::Open, Transport::Tcp),
        (Arrivals::Closed, Transport::Udp),
        (Arrivals::Open, Transport::Udp),
    ] {
        let server = serve(&config()).await;
        let mut plan = plan(server.address());
        plan.arrivals = arrivals;
        plan.options.transport = transport;
        plan.options.timeout = Duration::from_secs(1);
        plan.options.retransmit_after = Duration::from_millis(200);
        plan.duration = Duration::from_secs(60);
        let begun = Instant::now();
        let load = tokio::spawn(run(plan));
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        drop(server);
        let outcome = load.await.unwrap().unwrap();
        let record = outcome.record;
        assert_eq!(
            record.cut_short,
            Some(CutShort::ServerGone),
            "{arrivals:?} {transport:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert!(record.duration_s < 10.0 && record.errors > 0, "{record:?}");
        // What was answered before counts, and only that.
        assert!(
            record.delivered_op_s > 100.0 && record.delivered_op_s < 1_100.0,
            "{}",
            record.delivered_op_s
        );
        assert!(record.mean_ms.unwrap() < 500.0, "{:?}", record.mean_ms);
        let message = outcome
            .left_behind
            .expect("nobody could remove the data set")
            .to_string();
        assert!(message.contains(&"127.0.0.1".to_string()), "{message}");
    }
}

/// The server comes back without its files: connections are made anew, and every handle is stale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_started_anew_has_stale_handles() {
    let _guard = beside_others().await;
    let server = serve(&config()).await;
    let address = server.address();
    let mut plan = plan(address);
    plan.duration = Duration::from_secs(6);
    let load = tokio::spawn(run(plan));
    tokio::time::sleep(Duration::from_millis(2_000)).await;
    drop(server);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let again = Config {
        listen: address,
        ..config()
    };
    let deadline = Instant::now() + Duration::from_secs(3);
    let _server = loop {
        match Server::start(&again).await {
            Ok(server) => break server,
            Err(_) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    };
    let outcome = load.await.unwrap().unwrap();
    let kinds = outcome.record.errors_by_kind;
    assert!(
        kinds.get("NFS3ERR_STALE").is_some_and(|count| *count > 100),
        "{kinds:?}"
    );
    assert!(kinds.contains_key("connection lost"), "{kinds:?}");
    assert_eq!(outcome.record.cut_short, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_read_only_export_is_refused_at_once() {
    let _guard = beside_others().await;
    let server = serve(&Config {
        read_only: true,
        ..config()
    })
    .await;
    let error = run(plan(server.address())).await.unwrap_err();
    assert!(
        matches!(error, LoadError::DataSet(DataSetError::ReadOnly)),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_full_disk_is_known_before_anything_is_written() {
    let _guard = beside_others().await;
    let server = serve(&Config {
        capacity: 16 << 20,
        ..config()
    })
    .await;
    let mut plan = plan(server.address());
    (plan.rate, plan.scale) = (1_000.0, 0.01);
    let error = run(plan).await.unwrap_err();
    assert!(
        matches!(error, LoadError::DataSet(DataSetError::NoRoom { free, .. }) if free < 16 << 20),
        "{error}"
    );
    assert!(error.to_string().contains("lower --scale"), "{error}");
    assert_eq!(server.objects(), 1);
}

/// Somebody else fills the disk while the load runs: writes fail, reads go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fills_up_fails_writes_only() {
    let _guard = beside_others().await;
    let server = Arc::new(
        serve(&Config {
            capacity: 40 << 20,
            ..config()
        })
        .await,
    );
    let mut plan = plan(server.address());
    plan.duration = Duration::from_secs(3);
    let filling = Arc::clone(&server);
    let outcome = run_and(plan, Stop::default(), move |progress| {
        if matches!(progress, Progress::Running { .. }) {
            filling.set_capacity(0);
        }
    })
    .await
    .unwrap();
    let kinds = &outcome.record.errors_by_kind;
    assert!(
        kinds.get("NFS3ERR_NOSPC").is_some_and(|count| *count > 20),
        "{kinds:?}"
    );
    assert_eq!(kinds.len(), 1, "{kinds:?}");
    assert!(
        outcome.examples[0].contains("NFS3ERR_NOSPC"),
        "{:?}",
        outcome.examples
    );
    assert!(outcome.left_behind.is_none());
}

#[tokio::test]
async fn a_dead_port_says_so() {
    let _guard = beside_others().await;
    let server = serve(&config()).await;
    let address = server.address();
    drop(server);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut plan = plan(address);
    plan.options.timeout = Duration::from_secs(1);
    let error = run(plan.clone()).await.unwrap_err().to_string();
    assert!(error.contains("onnect") && error.contains("127.0.0.1"), "{error}");
    plan.options.transport = Transport::Udp;
    let error = run(plan).await.unwrap_err().to_string();
    assert!(error.contains("did not answer within 1s"), "{error}");
}

/// 5 % of datagrams lost each way: calls are repeated, none fails, none is executed twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_datagrams_are_sent_again() {
    let _guard = beside_others().await;
    let server = serve(&config()).await;
    let relay = lossy_relay(server.address(), 0.05).await;
    let mut plan = plan(relay);
    plan.options.transport = Transport::Udp;
    plan.options.retransmit_after = Duration::from_millis(50);
    plan.processes = Some(64);
    plan.duration = Duration::from_secs(4);
    let outcome = run(plan).await.unwrap();
    let record = outcome.record;
    assert_eq!(record.errors, 0, "{:?}", outcome.examples);
    assert!(outcome.left_behind.is_none(), "{:?}", outcome.left_behind);
    // 1 - 0.95² of some 4300 calls are repeated at least once.
    assert!(
        (250..900).contains(&record.retransmissions),
        "{}",
        record.retransmissions
    );
    assert!(
        record.p99_ms.unwrap() > 50.0 && record.p50_ms.unwrap() < 20.0,
        "{record:?}"
    );
    assert!(
        server.tally().repeated > 0,
        "some lost replies were to creations or removals"
    );
    assert_eq!(server.objects(), 1);
}

/// Passes datagrams between clients and a server, and loses some.
async fn lossy_relay(server: SocketAddr, loss: f64) -> SocketAddr {
    let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let address = front.local_addr().unwrap();
    tokio::spawn(async move {
        let mut random = SplitMix64::new(77);
        let mut backs = std::collections::HashMap::<SocketAddr, Arc<UdpSocket>>::new();
        let mut buffer = vec![0; 65_536];
        loop {
            let Ok((length, client)) = front.recv_from(&mut buffer).await else {
                continue;
            };
            let back = match backs.get(&client) {
                Some(back) => Arc::clone(back),
                None => {
                    let back = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
                    back.connect(server).await.unwrap();
                    backs.insert(client, Arc::clone(&back));
                    tokio::spawn(pass_back(
                        Arc::clone(&front),
                        Arc::clone(&back),
                        client,
                        random.split(),
                        loss,
                    ));
                    back
                }
            };
            if random.fraction() >= loss {
                let _ = back.send(&buffer[..length]).await;
            }
        }
    });
    address
}

async fn pass_back(
    front: Arc<UdpSocket>,
    back: Arc<UdpSocket>,
    client: SocketAddr,
    mut random: SplitMix64,
    loss: f64,
) {
    let mut buffer = vec![0; 65_536];
    while let Ok(length) = back.recv(&mut buffer).await {
        if random.fraction() >= loss {
            let _ = front.send_to(&buffer[..length], client).await;
        }
    }
}
