//! Another profile for an emulation that runs. Every option of `apply` is heeded or refused:
//!
//! ```text
//! profile, --coarse      the tables
//! --iface                must name the same interfaces
//! --pacer, --spin        refused unless they say what is so already: both are settled when the emulation begins
//! --lease, --for         from now on; without them it stays as it was
//! --follow               from now on
//! --confirm              the profile before comes back unless the new one is confirmed, and --lease, --for and --follow with it
//! --detach               refused unless the emulation is detached already
//! --verbose              refused: whoever began it gets the programs' messages
//! --restart-timeline     its clock
//! --metrics, --socket-group   refused: whoever began it answers, as it was told then
//! --quiet                there is no live line anyhow
//! ```

use std::time::Duration;

use anyhow::{bail, ensure};
use perturb_dataplane::user::SpinBudget;

use crate::{
    conduct::PacerChoice,
    kernel::Others,
    prepared::Prepared,
    registry::{
        Record, Registry,
        terms::{Before, Confirm, after},
    },
    tables::{Change, exchange},
};

/// What was asked for. `None` and `false`: nothing was said about it.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The profile.
    pub prepared: &'a Prepared,
    /// Interfaces of this namespace.
    pub interfaces: &'a [String],
    /// Which pacer.
    pub pacer: PacerChoice,
    /// How long the user pacer polls.
    pub spin: Option<SpinBudget>,
    /// How long the programs go on without their controller.
    pub lease: Option<Duration>,
    /// End after this time.
    pub duration: Option<Duration>,
    /// Undo it unless it is confirmed within this time.
    pub confirm: Option<Duration>,
    /// Wait for an interface that goes, and go on when it comes back.
    pub follow: bool,
    /// Leave the emulation to a process of its own.
    pub detach: bool,
    /// Begin the timeline anew.
    pub restart_timeline: bool,
    /// Answer elsewhere than at the socket that is root's.
    pub answers: bool,
    /// Show the programs' own messages.
    pub verbose: bool,
}

/// Changes the profile of a running emulation; its record as it is then.
pub fn update(_registry: &Registry, record: &Record, request: Request<'_>) -> anyhow::Result<Record> {
    refuse(record, request)?;
    let mut record = record.clone();
    let change = if request.restart_timeline {
        Change::Anew(request.prepared)
    } else {
        Change::To(request.prepared)
    };
    let in_force = exchange(&mut Others, &mut record, change)?;
    let terms = &mut record.terms;
    let before = Before {
        in_force,
        lease: terms.lease,
        ends: terms.ends,
        follow: terms.follow,
    };
    if let Some(lease) = request.lease {
        terms.lease = Some(lease.as_nanos().try_into().unwrap_or(u64::MAX));
    }
    if let Some(duration) = request.duration {
        terms.ends = Some(after(duration));
    }
    terms.follow |= request.follow;
    terms.confirm = request.confirm.map(|time| Confirm {
        by: after(time),
        before: Some(before),
    });
    record.write()?;
    Ok(record)
}

/// Refuses any change as long as something else is to be done first.
pub(crate) fn refuse_unsettled(record: &Record) -> anyhow::Result<()> {
    if let Some(lost) = record.interfaces.iter().find(|interface| interface.lost) {
        bail!(
            "{} is gone, and process {} waits for it (--follow); change the profile when it is back, or clear it first",
            lost.name,
            record.process.pid
        );
    }
    ensure!(
        record.terms.confirm.is_none(),
        "the last change is not confirmed yet; give `perturb confirm`, or wait until it is undone"
    );
    Ok(())
}

/// Refuses what cannot be changed while an emulation runs.
fn refuse(record: &Record, request: Request<'_>) -> anyhow::Result<()> {
    let applied: Vec<&str> = record
        .interfaces
        .iter()
        .map(|interface| interface.name.as_str())
        .collect();
    ensure!(
        applied.len() == request.interfaces.len()
            && request
                .interfaces
                .iter()
                .all(|name| applied.contains(&name.as_str())),
        "{} is applied to {}; name the same interfaces to change its profile, or clear it first",
        record.id,
        applied.join(", ")
    );
    refuse_unsettled(record)?;
    if let PacerChoice::Only(pacer) = request.pacer {
        ensure!(
            pacer.name() == record.pacer,
            "the pacer of a running emulation ({}) cannot be changed; clear it first",
            record.pacer
        );
    }
    if let Some(spin) = request.spin {
        ensure!(
            spin.0.as_nanos() == u128::from(record.spin),
            "how long the pacer polls cannot be changed while the emulation runs (--spin is {} ns now); clear it first",
            record.spin
        );
    }
    ensure!(
        !request.detach || record.detached,
        "process {} emulates in the foreground and cannot be detached from here; leave --detach away to change its \
         profile, or clear it first",
        record.process.pid
    );
    ensure!(
        !request.answers,
        "process {} began the emulation, and where it answers (--metrics, --socket-group) cannot be changed now; leave them \
         away to change the profile, or clear it first",
        record.process.pid
    );
    ensure!(
        !request.verbose,
        "the programs' own messages go to process {}, which began the emulation; leave --verbose away to change the \
         profile, or clear it first",
        record.process.pid
    );
    Ok(())
}
