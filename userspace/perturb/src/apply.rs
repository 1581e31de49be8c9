//! `perturb apply`: a profile on interfaces of this namespace.

pub(crate) mod containers;
pub(crate) mod daemon;
mod enter;
mod service;

use std::{
    cell::RefCell, convert::Infallible, future::pending, io, net::SocketAddr, path::PathBuf, time::Duration,
};

use anyhow::bail;
use perturb_emulator::{
    conduct::{Conduct, LEASE, Lease, PacerChoice, Pacing, SpinBudget},
    interfaces::Chosen,
    keeper::Trouble,
    prepared::Prepared,
    registry::{Contained, Record, Registry, records},
    running::Running,
    session::{self, End, OnSignal, OnTrouble, Place, Session},
    signals::Signals,
    status::Report,
    update::{self, update},
};
use perturb_machines::agent::READY;
use perturb_present::{LiveLine, Shown};
use perturb_serve::{Controls, Listeners};

use self::{containers::Choice, enter::Enter};
use crate::{
    cli::totals,
    voice::{self, Voice},
};

/// What was asked for. `None` and `false`: nothing was said about it.
pub(crate) struct Request {
    /// The profile.
    pub(crate) prepared: Prepared,
    /// Its file.
    pub(crate) file: PathBuf,
    /// Interfaces of this namespace.
    pub(crate) interfaces: Vec<String>,
    /// Containers instead.
    pub(crate) containers: Option<Choice>,
    /// The container whose interface it is: the process that follows it wants to know when the emulation has begun.
    pub(crate) contained: Option<Contained>,
    /// `perturb machine` has started it for another machine, and wants to know, too.
    pub(crate) led: bool,
    /// Which pacer.
    pub(crate) pacer: PacerChoice,
    /// How long the user pacer polls.
    pub(crate) spin: Option<SpinBudget>,
    /// How long the programs go on without their controller.
    pub(crate) lease: Option<Duration>,
    /// End after this time.
    pub(crate) duration: Option<Duration>,
    /// Undo it unless it is confirmed within this time.
    pub(crate) confirm: Option<Duration>,
    /// Wait for an interface that goes, and go on when it comes back.
    pub(crate) follow: bool,
    /// Return at once, leave the emulation.
    pub(crate) detach: bool,
    /// Begin the timeline anew if there is an emulation already.
    pub(crate) restart_timeline: bool,
    /// Where to answer with metrics.
    pub(crate) metrics: Option<SocketAddr>,
    /// Who, root apart, may use the socket.
    pub(crate) socket_group: Option<String>,
    /// This process is the one that was left.
    pub(crate) detached: bool,
    /// No live line.
    pub(crate) quiet: bool,
    /// Show the programs' own messages.
    pub(crate) verbose: bool,
}

impl Request {
    fn of_update(&self) -> update::Request<'_> {
        update::Request {
            prepared: &self.prepared,
            interfaces: &self.interfaces,
            pacer: self.pacer,
            spin: self.spin,
            lease: self.lease,
            duration: self.duration,
            confirm: self.confirm,
            follow: self.follow,
            detach: self.detach,
            restart_timeline: self.restart_timeline,
            answers: self.metrics.is_some() || self.socket_group.is_some(),
            verbose: self.verbose,
        }
    }

    fn conduct(&self) -> Conduct {
        Conduct {
            pacing: Pacing {
                choice: self.pacer,
                spin: self.spin.unwrap_or_default(),
            },
            lease: Lease::For(self.lease.unwrap_or(LEASE)),
            verbose: self.verbose,
            follow: self.follow,
            duration: self.duration,
            confirm: self.confirm,
            detached: self.detached,
        }
    }
}

/// How it ended.
pub(crate) enum Outcome {
    /// An emulation that was there has the new profile now.
    Updated(Record),
    /// The emulation lives without this process.
    Detached(Record),
    /// A process follows containers without this one.
    Following,
    /// The emulation has ended as it was to; this many packets were still held.
    Ended(u64),
}

