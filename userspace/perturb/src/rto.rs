//! `perturb rto`.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use perturb_emulator::{
    lab::{self, MAX_HOSTS},
    prepared::Prepared,
    status::{Checked, Fault},
};
use perturb_experiments::rto::{self, Plan, Series};
use perturb_present::LiveLine;
use perturb_workloads::collective::Algorithm;

use crate::cli::{
    Contradiction, PacingArgs, beside,
    exit::{DONE, INTERRUPTED},
    in_sandbox, quantity,
    time::{self, within},
    words::{Words, one_of},
};

const EXAMPLES: &str = "\
Examples:
  perturb rto configs/plogpt-2007.yaml --message 4KiB,16KiB,64KiB,256KiB
  perturb rto configs/plogpt-today.yaml --algorithm alltoall-a --message 128KiB --rounds 50 --json
  perturb rto configs/plogpt-2007.yaml --message 1KiB,8KiB,32KiB,128KiB,512KiB --svg fig17.svg --csv rounds.csv

A round counts as delayed (near k RTO) if the kernel counted time-outs in it and it took a whole multiple
of the smallest time-out longer than it would have without, from a quarter less to a half more: a time-out
is the smallest one and a round trip, and slow start follows it.";

/// PlogPT's J, unless it is given.
const JITTER: Duration = Duration::from_micros(100);

/// Arguments of `perturb rto`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct RtoArgs {
    /// The profile: a topology, or any other network.
    profile: PathBuf,
    /// How many hosts, one rank on each.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=i64::from(MAX_HOSTS)))]
    hosts: u32,
    /// Size of each message, e.g. 64KiB; several sizes are tried one after the other.
    #[arg(long, value_delimiter = ',', value_name = "SIZE", required = true, value_parser = quantity::message)]
    message: Vec<u64>,
    /// Who sends to whom.
    #[arg(long, value_parser = one_of(ALGORITHMS), default_value = Algorithm::AlltoallB.name())]
    algorithm: Algorithm,
    /// Rounds that are measured, for each size.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Rounds before them, which open TCP's windows.
    #[arg(long, default_value_t = 2)]
    warmup: u32,
    /// Silence between rounds.
    #[arg(long, value_name = "TIME", value_parser = within(time::WORK), default_value = "20ms")]
    pause: Duration,
    /// How far apart nominally simultaneous events are taken to be in the prediction: PlogPT's J [default: 100us].
    #[arg(long, value_name = "TIME", value_parser = within(time::WORK))]
    jitter: Option<Duration>,
    /// Print one JSON object, or an array if there are several sizes.
    #[arg(long)]
    json: bool,
    /// Write a line for each round.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw time against message size, measured over predicted.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    pacing: PacingArgs,
    /// In a user-mode Linux kernel of its own, which has sch_fq and needs no root.
    #[arg(long)]
    sandbox: bool,
}

/// Who sends to whom.
pub(crate) const ALGORITHMS: Words<Algorithm> = &[
    (
        Algorithm::AlltoallA.name(),
        Algorithm::AlltoallA,
        "Each step waits for its send and its receive (PlogPT, fig. 13 A)",
    ),
    (
        Algorithm::AlltoallB.name(),
        Algorithm::AlltoallB,
        "Each step waits for its send only (PlogPT, fig. 13 B)",
    ),
    (
        Algorithm::Incast.name(),
        Algorithm::Incast,
        "All send to the first host at once",
    ),
];

/// Runs the experiment; the exit code.
pub(crate) fn run(args: &RtoArgs) -> anyhow::Result<u8> {
    // Errors in the profile come first, and need neither root nor kernel.
    let prepared = Prepared::load_for(&args.profile, &lab::all_addresses(args.hosts))?;
    let written = Prepared::read(&args.profile)?;
    if args.jitter.is_some() && !rto::is_tree(&written) {
        return Err(Contradiction(
            "--jitter is a parameter of PlogPT, which predicts trees and stars; this profile's network is neither",
        )
        .into());
    }
    let pacing = args.pacing.checked()?;
    if args.sandbox {
        let files = [&args.csv, &args.svg].into_iter().flatten();
        return in_sandbox(beside(files)?, false);
    }
    let plan = Plan {
        algorithm: args.algorithm,
        messages: args.message.clone(),
        rounds: args.rounds,
        warmup: args.warmup,
        pause: args.pause,
        jitter: args.jitter.unwrap_or(JITTER),
        profile: written,
    };
    let prepared = prepared.coarse_if(args.pacing.coarse);
    match rto::measure(args.hosts, &prepared, pacing, plan, LiveLine::stderr(false))? {
        Some((series, faults)) => conclude(args, &series, &faults).map(|()| DONE),
        None => Ok(INTERRUPTED),
    }
}

/// Prints and writes what was asked for.
fn conclude(args: &RtoArgs, series: &[Series], faults: &[Fault]) -> anyhow::Result<()> {
    if let Some(path) = &args.csv {
        write(path, &rto::csv(series))?;
    }
    if let Some(path) = &args.svg {
        let title = format!("{} over {}", args.algorithm.name(), args.profile.display());
        write(path, &rto::svg(series, &title)?)?;
    }
    let mut out = std::io::stdout().lock();
    // The rounds of all sizes cross one emulation.
    let checked = series.iter().map(|series| Checked {
        result: series,
        faults: Some(faults.to_vec()),
    });
    let checked: Vec<_> = checked.collect();
    match checked.as_slice() {
        [one] if args.json => serde_json::to_writer(&mut out, one)?,
        all if args.json => serde_json::to_writer(&mut out, all)?,
        _ => write!(out, "{}", rto::Sheet(series))?,
    }
    if args.json {
        writeln!(out)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
