//! `perturb measure`.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use perturb_emulator::{
    signals::at_each_signal,
    status::{self, Bystander, Checked},
};
use perturb_experiments::measure::{self, PORT, Recording, Server};
use perturb_present::LiveLine;

use crate::cli::{
    exit::{DONE, FAILED, INTERRUPTED},
    time::{PERIOD, SPAN, within},
};

/// From a row of a recording to the next, unless it is said.
const EVERY: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  perturb measure serve                              on the other host; TCP and UDP port 4798
  perturb measure --peer db1 --profile db1.yaml      the path to it, as a profile for `perturb apply`
  perturb measure --peer db1 --network db1.net.yaml  its one-way times, for `perturb predict whatif`
  perturb measure --peer db1 --for 10min --every 100ms --trace path.csv
                                                     the path as it changes, for `trace:` in a profile
  perturb measure --groups a1,a2,a3/b1,b2,b3         what is between two groups of hosts that serve: b(h), d(h)

Exit codes:
  0 measured   2 usage
  1 the peer does not answer, too little arrives, or an emulation on this machine lost packets that its profile does not drop
  130 a signal ended --trace before --for; the file is whole";

/// Arguments of `perturb measure`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Measure {
    #[command(subcommand)]
    command: Option<Command>,
    /// A host where `perturb measure serve` runs: name or address, with :PORT if not the usual one.
    #[arg(long, value_name = "HOST", required_unless_present = "groups")]
    peer: Option<String>,
    /// Two groups of hosts that serve, HOST,HOST,…/HOST,HOST,…: the bandwidth b(h) and the buffer d(h) between them.
    #[arg(long, value_name = "GROUPS", conflicts_with_all = ["peer", "profile", "network", "quick"], value_parser = two_groups)]
    groups: Option<Groups>,
    /// Write the profile that emulates the path, for `apply`.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Write one-way times over sizes, for `predict whatif`.
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// Record the path as it changes: a row per interval, with latency, bandwidth and loss, as CSV.
    #[arg(long, value_name = "FILE", requires = "peer", conflicts_with_all = ["groups", "profile", "network", "quick"])]
    trace: Option<PathBuf>,
    /// Record for this long [default: until interrupted].
    #[arg(long = "for", value_name = "TIME", requires = "trace", value_parser = within(SPAN))]
    span: Option<Duration>,
    /// From a row to the next [default: 100ms].
    #[arg(long, value_name = "TIME", requires = "trace", value_parser = within(PERIOD))]
    every: Option<Duration>,
    /// Fewer samples.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Be measured: answer, and send when asked; until interrupted
    Serve {
        /// Where to listen, TCP and UDP.
        #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)))]
        listen: SocketAddr,
    },
}

/// Names of the hosts of two groups.
#[derive(Clone, Debug)]
struct Groups([Vec<String>; 2]);

fn two_groups(text: &str) -> Result<Groups, String> {
    let names = |group: &str| {
        group
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let groups = text
        .split_once('/')
        .map(|(left, right)| [names(left), names(right)]);
    match groups {
        Some(groups) if groups.iter().flatten().all(|name| !name.is_empty()) => Ok(Groups(groups)),
        _ => Err("write HOST,HOST,…/HOST,HOST,…".into()),
    }
}

/// Measures, or serves; the exit code.
pub(crate) fn run(args: &Measure) -> anyhow::Result<u8> {
    let line = LiveLine::stderr(false);
    match (&args.command, &args.groups, &args.peer) {
        (Some(Command::Serve { listen }), ..) => {
            let server =
                Server::bind(*listen).with_context(|| format!("listening on {listen}, TCP and UDP"))?;
            eprintln!("measure: serving on {}", server.address()?);
            match server.serve()? {}
        }
        (None, Some(Groups([left, right])), _) => {
            let (checked, looked) = checked(|| measure::groups(left, right, &line))?;
            if args.json {
                println!("{}", serde_json::to_string_pretty(&checked)?);
            } else {
                print!("{}", checked.result);
            }
            conclude(&checked, looked)
        }
        (None, None, Some(peer)) if args.trace.is_some() => recorded(args, peer),
        (None, None, Some(peer)) => {
            let (checked, looked) = checked(|| measure::path(peer, args.quick, &line))?;
            let measured = &checked.result;
            for (file, text) in [
                (&args.profile, measured.profile()),
                (&args.network, measured.network()),
            ] {
                if let Some(file) = file {
                    fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
                }
            }
            if args.json {
                println!("{}", serde_json::to_string_pretty(&checked)?);
            } else {
                print!("{measured}");
                if args.profile.is_none() {
                    print!("{}", measured.profile());
                }
            }
            conclude(&checked, looked)
        }
        (None, None, None) => anyhow::bail!("name a --peer, or two --groups"),
    }
}

/// Records the path to a peer until the time is over or a signal comes; the exit code.
fn recorded(args: &Measure, peer: &str) -> anyhow::Result<u8> {
    let file = args.trace.as_deref().context("name a file")?;
    let plan = Recording {
        every: args.every.unwrap_or(EVERY),
        span: args.span,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    at_each_signal(move |_| {
        if stopped.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
        eprintln!("measure: waiting for the last answers (again: ends at once)");
    })?;
    let line = LiveLine::stderr(false);
    let (checked, looked) = checked(|| measure::record(peer, plan, file, &stop, &line))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&checked)?);
    } else {
        print!("{}", checked.result);
    }
    let code = conclude(&checked, looked)?;
    let cut = checked.result.stopped && args.span.is_some();
    Ok(if code == DONE && cut { INTERRUPTED } else { code })
}

/// Measures, and finds out whether an emulation of this machine did to packets meanwhile what no profile asks for.
fn checked<T>(
    measure: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(Checked<T>, anyhow::Result<()>)> {
    let bystander = Bystander::begin()?;
    let result = measure()?;
    Ok(bystander.check(result))
}

/// Says what speaks against a result, once that is told; the exit code.
fn conclude<T>(checked: &Checked<T>, looked: anyhow::Result<()>) -> anyhow::Result<u8> {
    looked?;
    Ok(match checked.faults.as_deref() {
        None | Some([]) => DONE,
        Some(faults) => {
            status::warn(faults);
            FAILED
        }
    })
}
