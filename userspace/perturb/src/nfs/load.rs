//! `perturb nfs load`.

use clap::Args;
use perturb_emulator::status::{self, Bystander};
use perturb_present::{LiveLine, Table, bar, measured};
use perturb_quantity::OperationsPerSecond;
use perturb_workloads::nfs::{
    Stop,
    client::Export,
    load::{self, LoadError, Outcome, Progress},
    record::{CutShort, Record},
};

use super::{
    DONE, FAILED, InvalidInput,
    interrupt::stop_on_signal,
    options::{LoadOptions, PortOptions},
};
use crate::cli::quantity::rate;

/// The generator's own lateness is worth a warning from this share of the response time on.
const LATE_SHARE: f64 = 0.5;

/// Arguments of `perturb nfs load`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  perturb nfs serve --listen 127.0.0.1:2049 &
  perturb nfs load --server 127.0.0.1:/export --nfs-port 2049 --rate 500 --scale 0.1
  perturb nfs load --server filer:/export --rate 1000 --mix sfs2008 --arrivals open --json")]
pub(super) struct Load {
    /// Server and exported path.
    #[arg(long, value_name = "HOST:/EXPORT")]
    server: Export,
    #[command(flatten)]
    ports: PortOptions,
    /// RPCs per second.
    #[arg(long, value_parser = rate, default_value = "100", value_name = "OPS")]
    rate: OperationsPerSecond,
    /// Factor of the data set, which is 10 MB for each op/s, one tenth of it accessed.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    scale: f64,
    #[command(flatten)]
    load: LoadOptions,
    /// With --json: all response times, as a histogram.
    #[arg(long, requires = "json")]
    histogram: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// No live line.
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn run(args: Load) -> anyhow::Result<u8> {
    let mut plan = args
        .load
        .plan(args.server, args.ports.ports(), args.rate, args.scale)?;
    plan.histogram = args.histogram;
    let stop = Stop::default();
    stop_on_signal(stop.clone())?;
    let bystander = Bystander::begin()?;
    let line = LiveLine::stderr(args.quiet);
    let outcome = load::run(&plan, &stop, &|progress| line.show(said(progress)));
    line.clear();
    let outcome = outcome.map_err(|error| match error {
        LoadError::Setting { .. } => InvalidInput::Load(error).into(),
        other => anyhow::Error::new(other),
    })?;
    let (checked, looked) = bystander.check(&outcome.record);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&checked)?);
    } else {
        print!("{}", describe(&outcome.record));
    }
    let faults = checked.faults.unwrap_or_default();
    status::warn(&faults);
    let code = warn(&outcome);
    looked?;
    Ok(if faults.is_empty() { code } else { FAILED.max(code) })
}

/// Says on stderr what the figures do not; the exit code.
pub(super) fn warn(outcome: &Outcome) -> u8 {
    let mut code = DONE;
    for example in &outcome.examples {
        eprintln!("perturb: warning: calls failed, for example {example}");
    }
    if let (Some(late), Some(mean)) = (outcome.record.late_p99_ms, outcome.record.mean_ms)
        && late > LATE_SHARE * mean
    {
        eprintln!(
            "perturb: warning: 1 % of the calls were sent more than {} ms late, of a mean response time of {} ms: this \
             machine is busy or the rate too high for it; use a quieter one, more --connections, or less load",
            measured(late),
            measured(mean)
        );
    }
    match outcome.record.cut_short {
        Some(CutShort::Stopped) => {
            eprintln!(
                "perturb: stopped after {:.1} s of the run",
                outcome.record.duration_s
            );
            code = FAILED;
        }
        Some(CutShort::ServerGone) => {
            eprintln!(
                "perturb: the server stopped answering; the figures are of the {:.1} s before that was clear",
                outcome.record.duration_s
            );
            code = FAILED;
        }
        None => {}
    }
    if outcome.record.operations.is_empty() {
        eprintln!("perturb: nothing was answered in the run; is the server still there?");
        code = FAILED;
    }
    if let Some(error) = &outcome.left_behind {
        eprintln!(
            "perturb: the data set could not be removed, and is removed by the next run with --reuse: {error}"
        );
        code = FAILED;
    }
    code
}

fn describe(record: &Record) -> String {
    let mut text = format!(
        "{}, {} arrivals, {}: {} op/s asked, {} delivered in {:.1} s ({} processes, {} connections)\n",
        record.mix,
        record.arrivals,
        record.transport,
        measured(record.requested_op_s),
        measured(record.delivered_op_s),
        record.duration_s,
        record.processes,
        record.connections
    );
    let interval = record.mean_interval_ms.map_or(String::new(), |[low, high]| {
        format!(" ({} to {})", measured(low), measured(high))
    });
    text.push_str(&format!(
        "response time  mean {} ms{interval}, median {} ms, 99 % below {} ms\n",
        measured(record.mean_ms),
        measured(record.p50_ms),
        measured(record.p99_ms)
    ));
    text.push_str(&format!(
        "data set       {:.1} MB in {} files, {:.1} MB in {} files accessed (scale {})\n",
        record.data_set.bytes as f64 / 1e6,
        record.data_set.files,
        record.data_set.accessed_bytes as f64 / 1e6,
        record.data_set.accessed_files,
        record.scale
    ));
    text.push_str(&format!(
        "errors {}   sent again {}   without a reply at the end {}\n\n",
        record.errors, record.retransmissions, record.unanswered
    ));
    for (kind, count) in &record.errors_by_kind {
        text.push_str(&format!("  {count} x {kind}\n"));
    }
    let mut table = Table::new(1, &["operation", "count", "percent", "mean ms", "99 % ms"]);
    let mut operations: Vec<_> = record.operations.iter().collect();
    operations.sort_by(|left, right| right.1.percent.total_cmp(&left.1.percent));
    for (procedure, operation) in operations {
        table.row(vec![
            procedure.to_string(),
            operation.count.to_string(),
            format!("{:.2}", operation.percent),
            measured(operation.mean_ms),
            measured(operation.p99_ms),
        ]);
    }
    text + &table.to_string()
}

/// What the live line says.
pub(super) fn said(progress: Progress) -> String {
    match progress {
        Progress::Making { done, of } => format!("making files: {done} of {of}"),
        Progress::Running {
            elapsed,
            of,
            answered,
            failed,
        } => format!(
            "{} {answered} answered, {failed} failed, {} s left",
            bar(elapsed.as_secs_f64() / of.as_secs_f64()),
            of.saturating_sub(elapsed).as_secs()
        ),
        Progress::Removing => "removing files".into(),
    }
}
