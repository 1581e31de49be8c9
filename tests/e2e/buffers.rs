//! Drop-tail buffers: the first packet that does not fit is dropped, no other.
//!
//! A server of 100 kbit/s takes 83 ms for a 1042-byte frame, so that a burst fills it long before the first frame
//! has left: which packets fit is certain.

use std::time::Duration;

use anyhow::{Result, ensure};
use perturb_tests::datagrams::{self, Plan};

use crate::harness::{Setting, Test, each, thrice};

pub(crate) const TESTS: &[Test] = &[
    each("buffers::bytes", |setting| {
        fits(setting, "buffer: 10420B", "tail_drop")
    }),
    each("buffers::time", |setting| {
        fits(setting, "buffer: 834ms", "tail_drop")
    }),
    each("buffers::packets", |setting| {
        fits(setting, "buffer: 10 packets", "packet_limit")
    }),
    each("buffers::half_a_packet_less_holds_one_less", half_less).long(),
];

const BURST: usize = 15;

fn burst(setting: &Setting, buffer: &str) -> Result<(Vec<usize>, serde_json::Value)> {
    let (bed, before) = setting.bed()?;
    let profile = format!("bandwidth: 100kbit/s\n{buffer}");
    let applied = setting.product.apply(&bed.left, &profile, setting.pacer)?;
    let plan = Plan {
        count: BURST,
        size: 1000,
        burst: BURST,
        patience: Duration::from_secs(3),
        ..Plan::default()
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    let report = applied.counters()?;
    applied.nothing_unintended()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    Ok((trace.lost(), report))
}

fn fits(setting: &Setting, buffer: &str, reason: &str) -> Result<()> {
    thrice(|| {
        let (lost, report) = burst(setting, buffer)?;
        ensure!(
            report["drops"][reason] == lost.len(),
            "{} lost, counted {}",
            lost.len(),
            report["drops"]
        );
        all_from(10, &lost)
    })
}

/// Half a frame, because a few bytes leave while the burst comes.
fn half_less(setting: &Setting) -> Result<()> {
    thrice(|| {
        let (lost, _) = burst(setting, "buffer: 9900B")?;
        all_from(9, &lost)
    })
}

/// What is wrong if not all from `first` on are lost: a sender that loses the processor sends no burst. None before may be.
fn all_from(first: usize, lost: &[usize]) -> Result<Option<String>> {
    ensure!(
        lost.iter().all(|&number| number >= first),
        "lost {lost:?}, though {first} fit"
    );
    let missing = lost.len() < BURST - first;
    Ok(missing.then(|| format!("lost {lost:?} of a burst of {BURST}")))
}
