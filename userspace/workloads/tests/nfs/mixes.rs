//! What the server was asked, in its own count.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use perturb_workloads::nfs::{
    Stop,
    client::Transport,
    load::Progress,
    mix::{self, Mix},
    procedure::Procedure,
    record::Arrivals,
    server::Tally,
};
use strum::VariantArray as _;

use crate::common::{beside_others, config, plan, run, run_and, serve};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "long: cargo xtask test --full"]
async fn every_mix_runs_without_an_error_and_leaves_nothing() {
    let _guard = beside_others().await;
    for name in mix::NAMES {
        for arrivals in [Arrivals::Closed, Arrivals::Open] {
            for transport in [Transport::Tcp, Transport::Udp] {
                let server = serve(&config()).await;
                let mut plan = plan(server.address());
                plan.mix = Mix::named(name).unwrap();
                plan.arrivals = arrivals;
                plan.options.transport = transport;
                let outcome = run(plan).await.unwrap();
                let record = outcome.record;
                assert_eq!(
                    record.errors, 0,
                    "{name} {arrivals:?} {transport:?}: {:?}",
                    outcome.examples
                );
                assert_eq!(record.cut_short, None);
                assert!(outcome.left_behind.is_none(), "{:?}", outcome.left_behind);
                assert!(record.delivered_op_s > 800.0, "{name} {record:?}");
                assert_eq!(server.objects(), 1, "only the root is left");
            }
        }
    }
}

/// At least 20 000 RPCs as the server counts them: every share within 0.5 percentage points, read and
/// write sizes as SFS has them.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_server_sees_the_mix_and_the_sizes() {
    let _guard = beside_others().await;
    for name in mix::NAMES {
        let mix = Mix::named(name).unwrap();
        let server = Arc::new(serve(&config()).await);
        let mut plan = plan(server.address());
        plan.mix = mix.clone();
        plan.rate = 4_000.0;
        plan.duration = Duration::from_secs(6);
        // The data set is made before the first, and removed after the last of these.
        let seen: Arc<Mutex<[Option<Tally>; 2]>> = Arc::default();
        let (noting, watched) = (Arc::clone(&seen), Arc::clone(&server));
        let outcome = run_and(plan, Stop::default(), move |progress| {
            let mut noted = noting.lock().unwrap();
            match progress {
                Progress::Running { .. } if noted[0].is_none() => noted[0] = Some(watched.tally()),
                Progress::Removing => noted[1] = Some(watched.tally()),
                _ => {}
            }
        })
        .await
        .unwrap();
        let [Some(before), Some(after)] = seen.lock().unwrap().clone() else {
            panic!("no tallies")
        };
        let count = |tally: &Tally, procedure| tally.calls.get(&procedure).copied().unwrap_or(0);
        let asked = |procedure| (count(&after, procedure) - count(&before, procedure)) as f64;
        let total: f64 = Procedure::VARIANTS.iter().copied().map(asked).sum();
        assert!(total >= 20_000.0, "{total} RPCs only");
        for &procedure in Procedure::VARIANTS {
            let percent = 100.0 * asked(procedure) / total;
            let wanted = mix.percent(procedure);
            assert!(
                (percent - wanted).abs() < 0.5,
                "{name} {procedure}: {percent} %, not {wanted} %"
            );
            let recorded = outcome
                .record
                .operations
                .get(&procedure)
                .map_or(0.0, |operation| operation.percent);
            assert!(
                (recorded - wanted).abs() < 0.5,
                "{name} {procedure}: recorded {recorded} %"
            );
        }
        // RPCs of 8 KiB per read are 1.49 of 1.64, per write 1.21 of 2.21 (1 is always a fragment).
        let share = |sizes: &dyn Fn(&Tally) -> &Vec<u64>| {
            let size = |kib: usize| (sizes(&after)[kib] - sizes(&before)[kib]) as f64;
            assert_eq!(
                size(0) + (9..size_count(sizes(&after))).map(size).sum::<f64>(),
                0.0
            );
            size(8) / (1..=8).map(size).sum::<f64>()
        };
        let reads = share(&|tally| &tally.read_kib);
        assert!(
            (reads - 1.49 / 1.64).abs() < 0.02,
            "{name}: {reads} of read RPCs bring a block"
        );
        let writes = share(&|tally| &tally.write_kib);
        let blocks = 0.36 + 0.08 * 2.0 + 0.04 * 4.0 + 0.02 * 8.0 + 0.01 * 16.0;
        assert!(
            (writes - blocks / (1.0 + blocks)).abs() < 0.04,
            "{name}: {writes} of write RPCs bring a block"
        );
    }
}

fn size_count(sizes: &[u64]) -> usize {
    sizes.len()
}
