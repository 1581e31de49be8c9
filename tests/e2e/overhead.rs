//! LogGP's overhead o: processor time of the hosts, not of the network.

use anyhow::{Result, ensure};
use perturb_tests::{
    bed::Bed,
    datagrams::{self, Plan, Waiting},
};

use crate::harness::{Setting, Test, each, figure, skip};

pub(crate) const TESTS: &[Test] = &[
    each("overhead::sender_pays_80_us", |setting| {
        setting.fairly(|| sender(setting))
    }),
    each("overhead::each_end_adds_its_own_to_a_lone_packet", |setting| {
        setting.fairly(|| lone(setting))
    }),
    each("overhead::catches_a_broken_emulator", |setting| {
        setting.fairly(|| broken(setting))
    }),
];

const TOLERANCE: f64 = 0.05;
const IDLE: &str = "classes: [{ name: all, match: {}, egress: [] }]";
const SEND: &str = "overhead: { send: 80us }\nclasses: [{ name: all, match: {}, egress: [] }]";

/// Processor time per datagram of a sender that sends without pause, and how many it sends per second.
fn cost(bed: &Bed) -> Result<(f64, f64)> {
    let plan = Plan {
        count: 2_000,
        burst: 2_000,
        receive_afterwards: true,
        ..Plan::default()
    };
    let trace = datagrams::send(&bed.left, &bed.right, &plan)?;
    ensure!(trace.lost().is_empty(), "{} lost", trace.lost().len());
    let took = (trace.sent[trace.sent.len() - 1] - trace.sent[0]) as f64;
    Ok((trace.send_cost / 1e3, (trace.sent.len() - 1) as f64 * 1e9 / took))
}

/// How much a profile adds to the processor time of a datagram, microseconds.
fn rise(setting: &Setting, profile: &str) -> Result<f64> {
    if !setting.kernel.jit {
        return Err(skip(
            "the sandbox's kernel counts processor time in ticks of 10 ms",
        ));
    }
    let (bed, before) = setting.bed()?;
    // What the programs cost without overhead is not overhead.
    let idle = setting.product.apply(&bed.left, IDLE, setting.pacer)?;
    let (off, off_rate) = cost(&bed)?;
    idle.stop()?;
    let applied = setting.product.apply(&bed.left, profile, setting.pacer)?;
    let (on, on_rate) = cost(&bed)?;
    applied.nothing_unintended()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    figure!(
        "{profile:.24}…: processor time per packet {off:.2} -> {on:.2} us, rate {off_rate:.0} -> {on_rate:.0} 1/s"
    );
    ensure!(
        on_rate < 1e6 / (on - off),
        "the sender is faster than its overhead allows"
    );
    Ok(on - off)
}

fn is_off(rise: f64) -> bool {
    (rise / 80.0 - 1.0).abs() > TOLERANCE
}

fn sender(setting: &Setting) -> Result<()> {
    let rise = rise(setting, SEND)?;
    ensure!(!is_off(rise), "processor time rose by {rise:.2} us, not 80");
    Ok(())
}

fn profile_of(overhead: &str) -> String {
    format!(
        "overhead: {{ send: {overhead}, receive: {overhead} }}\n\
         classes: [{{ name: all, match: {{}}, egress: [], ingress: [] }}]"
    )
}

/// An exchange of two lone packets pays four times: each is sent once and received once.
fn lone(setting: &Setting) -> Result<()> {
    if !setting.kernel.jit {
        return Err(skip("what the sandbox's interpreter takes varies by more than o"));
    }
    let (bed, before) = setting.bed()?;
    let median = || -> Result<f64> {
        let times = datagrams::ping_pong(&bed.left, &bed.right, 500, 64, Waiting::Polling)?;
        Ok(times.median())
    };
    // What the programs cost without overhead is not overhead.
    let (idle, slow) = (profile_of("0s"), profile_of("80us"));
    let left = setting.product.apply(&bed.left, &idle, setting.pacer)?;
    let right = setting.product.apply(&bed.right, &idle, setting.pacer)?;
    let off = median()?;
    left.stop()?;
    let left = setting.product.apply(&bed.left, &slow, setting.pacer)?;
    let one = median()?;
    right.stop()?;
    let right = setting.product.apply(&bed.right, &slow, setting.pacer)?;
    let both = median()?;
    left.stop()?;
    right.stop()?;
    figure!(
        "o 80 us: median round trip {off:.1} us without, {one:.1} with one host's, {both:.1} with both hosts'"
    );
    for (rise, expected) in [(one - off, 160.0), (both - off, 320.0)] {
        ensure!(
            (rise / expected - 1.0).abs() <= 0.15,
            "the median rose by {rise:.1} us, not {expected}"
        );
    }
    before.must_be_that_of(&bed.left)
}

fn broken(setting: &Setting) -> Result<()> {
    let rise = rise(setting, &SEND.replace("80us", "72us"))?;
    ensure!(is_off(rise), "72 us passed for 80 us: {rise:.2}");
    Ok(())
}
