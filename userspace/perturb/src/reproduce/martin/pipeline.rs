//! Chapter 6: the pipeline of GAM.

use anyhow::Context as _;
use perturb_models::{
    pipeline::{PipelineInput, predict},
    published::tables,
};
use perturb_present::{Table, computed};
use serde_json::json;

use super::super::{
    figure::{Differs, Figure, Paper},
    outcome::{Curve, Outcome, Panel, Row, Scale},
};

/// The packets of Fig. 6.2.
const PACKET_KB: f64 = 2.0;

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

/// Names, fixed times and times per KB of the stages.
fn stages() -> Vec<(&'static str, f64, f64)> {
    let table = tables::MARTIN_6_1.table();
    let stage = |row: tables::Row<'_>| {
        Some((
            row.text("stage"),
            row.number("occupancy_us")?,
            row.number("gap_us_per_kb")?,
        ))
    };
    table.rows().filter_map(stage).collect()
}

fn table() -> anyhow::Result<Outcome> {
    let stages: Vec<_> = stages()
        .into_iter()
        .map(|(name, occupancy, gap)| {
            json!({ "name": name, "occupancy": format!("{occupancy}us"), "gap_per_byte": format!("{gap}us/KiB") })
        })
        .collect();
    let input: PipelineInput =
        serde_json::from_value(json!({ "stages": stages, "message": "1MiB", "fragment": "4KiB" }))?;
    let prediction = predict(&input).context("GAM's pipeline")?;
    let mut shown = Table::new(1, &["stage", "us per fragment", "busy, %"]);
    for stage in &prediction.stages {
        let cells = [computed(stage.fragment_us), computed(stage.utilization * 100.0)];
        shown.row([vec![stage.stage.clone()], cells.to_vec()].concat());
    }
    Ok(Outcome {
        rows: vec![Row::measured(
            "bulk bandwidth of the NOW (Table 2.1)",
            "MB/s",
            38.0,
            prediction.steady_bandwidth_mb_s,
        )],
        tables: vec![("fragments of 4 KiB".into(), shown)],
        ..Outcome::default()
    })
}

/// When each packet enters and leaves each stage: Lindley's recursion.
fn timeline() -> Outcome {
    let stages = stages();
    let mut free = vec![0.0_f64; stages.len()];
    let packet = |number: u32| {
        let mut now = 0.0_f64;
        let mut points = Vec::new();
        for ((place, (_, occupancy, gap)), free) in (1_u32..).zip(&stages).zip(&mut free) {
            let start = now.max(*free);
            now = start + occupancy + gap * PACKET_KB;
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
