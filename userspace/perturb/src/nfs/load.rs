//! `perturb nfs load`.

use clap::Args;
use perturb_emulator::status::{self, Bystander};
use perturb_experiments::nfs::{is_whole, said};
use perturb_present::{LiveLine, Table, measured};
use perturb_quantity::OperationsPerSecond;
use perturb_workloads::nfs::{
    Stop,
    client::{Export, Transport},
    load,
    record::Record,
};

use super::{
    DONE, FAILED,
    interrupt::stop_on_signal,
    options::{LoadOptions, PortOptions, TRANSPORTS},
};
use crate::cli::{quantity::rate, words::one_of};

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
    /// What carries the calls.
    #[arg(long, value_parser = one_of(TRANSPORTS), default_value = "tcp")]
    transport: Transport,
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
    let mut plan = args.load.plan(
        args.server,
        args.ports.ports(),
        &[args.transport],
        args.rate,
        args.scale,
    )?;
    plan.histogram = args.histogram;
    let stop = Stop::default();
    stop_on_signal(stop.clone(), false)?;
    let bystander = Bystander::begin()?;
    let line = LiveLine::stderr(args.quiet);
    let outcome = load::run(&plan, &stop, &|progress| line.show(said(progress)));
    line.clear();
    let outcome = outcome?;
    let (checked, looked) = bystander.check(&outcome.record);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&checked)?);
    } else {
        print!("{}", describe(&outcome.record));
    }
    let faults = checked.faults.unwrap_or_default();
    status::warn(&faults);
    let is_whole = is_whole(&outcome);
    looked?;
    Ok(if is_whole && faults.is_empty() {
        DONE
    } else {
        FAILED
    })
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
