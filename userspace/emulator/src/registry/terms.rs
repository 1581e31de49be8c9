//! What a controller goes by while it runs. Another command changes it in the record; the controller looks there.

use std::time::Duration;

use perturb_clock::now;
use serde::{Deserialize, Serialize};

use super::InForce;

/// What can be changed while an emulation runs, apart from its profile. Instants are of CLOCK_MONOTONIC, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// How long the programs go on without the controller, ns; `None`: for ever.
    pub lease: Option<u64>,
    /// When it ends by itself.
    pub ends: Option<u64>,
    /// Whether an interface that goes is waited for, and emulated when it comes back.
    pub follow: bool,
    /// What is undone unless it is confirmed.
    pub confirm: Option<Confirm>,
    /// Whether traffic passes untouched for now.
    #[serde(default)]
    pub paused: bool,
}

/// What is undone unless it is confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirm {
    /// When it is undone.
    pub by: u64,
    /// What was in force before; `None`: nothing was.
    pub before: Option<Before>,
}

/// What was in force before. The profile's tables are still in the other half of the maps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// What the profile determined.
    #[serde(flatten)]
    pub in_force: InForce,
    /// [`Terms::lease`].
    pub lease: Option<u64>,
    /// [`Terms::ends`].
    pub ends: Option<u64>,
    /// [`Terms::follow`].
    pub follow: bool,
}

/// What is due next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The end that was asked for.
    End,
    /// To be confirmed, or undone.
    Confirm,
}

impl Terms {
    /// Whether what began the emulation waits to be confirmed, and no change that was given elsewhere.
    #[must_use]
    pub fn waits_here(&self) -> bool {
        let confirm = self.confirm.as_ref();
        confirm.is_some_and(|confirm| confirm.before.is_none())
    }

    /// What is due first, and how long that is from now.
    #[must_use]
    pub fn due(&self) -> Option<(Duration, Due)> {
        let end = self.ends.map(|at| (at, Due::End));
        let confirm = self.confirm.as_ref().map(|confirm| (confirm.by, Due::Confirm));
        let (at, what) = end.into_iter().chain(confirm).min_by_key(|(at, _)| *at)?;
        Some((Duration::from_nanos(at.saturating_sub(now())), what))
    }
}

/// A length of time from now as an instant.
#[must_use]
pub fn after(length: Duration) -> u64 {
    now().saturating_add(length.as_nanos().try_into().unwrap_or(u64::MAX))
}
