//! TCP over 20 ms: a held packet must not hold the sender up (TCP small queues), nor be lost.
//!
//! Bound: netem's goodput on the same kernel; where there is none, half of the goodput without emulation, or
//! 8 Gbit/s if that is less.

use anyhow::Result;
use perturb_tests::{
    bed::Bed,
    emulation::{Emulation, Emulator, Link},
    streams::{self, Transfer},
};

use crate::harness::{Setting, Test, each, figure};

pub(crate) const TESTS: &[Test] = &[
    each("tcp::one_cubic_flow_at_20_ms", |setting| goodput(setting, 1)).long(),
    each("tcp::eight_cubic_flows_at_20_ms", |setting| goodput(setting, 8)),
];

/// Two runs of one emulator differ by as much.
const NOISE: f64 = 0.15;
/// What an interpreter takes of the one processor that all share in the sandbox, beside the noise.
const INTERPRETER: f64 = 0.25;
const ENOUGH: f64 = 8e9;

fn goodput(setting: &Setting, flows: usize) -> Result<()> {
    setting.fairly(|| shortfall(setting, flows))
}

fn shortfall(setting: &Setting, flows: usize) -> Result<Option<String>> {
    let measure = |emulator| -> Result<f64> {
        let bed = Bed::new()?;
        let link = Link {
            netem: "delay 20ms",
            perturb: "latency: 20ms",
            delay: None,
        };
        let emulation = Emulation::start(&setting.product, &bed, emulator, link)?;
        let goodput = streams::goodput(
            &bed.left,
            &bed.right,
            &Transfer {
                flows,
                ..Transfer::default()
            },
        )?;
        emulation.stop()?;
        Ok(goodput)
    };
    let control = measure(Emulator::Off)?;
    let netem = setting
        .kernel
        .netem
        .then(|| measure(Emulator::Netem))
        .transpose()?;
    let found = measure(Emulator::Perturb(setting.pacer))?;
    figure!(
        "TCP cubic, 20 ms each way, {flows} flow(s), by {}: {:.0} Mbit/s; netem {}; off {:.0}",
        setting.pacer.name(),
        found / 1e6,
        netem.map_or_else(|| "-".into(), |netem| format!("{:.0}", netem / 1e6)),
        control / 1e6
    );
    let margin = if setting.kernel.jit {
        NOISE
    } else {
        NOISE + INTERPRETER
    };
    let bound = netem.map_or((control / 2.0).min(ENOUGH), |netem| netem * (1.0 - margin));
    Ok((found < bound).then(|| format!("{:.0} Mbit/s, less than {:.0}", found / 1e6, bound / 1e6)))
}
