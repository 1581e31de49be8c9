//! Loss, duplication, damage, marks and jitter: what becomes of each packet.
//!
//! Choices are functions of the profile's seed and the packet's index, so the counts below are the same in
//! every run; the intervals are for seeds in general.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use perturb_common::{
    queue::{CODEL, Head, Law, State, Verdict, judge, spacing},
    units::{Instant, MonoNanos, Nanos, Ticks},
};
use perturb_tests::datagrams::{self, Plan, Trace};
use serde_json::Value;

use crate::harness::{Setting, Test, each, figure, slow, thrice};

pub(crate) const TESTS: &[Test] = &[
    each("fates::random_loss_is_binomial_and_seeded", random_loss),
    each("fates::gilbert_elliott_loses_bursts", bursts),
    each("fates::nth_loses_the_listed", nth),
    each("fates::duplicates", duplicates),
    each("fates::checksums_catch_corruption", corruption),
    each("fates::ecn_marks_above_the_backlog", |setting| {
        thrice(|| marks(setting))
    }),
    each("fates::codel_drops_and_marks", |setting| {
        thrice(|| codel(setting))
    }),
    each("fates::waits_before_pie_are_told", |setting| {
        thrice(|| waits(setting))
    }),
    each("fates::jitter_keeps_order", jitter_in_order),
    each("fates::jitter_reorders_if_asked", jitter_reordered),
];

/// Two-sided 99 % of a normal distribution.
const Z99: f64 = 2.576;

/// Sends datagrams through a profile; what arrived, and the report.
fn through(setting: &Setting, profile: &str, plan: &Plan) -> Result<(Trace, Value)> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, profile, setting.pacer)?;
    let trace = datagrams::send(&bed.left, &bed.right, plan)?;
    let report = applied.counters()?;
    applied.nothing_unintended()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    Ok((trace, report))
}

fn many(count: usize) -> Plan {
    Plan {
        count,
        burst: 10,
        interval: Duration::from_millis(if slow() { 10 } else { 1 }),
        patience: Duration::from_secs(1),
        ..Plan::default()
    }
}

fn expect_count(what: &str, count: usize, mean: f64, deviation: f64) -> Result<()> {
    ensure!(
        (count as f64 - mean).abs() <= Z99 * deviation + 0.5,
        "{count} {what}; {mean:.0} ± {:.0} are to be expected",
        Z99 * deviation
    );
    Ok(())
}

fn random_loss(setting: &Setting) -> Result<()> {
    let plan = many(10_000);
    let lossy = |seed: u32| -> Result<Vec<usize>> {
        // Only the test's own datagrams: what the kernel says by itself, when it likes, would take its turns, too.
        let profile = format!(
            "seed: {seed}\nservers: {{ wire: {{ loss: 1% }} }}\n\
             classes: [{{ name: own, match: {{ protocol: udp }}, egress: [wire], ingress: [wire] }}]"
        );
        let (trace, report) = through(setting, &profile, &plan)?;
        let lost = trace.lost();
        ensure!(
            report["drops"]["loss"] == lost.len(),
            "{} lost, {} counted",
            lost.len(),
            report["drops"]["loss"]
        );
        Ok(lost)
    };
    let first = lossy(7)?;
    figure!("loss 1 % of {}: {} lost", plan.count, first.len());
    let (n, p) = (plan.count as f64, 0.01);
    expect_count("lost", first.len(), n * p, (n * p * (1.0 - p)).sqrt())?;
    ensure!(first == lossy(7)?, "the same seed lost other packets");
    ensure!(first != lossy(8)?, "another seed lost the same packets");
    Ok(())
}

