//! How an emulation is conducted: who keeps the time, and what it goes by.

use std::time::Duration;

use anyhow::Context as _;
use perturb_common::abi::LEASE_PAUSED;
use perturb_dataplane::hold;
pub use perturb_dataplane::{programs::Pacer, user::SpinBudget};

use crate::{
    own_namespace,
    registry::terms::{Confirm, Terms, after},
};

/// How the time is to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pacing {
    /// By whom.
    pub choice: PacerChoice,
    /// For the user pacer.
    pub spin: SpinBudget,
}

/// How an emulation is to be conducted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conduct {
    /// How the time is kept.
    pub pacing: Pacing,
    /// How long the programs go on without this process.
    pub lease: Lease,
    /// Show the programs' own messages.
    pub verbose: bool,
    /// Wait for an interface that goes, and go on when it comes back.
    pub follow: bool,
    /// End by itself after this time.
    pub duration: Option<Duration>,
    /// Undo everything unless it is confirmed within this time.
    pub confirm: Option<Duration>,
    /// No terminal and no session waits for this process.
    pub detached: bool,
}

/// The lease on interfaces, if none is asked for.
pub const LEASE: Duration = Duration::from_secs(10);

impl Conduct {
    /// Of private hosts: as long as this process goes on. Nobody else's traffic is at stake, so the lease is generous.
    #[must_use]
    pub fn of_hosts(pacing: Pacing, verbose: bool) -> Self {
        Self {
            pacing,
            lease: Lease::For(Duration::from_secs(60)),
            verbose,
            follow: false,
            duration: None,
            confirm: None,
            detached: false,
        }
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms {
            lease: match self.lease {
                Lease::For(length) => Some(length.as_nanos().try_into().unwrap_or(u64::MAX)),
                Lease::Never | Lease::Paused => None,
            },
            paused: self.lease == Lease::Paused,
            ends: self.duration.map(after),
            follow: self.follow,
            confirm: self.confirm.map(|time| Confirm {
                by: after(time),
                before: None,
            }),
        }
    }
}

/// Which pacer is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacerChoice {
    /// fq where the kernel has it, else user; switch for who may not load programs.
    #[default]
    Auto,
    /// This one.
    Only(Pacer),
}

impl PacerChoice {
    /// All that can be asked for.
    pub const ALL: [Self; 4] = [
        Self::Auto,
        Self::Only(Pacer::Fq),
        Self::Only(Pacer::User),
        Self::Only(Pacer::Switch),
    ];
    /// Their names.
    pub const NAMES: [&'static str; 4] = {
        let [auto, fq, user, switch] = Self::ALL;
        [auto.name(), fq.name(), user.name(), switch.name()]
    };

    /// As the command line and experiments write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Only(pacer) => pacer.name(),
        }
    }

    /// Decides.
    pub fn decide(self) -> anyhow::Result<Pacer> {
        match self {
            Self::Only(pacer) => Ok(pacer),
            // Who has entered a user namespace for it may load none, either.
            Self::Auto if !own_namespace::may_load_programs() => Ok(Pacer::Switch),
            Self::Auto => {
                let has_fq = hold::has_fq().context("asking this kernel for sch_fq")?;
                Ok(if has_fq { Pacer::Fq } else { Pacer::User })
            }
        }
    }
}

/// A lease: how long the programs go on without a word from the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// This long.
    For(Duration),
    /// For ever.
    Never,
    /// Not at all: traffic passes untouched until there is another lease.
    Paused,
}

impl Lease {
    /// When it runs out if it is renewed now, CLOCK_MONOTONIC ns.
    #[must_use]
    pub fn until(self, now: u64) -> u64 {
        match self {
            Self::For(length) => now.saturating_add(length.as_nanos().try_into().unwrap_or(u64::MAX)),
            Self::Never => u64::MAX,
            Self::Paused => LEASE_PAUSED,
        }
    }

    /// How often to renew it.
    #[must_use]
    pub fn period(self) -> Duration {
        match self {
            Self::For(length) => (length / 4).clamp(Duration::from_millis(1), Duration::from_secs(1)),
            Self::Never | Self::Paused => Duration::from_secs(1),
        }
    }
}
