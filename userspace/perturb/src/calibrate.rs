//! `perturb calibrate`: does every knob do what it says, and leave the others alone?
//!
//! ```text
//! sweep ──► hosts (two private hosts, profile changed live) ──► measurement (probe: sockets; estimate: pure)
//!   └─────► judge (pure) ──► report (table, JSON) ──► files (CSV, page)
//! ```
//!
//! Model: Martin 1999, section 2.3: an apparatus is calibrated by turning one knob at a time and measuring all
//! parameters, with micro-benchmarks that do not know what was asked for.

pub mod classes;
pub mod files;
pub mod hosts;
pub mod judge;
pub mod knob;
pub mod measurement;
pub mod provenance;
pub mod report;
pub mod signature;
pub mod sweep;

use std::path::PathBuf;

use clap::Args;
use perturb_emulator::conduct::Pacing;

use crate::cli::exit::{DONE, FAILED, INTERRUPTED};
use knob::Sabotage;
use perturb_profile::{Knob, Profile};
use report::Outcome;

/// Options of `perturb calibrate` beside the pacer's.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Check the classes of this profile instead of the knobs: asked, got, error, verdict.
    #[arg(conflicts_with_all = ["knobs", "quick", "out", "seed", "sabotage"])]
    pub profile: Option<PathBuf>,
    /// Only these knobs.
    #[arg(long = "knob", value_parser = knob::parser(), value_name = "KNOB")]
    pub knobs: Vec<Knob>,
    /// Fewer samples; ends within 45 s.
    #[arg(long)]
    pub quick: bool,
    /// Write calibration.json, calibration.csv (raw samples) and calibration.html into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Seed of the order in which a knob's settings are measured, and of the profiles.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Make the emulator wrong on purpose: KNOB=FACTOR.
    #[arg(long, hide = true, value_name = "KNOB=FACTOR")]
    pub sabotage: Option<Sabotage>,
    /// No progress on standard error.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Calibrates; returns the exit code.
pub fn run(options: &Options, pacing: Pacing, coarse: bool) -> anyhow::Result<u8> {
    let quiet = options.quiet;
    let mut say = move |what: &str| {
        if !quiet {
            eprintln!("calibrate: {what}");
        }
    };
    if let Some(profile) = &options.profile {
        let plan = classes::Plan::load(profile, coarse)?;
        let original = plan.profile().clone();
        let Some(classes) = hosts::measure(&original, pacing, move |hosts| plan.run(hosts, &mut say))? else {
            return Ok(INTERRUPTED);
        };
        if options.json {
            println!("{}", serde_json::to_string_pretty(&classes)?);
        } else {
            print!("{classes}");
        }
        return Ok(exit_code(classes.verdict));
    }
    let request = sweep::Request {
        knobs: if options.knobs.is_empty() {
            Knob::ALL.to_vec()
        } else {
            options.knobs.clone()
        },
        quick: options.quick,
        pacing,
        seed: options.seed,
        sabotage: options.sabotage,
    };
    let work = move |hosts| sweep::run(&request, hosts, &mut say);
    let Some((calibration, raw)) = hosts::measure(&Profile::default(), pacing, work)? else {
        return Ok(INTERRUPTED);
    };
    if let Some(out) = &options.out {
        files::write(out, &calibration, &raw)?;
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&calibration)?);
    } else {
        print!("{calibration}");
    }
    for warning in calibration.warnings() {
        eprintln!("perturb: warning: {warning}");
    }
    Ok(exit_code(calibration.verdict))
}

fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Pass => DONE,
        Outcome::Fail => FAILED,
    }
}
