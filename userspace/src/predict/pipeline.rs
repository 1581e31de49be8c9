//! `perturb predict pipeline`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use perturb_models::pipeline::{Cut, PipelineInput, predict};

use super::input::{InputError, read};
use super::table::{Table, number};

/// Arguments of `perturb predict pipeline`.
#[derive(Args, Debug)]
pub struct PipelineArgs {
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
        serde_json::to_writer_pretty(&mut *out, &prediction)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(
        out,
        "{} B in {} fragments of {} B: {} us, {} MB/s; steady {} MB/s, limited by {}",
        prediction.message_bytes,
        prediction.cut.fragment_count,
        prediction.cut.fragment_bytes,
        number(prediction.cut.delay_us),
        number(prediction.cut.bandwidth_mb_s),
        number(prediction.steady_bandwidth_mb_s),
        prediction.bottleneck
    )?;
    writeln!(
        out,
        "best fragments {} B: {} us\n",
        prediction.best_fragment_bytes,
        number(prediction.best_delay_us)
    )?;
    let mut stages = Table::new(1, &["stage", "us per fragment", "busy, %"]);
    for stage in &prediction.stages {
        stages.row(vec![
            stage.stage.clone(),
            number(stage.fragment_us),
            number(stage.utilization * 100.0),
        ]);
    }
    stages.print(out)?;
    if !prediction.fragments.is_empty() {
        writeln!(out)?;
        cuts(&prediction.fragments).print(out)?;
    }
    let loggp = prediction.loggp;
    writeln!(
        out,
        "\nLogGP: o_s {} us, o_r {} us, L {} us, g {} us, G {} us/B ({} MB/s)",
        number(loggp.send_overhead_us),
        number(loggp.receive_overhead_us),
        number(loggp.latency_us),
        number(loggp.gap_us),
        number(loggp.gap_per_byte_us),
        number(loggp.bandwidth_mb_s)
    )?;
    Ok(())
}

fn cuts(cuts: &[Cut]) -> Table {
    let mut table = Table::new(0, &["fragment, B", "fragments", "delay, us", "bandwidth, MB/s"]);
    for cut in cuts {
        table.row(vec![
            cut.fragment_bytes.to_string(),
            cut.fragment_count.to_string(),
            number(cut.delay_us),
            number(cut.bandwidth_mb_s),
        ]);
    }
    table
}
