//! Commands that measure.

use anyhow::Context as _;
use clap::Args;

use super::{PacingArgs, sandbox::in_sandbox};
use crate::calibrate;

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
  1 the peer does not answer, too little arrives, or an emulation on this machine lost packets that its profile does not drop";

#[derive(Args, Debug)]
#[command(mut_arg("coarse", |coarse| coarse.requires("profile")))]
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
        let out = args.options.out.as_deref();
        if let Some(out) = out {
            std::fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
        }
        return in_sandbox(out, false);
    }
    calibrate::run(&args.options, args.pacing.into(), args.pacing.coarse)
}
