//! `perturb tcp`.

use std::{fs, io::Write as _, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;
use perturb_emulator::{
    lab,
    prepared::Prepared,
    status::{self, Checked},
};
use perturb_experiments::tcp::{self, Plan, Sheet};
use perturb_present::LiveLine;
use perturb_profile::Start;

use crate::cli::{
    Contradiction, Lacking, PacingArgs, beside,
    exit::{DONE, INTERRUPTED},
    in_sandbox,
    time::{self, within},
};

const EXAMPLES: &str = "\
Examples:
  perturb tcp configs/scenarios/lte-drive.yaml --for 120s --svg lte.svg
  perturb tcp my.yaml --congestion cubic,cubic --at-once --json

Queueing delay is TCP's smoothed round trip less the flow's shortest one: a latency that changes counts, and jitter.
What could pass is the integral of the bandwidth of the slowest server on the way, for full frames with its gap; headers
are part of it, 4.4 % of full segments.";

/// What the kernel has now; modules may bring more.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Arguments of `perturb tcp`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct TcpArgs {
    /// The profile.
    profile: PathBuf,
    /// Congestion controls, by the kernel's names; a flow for each.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,…",
        default_value = "cubic,bbr"
    )]
    congestion: Vec<String>,
    /// How long each flow sends.
    #[arg(long = "for", value_name = "TIME", value_parser = within(time::PERIOD), default_value = "60s")]
    duration: Duration,
    /// How often its sender is asked (TCP_INFO).
    #[arg(long, value_name = "TIME", value_parser = within(time::PERIOD), default_value = "100ms")]
    every: Duration,
    /// From h1 to h2; otherwise h2 sends to h1.
    #[arg(long)]
    upload: bool,
    /// All flows share the network; otherwise each has it for itself, from the timeline's beginning.
    #[arg(long)]
    at_once: bool,
    /// Print one JSON object, with all samples.
    #[arg(long)]
    json: bool,
    /// Draw throughput and queueing delay over time.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    pacing: PacingArgs,
    /// In a user-mode Linux kernel of its own, which has sch_fq and needs no root.
    #[arg(long)]
    sandbox: bool,
}

/// Runs the flows; the exit code.
pub(crate) fn run(args: &TcpArgs) -> anyhow::Result<u8> {
    // Errors in the profile come first, and need neither root nor kernel.
    let prepared = Prepared::load_for(&args.profile, &lab::all_addresses(2))?;
    if matches!(prepared.profile.timeline.start, Start::At(_)) {
        return Err(Contradiction(
            "the timeline starts at an instant, but here it is to start with each flow: leave `start` out",
        )
        .into());
    }
    if args.every > args.duration {
        return Err(Contradiction("--every must not be longer than --for").into());
    }
    let pacing = args.pacing.checked()?;
    if args.sandbox {
        return in_sandbox(beside(&args.svg)?, false);
    }
    perturb_emulator::own_namespace::ready(pacing.choice)?;
    args.congestion
        .iter()
        .try_for_each(|control| available(control))?;
    let plan = Plan {
        controls: args.congestion.clone(),
        length: args.duration,
        every: args.every,
        upload: args.upload,
        at_once: args.at_once,
    };
    if latency_moves(&prepared) {
        log::warn!("the latency changes: what is called queueing has the latency beyond the least one in it");
    }
    let prepared = prepared.coarse_if(args.pacing.coarse);
    let Some((results, faults)) = tcp::measure(&prepared, pacing, &plan, LiveLine::stderr(false))? else {
        return Ok(INTERRUPTED);
    };
    status::warn(&faults);
    let mut out = std::io::stdout().lock();
    if args.json {
        let faults = Some(faults);
        let result = &results;
        serde_json::to_writer(&mut out, &Checked { result, faults })?;
        writeln!(out)?;
    } else {
        write!(out, "{}", Sheet(&results))?;
    }
    if let Some(path) = &args.svg {
        let title = format!("TCP over {}", args.profile.display());
        fs::write(path, tcp::svg(&results, &title)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(DONE)
}

/// Whether packets that find nobody ahead wait differently long: by a timeline, a trace or jitter.
fn latency_moves(prepared: &Prepared) -> bool {
    let mut timelines = prepared.tables.timelines.iter();
    prepared
        .profile
        .servers
        .iter()
        .any(|(_, server)| server.jitter.is_some())
        || timelines.any(|one| {
            let moves = one
                .segments
                .windows(2)
                .any(|pair| pair[0].latency != pair[1].latency);
            moves || one.segments.iter().any(|part| part.jitter_scale > 0)
        })
}

/// That the kernel has it.
fn available(control: &str) -> anyhow::Result<()> {
    let found = tcp::is_available(control);
    if found.with_context(|| format!("asking this kernel for the congestion control `{control}`"))? {
        return Ok(());
    }
    let others = fs::read_to_string(AVAILABLE).unwrap_or_default();
    let others: Vec<&str> = others.split_whitespace().collect();
    Err(Lacking(format!(
        "this kernel has no congestion control `{control}`, and no module tcp_{control}; it has {0}: `--congestion {0}`",
        others.join(",")
    ))
    .into())
}
