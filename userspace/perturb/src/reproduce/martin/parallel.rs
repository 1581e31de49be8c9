//! Chapters 3 and 4: Split-C programs and the NAS Parallel Benchmarks, by the models of section 3.2.
//!
//! The paper's points are the run times of appendix B over their baseline's, as the figures have them; ours are the models'.

use perturb_models::published::{MeasuredPoint, run_times, tables};
use perturb_present::{Table, computed};

use super::super::{
    figure::{Differs, Figure, Paper, Setting},
    outcome::{Curve, Outcome, Panel, Scale},
};

const MODELED: Differs = Differs {
    what: "ours is the model, not a measurement",
    why: "the NOW's programs and inputs are not at hand; the model starts from the run times and message counts of Tables 3.1, \
          3.2 and 4.1",
};

const LATENCY: Differs = Differs {
    what: "the model knows reads alone",
    why: "the paper says that latency is hidden in ways that need a model for each program; its own is accurate for \
          EM3D(read) alone",
};

const fn model(
    name: &'static str,
    shows: &'static str,
    draw: fn(&Setting) -> anyhow::Result<Outcome>,
) -> Figure {
    Figure::model(Paper::Martin, name, shows, draw)
}

pub(super) static FIGURES: &[Figure] = &[
    model(
        "martin-table-3.3",
        "run times of Split-C programs, predicted over added overhead",
        |_| Ok(predicted(tables::MARTIN_3_3)),
    ),
    model(
        "martin-table-3.4",
        "run times of Split-C programs, predicted over added gap",
        |_| Ok(predicted(tables::MARTIN_3_4)),
    ),
    model(
        "martin-fig-3.2",
        "slowdown of Split-C programs over overhead, 16 and 32 nodes",
        |_| {
            Ok(Outcome::of_panels([
                slowdown("16 nodes", tables::MARTIN_B_1, OVERHEAD),
                slowdown("32 nodes", tables::MARTIN_B_2, OVERHEAD),
            ]))
        },
    )
    .differs(&[
        MODELED,
        Differs {
            what: "16 nodes have no line of ours",
            why: "the paper counts messages on 32 nodes alone (Table 3.2)",
        },
    ]),
    model("martin-fig-3.3", "slowdown of Split-C programs over gap", |_| {
        Ok(Outcome::of_panels([slowdown(
            "32 nodes, burst model",
            tables::MARTIN_B_3,
            GAP,
        )]))
    })
    .differs(&[MODELED]),
    model(
        "martin-fig-3.4",
        "slowdown of Split-C programs over latency",
        |_| {
            Ok(Outcome::of_panels([slowdown(
                "32 nodes",
                tables::MARTIN_B_4,
                LATENCY_SCALE,
            )]))
        },
    )
    .differs(&[MODELED, LATENCY]),
    model(
        "martin-fig-3.5",
        "slowdown of Split-C programs over bulk bandwidth and bulk gap",
        |_| Ok(Outcome::of_panels(both_ways(tables::MARTIN_B_5))),
    )
    .differs(&[MODELED]),
    model(
        "martin-table-4.2",
        "run times of FT, IS and MG, predicted over overhead",
        |_| Ok(predicted(tables::MARTIN_4_2)),
    ),
    model(
        "martin-table-4.3",
        "run times of FT, IS and MG, predicted over bandwidth",
        |_| Ok(predicted(tables::MARTIN_4_3)),
    ),
    model(
        "martin-fig-4.3",
        "slowdown of FT, IS and MG over overhead",
        |_| {
            Ok(Outcome::of_panels([slowdown(
                "32 nodes",
                tables::MARTIN_B_6,
                OVERHEAD,
            )]))
        },
    )
    .differs(&[MODELED]),
    model("martin-fig-4.4", "slowdown of FT, IS and MG over gap", |_| {
        Ok(Outcome::of_panels([slowdown(
            "32 nodes",
            tables::MARTIN_B_7,
            GAP,
        )]))
    })
    .differs(&[MODELED]),
    model("martin-fig-4.5", "slowdown of FT, IS and MG over latency", |_| {
        Ok(Outcome::of_panels([slowdown(
            "32 nodes",
            tables::MARTIN_B_8,
            LATENCY_SCALE,
        )]))
    })
    .differs(&[MODELED]),
    model(
        "martin-fig-4.6",
        "slowdown of FT, IS and MG over bandwidth and bulk gap",
        |_| Ok(Outcome::of_panels(both_ways(tables::MARTIN_B_9))),
    )
    .differs(&[MODELED]),
];

