//! Does every knob do what it says, and leave the others alone?
//!
//! ```text
//! sweep ──► hosts (two private hosts, profile changed live) ──► measurement (probe: sockets; estimate: pure)
//!   └─────► judge (pure) ──► report (table, JSON) ──► files (CSV, page)
//! ```
//!
//! Model: Martin 1999, section 2.3: an apparatus is calibrated by turning one knob at a time and measuring all
//! parameters, with micro-benchmarks that do not know what was asked for.

mod between;
mod calibration;
mod classes;
mod files;
mod judge;
mod knob;
mod measurement;
pub(crate) mod provenance;
mod signature;
mod sweep;

use std::path::Path;

use perturb_emulator::conduct::Pacing;
use perturb_present::LiveLine;
use perturb_profile::Profile;

pub use self::{
    between::{Asked, Between},
    calibration::{Calibration, Outcome},
    classes::Classes,
    files::write,
    knob::Sabotage,
    sweep::{Raw, Request},
};
pub use crate::estimate::Parameters;
use crate::hosts;

/// Calibrates knobs; nothing if a signal came before the end.
pub fn knobs(request: Request, line: LiveLine) -> anyhow::Result<Option<(Calibration, Raw)>> {
    let pacing = request.pacing;
    let work = move |hosts| sweep::run(&request, hosts, &line);
    hosts::measure(&Profile::default(), pacing, work)
}

/// Measures the classes of a profile; nothing if a signal came before the end.
pub fn classes(
    profile: &Path,
    pacing: Pacing,
    coarse: bool,
    line: LiveLine,
) -> anyhow::Result<Option<Classes>> {
    let plan = classes::Plan::load(profile, coarse)?;
    let profile = plan.profile().clone();
    hosts::measure(&profile, pacing, move |hosts| plan.run(hosts, &line))
}

/// Calibrates the knobs on top of the network between this host and a peer; nothing if a signal came before the end.
pub fn between(asked: Asked, line: LiveLine) -> anyhow::Result<Option<Between>> {
    between::run(asked, line)
}
