//! Who keeps the time.

use std::time::Duration;

use clap::Args;
use perturb_emulator::conduct::{Pacer, PacerChoice, Pacing, SpinBudget};

use super::{
    Contradiction,
    time::{self, within},
    words::{Words, one_of},
};

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PacingArgs {
    /// What keeps the time.
    #[arg(long, value_parser = one_of(PACERS), default_value = "auto")]
    pub(crate) pacer: PacerChoice,
    /// Compute a packet's whole path when it is sent, instead of holding it up to each shared server: cheaper, but
    /// servers look busy to packets that reach them earlier.
    #[arg(long)]
    pub(crate) coarse: bool,
    /// Not fq: poll this long before each departure instead of sleeping; costs processor time, e.g. 100us.
    #[arg(long, value_name = "TIME", value_parser = within(time::SPIN))]
    pub(crate) spin: Option<Duration>,
}

impl PacingArgs {
    /// How the time is to be kept.
    pub(crate) fn checked(self) -> Result<Pacing, Contradiction> {
        if self.spin.is_some() && self.pacer == PacerChoice::Only(Pacer::Fq) {
            return Err(Contradiction(
                "--spin is for the pacers user and switch; with --pacer fq the kernel keeps the time: leave --spin out",
            ));
        }
        Ok(Pacing {
            choice: self.pacer,
            spin: SpinBudget(self.spin.unwrap_or_default()),
        })
    }
}

const PACERS: Words<PacerChoice> = &[
    (
        "auto",
        PacerChoice::Auto,
        "fq where the kernel has it, else user; without root switch",
    ),
    (
        Pacer::Fq.name(),
        PacerChoice::Only(Pacer::Fq),
        "sch_fq: the kernel keeps the time",
    ),
    (
        Pacer::User.name(),
        PacerChoice::Only(Pacer::User),
        "A thread of perturb keeps the time, for kernels without sch_fq",
    ),
    (
        Pacer::Switch.name(),
        PacerChoice::Only(Pacer::Switch),
        "perturb joins private hosts itself, without root",
    ),
];