fn bursts(setting: &Setting) -> Result<()> {
    let (p, r) = (0.01, 0.25);
    let plan = many(20_000);
    let (trace, report) = through(setting, "loss: { gilbert_elliott: { p: 1%, r: 25% } }", &plan)?;
    let lost = trace.lost();
    ensure!(
        report["drops"]["burst_loss"] == lost.len(),
        "counted {}",
        report["drops"]["burst_loss"]
    );
    let begins = lost
        .iter()
        .enumerate()
        .filter(|&(place, &number)| place == 0 || lost[place - 1] + 1 != number);
    let bursts = begins.count();
    let length = lost.len() as f64 / bursts as f64;
    figure!(
        "Gilbert-Elliott p 1 %, r 25 %: {} of {} lost in {bursts} bursts of {length:.2}",
        lost.len(),
        plan.count
    );
    // The chain's correlation 1-p-r from one packet to the next widens the binomial deviation.
    let (n, share, correlation) = (plan.count as f64, p / (p + r), 1.0 - p - r);
    let widening: f64 = (1.0 + correlation) / (1.0 - correlation);
    expect_count(
        "lost",
        lost.len(),
        n * share,
        (n * share * (1.0 - share) * widening).sqrt(),
    )?;
    // Lengths are geometric with mean 1/r.
    let deviation = ((1.0 - r) / (r * r)).sqrt() / (bursts as f64).sqrt();
    ensure!(
        (length - 1.0 / r).abs() < Z99 * deviation,
        "bursts of {length:.2}, not {:.2}",
        1.0 / r
    );
    Ok(())
}

fn nth(setting: &Setting) -> Result<()> {
    let plan = Plan {
        count: 200,
        ..many(200)
    };
    let (trace, _) = through(setting, "loss: { nth: [1, 5, 6, 100] }", &plan)?;
    ensure!(trace.lost() == [0, 4, 5, 99], "lost {:?}", trace.lost());
    Ok(())
}

fn duplicates(setting: &Setting) -> Result<()> {
    let plan = many(2_000);
    let (trace, report) = through(setting, "duplicate: 10%", &plan)?;
    ensure!(trace.lost().is_empty(), "{} lost", trace.lost().len());
    let twice = trace.duplicates();
    figure!("duplicate 10 % of {}: {twice}", plan.count);
    ensure!(
        report["events"]["duplicated"] == twice,
        "counted {}",
        report["events"]["duplicated"]
    );
    let (n, p) = (plan.count as f64, 0.1);
    expect_count("duplicates", twice, n * p, (n * p * (1.0 - p)).sqrt())
}

fn corruption(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "corrupt: 10%", setting.pacer)?;
    let plan = Plan {
        size: 1000,
        ..many(2_000)
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    let report = applied.counters()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    let damaged = report["events"]["corrupted"].as_u64().unwrap_or_default() as usize;
    let caught = datagrams::counted(&bed.right, "InCsumErrors")? as usize;
    figure!(
        "corrupt 10 % of {}: {damaged} damaged, {} lost, {caught} by UDP's checksum",
        plan.count,
        trace.lost().len()
    );
    let (n, p) = (plan.count as f64, 0.1);
    expect_count("damaged", damaged, n * p, (n * p * (1.0 - p)).sqrt())?;
    ensure!(
        trace.received.iter().all(|receipt| receipt.intact),
        "a damaged datagram was delivered"
    );
    ensure!(
        trace.lost().len() == damaged,
        "{} lost, {damaged} damaged",
        trace.lost().len()
    );
    // 1000 of the 1030 bytes behind the MAC addresses are UDP's.
    ensure!(
        caught * 10 > damaged * 9,
        "UDP's checksum caught {caught} of {damaged}"
    );
    Ok(())
}