/// Applies a profile.
pub(crate) async fn apply(request: Request) -> anyhow::Result<Outcome> {
    if let Some(choice) = request.containers.clone() {
        return containers::apply(request, &choice).await;
    }
    let registry = perturb_emulator::enter()?;
    let chosen = Chosen::by_name(&request.interfaces)?;
    match chosen.applied(&registry)?.as_slice() {
        [] if request.detach => {
            drop(registry);
            let ours = |pid| {
                let ready = |record: &Record| record.process.pid == pid && record.ready;
                Ok(records()?.records.into_iter().find(ready))
            };
            daemon::start(&request, ours).map(Outcome::Detached)
        }
        [] => begin(registry, request, &chosen).await.map(Outcome::Ended),
        [record, ..] if request.contained.is_some() || request.led => bail!(
            "process {} emulates its {} already",
            record.process.pid,
            request.interfaces.join(", ")
        ),
        [record] => {
            service::refuse_to_end(record, &request)?;
            update(&registry, record, request.of_update()).map(Outcome::Updated)
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|record| record.id.as_str()).collect();
            bail!(
                "the interfaces belong to {} emulations ({}); clear them first",
                several.len(),
                ids.join(", ")
            )
        }
    }
}

/// Emulates until something ends it; how many packets were still held.
async fn begin(registry: Registry, request: Request, chosen: &Chosen) -> anyhow::Result<u64> {
    let targets = chosen.targets(request.contained.as_ref())?;
    let listeners = Listeners::open(request.metrics, request.socket_group.as_deref())?;
    // Handlers first: a signal during the set-up waits until the guards exist.
    let mut signals = Signals::listen()?;
    let line = LiveLine::new(Voice, Shown::on(&io::stderr(), request.quiet));
    let enter = RefCell::new(Enter::default());
    let mut witness = |record: &Record| {
        enter.borrow_mut().look(record);
        if line.is_live()
            && let Ok(Some(totals)) = totals(record)
        {
            line.show(totals);
        }
    };
    let place = Place::Interfaces(Some(registry), targets);
    let mut session = Session::open(place, request.conduct(), &mut signals, &mut witness);
    session.core().put(&request.prepared)?;
    service::ready()?;
    if request.detached {
        service::log_to_journal()?;
    }
    voice::begin();
    let handle = session.handle();
    let (mut names, mut _server) = (String::new(), None);
    if let Some(Running { record, .. }) = session.core().running() {
        names = record.place();
        if !request.quiet {
            log::info!(
                "emulating on {names} with the {} pacer; Ctrl-C or `perturb clear` ends it",
                record.pacer
            );
        }
        let controls = Controls {
            handle: handle.clone(),
            files: request.prepared.files.clone(),
            hosts: None,
            trips: Vec::new(),
            coarse: request.prepared.coarse,
            events: voice::events(),
        };
        _server = Some(listeners.serve(record, controls)?);
        enter.borrow_mut().listen(record, handle)?;
    }
    if request.contained.is_some() || request.led {
        println!("{READY}");
    }
    let end = session
        .keep(pending::<Infallible>(), OnSignal::End, OnTrouble::End)
        .await;
    line.keep();
    voice::settle();
    let hints = request.contained.is_none();
    let mut outcome = session.end(end)?;
    if request.led {
        let faults = outcome.faults();
        if let Ok(Some(report)) = &mut outcome.report {
            report.faults = Some(faults);
            println!("{}", serde_json::to_string(report)?);
        }
    }
    conclude(&names, outcome, hints)
}

fn conclude(names: &str, outcome: session::Outcome<Infallible>, hints: bool) -> anyhow::Result<u64> {
    match outcome.end {
        End::Done(never) => match never {},
        End::Asked | End::Over => Ok(outcome.held),
        End::Unconfirmed => bail!("nobody has confirmed it: the emulation on {names} is undone"),
        End::Trouble(trouble) => {
            // What cannot be read any more is not counted.
            let report = outcome.report.ok().flatten();
            bail!(
                "{trouble}: the emulation has ended, and traffic on {names} passes untouched; {} packets were lost that its \
                 profile does not drop{}",
                outcome.held + report.as_ref().map_or(0, Report::lost),
                if hints { hint(&trouble) } else { "" }
            )
        }
    }
}

fn hint(trouble: &Trouble) -> &'static str {
    match trouble {
        Trouble::Fault(fault) if fault.is_loss_of_interface() => {
            "; with --follow perturb waits for an interface of that name"
        }
        _ => "",
    }
}
