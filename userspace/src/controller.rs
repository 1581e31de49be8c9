//! Puts interfaces under emulation, keeps the emulation alive, changes it, and takes it down.
//!
//! The controller's life is the emulation's: it renews a lease, without which the programs let
//! traffic pass, and takes everything down when it ends. What a killed one leaves behind, the next
//! command removes ([`recover`]).

pub mod admission;
pub mod apply;
pub mod clear;
pub mod confirm;
pub mod keeper;
pub mod recover;
pub mod running;
pub mod setup;

use std::time::Duration;

use crate::registry::Registry;

/// How long a command waits for another one that changes the registry.
const PATIENCE: Duration = Duration::from_secs(20);

/// Opens the registry and removes what killed commands left.
pub fn enter() -> anyhow::Result<Registry> {
    let registry = Registry::open(PATIENCE)?;
    recover::recover(&registry)?;
    Ok(registry)
}

/// A lease: how long the programs go on without a word from the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// This long.
    For(Duration),
    /// For ever.
    Never,
}

impl Lease {
    /// When it runs out if it is renewed now, CLOCK_MONOTONIC ns.
    #[must_use]
    pub fn until(self, now: u64) -> u64 {
        match self {
            Self::For(length) => now.saturating_add(length.as_nanos().try_into().unwrap_or(u64::MAX)),
            Self::Never => u64::MAX,
        }
    }

    /// How often to renew it.
    #[must_use]
    pub fn period(self) -> Duration {
        match self {
            Self::For(length) => (length / 4).clamp(Duration::from_millis(1), Duration::from_secs(1)),
            Self::Never => Duration::from_secs(1),
        }
    }
}
