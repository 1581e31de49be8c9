//! Real TCP between private hosts over a profile's network, round by round, beside what PlogPT and PlogP predict.
//!
//! ```text
//! measure ──► lab (hosts), session (emulation)
//!   ├───► experiment: a thread per host ──► workloads::collective
//!   ├───► counters: TCP's own, per host     ├───► prediction ──► models::plogpt
//!   └───► results ──► output: table, CSV, chart
//! ```

mod counters;
mod experiment;
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

pub use self::{
    experiment::Plan,
    output::{Sheet, csv, svg},
    prediction::{Case, Predicted, collective, is_tree},
    results::Series,
};

/// Measures every message size, and finds what speaks against it; nothing if a signal came before the end.
pub fn measure(
    hosts: u32,
    prepared: &Prepared,
    pacing: Pacing,
    plan: Plan,
    line: LiveLine,
) -> anyhow::Result<Option<(Vec<Series>, Vec<Fault>)>> {
    runtime()?.block_on(async {
        let mut signals = Signals::listen()?;
        let mut nobody = |_: &Record| ();
        let lab = Lab::new(hosts, &prepared.profile)?;
        let conduct = Conduct::of_hosts(pacing, false);
        let mut session = Session::open(Place::Hosts(&lab), conduct, &mut signals, &mut nobody);
        session.core().put(prepared)?;
        let record = session.core().running().map(|running| running.record.clone());
        let measured = experiment::start(&lab, plan, record.context("nothing is emulated")?, line)?;
        let end = session.keep(measured, OnSignal::End, OnTrouble::End).await;
        let outcome = session.end(end)?;
        let faults = outcome.faults();
        status::warn(&faults);
        match outcome.end {
            End::Done(series) => {
                let series = series.context("the experiment's thread has ended")??;
                outcome
                    .report?
                    .context("the emulation has ended before the rounds")?;
                Ok(Some((series, faults)))
            }
            End::Trouble(trouble) => Err(trouble.into()),
            End::Asked | End::Over | End::Unconfirmed => Ok(None),
        }
    })
}
