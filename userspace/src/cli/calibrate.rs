//! Commands that measure.

use std::ffi::OsString;

use anyhow::Context as _;
use clap::Args;
use perturb_dataplane::programs::Pacer;
use perturb_sandbox::{Sandbox, Task};

use super::{PacerName, PacingArgs, files::Lacking};
use crate::{calibrate, controller::setup::pacer_name};

pub(super) const EXAMPLES: &str = "\
Examples:
  sudo perturb calibrate                             all knobs through their ranges
  sudo perturb calibrate --quick --json              in less than 45 s; for CI
  sudo perturb calibrate --knob latency --out cal    one knob; cal/calibration.html has the charts
  sudo perturb calibrate configs/dsl.yaml            one profile's classes: asked, got, error, verdict
  perturb calibrate --sandbox                        on a user-mode kernel with sch_fq, without root

Exit codes:
  0 every knob is within its tolerance (2 % or 30 us; G 2 %)
  1 a knob is not, or the machine is too busy to tell
  2 usage   3 this kernel lacks something";

pub(super) const MEASURE_EXAMPLES: &str = "\
Examples:
  perturb measure serve                              on the other host; TCP and UDP port 4798
  perturb measure --peer db1 --profile db1.yaml      the path to it, as a profile for `perturb apply`
  perturb measure --peer db1 --network db1.net.yaml  its one-way times, for `perturb predict whatif`
  perturb measure --groups a1,a2,a3/b1,b2,b3         what is between two groups of hosts that serve: b(h), d(h)

Exit codes:
  0 measured   2 usage
  1 the peer does not answer, too little arrives, or an emulation on this machine lost packets unasked";

#[derive(Args, Debug)]
pub(super) struct Calibrate {
    #[command(flatten)]
    options: calibrate::Options,
    #[command(flatten)]
    pacing: PacingArgs,
    /// In a user-mode Linux kernel of its own, which has sch_fq and needs no root.
    #[arg(long)]
    sandbox: bool,
}

pub(super) fn run(args: &Calibrate) -> anyhow::Result<u8> {
    if args.sandbox {
        return sandboxed(args);
    }
    calibrate::run(&args.options, args.pacing.into())
}

/// The same command inside a user-mode kernel.
fn sandboxed(args: &Calibrate) -> anyhow::Result<u8> {
    let sandbox = Sandbox::find().map_err(|error| Lacking(error.to_string()))?;
    let pacer = match args.pacing.pacer {
        PacerName::User => Pacer::User,
        PacerName::Auto | PacerName::Fq => Pacer::Fq,
    };
    let executable = std::env::current_exe().context("finding this executable")?;
    let mut argv: Vec<OsString> = vec![
        executable.into(),
        "calibrate".into(),
        "--pacer".into(),
        pacer_name(pacer).into(),
    ];
    argv.extend(args.options.argv());
    let mut task = Task::new(argv)?;
    if let Some(out) = &args.options.out {
        std::fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
        task.writable.push(
            out.canonicalize()
                .with_context(|| format!("finding {}", out.display()))?,
        );
    }
    let status = sandbox.run(&task)?;
    Ok(perturb_sandbox::exit_code(status))
}
