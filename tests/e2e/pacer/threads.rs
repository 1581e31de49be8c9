//! Many threads of the user pacer.

use super::*;

/// What `perturb status` says, and how many packets each thread let go, once that is told of all of them: when the lease
/// is renewed.
fn released(applied: &Applied<'_>) -> Result<(Value, Vec<u64>)> {
    let deadline = clock::now() + 10_000_000_000;
    loop {
        let report = applied.counters()?;
        let threads = report["held"]["threads"]
            .as_array()
            .context("status has no held.threads")?;
        let released: Vec<u64> = threads
            .iter()
            .filter_map(|thread| thread["released"].as_u64())
            .collect();
        let all = report["events"]["released"].as_u64();
        if Some(released.iter().sum()) == all {
            return Ok((report, released));
        }
        ensure!(
            clock::now() < deadline,
            "{released:?} are not all {all:?} packets"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Half as many threads as processors serve the flows, and each flow is served by one.
pub(super) fn order_on_threads(setting: &Setting) -> Result<()> {
    needed(setting)?;
    const FLOWS: usize = 32;
    if order::processors() < 2 {
        return Err(skip("one processor has one thread, whose order other tests show"));
    }
    let senders = order::processors().min(4);
    // Nearly as fast as it goes, so that a thread that a flow does not share with another is ahead of it now and then.
    let plain = order::Plan {
        datagrams: crate::order::datagrams(100_000)?,
        flows: FLOWS,
        senders,
        burst: 8,
        size: 64,
        pause: Duration::from_micros(500),
        carrier: order::Carrier::Udp,
    };
    let whole = order::Plan {
        size: 1_000,
        carrier: order::Carrier::SuperPackets,
        ..plain
    };
    for plan in [plain, whole] {
        for right in [false, true] {
            let bed = Bed::new()?;
            let host: &Host = if right { &bed.right } else { &bed.left };
            let profile = "servers: { wan: { bandwidth: 20Gbit/s, latency: 5ms, scope: shared } }\nsegmentation: whole\n\
                           classes: [{ name: all, match: {}, egress: [wan], ingress: [wan] }]";
            let applied = setting
                .product
                .apply_with(host, profile, Pacer::User, &["--lease", "5s"])?;
            let arrivals = order::send(&bed, &plan)?;
            let threads = pacer_threads(&applied)?.len();
            let (_, released) = released(&applied)?;
            // Nothing is unaccounted for.
            let report = at_rest(&applied)?;
            applied.stop()?;
            let named = named_losses(&report);
            let way = if right { "ingress" } else { "egress" };
            figure!(
                "{way}, {senders} sender(s), {:?}: {arrivals:?}, lost {}, of them {named} packets by name; released by \
                 thread {released:?}; {}",
                plan.carrier,
                arrivals.lost(),
                report["balance"]
            );
            ensure!(
                threads == (order::processors() / 2).clamp(1, 8) && released.len() == threads,
                "{threads} threads on {} processors; status: {released:?}",
                order::processors()
            );
            ensure!(
                arrivals.inversions == 0 && arrivals.copies == 0 && arrivals.broken == 0,
                "{way}: {arrivals:?}"
            );
            // A machine that is too slow for the senders loses packets, by name; what was released and did not arrive is lost
            // by the hosts, and a super-packet is several datagrams.
            ensure!(
                arrivals.lost() >= named,
                "{way}: {} were lost: {report}",
                arrivals.lost()
            );
            // That all flows have one of two threads happens one time in 2^31.
            ensure!(
                released
                    .iter()
                    .filter(|&&released| released > arrivals.sent / 1_000)
                    .count()
                    >= threads.min(2),
                "one thread serves all flows: {released:?}"
            );
        }
    }
    Ok(())
}
