//! One emulation: programs, tables, and the interfaces they are attached to.

use std::{io::Write as _, sync::Arc};

use perturb_common::{
    abi::{Attachment, LEAD_WAKE_UP},
    tables::Tables,
};

use crate::{
    attach::{AttachError, Attached, Clsact, Side},
    hold::{self, DeviceNames, Hold, HoldError, Pair},
    loader::{Loader, LoaderError},
    loopback::{Relaxed, SettingError},
    losses::{self, Ledger, SharedLedgers},
    maps::{MapIds, Maps, MapsError},
    namespace::Namespace,
    netlink::{FqOptions, Link, Netlink, NetlinkError},
    programs::{LoadError, LoadOptions, Pacer, Program, Programs},
    room::Room,
    user::{SpinBudget, UserPacer, usual_threads},
    vitals::{self, Vitals},
    watch::Watched,
};

/// Why an emulation could not be set up, changed or taken down.
#[derive(Debug, thiserror::Error)]
pub enum EmulationError {
    /// The object.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The maps.
    #[error(transparent)]
    Maps(#[from] MapsError),
    /// The tables.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// A hold device.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// A program.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A device.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A setting of lo.
    #[error(transparent)]
    Loopback(#[from] SettingError),
    /// A namespace could not be entered.
    #[error("entering a network namespace: {0}")]
    Namespace(std::io::Error),
    /// An attachment could not be told to the programs.
    #[error("writing map ATTACHMENTS: {0}")]
    Attachments(#[from] aya::maps::MapError),
    /// What sch_fq holds could not be read or told.
    #[error("maps HELD, HELD_HERE and EVENTS_SEEN: {0}")]
    Held(aya::maps::MapError),
    /// The switch has no TAP for it.
    #[error("{0} is not an interface of the switch's")]
    NoPort(String),
    /// The pacer's figures could not be told.
    #[error("writing map PACER_STATS: {0}")]
    PacerStats(aya::maps::MapError),
}

/// The programs that are attached.
const ATTACHED: [Program; 4] = [
    Program::Egress,
    Program::Ingress,
    Program::Release,
    Program::Stamp,
];

type Result<T> = std::result::Result<T, EmulationError>;

/// An interface under emulation.
pub struct Interface {
    namespace: Namespace,
    link: Link,
    rank: u32,
    names: DeviceNames,
    /// The interfaces of which the programs were told.
    told: [u32; 3],
    captures: Vec<Attached>,
    // Packets that were captured find their way out until these are dropped.
    hold: Option<Box<dyn Hold>>,
    splitter: Option<Pair>,
    // Of lo; what is held needs it until it has left.
    relaxed: Option<Relaxed>,
    // Goes last: meanwhile the kernel lets the interface send nothing (`qdisc_graft`, `dev_deactivate`), and drops what is
    // to leave.
    clsact: Option<Clsact>,
}

impl Interface {
    /// The interface.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// [`Attachment::rank`].
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Whether its clsact qdisc was made for the emulation.
    #[must_use]
    pub fn made_clsact(&self) -> bool {
        self.clsact.as_ref().is_some_and(Clsact::made)
    }

    /// Packets that wait in its hold device's qdisc.
    fn queued(&self) -> Result<u64> {
        let Some(hold) = &self.hold else { return Ok(0) };
        self.namespace
            .enter(|| Ok(Netlink::open()?.root_qdisc(hold.entrance())?.backlog.into()))
            .map_err(EmulationError::Namespace)?
    }

    /// Stops capturing; what is held still leaves at its time.
    fn detach(&mut self) -> Result<()> {
        let captures = std::mem::take(&mut self.captures);
        let index = self.link.index;
        self.namespace
            .enter(move || {
                let mut first = Ok(());
                for capture in captures {
                    let done = capture.detach(index);
                    if first.is_ok() {
                        first = done.map_err(EmulationError::from);
                    }
                }
                first
            })
            .map_err(EmulationError::Namespace)?
    }

    /// Takes everything down, and does nothing the second time.
    fn close(&mut self) -> Result<()> {
        let detached = self.detach();
        let mut parts = Some((
            self.hold.take(),
            self.splitter.take(),
            self.relaxed.take(),
            self.clsact.take(),
        ));
        let take_down = || {
            let Some((hold, splitter, relaxed, clsact)) = parts.take() else {
                return Ok(());
            };
            drop((hold, splitter, relaxed));
            clsact.map_or(Ok(()), |mut clsact| clsact.remove())
        };
        let removed = match self.namespace.enter(take_down) {
            Ok(removed) => removed.map_err(EmulationError::from),
            Err(error) => Err(EmulationError::Namespace(error)),
        };
        // Where the namespace could not be entered, dropping them would delete the devices of another one.
        if let Some((hold, splitter, relaxed, clsact)) = parts {
            std::mem::forget((hold, splitter, relaxed));
            if let Some(clsact) = clsact {
                clsact.forget();
            }
        }
        detached.and(removed)
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            let _ = writeln!(
                std::io::stderr(),
                "perturb: {error}; delete what is left: devices with the alias {:?} (`ip link`), and perturb's filters and the \
                 clsact qdisc of {name} (`tc filter show dev {name} ingress` and `egress`, `tc qdisc show dev {name}`)",
                self.names.alias,
                name = self.link.name
            );
        }
    }
}

/// A running emulation. Dropping it takes it down.
pub struct Emulation {
    interfaces: Vec<Interface>,
    loader: Loader,
    programs: Programs,
    pacer: Option<Arc<UserPacer>>,
    ledgers: SharedLedgers,
}

/// What keeps the time of an emulation.
#[derive(Clone, Copy, Debug)]
pub enum Timekeeper {
    /// sch_fq with these options.
    Fq(FqOptions),
    /// A thread of this process.
    User {
        /// How long before a departure it polls.
        spin: SpinBudget,
        /// Memory that held packets may take, bytes.
        limit: u64,
    },
    /// A thread of this process, between private hosts' TAPs, which runs the programs, too.
    Switch,
}

impl Timekeeper {
    fn pacer(&self) -> Pacer {
        match self {
            Self::Fq(_) => Pacer::Fq,
            Self::User { .. } => Pacer::User,
            Self::Switch => Pacer::Switch,
        }
    }
}

impl Emulation {
    /// Loads programs and tables; nothing is emulated until interfaces are added and a lease is set.
    pub fn new(timekeeper: &Timekeeper, verbose: bool, tables: &Tables) -> Result<Self> {
        let options = LoadOptions {
            pacer: timekeeper.pacer(),
            room: Room::of(tables),
            verbose,
        };
        let mut programs = Programs::load(options)?;
        let pacer = match *timekeeper {
            Timekeeper::Fq(_) | Timekeeper::Switch => None,
            Timekeeper::User { spin, limit } => {
                let mut lead = Maps::of(&programs)?.lead;
                // A word that could not be written stays as it was: the lead is what it was, too.
                let tell = move |nanos| drop(lead.set(LEAD_WAKE_UP, nanos, 0));
                let pacer = UserPacer::start(usual_threads(), spin, limit, Box::new(tell))
                    .map_err(HoldError::from)?;
                Some(Arc::new(pacer))
            }
        };
        programs.load_all(&ATTACHED)?;
        let mut loader = Loader::new(Maps::of(&programs)?)?;
        loader.load(tables)?;
        Ok(Self {
            interfaces: Vec::new(),
            loader,
            programs,
            pacer,
            ledgers: SharedLedgers::default(),
        })
    }

    /// The tables.
    pub fn loader(&mut self) -> &mut Loader {
        &mut self.loader
    }

    /// The object, for the log reader.
    pub fn programs(&mut self) -> &mut Programs {
        &mut self.programs
    }

    /// The interfaces.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Puts an interface of a namespace under emulation. `rank`: see [`Attachment::rank`].
    pub fn add(
        &mut self,
        timekeeper: &Timekeeper,
        namespace: Namespace,
        link: Link,
        rank: u32,
        names: &DeviceNames,
    ) -> Result<()> {
        let Self {
            programs,
            loader,
            pacer,
            ..
        } = self;
        let maps = loader.maps_mut();
        let interface = namespace
            .enter(|| {
                let mut netlink = Netlink::open()?;
                let relaxed = link.loopback.then(Relaxed::new).transpose()?;
                // Dropped last, if the rest fails.
                let clsact = Clsact::ensure(&mut netlink, link.index)?;
                let splitter = hold::splitter(programs, &mut netlink, names)?;
                let hold = match (timekeeper, &*pacer) {
                    (Timekeeper::User { .. }, Some(pacer)) => {
                        hold::user(programs, &mut netlink, names, pacer)?
                    }
                    (Timekeeper::Fq(options), _) => hold::fq(programs, &mut netlink, names, *options)?,
                    (Timekeeper::User { .. }, None) | (Timekeeper::Switch, _) => {
                        return Err(HoldError::NoPacer.into());
                    }
                };
                let attachment = Attachment {
                    target: link.index,
                    hold: hold.entrance(),
                    split: splitter.near,
                    rank,
                };
                let told = [link.index, hold.exit(), splitter.far];
                for index in told {
                    maps.attach(index, attachment)?;
                }
                let mut captures = Vec::new();
                for (program, side) in [(Program::Egress, Side::Egress), (Program::Ingress, Side::Ingress)] {
                    captures.push(Attached::new(programs, program, &link.name, side)?);
                }
                let ledger = Ledger::begin(netlink, hold.entrance(), splitter.near, link.index)?;
                Ok::<_, EmulationError>((captures, clsact, hold, splitter, relaxed, ledger, told))
            })
            .map_err(EmulationError::Namespace)?;
        let (captures, clsact, hold, splitter, relaxed, ledger, told) = interface?;
        losses::lock(&self.ledgers).open(ledger);
        self.interfaces.push(Interface {
            namespace,
            link,
            rank,
            names: names.clone(),
            told,
            captures,
            hold: Some(hold),
            splitter: Some(splitter),
            relaxed,
            clsact: Some(clsact),
        });
        Ok(())
    }

    /// Tells the figures of pacer and devices to those who read the maps.
    pub fn publish(&mut self) -> Result<()> {
        vitals::publish(self.pacer.as_deref(), &self.ledgers, self.loader.maps_mut())
    }

    /// What a thread of its own needs to keep the emulation alive; it watches the interfaces that there are now.
    pub fn vitals(&mut self) -> Result<Vitals> {
        let mut ours = Vec::new();
        for program in ATTACHED {
            let loaded = self.programs.program(program)?;
            let info = loaded.info().map_err(|source| LoadError::Program {
                name: program.name(),
                source,
            })?;
            ours.push((program, info.id()));
        }
        let watched = self.interfaces.iter().map(|interface| {
            let namespace = interface
                .namespace
                .try_clone()
                .map_err(EmulationError::Namespace)?;
            let begin = || Watched::begin(namespace, &interface.link, &interface.names, &ours);
            Ok(interface
                .namespace
                .enter(begin)
                .map_err(EmulationError::Namespace)??)
        });
        Ok(Vitals {
            watched: watched.collect::<Result<_>>()?,
            maps: Maps::of(&self.programs)?,
            pacer: self.pacer.clone(),
            ledgers: Arc::clone(&self.ledgers),
        })
    }

    /// Lets go of an interface that is not there any more: whatever is left of it and of its devices goes.
    pub fn remove(&mut self, index: u32) -> Result<()> {
        let gone = |interface: &Interface| interface.link.index == index;
        for interface in self.interfaces.iter().filter(|interface| gone(interface)) {
            for told in interface.told {
                self.loader.maps_mut().forget(told)?;
            }
        }
        self.interfaces.retain(|interface| !gone(interface));
        losses::lock(&self.ledgers).close(index)?;
        Ok(())
    }

    /// Takes notice of what the user pacer may hold from now on.
    pub fn adopt(&mut self, timekeeper: &Timekeeper) {
        if let (Timekeeper::User { limit, .. }, Some(pacer)) = (*timekeeper, &self.pacer) {
            pacer.set_limit(limit);
        }
    }

    /// The numbers of the maps, so that other processes can read counters and change the profile.
    pub fn map_ids(&self) -> Result<MapIds> {
        Ok(Maps::ids(&self.programs)?)
    }

    /// Packets that wait for their departure, of all interfaces: the user pacer has one store for them.
    pub fn held(&self) -> Result<u64> {
        match &self.pacer {
            Some(pacer) => Ok(pacer.stats().held_packets),
            None => self.interfaces.iter().map(Interface::queued).sum(),
        }
    }

    /// Stops capturing on all interfaces; what is held still leaves at its time.
    pub fn detach(&mut self) -> Result<()> {
        let mut first = Ok(());
        for interface in &mut self.interfaces {
            let done = interface.detach();
            if first.is_ok() {
                first = done;
            }
        }
        first
    }

    /// Takes everything down; what is still held is lost.
    pub fn close(mut self) -> Result<()> {
        let closed = self.interfaces.iter_mut().map(Interface::close);
        closed.fold(Ok(()), Result::and)
    }
}
