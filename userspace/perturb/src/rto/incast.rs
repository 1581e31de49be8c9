//! `perturb rto --senders`.

use std::{io::Write as _, time::Duration};

use clap::Args;
use perturb_emulator::status::Checked;
use perturb_experiments::{
    rto::incast::{self, Found, Kind, Load, Plan, Port, Sheet},
    tcp::is_available,
};
use perturb_present::LiveLine;
use perturb_profile::{Loaded, Size};
use perturb_workloads::collective::Algorithm;

use super::{RtoArgs, write};
use crate::cli::{
    Contradiction, Lacking, beside,
    exit::{DONE, FAILED, INTERRUPTED},
    in_sandbox, quantity,
    time::{self, within},
    words::{Words, one_of},
};

/// Hosts, unless their number is given: a client, and those of the servers.
const HOSTS: u32 = 9;

/// What incast over the number of senders takes.
#[derive(Args, Debug)]
#[command(next_help_heading = "Incast: goodput over the number of senders")]
pub(super) struct IncastArgs {
    /// How many servers answer the first host at once: connections of the other hosts, in turn.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "N,…",
        conflicts_with_all = ["program", "csv", "jitter", "pause"],
        value_parser = clap::value_parser!(u32).range(1..=400)
    )]
    pub(super) senders: Vec<u32>,
    /// All servers' bytes together, in place of --message each.
    #[arg(long, value_name = "SIZE", requires = "senders", conflicts_with = "message", value_parser = quantity::message)]
    pub(super) block: Option<u64>,
    /// Smallest time-outs; a curve for each.
    #[arg(long, value_delimiter = ',', value_name = "TIME,…", requires = "senders", value_parser = within(RTO_MIN))]
    rto_min: Vec<Duration>,
    /// Congestion controls, by the kernel's names; a curve for each.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…", requires = "senders")]
    congestion: Vec<String>,
    /// RACK and tail loss probes, with SACK, which they need; a curve for each word.
    #[arg(long, value_delimiter = ',', value_name = "on,off", requires = "senders", value_parser = one_of(SWITCH))]
    rack_tlp: Vec<bool>,
    /// Ask for ECN, or leave that to congestion controls that need it, as DCTCP; a curve for each word.
    #[arg(long, value_delimiter = ',', value_name = "on,off", requires = "senders", value_parser = one_of(ASKING))]
    ecn: Vec<bool>,
    /// Buffer of a star's ports.
    #[arg(long, value_name = "SIZE", requires = "senders")]
    buffer: Option<Size>,
    /// A star's ports mark packets that wait for longer (ECN, as DCTCP needs); without --ecn all ask for it.
    #[arg(long, value_name = "TIME", requires = "senders", value_parser = within(time::WORK))]
    mark_above: Option<Duration>,
}

/// As a profile's `rto_min`.
const RTO_MIN: std::ops::RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(120);

const SWITCH: Words<bool> = &[
    ("on", true, "tcp_recovery 1, tcp_early_retrans 3"),
    ("off", false, "Both 0"),
];

const ASKING: Words<bool> = &[("on", true, "tcp_ecn 1"), ("off", false, "tcp_ecn 0")];

/// Each of these, or none.
fn options<T: Clone>(given: &[T]) -> Vec<Option<T>> {
    match given {
        [] => vec![None],
        some => some.iter().cloned().map(Some).collect(),
    }
}

impl IncastArgs {
    fn kinds(&self, controls: &[String]) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for control in options(controls) {
            for rto_min in options(&self.rto_min) {
                for rack_tlp in options(&self.rack_tlp) {
                    let of = |ecn| Kind {
                        control: control.clone(),
                        rto_min,
                        rack_tlp,
                        ecn,
                    };
                    kinds.extend(options(&self.ecn).into_iter().map(of));
                }
            }
        }
        kinds
    }
}

/// Runs the experiment; the exit code.
pub(super) fn run(args: &RtoArgs) -> anyhow::Result<u8> {
    let given = &args.incast;
    if args.algorithm != Algorithm::Incast {
        return Err(Contradiction("--senders is of --algorithm incast").into());
    }
    let load = match (given.block, args.message.as_slice()) {
        (Some(block), _) => Load::Together(block),
        (None, [piece]) => Load::Each(*piece),
        _ => {
            return Err(Contradiction(
                "--senders takes one size: --message SIZE each, or --block SIZE together",
            )
            .into());
        }
    };
    if let Some(block) = given.block
        && given.senders.iter().any(|&senders| block < senders.into())
    {
        return Err(Contradiction("--block has less than a byte for each sender").into());
    }
    let Loaded { profile, files } = perturb_profile::load(&args.profile)?;
    let port = Port {
        buffer: given.buffer,
        mark_above: given.mark_above,
    };
    let profile = incast::with_port(profile, port).ok_or(Contradiction(
        "--buffer and --mark-above are of a star's ports; this profile has no topology `star`: write them into the profile",
    ))?;
    let pacing = args.pacing.checked()?;
    if args.sandbox {
        return in_sandbox(beside(&args.svg)?, false);
    }
    perturb_emulator::own_namespace::ready(pacing.choice)?;
    let (mut there, mut lacking) = (Vec::new(), Vec::new());
    for control in &given.congestion {
        let found = if is_available(control)? {
            &mut there
        } else {
            &mut lacking
        };
        found.push(control.clone());
    }
    for control in &lacking {
        log::warn!(
            "this kernel has no congestion control `{control}`, and no module tcp_{control}: no curve of it"
        );
    }
    if there.is_empty() && !lacking.is_empty() {
        return Err(Lacking("none of the congestion controls is there: nothing to measure".into()).into());
    }
    let plan = Plan {
        hosts: args.hosts.unwrap_or(HOSTS),
        servers: given.senders.clone(),
        load,
        blocks: args.rounds,
        warmup: args.warmup,
        kinds: given.kinds(&there),
        lacking,
    };
    let line = LiveLine::stderr(false);
    let Found {
        results,
        faults,
        interrupted,
    } = incast::measure(&profile, &files, args.pacing.coarse, pacing, plan, line)?;
    if let Some(path) = &args.svg
        && !results.is_empty()
    {
        let title = format!("Incast over {}", args.profile.display());
        write(path, &incast::svg(&results, &title)?)?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let (result, faults) = (&results, Some(faults));
        serde_json::to_writer(&mut out, &Checked { result, faults })?;
        writeln!(out)?;
    } else {
        write!(out, "{}", Sheet(&results))?;
    }
    Ok(match (interrupted, results.lacks_points()) {
        (true, _) => INTERRUPTED,
        (false, true) => FAILED,
        (false, false) => DONE,
    })
}
