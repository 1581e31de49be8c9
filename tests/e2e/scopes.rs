//! Whose packets queue together.
//!
//! Two bursts of ten frames leave at once through a server of 20 ms per frame: they take 400 ms together if they
//! share it, 200 ms each if they do not.

use std::{thread, time::Duration};

use anyhow::{Result, ensure};
use perturb_tests::{
    bed::Bed,
    datagrams::{self, Plan, Trace},
};

use crate::harness::{Setting, Test, each, figure, thrice};

pub(crate) const TESTS: &[Test] = &[
    each("scopes::shared_by_flows", |setting| {
        two(setting, "shared", Two::Flows, true)
    }),
    each("scopes::own_for_each_flow", |setting| {
        two(setting, "flow", Two::Flows, false)
    }),
    each("scopes::host_is_shared_by_flows", |setting| {
        two(setting, "host", Two::Flows, true)
    }),
    each("scopes::own_for_each_host", |setting| {
        two(setting, "host", Two::Hosts, false)
    }),
    each("scopes::shared_by_interfaces", |setting| {
        two(setting, "shared", Two::Interfaces, true)
    }),
    each("scopes::own_for_each_interface", |setting| {
        two(setting, "interface", Two::Interfaces, false)
    }),
];

/// What the two bursts differ in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Two {
    Flows,
    Hosts,
    Interfaces,
}

const FRAMES: usize = 10;

fn two(setting: &Setting, scope: &str, two: Two, together: bool) -> Result<()> {
    let expected = if together { 400.0 } else { 200.0 };
    thrice(|| {
        let took = bursts(setting, scope, two)?;
        ensure!(took > expected - 60.0, "took {took:.1} ms, not {expected} ms");
        // The bursts start up to 20 ms apart on a busy machine; the two outcomes are 200 ms apart.
        Ok((took > expected + 60.0).then(|| format!("took {took:.1} ms, not {expected} ms")))
    })
}

/// How long two bursts take that leave at once, milliseconds.
fn bursts(setting: &Setting, scope: &str, two: Two) -> Result<f64> {
    let (bed, before) = setting.bed()?;
    let second = match two {
        Two::Flows => bed.right.v4,
        Two::Hosts => bed.second_address()?,
        Two::Interfaces => bed.second_wire()?,
    };
    let before = if two == Two::Interfaces {
        perturb_tests::remains::State::of(&bed.left)?
    } else {
        before
    };
    let profile = format!(
        "servers: {{ slow: {{ gap: 20ms, scope: {scope} }} }}\n\
         classes: [{{ name: all, match: {{}}, egress: [slow] }}]"
    );
    let interfaces: &[&str] = if two == Two::Interfaces {
        &["--iface", perturb_tests::bed::SECOND_INTERFACE]
    } else {
        &[]
    };
    let applied = setting
        .product
        .apply_with(&bed.left, &profile, setting.pacer, interfaces)?;
    let plan = Plan {
        count: FRAMES,
        burst: FRAMES,
        patience: Duration::from_millis(700),
        ..Plan::default()
    };
    let other = Plan {
        to: Some(second.into()),
        ..plan.clone()
    };
    let (first, second) = at_once(&bed, &plan, &other)?;
    applied.nothing_unintended()?;
    applied.stop()?;
    before.must_be_that_of(&bed.left)?;
    let end = |trace: &Trace| {
        trace
            .received
            .iter()
            .map(|receipt| receipt.at)
            .max()
            .unwrap_or_default()
    };
    let start = first.sent[0].min(second.sent[0]);
    let took = (end(&first).max(end(&second)) - start) as f64 / 1e6;
    ensure!(
        first.lost().is_empty() && second.lost().is_empty(),
        "some were lost"
    );
    figure!("2 x {FRAMES} frames of 20 ms, scope {scope}: {took:.1} ms");
    Ok(took)
}

fn at_once(bed: &Bed, first: &Plan, second: &Plan) -> Result<(Trace, Trace)> {
    thread::scope(|scope| {
        let other = scope.spawn(|| datagrams::send(&bed.left, &bed.right, second));
        let one = datagrams::send(&bed.left, &bed.right, first)?;
        let other = other
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((one, other))
    })
}
