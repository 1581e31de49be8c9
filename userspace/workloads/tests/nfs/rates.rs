//! Rates: that they are held, how high they go, and what they cost.

use std::{collections::BTreeMap, time::Duration};

use perturb_verdict::{bound, or_end, thrice};
use perturb_workloads::nfs::{mix::Mix, procedure::Procedure, record::Arrivals};

use crate::common::{alone, config, plan, run, serve};

/// Within 1 % of the requested rate, over ten seconds.
#[test]
#[ignore = "long: cargo xtask test --full"]
fn the_requested_rate_is_held() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let _guard = runtime.block_on(alone());
    for (arrivals, rate) in [
        (Arrivals::Closed, 400.0),
        (Arrivals::Closed, 1_500.0),
        (Arrivals::Open, 1_500.0),
    ] {
        or_end!(thrice(|| {
            let delivered = runtime.block_on(delivered(arrivals, rate));
            let share = delivered / rate;
            println!("{arrivals:?}: asked {rate} op/s, delivered {delivered:.1} ({share:.4})");
            bound!(
                (share - 1.0).abs() < 0.01,
                "{arrivals:?}: {rate} op/s asked, {delivered} delivered"
            );
            Ok(None)
        }));
    }
}

/// Operations per second that a load of ten seconds does.
async fn delivered(arrivals: Arrivals, rate: f64) -> f64 {
    let server = serve(&config()).await;
    let mut plan = plan(server.address());
    (plan.arrivals, plan.rate) = (arrivals, rate);
    plan.warmup = Duration::from_secs(2);
    plan.duration = Duration::from_secs(10);
    run(plan).await.unwrap().record.delivered_op_s
}

/// What two processors do for client and server together. The floor is for optimized code.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "long: cargo xtask test --full"]
async fn loopback_carries_twenty_thousand_calls_a_second() {
    let _guard = alone().await;
    let floor = if cfg!(debug_assertions) { 1_000.0 } else { 20_000.0 };
    let getattr = Mix::new("getattr", BTreeMap::from([(Procedure::Getattr, 100.0)])).unwrap();
    for mix in [getattr, Mix::named("sfs2008").unwrap()] {
        let server = serve(&config()).await;
        let mut plan = plan(server.address());
        plan.mix = mix;
        plan.scale = 1e-4;
        plan.rate = 10.0 * floor;
        plan.processes = Some(64);
        plan.connections = Some(8);
        plan.duration = Duration::from_secs(5);
        let outcome = run(plan).await.unwrap();
        let record = outcome.record;
        println!(
            "{}: {:.0} op/s delivered, mean {:.3} ms, p99 {:.3} ms",
            record.mix,
            record.delivered_op_s,
            record.mean_ms.unwrap(),
            record.p99_ms.unwrap()
        );
        assert_eq!(record.errors, 0, "{:?}", outcome.examples);
        if record.mix == "getattr" {
            assert!(record.delivered_op_s > floor, "{} op/s", record.delivered_op_s);
        }
    }
}

/// Memory of client and server together after a tenth of the calls, and after all.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn memory_is_flat() {
    let _guard = alone().await;
    let calls = if cfg!(debug_assertions) {
        50_000.0
    } else {
        1_000_000.0
    };
    let server = serve(&config()).await;
    let mut plan = plan(server.address());
    plan.scale = 1e-4;
    plan.rate = 200_000.0;
    plan.processes = Some(64);
    plan.connections = Some(8);
    plan.warmup = Duration::from_millis(100);
    plan.duration = Duration::from_secs(600);
    let stop = perturb_workloads::nfs::Stop::default();
    let (stopping, first) = (stop.clone(), std::sync::Arc::new(std::sync::OnceLock::new()));
    let last = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (noting, noting_last) = (first.clone(), last.clone());
    let outcome = crate::common::run_and(plan, stop, move |progress| {
        let perturb_workloads::nfs::load::Progress::Running { answered, .. } = progress else {
            return;
        };
        if answered as f64 >= 0.2 * calls {
            noting.get_or_init(resident_bytes);
        }
        if answered as f64 >= calls && !stopping.is_set() {
            noting_last.store(resident_bytes(), std::sync::atomic::Ordering::Relaxed);
            stopping.set();
        }
    })
    .await
    .unwrap();
    let (first, last) = (
        *first.get().unwrap(),
        last.load(std::sync::atomic::Ordering::Relaxed),
    );
    println!(
        "resident {:.1} MB after {:.0} calls, {:.1} MB after {calls:.0}; {:.0} op/s",
        first as f64 / 1e6,
        0.2 * calls,
        last as f64 / 1e6,
        outcome.record.delivered_op_s
    );
    assert_eq!(outcome.record.errors, 0, "{:?}", outcome.examples);
    // Files grow until cutting back keeps pace with appending; that is bounded by 144 KiB for each of 100.
    assert!(last < first + (20 << 20), "{first} bytes, then {last}");
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
