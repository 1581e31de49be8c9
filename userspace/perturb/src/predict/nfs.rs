//! `perturb predict nfs`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use perturb_models::queueing::{NfsInput, NfsPrediction, predict_nfs};
use perturb_present::{Table, computed};

use super::input::{InputError, read};
use crate::say::json;

/// Arguments of `perturb predict nfs`.
#[derive(Args, Debug)]
pub(crate) struct NfsArgs {
    /// The input, in YAML: server, rates, base_rate, network, measured.
    pub file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &NfsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let input: NfsInput = read(&args.file)?;
    let prediction = predict_nfs(&input).map_err(|error| InputError::model(&args.file, error))?;
    if args.json {
        return json(out, &prediction);
    }
    write!(out, "{}", curve(&prediction))?;
    writeln!(
        out,
        "\nbase response    {:>10} ms at {} op/s",
        computed(prediction.base_ms),
        computed(prediction.base_rate_op_s)
    )?;
    writeln!(
        out,
        "slope            {:>10} us per op/s",
        computed(prediction.slope_us_per_op_s)
    )?;
    writeln!(
        out,
        "intercept        {:>10} ms",
        computed(prediction.intercept_ms)
    )?;
    writeln!(out, "r squared        {:>10}", computed(prediction.r_squared))?;
    writeln!(
        out,
        "saturation       {:>10} op/s",
        computed(prediction.saturation_op_s)
    )?;
    writeln!(
        out,
        "  of the CPU     {:>10} op/s",
        computed(prediction.cpu_saturation_op_s)
    )?;
    writeln!(
        out,
        "  of the disks   {:>10} op/s",
        computed(prediction.disk_saturation_op_s)
    )?;
    if !prediction.relative_error.is_empty() {
        writeln!(out)?;
        write!(out, "{}", errors(&input, &prediction))?;
        writeln!(
            out,
            "worst error      {:>10} %",
            computed(prediction.worst_relative_error.map(|error| error * 100.0))
        )?;
    }
    if !prediction.variations.is_empty() {
        writeln!(out)?;
        write!(out, "{}", variations(&prediction))?;
    }
    Ok(())
}

fn curve(prediction: &NfsPrediction) -> Table {
    let mut table = Table::new(
        0,
        &[
            "op/s",
            "response, ms",
            "delay, ms",
            "CPU, ms",
            "disks, ms",
            "hits, %",
            "CPU busy, %",
            "disks busy, %",
        ],
    );
    for (rate, response) in prediction.rates_op_s.iter().zip(&prediction.responses) {
        table.row(
            [
                *rate,
                response.response_ms,
                response.delay_ms,
                response.cpu_ms,
                response.disk_ms,
                response.hit_ratio * 100.0,
                response.cpu_utilization * 100.0,
                response.disk_utilization * 100.0,
            ]
            .map(computed)
            .to_vec(),
        );
    }
    table
}

fn errors(input: &NfsInput, prediction: &NfsPrediction) -> Table {
    let mut table = Table::new(0, &["op/s", "measured, ms", "error, %"]);
    for (point, error) in input.measured.iter().zip(&prediction.relative_error) {
        table.row(
            [point.rate.0, point.response.0 / 1e3, error * 100.0]
                .map(computed)
                .to_vec(),
        );
    }
    table
}

fn variations(prediction: &NfsPrediction) -> Table {
    let first = prediction.variations.first();
    let knob = if first.is_some_and(|first| first.added_overhead_us.is_some()) {
        "added overhead, us"
    } else {
        "added latency, us"
    };
    let mut table = Table::new(
        0,
        &[
            knob,
            "base, ms",
            "saturation, op/s",
            "highest rate, op/s",
            "response there, ms",
        ],
    );
    for variation in &prediction.variations {
        let last = variation
            .rates_op_s
            .iter()
            .zip(&variation.response_ms)
            .max_by(|a, b| a.0.total_cmp(b.0));
        table.row(
            [
                variation.added_overhead_us.or(variation.added_latency_us),
                variation.base_ms,
                variation.saturation_op_s,
                last.map(|last| *last.0),
                last.map(|last| *last.1),
            ]
            .map(computed)
            .to_vec(),
        );
    }
    table
}