pub(super) const OVERHEAD: Scale = Scale::linear("overhead", "us");
pub(super) const GAP: Scale = Scale::linear("gap", "us");
pub(super) const LATENCY_SCALE: Scale = Scale::linear("latency", "us");
pub(super) const BANDWIDTH: Scale = Scale::linear("bandwidth", "MB/s");
pub(super) const BULK_GAP: Scale = Scale::linear("bulk gap", "us/B");

/// Predictions of a table beside ours, and the measurements that stand beside them there.
fn predicted(embedded: tables::Embedded) -> Outcome {
    let mut outcome = Outcome::printed("loggp", &[embedded.citation()]);
    let printed = embedded.table();
    let [program, setting] = [0, 1].map(|column| printed.columns().get(column).copied().unwrap_or_default());
    let header = [
        "program",
        setting,
        "measured there, s",
        "predicted there, s",
        "ours, s",
        "error there, %",
        "ours, %",
    ];
    let mut table = Table::new(1, &header);
    let error =
        |measured: Option<f64>, predicted: f64| measured.map(|measured| 100.0 * (predicted / measured - 1.0));
    for row in printed.rows() {
        let (name, value) = (row.text(program), row.text(setting));
        let (begin, end) = (
            format!("{name}, "),
            [format!(" {value} us"), format!(" {value} MB/s")],
        );
        let own = outcome.rows.iter().find(|found| {
            found.case.starts_with(&begin) && end.iter().any(|end| found.case.ends_with(end.as_str()))
        });
        let Some(own) = own else { continue };
        // Where columns or rows are exchanged in print, the remark says so.
        let measured = match own.remark {
            Some(remark) if remark.contains("exchanged") => row.number("predicted_s"),
            Some(remark) if remark.contains("wrong row") => None,
            _ => row.number("measured_s"),
        };
        table.row(vec![
            name.to_owned(),
            value.to_owned(),
            computed(measured),
            computed(own.paper),
            computed(own.ours),
            computed(error(measured, own.paper)),
            computed(error(measured, own.ours)),
        ]);
    }
    outcome.tables.push((
        format!("{}: what was measured, and both predictions", embedded.citation()),
        table,
    ));
    outcome
}

/// A table's run times over those of the baseline.
fn slowdown(title: &str, table: tables::Embedded, x: Scale) -> Panel {
    panel(title, table, x, |bandwidth| bandwidth)
}

/// Over the bandwidth, and over its inverse.
fn both_ways(table: tables::Embedded) -> [Panel; 2] {
    [
        slowdown("over bandwidth", table, BANDWIDTH),
        panel("over bulk gap", table, BULK_GAP, |bandwidth| 1.0 / bandwidth).again(),
    ]
}

fn panel(title: &str, table: tables::Embedded, x: Scale, place: fn(f64) -> f64) -> Panel {
    let curve = |curve: perturb_models::published::MeasuredCurve| {
        let at = |point: &MeasuredPoint| place(point.at);
        let paper = curve.points.iter().map(|point| (at(point), point.measured));
        let ours = curve
            .points
            .iter()
            .filter_map(|point| Some((at(point), point.ours?)));
        let drawn = Curve::new(curve.name.clone(), paper, ours);
        match curve.base {
            Some(base) => drawn.over(place(base)),
            None => drawn,
        }
    };
    Panel {
        title: title.to_owned(),
        x,
        y: Scale::linear("slowdown", ""),
        curves: run_times(table).into_iter().map(curve).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_prediction_of_a_table_is_left_out() {
        for embedded in [
            tables::MARTIN_3_3,
            tables::MARTIN_3_4,
            tables::MARTIN_4_2,
            tables::MARTIN_4_3,
        ] {
            let drawn = predicted(embedded).tables[0].1.markdown();
            // Barnes has no prediction where it did not end.
            let table = embedded.table();
            let rows = table.rows().filter(|row| row.number("predicted_s").is_some());
            let rows = rows.count();
            assert_eq!(drawn.lines().count(), rows + 2, "{}", embedded.name);
        }
    }
}
