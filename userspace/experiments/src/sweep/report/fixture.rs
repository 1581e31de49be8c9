//! Sweeps over programs whose response is made up, for the tests of the report.

use serde_json::json;

use super::load::{Part, Sweep};
use crate::sweep::{
    experiment::Knob,
    plan,
    setting::Level,
    store::{Provenance, Record, Status, Traffic},
};

/// The values of the knobs in a run.
pub(super) type Values<'a> = &'a dyn Fn(Knob) -> f64;

/// A program on two hosts.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Its run time in µs.
    pub(super) micros: fn(Values<'_>) -> f64,
    /// Packets from h1; half as many come from h2.
    pub(super) packets: u64,
    /// Of a packet.
    pub(super) bytes: u64,
    /// Further keys of the workload.
    pub(super) keys: &'static str,
}

/// A sweep over programs, which the machine disturbs by `noise`.
pub(super) fn sweep(programs: &[Program], noise: f64) -> Sweep {
    let mut text = String::from(
        "version: 1\nname: t\nbase: { overhead: 2us, gap: 5us, latency: 20us, bandwidth: 100MB/s }\n\
         knobs:\n  overhead: [2us, 10us, 20us, 40us, 60us]\n  gap: [10us, 20us, 30us, 60us, 80us, 120us]\n  \
         latency: [50us, 100us, 200us, 300us, 400us]\n  bandwidth: [50MB/s, 20MB/s, 10MB/s]\nworkloads:\n",
    );
    for program in programs {
        text += &format!(
            "  - {{ name: {}, command: [w], {} }}\n",
            program.name, program.keys
        );
    }
    let directory = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/experiments"));
    let experiment = crate::sweep::read::read(&text, directory, "e").unwrap();
    let cells = plan::cells(&experiment);
    let mut records: Vec<Record> = Vec::new();
    for run in (0..3).flat_map(|block| plan::block(&experiment, &cells, block)) {
        let program = &programs[run.cell.workload];
        let levels = run.cell.setting.levels();
        let knob = |knob: Knob| match levels.get(knob.key()) {
            Some(Level::Value(value)) => *value,
            _ => experiment.base.value(knob),
        };
        let disturbed = (program.micros)(&knob) * (1.0 + noise * (f64::from(records.len() as u32 % 3) - 1.0));
        let traffic = |from, to, packets| Traffic {
            from,
            to,
            packets,
            bytes: program.bytes * packets,
            dropped: 0,
        };
        records.push(Record {
            id: run.id.clone(),
            workload: program.name.into(),
            setting: levels.clone(),
            block: run.block,
            attempt: 0,
            traced: false,
            status: Status::Ok,
            reasons: Vec::new(),
            node: None,
            started: records.len() as f64,
            wall_s: disturbed / 1e6,
            value: Some(disturbed / 1e6),
            unit: "s".into(),
            samples: Vec::new(),
            exit_code: Some(0),
            profile: String::new(),
            output: String::new(),
            traffic: vec![traffic(1, 2, program.packets), traffic(2, 1, program.packets / 2)],
            lateness_p99_us: None,
            counters: json!({ "servers": [{ "max_backlog_us": 250.0 }] }),
            messages: None,
        });
    }
    Sweep {
        experiment: experiment.summary(),
        parts: vec![Part {
            provenance: Provenance {
                version: 1,
                perturb: "0".into(),
                kernel: "6".into(),
                node: None,
                processor: "p".into(),
                processors: 2,
                jit: Some(true),
                memory_mib: None,
                started: 0.0,
                resumed: 0,
                task: None,
                experiment: experiment.summary(),
            },
            records,
            traced: Vec::new(),
        }],
    }
}