/// 1042-byte frames at 100 kbit/s take 83.36 ms each: from the eighth of a burst on, the backlog is above 540 ms, even
/// if the burst takes 40 ms to come.
fn marks(setting: &Setting) -> Result<Option<String>> {
    const ECT0: u8 = 2;
    const CE: u8 = 3;
    let profile = "bandwidth: 100kbit/s\necn: 540ms";
    let plan = Plan {
        count: 30,
        size: 1000,
        burst: 10,
        interval: Duration::from_millis(1_000),
        patience: Duration::from_millis(1_200),
        tos: ECT0,
        ..Plan::default()
    };
    let (trace, report) = through(setting, profile, &plan)?;
    ensure!(trace.lost().is_empty(), "{} lost", trace.lost().len());
    let over = backlogs_ms(&trace.sent, 83.36);
    let wrong = trace.received.iter().find_map(|receipt| {
        let over = over[receipt.number] - 540.0;
        // Between the reading of the clock and the program a busy machine takes its time.
        let expected = if over > 0.0 { CE } else { ECT0 };
        (receipt.tos != expected && over.abs() >= 20.0).then(|| {
            format!(
                "datagram {} has ECN {}, {over:.1} ms over the threshold",
                receipt.number, receipt.tos
            )
        })
    });
    let marked = trace.received.iter().filter(|receipt| receipt.tos == CE).count();
    ensure!(marked >= 3, "{marked} marked");
    ensure!(
        report["events"]["marked"] == marked,
        "counted {} of {marked}",
        report["events"]["marked"]
    );
    let (trace, report) = through(setting, profile, &Plan { tos: 0, ..plan })?;
    ensure!(
        trace.received.iter().all(|receipt| receipt.tos == 0),
        "a datagram without ECN was marked"
    );
    let capable = report["events"]["not_ecn_capable"]
        .as_u64()
        .context("datagrams without ECN are not counted")?;
    let over = backlogs_ms(&trace.sent, 83.36);
    let count = |threshold: f64| over.iter().filter(|&&backlog| backlog > threshold).count() as u64;
    let expected = count(560.0)..=count(520.0);
    let miscounted = (!expected.contains(&capable)).then(|| format!("counted {capable}, not {expected:?}"));
    Ok(wrong.or(miscounted))
}

/// 1042-byte frames at 1 Mbit/s take 8.336 ms each; they come as if it were 1.67 Mbit/s.
fn codel(setting: &Setting) -> Result<Option<String>> {
    const ECT0: u8 = 2;
    const CE: u8 = 3;
    let profile =
        "bandwidth: 1Mbit/s\nbuffer: 3s\nqueue: { kind: codel, target: 20ms, interval: 100ms, ecn: true }";
    let plan = Plan {
        count: 200,
        size: 1000,
        burst: 10,
        interval: Duration::from_millis(50),
        patience: Duration::from_secs(2),
        ..Plan::default()
    };
    let (trace, report) = through(setting, profile, &plan)?;
    let queue = &report["servers"][0]["queue"];
    let lost = trace.lost().len();
    ensure!(
        queue["kind"] == "codel" && queue["drops"] == lost && report["drops"]["early_drop"] == lost,
        "{lost} lost: {queue}"
    );
    // The law over the times of sending: the program reads the clock a little later.
    let millis = |count: u64| Nanos(count * 1_000_000).ticks();
    let law = Law {
        kind: CODEL,
        target: millis(20),
        interval: millis(100),
        ..Law::TAIL
    };
    let (mut free, mut state) = (Instant(0), State::default());
    let mut dropped = 0;
    for &sent in &trace.sent {
        let arrival = MonoNanos(sent).instant();
        let start = arrival.max(free);
        let head = Head {
            start,
            sojourn: start.since(arrival),
            idle: arrival.since(free),
            // No packet is as long as the target.
            small: Ticks(0),
            ecn: 0,
            salt: 0,
        };
        if judge(&law, &mut state, head, spacing) == Verdict::Drop {
            dropped += 1;
        } else {
            free = start.after(Nanos(8_336_000).ticks());
        }
    }
    figure!("codel: {lost} of 200 dropped; by the times of sending {dropped}");
    ensure!(dropped > 20, "{dropped} to be dropped");
    let (marked, report) = through(setting, profile, &Plan { tos: ECT0, ..plan })?;
    let marks = marked.received.iter().filter(|receipt| receipt.tos == CE).count();
    let queue = &report["servers"][0]["queue"];
    ensure!(
        marked.lost().is_empty()
            && marks > 20
            && queue["marks"] == marks
            && report["events"]["marked"] == marks,
        "{} lost, {marks} marked: {queue}",
        marked.lost().len()
    );
    Ok((lost.abs_diff(dropped) > 2).then(|| format!("{lost} dropped, not {dropped}")))
}

