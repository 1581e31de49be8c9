//! Two private hosts with a measuring socket each, joined by a wire without emulation, or under emulation with a
//! profile that is changed live; or an interface of this namespace, for the same.
//!
//! A thread of its own measures; the command's first thread keeps the emulation up, and does what the measuring one asks.

use std::{
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
    os::fd::OwnedFd,
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use perturb_emulator::{
    conduct::{Conduct, LEASE, Lease, Pacer, Pacing},
    interfaces::Chosen,
    lab::{self, Lab},
    prepared::Prepared,
    registry::Record,
    running::{ProcessorTime, Program, Running, count_processor_time},
    runtime,
    session::{Core, End, Handle, OnSignal, OnTrouble, Place, Session},
    signals::Signals,
    status::{Fault, Report},
};
use perturb_profile::Profile;
use tokio::sync::oneshot;

use crate::probe::{
    endpoint::{Endpoint, Receipt},
    stream::{self, Transfer},
};

/// The hosts, for the thread that measures.
pub struct Hosts {
    session: Handle,
    /// The measuring socket of h1.
    pub here: Endpoint,
    /// That of h2.
    pub there: Endpoint,
    /// Where that is.
    pub to: SocketAddr,
    listening: Option<(SocketAddr, Endpoint)>,
    lab: Arc<Lab>,
    pacer: Pacer,
    is_emulated: bool,
    _counting: Option<OwnedFd>,
}

/// Makes the hosts, with a profile's MTU and TCP settings but without emulation, and has a thread do the work between
/// them. What came of it; nothing if a signal has ended it.
pub(super) fn measure<T: Send + 'static>(
    profile: &Profile,
    mut pacing: Pacing,
    work: impl FnOnce(Hosts) -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<Option<T>> {
    runtime()?.block_on(async {
        let mut signals = Signals::listen()?;
        let mut nobody = |_: &Record| ();
        let lab = Arc::new(Lab::new(2, profile, &mut pacing)?);
        let conduct = Conduct::of_hosts(pacing, false);
        let session = Session::open(Place::Hosts(&lab), conduct, &mut signals, &mut nobody);
        let hosts = Hosts::new(Arc::clone(&lab), pacing.choice.decide()?, session.handle())?;
        kept(session, move || work(hosts)).await
    })
}

/// Has a thread do the work, which may emulate on an interface of this namespace. What came of it; nothing if a signal has ended it.
pub(super) fn on_interface<T: Send + 'static>(
    interface: &str,
    pacing: Pacing,
    work: impl FnOnce(Handle) -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<Option<T>> {
    runtime()?.block_on(async {
        let registry = perturb_emulator::enter()?;
        let chosen = Chosen::by_name(&[interface.to_owned()])?;
        if let [record, ..] = chosen.applied(&registry)?.as_slice() {
            bail!(
                "{interface} is emulated already, by process {}: `perturb clear --iface {interface}` ends that",
                record.process.pid
            );
        }
        let place = Place::Interfaces(Some(registry), chosen.targets(None)?);
        let mut signals = Signals::listen()?;
        let mut nobody = |_: &Record| ();
        let conduct = Conduct {
            lease: Lease::For(LEASE),
            ..Conduct::of_hosts(pacing, false)
        };
        let session = Session::open(place, conduct, &mut signals, &mut nobody);
        let handle = session.handle();
        kept(session, move || work(handle)).await
    })
}

/// Keeps an emulation up while a thread does the work.
async fn kept<T: Send + 'static>(
    mut session: Session<'_>,
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<Option<T>> {
    let (tell, told) = oneshot::channel();
    thread::Builder::new()
        .name("measuring".into())
        // Nobody waits any more if the command was interrupted.
        .spawn(move || drop(tell.send(work())))
        .context("starting the thread that measures")?;
    let end = session.keep(told, OnSignal::End, OnTrouble::End).await;
    match session.end(end)?.end {
        End::Done(result) => result.context("the thread that measures has panicked")?.map(Some),
        End::Trouble(trouble) => Err(trouble.into()),
        End::Asked | End::Over | End::Unconfirmed => Ok(None),
    }
}

/// What the emulation has done, once its traffic rests; nothing if it has not begun.
pub(super) fn settled(session: &Handle) -> anyhow::Result<Option<Report>> {
    let settle = |core: &mut Core<'_>| core.running().map(Running::settled);
    let Some(settled) = session.ask(settle)? else {
        return Ok(None);
    };
    settled?.context("the emulation is gone").map(Some)
}

impl Hosts {
    fn new(lab: Arc<Lab>, pacer: Pacer, session: Handle) -> anyhow::Result<Self> {
        let [first, second] = lab.hosts.as_slice() else {
            bail!("a lab of two hosts has {}", lab.hosts.len())
        };
        let endpoint = |host: &lab::Host| -> anyhow::Result<Endpoint> {
            let (v4, _) = lab::addresses(host.number);
            let socket = host.namespace.enter(|| UdpSocket::bind((v4, 0)))??;
            Ok(Endpoint::start(socket)?)
        };
        let (here, there) = (endpoint(first)?, endpoint(second)?);
        let to = there.address()?;
        Ok(Self {
            session,
            here,
            there,
            to,
            listening: None,
            lab,
            pacer,
            is_emulated: false,
            // Where the kernel cannot count, processor time is missing from the result.
            _counting: count_processor_time().ok(),
        })
    }

    /// Opens a measuring socket of h2 at a port, in the place of the one that was opened last.
    pub fn listen(&mut self, port: u16) -> anyhow::Result<SocketAddr> {
        let [_, second] = self.lab.hosts.as_slice() else {
            bail!("a lab of two hosts has {}", self.lab.hosts.len())
        };
        let (v4, _) = lab::addresses(second.number);
        let socket = second.namespace.enter(|| UdpSocket::bind((v4, port)))??;
        let endpoint = Endpoint::start(socket)?;
        let address = endpoint.address()?;
        self.listening = Some((address, endpoint));
        Ok(address)
    }

    /// What came of a train at a socket of h2.
    #[must_use]
    pub fn take(&self, at: SocketAddr, number: u32, expected: usize, patience: Duration) -> Vec<Receipt> {
        let endpoint = match &self.listening {
            Some((address, endpoint)) if *address == at => endpoint,
            _ => &self.there,
        };
        endpoint.take(number, expected, patience)
    }

    /// Puts a profile in force: begins the emulation, or changes it live.
    pub fn set(&mut self, prepared: Prepared) -> anyhow::Result<()> {
        self.is_emulated = true;
        self.session.ask(move |core| core.put(&prepared))?
    }

    /// Whether a thread keeps the time, which wants a processor.
    #[must_use]
    pub fn pacer_wants_processor(&self) -> bool {
        self.is_emulated && self.pacer != Pacer::Fq
    }

    /// Ends the emulation.
    pub fn clear(&mut self) -> anyhow::Result<()> {
        self.is_emulated = false;
        let clear: fn(&mut Core<'_>) -> anyhow::Result<()> = |core| core.clear();
        self.session.ask(clear)?
    }

    /// What the program at the interfaces' ingress, which burns the receiver's overhead, has cost so far. `None` where
    /// the kernel's own clock (`sched_clock`) counts ticks, as user-mode Linux's does: times are whole milliseconds then.
    pub fn ingress_time(&mut self) -> Option<ProcessorTime> {
        const FINEST_TICK_NS: u32 = 1_000_000;
        let ask = |core: &mut Core<'_>| core.running()?.processor_time(Program::Ingress);
        let time = self.session.ask(ask).ok()??;
        (time.total.subsec_nanos() % FINEST_TICK_NS != 0).then_some(time)
    }

    /// What the emulation has done, once its traffic rests; nothing if it has not begun.
    pub fn settled(&mut self) -> anyhow::Result<Option<Report>> {
        settled(&self.session)
    }

    /// What it did that no profile asked for, once its traffic rests.
    pub fn faults(&mut self) -> anyhow::Result<Vec<Fault>> {
        Ok(self.settled()?.map_or_else(Vec::new, |report| report.faults()))
    }

    /// What it has done so far.
    pub fn report(&self) -> anyhow::Result<Report> {
        let record = |core: &mut Core<'_>| core.running().map(|running| running.record.clone());
        let record = self.session.ask(record)?.context("nothing is emulated")?;
        Report::of(&record)?.context("the emulation is gone")
    }

    /// Does something in the namespace of a host.
    pub fn inside<T: Send>(&self, number: u32, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let host = self.lab.hosts.iter().find(|host| host.number == number);
        let host = host.with_context(|| format!("there is no {}", lab::name(number)))?;
        Ok(host.namespace.enter(work)?)
    }

    /// What TCP makes of it: round trips, and a transfer of `bytes`.
    pub fn transfer(&self, trips: u32, bytes: usize) -> anyhow::Result<Transfer> {
        let [first, second] = self.lab.hosts.as_slice() else {
            bail!("a lab of two hosts has {}", self.lab.hosts.len())
        };
        let (v4, _) = lab::addresses(second.number);
        let listener = second.namespace.enter(|| TcpListener::bind((v4, 0)))??;
        let ask =
            |to: SocketAddr| -> io::Result<_> { first.namespace.enter(|| stream::ask(to, trips, bytes))? };
        stream::transfer(&listener, (trips, bytes), ask).context("measuring over TCP")
    }

    /// Names of the offloads that the hosts' interfaces have switched on.
    pub fn offloads(&self) -> anyhow::Result<Vec<&'static str>> {
        let Some(first) = self.lab.hosts.first() else {
            bail!("a lab without hosts")
        };
        first.offloads()
    }
}
