//! `perturb calibrate`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use perturb_emulator::conduct::{Pacer, PacerChoice, Pacing};
use perturb_experiments::calibrate::{self, Asked, Outcome, Request, Sabotage};
use perturb_present::LiveLine;
use perturb_profile::Knob;

use crate::cli::{
    Contradiction, PacingArgs, beside,
    ci::CiArgs,
    exit::{DONE, FAILED, INTERRUPTED},
    in_sandbox,
    words::{Words, one_of},
};

const EXAMPLES: &str = "\
Examples:
  sudo perturb calibrate                             all knobs through their ranges
  sudo perturb calibrate --quick --json              in less than 45 s; for CI
  sudo perturb calibrate --knob latency --out cal    one knob; cal/calibration.html has the charts
  sudo perturb calibrate configs/dsl.yaml            one profile's classes: asked, got, error, verdict
  perturb calibrate --sandbox                        on a user-mode kernel with sch_fq, without root
  sudo perturb calibrate --peer n02 --iface ib0      on top of a real network; there: perturb measure serve

Exit codes:
  0 every knob is within its tolerance (2 % or 30 us; G 2 %)
  1 a knob is not, or the machine is too busy to tell
  2 usage   3 this kernel lacks something";

/// Arguments of `perturb calibrate`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
#[command(mut_arg("coarse", |coarse| coarse.requires("profile")))]
#[command(mut_arg("ci", |ci| ci.conflicts_with("sandbox")))]
pub(crate) struct Calibrate {
    /// Check the classes of this profile instead of the knobs: asked, got, error, verdict.
    #[arg(conflicts_with_all = ["knobs", "quick", "out", "seed", "sabotage"])]
    profile: Option<PathBuf>,
    /// Only these knobs.
    #[arg(long = "knob", value_parser = one_of(KNOBS), value_name = "KNOB")]
    knobs: Vec<Knob>,
    /// Fewer samples; ends within 45 s.
    #[arg(long)]
    quick: bool,
    /// Write calibration.json, calibration.csv (raw samples) and calibration.html into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Seed of the order in which a knob's settings are measured, and of the profiles.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Make the emulator wrong on purpose: KNOB=FACTOR.
    #[arg(long, hide = true, value_name = "KNOB=FACTOR")]
    sabotage: Option<Sabotage>,
    /// No progress on standard error.
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    pacing: PacingArgs,
    /// On top of the network between this host and one where `perturb measure serve` runs: name or address, with :PORT if not the
    /// usual one. Only what is sent for that is emulated.
    #[arg(long, value_name = "HOST", requires = "iface", conflicts_with_all = ["profile", "out", "sandbox"])]
    peer: Option<String>,
    /// With --peer: the interface here that leads there.
    #[arg(long, value_name = "IF", requires = "peer")]
    iface: Option<String>,
    /// In a user-mode Linux kernel of its own, which has sch_fq and needs no root.
    #[arg(long)]
    sandbox: bool,
    #[command(flatten)]
    ci: CiArgs,
}

/// The knobs, by the names of LogGP's parameters.
const KNOBS: Words<Knob> = &[
    (
        Knob::Overhead.parameter(),
        Knob::Overhead,
        "o, of the sender and of the receiver",
    ),
    (Knob::Gap.parameter(), Knob::Gap, Knob::Gap.letter()),
    (Knob::Latency.parameter(), Knob::Latency, Knob::Latency.letter()),
    (
        Knob::Bandwidth.parameter(),
        Knob::Bandwidth,
        Knob::Bandwidth.letter(),
    ),
];

/// Calibrates; the exit code.
pub(crate) fn run(args: &Calibrate) -> anyhow::Result<u8> {
    let pacing = args.pacing.checked()?;
    if args.sandbox {
        let out = args.out.as_deref();
        if let Some(out) = out {
            std::fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
        }
        let mut shared = beside(&args.ci.junit)?;
        shared.extend(out.map(PathBuf::from));
        return in_sandbox(&shared, false);
    }
    let knobs = if args.knobs.is_empty() {
        Knob::LOGGP.to_vec()
    } else {
        args.knobs.clone()
    };
    if let (Some(peer), Some(interface)) = (&args.peer, &args.iface) {
        return between(args, peer, interface, (knobs, pacing));
    }
    perturb_emulator::own_namespace::ready(pacing.choice)?;
    let line = LiveLine::stderr(args.quiet);
    if let Some(profile) = &args.profile {
        let Some(classes) = calibrate::classes(profile, pacing, args.pacing.coarse, line)? else {
            return Ok(INTERRUPTED);
        };
        if args.json {
            println!("{}", serde_json::to_string_pretty(&classes)?);
        } else {
            print!("{classes}");
        }
        args.ci.tell("perturb calibrate", &classes.judged())?;
        return Ok(exit_code(classes.verdict));
    }
    let request = Request {
        knobs,
        quick: args.quick,
        pacing,
        seed: args.seed,
        sabotage: args.sabotage,
    };
    let Some((calibration, raw)) = calibrate::knobs(request, line)? else {
        return Ok(INTERRUPTED);
    };
    if let Some(out) = &args.out {
        calibrate::write(out, &calibration, &raw)?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&calibration)?);
    } else {
        print!("{calibration}");
    }
    for warning in calibration.warnings() {
        eprintln!("perturb: warning: {warning}");
    }
    args.ci.tell("perturb calibrate", &calibration.judged())?;
    Ok(exit_code(calibration.verdict))
}

/// Calibrates on top of a real network; the exit code.
fn between(
    args: &Calibrate,
    peer: &str,
    interface: &str,
    (knobs, pacing): (Vec<Knob>, Pacing),
) -> anyhow::Result<u8> {
    if pacing.choice == PacerChoice::Only(Pacer::Switch) {
        return Err(Contradiction(
            "--pacer switch is for private hosts: leave out --peer, or choose another",
        )
        .into());
    }
    let asked = Asked {
        peer: peer.to_owned(),
        interface: interface.to_owned(),
        knobs,
        quick: args.quick,
        pacing,
        seed: args.seed,
        sabotage: args.sabotage,
    };
    let Some(found) = calibrate::between(asked, LiveLine::stderr(args.quiet))? else {
        return Ok(INTERRUPTED);
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        print!("{found}");
    }
    args.ci.tell("perturb calibrate", &found.judged())?;
    Ok(exit_code(found.verdict))
}

fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Pass => DONE,
        Outcome::Fail => FAILED,
    }
}
