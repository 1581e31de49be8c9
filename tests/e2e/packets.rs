//! Packets of all shapes: IPv6, fragments, super-packets.

use std::time::Duration;

use anyhow::{Result, ensure};
use perturb_tests::{
    bed::Family,
    datagrams::{self, Plan},
    streams::{self, Transfer},
};
use serde_json::Value;

use crate::harness::{Setting, Test, each, figure};

pub(crate) const TESTS: &[Test] = &[
    each("packets::ipv6_is_delayed_and_lossless", ipv6),
    each("packets::fragments_follow_their_first", fragments),
    each("packets::exact_splits_super_packets", exact),
    each("packets::whole_charges_super_packets", whole),
];

fn ipv6(setting: &Setting) -> Result<()> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, "latency: 10ms", setting.pacer)?;
    let plan = Plan {
        count: 200,
        family: Family::V6,
        ..Plan::default()
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    applied.nothing_unintended()?;
    applied.stop()?;
    let delays = trace.delays_us()?;
    ensure!(trace.lost().is_empty(), "{} lost", trace.lost().len());
    figure!("IPv6, 10 ms: median {:.1} us", delays.median());
    ensure!(
        delays.min() >= 10_000.0 - setting.early_us(),
        "a datagram arrived after {} us",
        delays.min()
    );
    before.must_be_that_of(&bed.left)
}

/// 4000 bytes are three fragments, of which only the first has ports.
fn fragments(setting: &Setting) -> Result<()> {
    let profile = "
servers: { slow: { latency: 10ms } }
classes: [{ name: port, match: { protocol: udp, port: 7000 }, egress: [slow] }]
";
    for family in [Family::V4, Family::V6] {
        let (bed, before) = setting.bed()?;
        let applied = setting.product.apply(&bed.left, profile, setting.pacer)?;
        let plan = Plan {
            count: 50,
            size: 4000,
            port: 7000,
            family,
            fragment: true,
            ..Plan::default()
        };
        let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
        let report = applied.counters()?;
        applied.nothing_unintended()?;
        applied.stop()?;
        before.must_be_that_of(&bed.left)?;
        ensure!(trace.lost().is_empty(), "{family:?}: {} lost", trace.lost().len());
        ensure!(
            trace.received.iter().all(|receipt| receipt.intact),
            "{family:?}: put together wrongly"
        );
        let packets = &report["classes"][0]["egress"]["packets"];
        ensure!(
            *packets == 150,
            "{family:?}: {packets} fragments of 150 in the class of their port"
        );
        ensure!(
            report["events"]["fragment_unknown"] == 0,
            "{family:?}: {}",
            report["events"]
        );
        ensure!(
            trace.delays_us()?.min() >= 10_000.0 - setting.early_us(),
            "{family:?}: a fragment was early"
        );
    }
    Ok(())
}

/// Sends a second of TCP; the counters of the only class at egress, and how many super-packets were split.
fn stream(setting: &Setting, profile: &str) -> Result<(Value, u64)> {
    let (bed, before) = setting.bed()?;
    let applied = setting.product.apply(&bed.left, profile, setting.pacer)?;
    let transfer = Transfer {
        warm_up: Duration::from_millis(200),
        window: Duration::from_secs(1),
        ..Transfer::default()
    };
    streams::goodput(&bed.left, &bed.right, &transfer)?;
    let report = applied.counters()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    Ok((
        report["classes"][0]["egress"].clone(),
        report["events"]["split"].as_u64().unwrap_or_default(),
    ))
}

fn exact(setting: &Setting) -> Result<()> {
    let (egress, split) = stream(
        setting,
        "latency: 5ms\nbandwidth: 2Gbit/s\nbuffer: 1MiB\nsegmentation: exact",
    )?;
    figure!(
        "exact: {} packets, {} on the wire, {split} super-packets split",
        egress["packets"],
        egress["wire_packets"]
    );
    ensure!(split > 0, "no super-packet was sent");
    ensure!(
        egress["packets"] == egress["wire_packets"],
        "a super-packet crossed a server whole"
    );
    Ok(())
}

fn whole(setting: &Setting) -> Result<()> {
    let (egress, split) = stream(setting, "latency: 5ms\nbandwidth: 2Gbit/s\nsegmentation: whole")?;
    figure!(
        "whole: {} packets, {} on the wire",
        egress["packets"],
        egress["wire_packets"]
    );
    ensure!(split == 0, "{split} super-packets were split");
    let number = |key: &str| egress[key].as_f64().unwrap_or_default();
    ensure!(
        number("wire_packets") > 2.0 * number("packets"),
        "super-packets were not charged as such"
    );
    // Headers of each wire packet count: 1514 bytes at most, and nearly that on average.
    let mean = number("bytes") / number("wire_packets");
    ensure!(
        (1_200.0..=1_514.0).contains(&mean),
        "{mean:.0} bytes per wire packet"
    );
    Ok(())
}
