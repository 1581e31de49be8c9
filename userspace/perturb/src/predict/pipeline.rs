//! `perturb predict pipeline`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use perturb_models::pipeline::{Cut, PipelineInput, predict};
use perturb_present::{Table, computed};

use super::input::{InputError, read};
use crate::say::json;

/// Arguments of `perturb predict pipeline`.
#[derive(Args, Debug)]
pub(crate) struct PipelineArgs {
    /// The input, in YAML: stages, message, fragment.
    pub file: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &PipelineArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let input: PipelineInput = read(&args.file)?;
    let prediction = predict(&input).map_err(|error| InputError::model(&args.file, error))?;
    if args.json {
        return json(out, &prediction);
    }
    writeln!(
        out,
        "{} B in {} fragments of {} B: {} us, {} MB/s; steady {} MB/s, limited by {}",
        prediction.message_bytes,
        prediction.cut.fragment_count,
        prediction.cut.fragment_bytes,
        computed(prediction.cut.delay_us),
        computed(prediction.cut.bandwidth_mb_s),
        computed(prediction.steady_bandwidth_mb_s),
        prediction.bottleneck
    )?;
    writeln!(
        out,
        "best fragments {} B: {} us\n",
        prediction.best_fragment_bytes,
        computed(prediction.best_delay_us)
    )?;
    let mut stages = Table::new(1, &["stage", "us per fragment", "busy, %"]);
    for stage in &prediction.stages {
        stages.row(vec![
            stage.stage.clone(),
            computed(stage.fragment_us),
            computed(stage.utilization * 100.0),
        ]);
    }
    write!(out, "{stages}")?;
    if !prediction.fragments.is_empty() {
        writeln!(out)?;
        write!(out, "{}", cuts(&prediction.fragments))?;
    }
    let loggp = prediction.loggp;
    writeln!(
        out,
        "\nLogGP: o_s {} us, o_r {} us, L {} us, g {} us, G {} us/B ({} MB/s)",
        computed(loggp.send_overhead_us),
        computed(loggp.receive_overhead_us),
        computed(loggp.latency_us),
        computed(loggp.gap_us),
        computed(loggp.gap_per_byte_us),
        computed(loggp.bandwidth_mb_s)
    )?;
    Ok(())
}

fn cuts(cuts: &[Cut]) -> Table {
    let mut table = Table::new(0, &["fragment, B", "fragments", "delay, us", "bandwidth, MB/s"]);
    for cut in cuts {
        table.row(vec![
            cut.fragment_bytes.to_string(),
            cut.fragment_count.to_string(),
            computed(cut.delay_us),
            computed(cut.bandwidth_mb_s),
        ]);
    }
    table
}
