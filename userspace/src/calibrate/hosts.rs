//! Two private hosts with a measuring socket each, joined by a wire without emulation, or under emulation with a
//! profile that is changed live.

use std::{
    io, mem,
    net::{SocketAddr, TcpListener, UdpSocket},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, bail};
use perturb_dataplane::{
    ethtool::{self, Offload},
    programs::{Pacer, ProcessorTime, Program, count_processor_time},
};
use perturb_emulator::{
    conduct::{Pacing, pacer_name},
    lab::{self, INTERFACE, Lab, run::emulate},
    prepared::Prepared,
    running::Running,
    signals::when_interrupted,
    status::{Fault, Report},
};

use crate::probe::{
    endpoint::{Endpoint, Receipt},
    stream::{self, Transfer},
};

/// The emulation, which a signal may end while it is measured.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Option<Running>>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it. As long as the guard is kept, nobody makes it again.
    fn end(&self) -> (MutexGuard<'_, Option<Running>>, anyhow::Result<()>) {
        let mut running = self.lock();
        let ended = running.take().map_or(Ok(()), Running::abandon);
        (running, ended)
    }
}

/// The hosts; a signal ends their emulation, and this process.
pub struct Hosts {
    running: Shared,
    /// The measuring socket of h1.
    pub here: Endpoint,
    /// That of h2.
    pub there: Endpoint,
    /// Where that is.
    pub to: SocketAddr,
    listening: Option<(SocketAddr, Endpoint)>,
    lab: Lab,
    _counting: Option<OwnedFd>,
}

impl Hosts {
    /// Makes them, without emulation.
    pub fn new(tcp: &perturb_profile::Tcp) -> anyhow::Result<Self> {
        let running = Shared::default();
        let interrupted = running.clone();
        when_interrupted(move || {
            let (running, ended) = interrupted.end();
            if let Err(error) = ended {
                eprintln!("perturb: {error:#}; the next command that needs root tries again");
            }
            // The process ends now: whoever waits for the emulation must neither make it again nor end with another code.
            mem::forget(running);
        })?;
        let lab = Lab::new(2, tcp)?;
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
            running,
            here,
            there,
            to,
            listening: None,
            lab,
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
    pub fn set(&mut self, prepared: &Prepared, pacing: Pacing) -> anyhow::Result<()> {
        let mut shared = self.running.lock();
        match &mut *shared {
            Some(running) => running.update(prepared)?,
            None => *shared = Some(emulate(&self.lab, prepared, pacing, false)?),
        }
        drop(shared);
        self.check()
    }

    /// Whether a thread keeps the time, which wants a processor.
    #[must_use]
    pub fn pacer_wants_processor(&self) -> bool {
        let by_thread = |running: &Running| running.record.pacer == pacer_name(Pacer::User);
        self.running.lock().as_ref().is_some_and(by_thread)
    }

    /// Fails if the emulation is not in force any more.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match &mut *self.running.lock() {
            Some(running) => running.check(),
            None => Ok(()),
        }
    }

    /// Ends the emulation.
    pub fn clear(&mut self) -> anyhow::Result<()> {
        self.running.end().1
    }

    /// What the program at the interfaces' ingress, which burns the receiver's overhead, has cost so far. `None` where
    /// the kernel's own clock (`sched_clock`) counts ticks, as user-mode Linux's does: times are whole milliseconds then.
    pub fn ingress_time(&mut self) -> Option<ProcessorTime> {
        const FINEST_TICK_NS: u32 = 1_000_000;
        let mut shared = self.running.lock();
        let programs = shared.as_mut()?.emulation.programs();
        let time = programs.processor_time(Program::Ingress).ok()?;
        (time.total.subsec_nanos() % FINEST_TICK_NS != 0).then_some(time)
    }

    /// What the emulation did that no profile asked for, once its traffic rests.
    pub fn faults(&mut self) -> anyhow::Result<Vec<Fault>> {
        let mut shared = self.running.lock();
        let Some(running) = &mut *shared else {
            return Ok(Vec::new());
        };
        let report = Report::settled(running)?.context("the emulation is gone")?;
        Ok(report.faults())
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
        let all = [
            ("tx-checksum", Offload::TransmitChecksum),
            ("scatter-gather", Offload::ScatterGather),
            ("tso", Offload::TcpSegmentation),
            ("gso", Offload::Segmentation),
            ("gro", Offload::Receive),
        ];
        let mut on = Vec::new();
        for (name, offload) in all {
            if first
                .namespace
                .enter(|| ethtool::is_on(INTERFACE, offload))?
                .with_context(|| format!("asking {INTERFACE} for {name}"))?
            {
                on.push(name);
            }
        }
        Ok(on)
    }
}

impl Drop for Hosts {
    /// Its devices are in the lab's namespaces: they go first.
    fn drop(&mut self) {
        if let Err(error) = self.running.end().1 {
            eprintln!("perturb: {error:#}; the next command that needs root tries again");
        }
    }
}
