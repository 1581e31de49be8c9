//! `perturb predict plogpt`.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use perturb_models::plogpt::{Expectation, OnProfile, PlogptInput, PlogptPrediction, ProgramInput, predict};
use perturb_present::{Table, computed};
use perturb_profile::Profile;
use perturb_quantity::ByteSize;
use serde::Serialize;

use super::input::{InputError, read};
use super::profile::{ProfileArg, Used, WithProfile};
use crate::say::json;

/// Operations printed at most as a table; `--json` prints them all.
const MOST_ROWS: usize = 200;

/// Arguments of `perturb predict plogpt`.
#[derive(Args, Debug)]
pub(crate) struct PlogptArgs {
    /// The input, in YAML: parameters and program.
    pub file: PathBuf,
    /// The network.
    #[command(flatten)]
    pub network: ProfileArg,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Leave out the times of the single operations.
    #[arg(long, conflicts_with_all = ["messages", "nodes"])]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Used>,
}

/// The program, and where its network comes from.
enum Input {
    Whole(PlogptInput),
    OnProfile(OnProfile, Box<Profile>),
}

impl Input {
    fn read(args: &PlogptArgs) -> Result<Self, InputError> {
        Ok(match args.network.load()? {
            None => Self::Whole(read(&args.file)?),
            Some(profile) => Self::OnProfile(read(&args.file)?, Box::new(profile)),
        })
    }

    fn program(&mut self) -> &mut ProgramInput {
        match self {
            Self::Whole(input) => &mut input.program,
            Self::OnProfile(input, _) => &mut input.program,
        }
    }

    /// Other nodes than the input names.
    fn set_nodes(&mut self, nodes: u32) {
        match self {
            Self::Whole(input) => input.parameters.nodes = nodes,
            Self::OnProfile(input, _) => input.parameters.nodes = Some(nodes),
        }
    }

    fn predict(&self, args: &PlogptArgs) -> Result<(u32, PlogptPrediction, Option<Used>), InputError> {
        let (input, used) = match self {
            Self::Whole(input) => (input, None),
            Self::OnProfile(program, profile) => {
                let (input, translation) = program
                    .input(profile)
                    .map_err(|error| args.network.refused(error))?;
                (&input.clone(), args.network.used(translation))
            }
        };
        let prediction = predict(input).map_err(|error| InputError::model(&args.file, error))?;
        Ok((input.parameters.nodes, prediction, used))
    }
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
    let input = Input::read(args)?;
    if !args.messages.is_empty() || !args.nodes.is_empty() {
        return sweep(args, input, out);
    }
    let (_, prediction, profile) = input.predict(args)?;
    if !args.json {
        print(args, &prediction, out)?;
        return Ok(profile.map_or(Ok(()), |used| used.print(out))?);
    }
    // A million messages are several hundred megabytes even without white space.
    let mut out = BufWriter::with_capacity(1 << 16, out);
    if args.summary {
        let answer = Summary::of(&prediction);
        serde_json::to_writer(&mut out, &WithProfile { answer, profile })?;
    } else {
        let answer = prediction;
        serde_json::to_writer(&mut out, &WithProfile { answer, profile })?;
    }
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// The collective for every number of nodes and message size.
fn sweep(args: &PlogptArgs, mut input: Input, out: &mut dyn Write) -> anyhow::Result<()> {
    let program = input.program();
    let (Some(_), Some(message)) = (program.collective, program.message) else {
        return Err(SweepError.into());
    };
    // Nothing given: as many nodes as the input, or the profile, has.
    let nodes: Vec<Option<u32>> = match args.nodes.as_slice() {
        [] => vec![None],
        nodes => nodes.iter().copied().map(Some).collect(),
    };
    let messages = if args.messages.is_empty() {
        vec![message]
    } else {
        args.messages.clone()
    };
    let (mut sweep, mut profile) = (Vec::new(), None);
    for count in nodes {
        for &message in &messages {
            if let Some(count) = count {
                input.set_nodes(count);
            }
            input.program().message = Some(message);
            let (count, prediction, used) = input.predict(args)?;
            profile = used;
            sweep.push(Summary {
                nodes: Some(count),
                message_bytes: Some(message.0),
                ..Summary::of(&prediction)
            });
        }
    }
    if args.json {
        return json(out, &Sweep { sweep, profile });
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
    // Of the last row: nodes and gaps are the row's.
    Ok(profile.map_or(Ok(()), |used| used.print(out))?)
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
