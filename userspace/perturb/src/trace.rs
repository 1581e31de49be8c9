//! `perturb trace`: its command line and what it prints; the rest is `perturb-trace`.

mod overhead;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use perturb_sandbox::exit_code;
use perturb_trace::{Address, Layer, Options, Report, TraceError};

use crate::cli::exit::DONE;

const EXAMPLES: &str = "\
Examples:
  perturb trace -- mpirun -n 4 --bind-to none ./solver                events of the ranks, in trace.jsonl
  perturb trace --out run.jsonl --scenario run.yaml -- ./program
                                                               and an input for `perturb predict whatif`
  perturb trace --collect /tmp/events.sock -- ./program &      the prediction runs while the program does:
  perturb predict whatif run.yaml --events /tmp/events.sock --follow
  perturb trace -- perturb run --mpi lan.yaml --hosts 4 -- ./solver   ranks on private hosts
  perturb run lan.yaml -- perturb trace -- sh -c './server & perturb on h2 -- ./client'
  perturb trace --merge tcp:0.0.0.0:7000 --senders 2 --scenario run.yaml
                                                               one trace of two machines, on each of which runs
  perturb trace --to tcp:collector:7000 -- ./program
  perturb trace --overhead 5 -- ./program                      what tracing costs: 5 runs with and 5 without

Processes are named by their ranks (MPI) or as PROGRAM.N, the N-th of its name; further threads of them that
communicate, NAME/2, NAME/3, ...";

/// Arguments of `perturb trace`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct TraceArgs {
    /// Where the events go, as JSON lines; `-` is standard output.
    #[arg(long, value_name = "FILE", default_value = "trace.jsonl")]
    pub out: PathBuf,
    /// Also give the events to whoever connects here, as they happen: a Unix socket's path, or tcp:HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub collect: Option<Address>,
    /// Only send what is recorded to the `perturb trace --merge` that listens there: a Unix socket's path, or
    /// tcp:HOST:PORT.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["out", "collect", "scenario", "overhead", "json"])]
    pub to: Option<Address>,
    /// Run nothing, but make one trace of what `perturb trace --to` sends from several machines.
    #[arg(long, value_name = "ADDRESS", requires = "senders", conflicts_with_all = ["to", "overhead", "layer", "command"])]
    pub merge: Option<Address>,
    /// With --merge: how many will send; the trace ends with the last of them.
    #[arg(long, value_name = "N", requires = "merge", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub senders: Option<u32>,
    /// Write an input for `perturb predict whatif`: every process on a processor of its own, messages that take
    /// no time; edit the groups and the network.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// What is traced.
    #[arg(long, value_enum, default_value_t = Layer::Auto)]
    pub layer: Layer,
    /// Run the command this many times without tracing and as often with it, alternating, and print what
    /// tracing costs.
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub overhead: Option<u32>,
    /// Say with each event when it happened (`time_us`, of this machine's monotonic clock).
    #[arg(long, conflicts_with_all = ["to", "merge"])]
    pub times: bool,
    /// Keep what the traced processes write here until it is read [default: /dev/shm].
    #[arg(long, value_name = "DIR", conflicts_with = "merge")]
    pub rings: Option<PathBuf>,
    /// Print the summary as one JSON object, on standard output.
    #[arg(long)]
    pub json: bool,
    /// Write the summary into this file, too, as one JSON object.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "merge", "overhead"])]
    pub summary: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(last = true, required_unless_present = "merge")]
    pub command: Vec<OsString>,
}

impl TraceArgs {
    fn options(&self) -> Options {
        Options {
            command: self.command.clone(),
            layer: self.layer,
            out: self.out.clone(),
            collect: self.collect.clone(),
            scenario: self.scenario.clone(),
            has_times: self.times,
            rings: self.rings.clone(),
            owns_output: self.json || self.out == Path::new("-"),
        }
    }

    /// For people on standard error, for machines on standard output.
    fn print(&self, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(report)?)?;
            return Ok(());
        }
        eprintln!(
            "perturb: {} events of {} processes in {:.3} s: {}; recording took {:.2} % of that time per process",
            report.events,
            report.processes.len(),
            report.elapsed.as_secs_f64(),
            self.out.display(),
            report.recording_percent
        );
        if report.outside > 0 {
            eprintln!(
                "perturb: warning: {} calls moved bytes from or to programs that are not traced; the prediction \
                 takes no time for them",
                report.outside
            );
        }
        if report.lost > 0 {
            eprintln!("perturb: warning: {} events are lost", report.lost);
        }
        if report.events == 0 {
            eprintln!(
                "perturb: warning: nothing was traced; the command must be dynamically linked and use MPI or TCP"
            );
        }
        Ok(())
    }
}

/// Runs the command; its exit code.
///
/// # Errors
/// What went wrong, but for the command itself.
pub(crate) fn run(args: &TraceArgs, out: &mut dyn Write) -> anyhow::Result<u8> {
    let options = args.options();
    if let (Some(address), Some(senders)) = (&args.merge, args.senders) {
        let report = perturb_trace::merge(&options, address, senders, |error| {
            eprintln!("perturb: warning: a sender's trace is incomplete: {error}");
        })?;
        args.print(&report, out)?;
        return Ok(DONE);
    }
    if let Some(address) = &args.to {
        let (status, records, processes) = perturb_trace::sent(&options, address)?;
        eprintln!("perturb: {records} records of {processes} processes are at {address}");
        return Ok(exit_code(status));
    }
    if let Some(runs) = args.overhead {
        return overhead::measure(&options, runs, args.json, out);
    }
    let (status, report) = perturb_trace::traced(&options)?;
    if let Some(path) = &args.summary {
        std::fs::write(path, serde_json::to_string_pretty(&report)?).map_err(TraceError::write(path))?;
    }
    args.print(&report, out)?;
    Ok(exit_code(status))
}
