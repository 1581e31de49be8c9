//! Real TCP between private hosts over a profile's network, round by round, beside what PlogPT and PlogP predict.
//!
//! ```text
//! with_hosts ──► lab (hosts), session (emulation)
//!   ├───► experiment: a thread per host ──► workloads::collective
//!   ├───► counters: TCP's own, per host     ├───► prediction ──► models::plogpt
//!   ├───► results ──► output: table, CSV, chart
//!   └───► incast: goodput over the number of senders, for kinds of TCP ──► workloads::incast
//! ```

mod counters;
mod experiment;
pub mod incast;
mod output;
mod prediction;
mod results;
mod steps;

use anyhow::Context as _;
use perturb_emulator::{
    conduct::{Conduct, Pacing},
    lab::Lab,
    prepared::Prepared,
    registry::Record,
    runtime,
    session::{End, OnSignal, OnTrouble, Place, Session},
    signals::Signals,
    status::{self, Fault},
};
use perturb_present::LiveLine;
use perturb_quantity::Micros;
use tokio::sync::oneshot;

pub use self::{
    experiment::Plan,
    output::{Sheet, csv, svg},
    prediction::{Case, Predicted, collective, is_tree},
    results::Series,
};

/// PlogPT's J, unless it is given.
pub const JITTER: Micros = Micros(100.0);

/// Measures every message size, and finds what speaks against it; nothing if a signal came before the end.
pub fn measure(
    hosts: u32,
    prepared: &Prepared,
    pacing: Pacing,
    plan: Plan,
    line: LiveLine,
) -> anyhow::Result<Option<(Vec<Series>, Vec<Fault>)>> {
    with_hosts(hosts, prepared, pacing, |lab, record| {
        experiment::start(lab, plan, record, line)
    })
}

/// Has a thread, which `start` starts, work on private hosts under emulation: what came of it, and what speaks against it;
/// nothing if a signal came before the end.
fn with_hosts<T>(
    hosts: u32,
    prepared: &Prepared,
    mut pacing: Pacing,
    start: impl FnOnce(&Lab, Record) -> anyhow::Result<oneshot::Receiver<anyhow::Result<T>>>,
) -> anyhow::Result<Option<(T, Vec<Fault>)>> {
    runtime()?.block_on(async {
        let mut signals = Signals::listen()?;
        let mut nobody = |_: &Record| ();
        let lab = Lab::new(hosts, &prepared.profile, &mut pacing)?;
        let conduct = Conduct::of_hosts(pacing, false);
        let mut session = Session::open(Place::Hosts(&lab), conduct, &mut signals, &mut nobody);
        session.core().put(prepared)?;
        let record = session.core().running().map(|running| running.record.clone());
        let measured = start(&lab, record.context("nothing is emulated")?)?;
        let end = session.keep(measured, OnSignal::End, OnTrouble::End).await;
        let outcome = session.end(end)?;
        let faults = outcome.faults();
        status::warn(&faults);
        match outcome.end {
            End::Done(result) => {
                let result = result.context("the experiment's thread has ended")??;
                outcome
                    .report?
                    .context("the emulation has ended before the rounds")?;
                Ok(Some((result, faults)))
            }
            End::Trouble(trouble) => Err(trouble.into()),
            End::Asked | End::Over | End::Unconfirmed => Ok(None),
        }
    })
}
