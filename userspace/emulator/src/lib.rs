//! Emulated networks, for programs that make, keep, change and end them: on interfaces of this machine, or between private
//! hosts made for the purpose.
//!
//! ```text
//! prepared (a profile's tables) ──► session ──► setup ──► running ──► perturb-dataplane (programs, maps, devices)
//! lab (private hosts) ────────────────┘                      └──────► keeper (the lease; what others have changed)
//! update (of another process's) ──► tables (one profile in the place of another) ◄── running
//! registry (what is applied on this machine) ──► clear, confirm, recover
//! status (what it has done so far), flows, sights (packet by packet) ──► registry, perturb-dataplane
//! ```
//!
//! The controller's life is the emulation's: it renews a lease, without which the programs let
//! traffic pass, and takes everything down when it ends. What a killed one leaves behind, the next
//! command removes ([`recover`]).
//!
//! What is absent: nothing here prints, reads a command line or decides an exit code. Messages go to [`log`].

#![warn(missing_docs)]

mod admission;
pub mod causes;
mod cgroups;
pub mod clear;
pub mod conduct;
pub mod confirm;
pub mod container;
pub mod flows;
pub mod hosts;
pub mod interfaces;
pub mod keeper;
mod kernel;
pub mod lab;
mod logs;
pub mod own_namespace;
pub mod prepared;
pub mod privileges;
mod recover;
pub mod registry;
pub mod running;
mod seam;
pub mod session;
pub mod setup;
pub mod sights;
pub mod signals;
mod silence;
pub mod status;
pub mod switched;
mod tables;
pub mod timeline;
pub mod told;
pub mod update;

use std::time::Duration;

use anyhow::Context as _;

use crate::registry::Registry;

/// How long a command waits for another one that changes the registry.
const PATIENCE: Duration = Duration::from_secs(20);

/// A runtime on this thread. Children die with the thread that made them (PR_SET_PDEATHSIG), so commands are started on a
/// process's first one.
pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
}

/// Opens the registry and removes what killed commands left.
pub fn enter() -> anyhow::Result<Registry> {
    let registry = Registry::open(PATIENCE)?;
    recover::recover(&registry)?;
    registry::followers::sweep(&registry)?;
    Ok(registry)
}