/// The same frames; what `status` says of waits, beside those that the datagrams themselves had.
fn waits(setting: &Setting) -> Result<Option<String>> {
    let profile = "bandwidth: 1Mbit/s\nbuffer: 3s\nqueue: { kind: pie, max_burst: 0s }";
    let plan = Plan {
        count: 300,
        size: 1000,
        burst: 5,
        interval: Duration::from_millis(20),
        patience: Duration::from_secs(3),
        ..Plan::default()
    };
    let (trace, report) = through(setting, profile, &plan)?;
    let queue = &report["servers"][0]["queue"];
    let lost = trace.lost().len();
    ensure!(
        queue["kind"] == "pie" && queue["drops"] == lost && lost > 20,
        "{lost} lost: {queue}"
    );
    let mut waited = Vec::new();
    for receipt in &trace.received {
        let sent = trace.sent[receipt.number];
        waited.push((receipt.at.saturating_sub(sent) as f64 / 1e3 - 8336.0).max(0.0));
    }
    waited.sort_by(f64::total_cmp);
    let mut wrong = None;
    for (key, share) in [
        ("p50_us", 0.5),
        ("p95_us", 0.95),
        ("p99_us", 0.99),
        ("max_us", 1.0),
    ] {
        let own = waited[(waited.len() as f64 * share).ceil() as usize - 1];
        let said = &queue["sojourn"][key];
        let told = said
            .as_f64()
            .with_context(|| format!("status has no sojourn.{key}: {queue}"))?;
        figure!("pie: {key} is {told:.0}, by the datagrams {own:.0}");
        // An upper bound, to an eighth, of what is late besides.
        if told < own - 2000.0 || told > 1.125 * own + 2000.0 {
            wrong = Some(format!("{key} is {told:.0}, not from {own:.0} to an eighth more"));
        }
    }
    Ok(wrong)
}

/// The backlog that each datagram finds at a server that takes so many milliseconds for one.
fn backlogs_ms(sent: &[u64], service_ms: f64) -> Vec<f64> {
    let mut free = 0.0_f64;
    sent.iter()
        .map(|&sent| {
            let sent = sent as f64 / 1e6;
            let start = free.max(sent);
            free = start + service_ms;
            start - sent
        })
        .collect()
}

/// A datagram every 500 µs, moved by up to 2 ms either way.
fn jittered(setting: &Setting, reorder: bool) -> Result<Trace> {
    let profile = format!("latency: 10ms\njitter: {{ scale: 2ms, reorder: {reorder} }}");
    let plan = Plan {
        count: 1_000,
        interval: Duration::from_micros(500),
        ..Plan::default()
    };
    let (trace, _) = through(setting, &profile, &plan)?;
    ensure!(trace.lost().is_empty(), "{} lost", trace.lost().len());
    let delays = trace.delays_us()?;
    let least = 8_000.0 - setting.early_us();
    ensure!(delays.min() >= least, "a delay of {} us", delays.min());
    figure!(
        "jitter 2 ms, reorder {reorder}: delays {:.0} to {:.0} us, median {:.0}, {} reordered",
        delays.min(),
        delays.max(),
        delays.median(),
        trace.reordered()
    );
    Ok(trace)
}

fn jitter_in_order(setting: &Setting) -> Result<()> {
    let trace = jittered(setting, false)?;
    ensure!(trace.reordered() == 0, "{} overtook", trace.reordered());
    let delays = trace.delays_us()?;
    ensure!(
        delays.interquartile_range() > 300.0,
        "no jitter: {} us",
        delays.interquartile_range()
    );
    Ok(())
}

fn jitter_reordered(setting: &Setting) -> Result<()> {
    thrice(|| {
        let trace = jittered(setting, true)?;
        ensure!(trace.reordered() > 100, "only {} overtook", trace.reordered());
        // The middle half of an even distribution over 4 ms is 2 ms wide.
        let width = trace.delays_us()?.interquartile_range();
        let off = !(1_600.0..2_600.0).contains(&width);
        Ok(off.then(|| format!("the middle half is {width:.0} us wide")))
    })
}
