//! Chapter 6: the pipeline of GAM.

use anyhow::Context as _;
use perturb_models::{pipeline::predict, published::gam};
use perturb_present::{Table, computed};

use super::super::{
    figure::{Differs, Figure, Paper},
    outcome::{Curve, Outcome, Panel, Scale},
};

/// The packets of Fig. 6.2.
const PACKET_BYTES: f64 = 2048.0;

pub(super) static FIGURES: &[Figure] = &[
    Figure::model(
        Paper::Martin,
        "martin-table-6.1",
        "GAM's pipeline, and the bandwidth of Table 2.1 from it",
        |_| table(),
    )
    .differs(&[Differs {
        what: "the paper's five stages are the input; the bandwidth of 4 KB fragments is what they give",
        why: "no other number of the pipeline is printed",
    }]),
    Figure::model(
        Paper::Martin,
        "martin-fig-6.2",
        "two packets of 2 KB on their way through GAM's pipeline",
        |_| Ok(timeline()),
    )
    .differs(&[Differs {
        what: "nothing is compared",
        why: "the figure is a drawing without numbers",
    }]),
];

fn table() -> anyhow::Result<Outcome> {
    let prediction = predict(&gam()).context("GAM's pipeline")?;
    let mut shown = Table::new(1, &["stage", "us per fragment", "busy, %"]);
    for stage in &prediction.stages {
        let cells = [computed(stage.fragment_us), computed(stage.utilization * 100.0)];
        shown.row([vec![stage.stage.clone()], cells.to_vec()].concat());
    }
    let mut outcome = Outcome::printed("pipeline", &["Martin 1999, Table 2.1"]);
    outcome.tables = vec![("fragments of 4 KiB".into(), shown)];
    Ok(outcome)
}

/// When each packet enters and leaves each stage: Lindley's recursion.
fn timeline() -> Outcome {
    let stages = gam().stages;
    let mut free = vec![0.0_f64; stages.len()];
    let packet = |number: u32| {
        let mut now = 0.0_f64;
        let mut points = Vec::new();
        for ((place, stage), free) in (1_u32..).zip(&stages).zip(&mut free) {
            let start = now.max(*free);
            let per_byte = stage.gap_per_byte.map_or(0.0, |gap| gap.0);
            now = start + stage.occupancy.0 + per_byte * PACKET_BYTES;
            *free = now;
            points.extend([(start, f64::from(place)), (now, f64::from(place))]);
        }
        Curve::new(format!("packet {number}"), [], points)
    };
    Outcome::of_panels([Panel {
        title: "stage over time; 1: sending CPU, 2: its LANai, 3: wire, 4: receiving LANai, 5: its CPU"
            .into(),
        x: Scale::linear("time", "us"),
        y: Scale::linear("stage", ""),
        curves: (1..=2).map(packet).collect(),
    }])
}
