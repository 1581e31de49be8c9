//! `perturb predict validate`: the papers' numbers, ours, and the difference.

use std::io::Write;

use clap::Args;
use perturb_models::published::{Comparison, Measurements, comparisons, measurements};
use perturb_present::{Table, computed};
use serde::Serialize;

use crate::say::json;

/// Arguments of `perturb predict validate`.
#[derive(Args, Debug)]
pub(crate) struct ValidateArgs {
    /// This model only.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Print Markdown.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

/// No such model.
#[derive(Debug, thiserror::Error)]
#[error("--model: `{model}` has no published numbers; give one of {known}")]
pub(super) struct UnknownModel {
    model: String,
    known: String,
}

/// What is printed.
#[derive(Serialize)]
struct Answer {
    comparisons: Vec<Row>,
    measurements: Vec<Measurements>,
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    comparison: Comparison,
    difference: f64,
    agrees: bool,
}

pub(super) fn run(args: &ValidateArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let wanted = |model: &str| args.model.as_deref().is_none_or(|wanted| wanted == model);
    let all = comparisons();
    let rows: Vec<Comparison> = all.iter().filter(|row| wanted(row.model)).cloned().collect();
    let measured: Vec<Measurements> = measurements()
        .into_iter()
        .filter(|row| wanted(row.model))
        .collect();
    if let (Some(model), true) = (&args.model, rows.is_empty() && measured.is_empty()) {
        let mut known: Vec<&str> = all.iter().map(|row| row.model).collect();
        known.dedup();
        return Err(UnknownModel {
            model: model.clone(),
            known: known.join(", "),
        }
        .into());
    }
    if args.json {
        let comparisons = rows
            .into_iter()
            .map(|comparison| Row {
                difference: comparison.difference(),
                agrees: comparison.agrees(),
                comparison,
            })
            .collect();
        return json(
            out,
            &Answer {
                comparisons,
                measurements: measured,
            },
        );
    }
    let shown = |table: Table| {
        if args.markdown {
            table.markdown()
        } else {
            table.to_string()
        }
    };
    write!(out, "{}", shown(published(&rows)))?;
    let agree = rows.iter().filter(|row| row.agrees()).count();
    writeln!(
        out,
        "\n{agree} of {} printed numbers agree within their rounding.",
        rows.len()
    )?;
    if !measured.is_empty() {
        writeln!(out, "\nAgainst measurements, error of the model in percent:\n")?;
        write!(out, "{}", shown(errors(&measured)))?;
    }
    Ok(())
}

fn published(rows: &[Comparison]) -> Table {
    let mut table = Table::new(
        4,
        &[
            "source",
            "case",
            "unit",
            "agrees",
            "paper",
            "ours",
            "difference",
            "remark",
        ],
    );
    for row in rows {
        table.row(vec![
            row.source.to_owned(),
            row.case.clone(),
            row.unit.to_owned(),
            if row.agrees() { "yes" } else { "no" }.to_owned(),
            computed(row.paper),
            computed(row.ours),
            format!("{:+.2e}", row.difference()),
            row.deviation.or(row.reading).unwrap_or_default().to_owned(),
        ]);
    }
    table
}

fn errors(rows: &[Measurements]) -> Table {
    let mut table = Table::new(2, &["source", "case", "points", "mean", "mean absolute", "worst"]);
    for row in rows {
        table.row(vec![
            row.source.to_owned(),
            row.case.clone(),
            row.points.to_string(),
            format!("{:+.1}", row.mean_error_percent),
            format!("{:.1}", row.mean_absolute_error_percent),
            format!("{:+.1}", row.worst_error_percent),
        ]);
    }
    table
}
