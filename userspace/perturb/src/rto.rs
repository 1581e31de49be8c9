//! `perturb rto`.

mod incast;

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
use perturb_experiments::rto::{self, Case, Plan, Series};
use perturb_models::plogpt::{Beside, OnProfile, ProgramInput};
use perturb_present::LiveLine;
use perturb_quantity::Micros;
use perturb_workloads::collective::Algorithm;

use crate::cli::{
    Contradiction, PacingArgs, beside,
    exit::{DONE, INTERRUPTED},
    in_sandbox, quantity,
    time::{self, within},
    words::{Words, one_of},
};
use crate::predict::{InputError, read};

const EXAMPLES: &str = "\
Examples:
  perturb rto configs/plogpt-2007.yaml --message 4KiB,16KiB,64KiB,256KiB
  perturb rto configs/plogpt-today.yaml --algorithm alltoall-a --message 128KiB --rounds 50 --json
  perturb rto configs/plogpt-2007.yaml --message 1KiB,8KiB,32KiB,128KiB,512KiB --svg fig17.svg --csv rounds.csv
  perturb rto configs/plogpt-2007.yaml --program program.yaml
  perturb rto configs/incast.yaml --algorithm incast --senders 8,16,32,64,128 --message 16KiB --rto-min 200ms,5ms,1ms --svg incast.svg

A round counts as delayed (near k RTO) if the kernel counted time-outs in it and it took a whole multiple
of the smallest time-out longer than it would have without, from a quarter less to a half more: a time-out
is the smallest one and a round trip, and slow start follows it.";

/// Hosts, unless their number is given.
const HOSTS: u32 = 8;

/// Arguments of `perturb rto`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct RtoArgs {
    /// The profile: a topology, or any other network.
    profile: PathBuf,
    /// How many hosts, one rank on each [default: as many as the program has; 8].
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=i64::from(MAX_HOSTS)))]
    hosts: Option<u32>,
    /// Size of each message, e.g. 64KiB; several sizes are tried one after the other.
    #[arg(long, value_delimiter = ',', value_name = "SIZE", required_unless_present_any = ["program", "block"], value_parser = quantity::message)]
    message: Vec<u64>,
    /// Who sends to whom.
    #[arg(long, value_parser = one_of(ALGORITHMS), default_value = Algorithm::AlltoallB.name())]
    algorithm: Algorithm,
    /// What the hosts do instead: an input of `perturb predict plogpt --profile`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["message", "algorithm"])]
    program: Option<PathBuf>,
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
    #[command(flatten)]
    incast: incast::IncastArgs,
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

impl RtoArgs {
    /// How many hosts there are, what they do, what that is called, and what PlogPT is told beside the profile.
    fn programs(&self) -> anyhow::Result<(u32, &'static str, Vec<ProgramInput>, Beside)> {
        let Some(file) = &self.program else {
            let sizes = self.message.iter();
            let programs = sizes
                .map(|message| rto::collective(self.algorithm, *message))
                .collect();
            return Ok((
                self.hosts.unwrap_or(HOSTS),
                self.algorithm.name(),
                programs,
                Beside::default(),
            ));
        };
        let OnProfile { parameters, program } = read(file)?;
        let ranks = program.ranks.as_ref().map(|ranks| ranks.len() as u32);
        let hosts = self.hosts.or(ranks).or(parameters.nodes).unwrap_or(HOSTS);
        if !(2..=MAX_HOSTS).contains(&hosts) {
            return Err(Contradiction(
                "--program needs a program of two ranks or more, and of no more than --hosts takes",
            )
            .into());
        }
        Ok((hosts, "program", vec![program], parameters))
    }
}

/// Runs the experiment; the exit code.
pub(crate) fn run(args: &RtoArgs) -> anyhow::Result<u8> {
    if !args.incast.senders.is_empty() {
        return incast::run(args);
    }
    // Errors in files come first, and need neither root nor kernel.
    let (hosts, name, programs, mut parameters) = args.programs()?;
    let prepared = Prepared::load_for(&args.profile, &lab::all_addresses(hosts))?;
    let written = Prepared::read(&args.profile)?;
    if args.jitter.is_some() && !rto::is_tree(&written) {
        return Err(Contradiction(
            "--jitter is a parameter of PlogPT, which predicts trees and stars; this profile's network is neither",
        )
        .into());
    }
    let jitter = args.jitter.map(|jitter| Micros(jitter.as_secs_f64() * 1e6));
    parameters.jitter = jitter.or(parameters.jitter).or(Some(rto::JITTER));
    if let (Some(file), [program]) = (&args.program, &programs[..]) {
        let case = Case {
            profile: &written,
            hosts,
            beside: &parameters,
            program,
        };
        case.check().map_err(|error| InputError::model(file, error))?;
    }
    let pacing = args.pacing.checked()?;
    if args.sandbox {
        let files = [&args.csv, &args.svg].into_iter().flatten();
        return in_sandbox(beside(files)?, false);
    }
    perturb_emulator::own_namespace::ready(pacing.choice)?;
    let plan = Plan {
        name,
        programs,
        rounds: args.rounds,
        warmup: args.warmup,
        pause: args.pause,
        beside: parameters,
        profile: written,
    };
    let prepared = prepared.coarse_if(args.pacing.coarse);
    match rto::measure(hosts, &prepared, pacing, plan, LiveLine::stderr(false))? {
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
        let name = series.first().map_or("", |series| series.algorithm);
        let title = format!("{name} over {}", args.profile.display());
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
