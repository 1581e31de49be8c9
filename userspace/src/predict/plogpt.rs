//! `perturb predict plogpt`.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use perturb_models::plogpt::{Expectation, PlogptInput, PlogptPrediction, predict};
use perturb_present::{Table, computed};
use perturb_quantity::ByteSize;
use serde::Serialize;

use super::input::{InputError, read};

/// Operations printed at most as a table; `--json` prints them all.
const MOST_ROWS: usize = 200;

/// Arguments of `perturb predict plogpt`.
#[derive(Args, Debug)]
pub struct PlogptArgs {
    /// The input, in YAML: parameters and program.
    pub file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Leave out the times of the single operations.
    #[arg(long)]
    pub summary: bool,
    /// Predict the collective for these message sizes instead, e.g. 1KiB,32KiB,1MiB.
    #[arg(long, value_delimiter = ',', value_name = "SIZES")]
    pub messages: Vec<ByteSize>,
    /// Predict the collective for these numbers of nodes instead, e.g. 4,32.
    #[arg(long, value_delimiter = ',', value_name = "NODES")]
    pub nodes: Vec<u32>,
}

/// A sweep over what a program of given operations does not have.
#[derive(Debug, thiserror::Error)]
#[error("--messages and --nodes need a program with `collective`, not `ranks`")]
pub(super) struct SweepError;

/// A prediction without its operations.
#[derive(Serialize)]
struct Summary {
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_bytes: Option<f64>,
    total_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    plogp_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_without_timeouts_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expectation: Option<Expectation>,
    retransmission_timeouts: u32,
    delayed_transfers: u64,
    messages: u64,
}

#[derive(Serialize)]
struct Sweep {
    sweep: Vec<Summary>,
}

impl Summary {
    fn of(prediction: &PlogptPrediction) -> Self {
        Self {
            nodes: None,
            message_bytes: None,
            total_us: prediction.total_us,
            plogp_us: prediction.plogp_us,
            total_without_timeouts_us: prediction.total_without_timeouts_us,
            expectation: prediction.expectation,
            retransmission_timeouts: prediction.retransmission_timeouts,
            delayed_transfers: prediction.delayed_transfers,
            messages: prediction.messages,
        }
    }
}

pub(super) fn run(args: &PlogptArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let input: PlogptInput = read(&args.file)?;
    if !args.messages.is_empty() || !args.nodes.is_empty() {
        return sweep(args, input, out);
    }
    let prediction = predict(&input).map_err(|error| InputError::model(&args.file, error))?;
    if !args.json {
        return Ok(print(args, &prediction, out)?);
    }
    // A million messages are several hundred megabytes even without white space.
    let mut out = BufWriter::with_capacity(1 << 16, out);
    if args.summary {
        serde_json::to_writer(&mut out, &Summary::of(&prediction))?;
    } else {
        serde_json::to_writer(&mut out, &prediction)?;
    }
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// The collective for every number of nodes and message size.
fn sweep(args: &PlogptArgs, mut input: PlogptInput, out: &mut dyn Write) -> anyhow::Result<()> {
    let (Some(_), Some(message)) = (input.program.collective, input.program.message) else {
        return Err(SweepError.into());
    };
    let nodes = if args.nodes.is_empty() {
        vec![input.parameters.nodes]
    } else {
        args.nodes.clone()
    };
    let messages = if args.messages.is_empty() {
        vec![message]
    } else {
        args.messages.clone()
    };
    let mut sweep = Vec::new();
    for &count in &nodes {
        for &message in &messages {
            input.parameters.nodes = count;
            input.program.message = Some(message);
            let prediction = predict(&input).map_err(|error| InputError::model(&args.file, error))?;
            let summary = Summary::of(&prediction);
            sweep.push(Summary {
                nodes: Some(count),
                message_bytes: Some(message.0),
                ..summary
            });
        }
    }
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &Sweep { sweep })?;
        writeln!(out)?;
        return Ok(());
    }
    let mut table = Table::new(
        0,
        &[
            "nodes",
            "message, B",
            "PlogPT, us",
            "time-outs",
            "without them, us",
            "expected, us",
            "PlogP, us",
        ],
    );
    for row in sweep {
        table.row(vec![
            computed(row.nodes.map(f64::from)),
            computed(row.message_bytes),
            computed(row.total_us),
            row.retransmission_timeouts.to_string(),
            computed(row.total_without_timeouts_us.unwrap_or(row.total_us)),
            computed(
                row.expectation
                    .map_or(row.total_us, |expectation| expectation.total_us),
            ),
            computed(row.plogp_us),
        ]);
    }
    write!(out, "{table}")?;
    Ok(())
}

fn print(args: &PlogptArgs, prediction: &PlogptPrediction, out: &mut dyn Write) -> std::io::Result<()> {
    let mut line = |name: &str, value: String| writeln!(out, "{name:<46} {value:>14}");
    line("total, us", computed(prediction.total_us))?;
    if let Some(plogp) = prediction.plogp_us {
        line("  PlogP: no contention, no time-outs", computed(plogp))?;
    }
    if let Some(closed_form) = prediction.closed_form_us {
        line("  closed form", computed(closed_form))?;
    }
    if let Some(without) = prediction.total_without_timeouts_us {
        line("  without time-outs", computed(without))?;
    }
    if let Some(expectation) = prediction.expectation {
        line(
            "  mean if one of those that qualify is delayed",
            computed(expectation.total_us),
        )?;
        line("    standard error", computed(expectation.standard_error_us))?;
    }
    line("messages", prediction.messages.to_string())?;
    line("delayed by a time-out", prediction.delayed_transfers.to_string())?;
    line(
        "time-outs on the longest path",
        prediction.retransmission_timeouts.to_string(),
    )?;
    let operations = &prediction.operations;
    let rows: usize = (0..operations.ranks())
        .map(|rank| operations.of_rank(rank).count())
        .sum();
    if args.summary {
        return Ok(());
    }
    if rows > MOST_ROWS {
        return writeln!(out, "\n{rows} operations; --json prints their times");
    }
    let mut table = Table::new(
        1,
        &[
            "operation",
            "rank",
            "index",
            "enter, us",
            "leave, us",
            "finish, us",
            "RTO",
        ],
    );
    for rank in 0..operations.ranks() {
        for (index, operation) in operations.of_rank(rank).enumerate() {
            table.row(vec![
                operation.op.to_owned(),
                rank.to_string(),
                index.to_string(),
                computed(operation.enter_us),
                computed(operation.leave_us),
                computed(operation.finish_us),
                if operation.rto { "yes" } else { "" }.to_owned(),
            ]);
        }
    }
    writeln!(out)?;
    write!(out, "{table}")
}
