//! Chapter 2: does every knob do what it says? `perturb calibrate` beside the thesis's own calibration.
//!
//! The levels differ: the NOW's network adds microseconds, this machine's kernel takes tens of them. What is compared has no
//! level: how much of an added microsecond is observed, of the knob itself and of the others, as slopes of straight lines.

use anyhow::Context as _;
use perturb_models::published::tables::{self, Row as Printed};
use perturb_stats::Line;
use serde_json::Value;

use super::super::{
    figure::{Differs, Figure, Paper, Setting},
    outcome::{Curve, Outcome, Panel, Row, Scale},
};

const LEVELS: Differs = Differs {
    what: "slopes are compared, not levels; ours are higher",
    why: "Active Messages on the NOW took 2.9 us of the processor, a socket here takes several times that",
};

const WINDOW: Differs = Differs {
    what: "the paper's g grows with L, ours does not",
    why: "the NOW has at most four messages between two processors; our packets are not limited in number",
};

pub(super) static FIGURES: &[Figure] = &[Figure::emulation(
    Paper::Martin,
    "martin-table-2.2-measured",
    "calibration: what an added microsecond of o, g and L does to each of them",
    4.0,
    table_2_2,
)
.quick(0.8)
.differs(&[LEVELS, WINDOW])];

/// What of the knob is observed: within a tenth of what was added.
const SLOPE: f64 = 0.1;

/// Names of the knobs in the table and in `perturb calibrate --json`.
const KNOBS: [(&str, &str, &str); 3] = [
    ("overhead", "observed_overhead_us", "overhead_us"),
    ("gap", "observed_gap_us", "gap_us"),
    ("latency", "observed_latency_us", "latency_us"),
];

fn calibrate(setting: &Setting, outcome: &mut Outcome) -> anyhow::Result<Value> {
    let mut arguments = vec!["calibrate", "--json", "--quiet"];
    if setting.quick {
        arguments.push("--quick");
    }
    setting.json(outcome, &arguments)
}

fn table_2_2(setting: &Setting) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let found = calibrate(setting, &mut outcome)?;
    let settings = found["settings"].as_array().context("calibrate's settings")?;
    let printed = tables::MARTIN_2_2.table();
    let mut curves = Vec::new();
    for (knob, own, key) in KNOBS {
        let paper = |column: &'static str| -> Vec<(f64, f64)> {
            let rows = printed.rows().filter(|row| row.text("varied") == knob);
            let point = |row: Printed<'_>| Some((row.number("desired_us")?, row.number(column)?));
            rows.filter_map(point).collect()
        };
        let ours = |observed: &str| -> Vec<(f64, f64)> {
            let of_knob = settings.iter().filter(|setting| setting["knob"] == knob);
            let point = |setting: &Value| {
                Some((
                    setting["desired"].as_f64()?,
                    setting["observed"][observed].as_f64()?,
                ))
            };
            of_knob.filter_map(point).collect()
        };
        for (other, column, observed) in KNOBS {
            let slope = |points: &[(f64, f64)]| Line::fit(points).ok().map(|line| line.slope);
            if let (Some(paper), Some(ours)) = (slope(&paper(column)), slope(&ours(observed))) {
                let case = format!("{other} observed per added {knob}");
                outcome.rows.push(Row::new(case, "us/us", (paper, SLOPE), ours));
            }
        }
        curves.push(Curve::new(knob, paper(own), []));
        curves.push(Curve::new(format!("{knob}, ours"), [], ours(key)));
    }
    outcome.panels = vec![Panel {
        title: "observed over desired".into(),
        x: Scale::logarithmic("desired", "us"),
        y: Scale::logarithmic("observed", "us"),
        curves,
    }];
    Ok(outcome)
}
