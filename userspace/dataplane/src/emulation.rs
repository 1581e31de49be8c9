//! One emulation: programs, tables, and the interfaces they are attached to.

use std::{io::Write as _, sync::Arc};

use perturb_common::{
    abi::{Attachment, LEAD_WAKE_UP, PacerStat},
    tables::Tables,
    units::Ticks,
};

use crate::{
    attach::{AttachError, Attached, Clsact, Side},
    hold::{self, DeviceNames, Hold, HoldError, Pair},
    loader::{Loader, LoaderError},
    loopback::{Relaxed, SettingError},
    maps::{MapIds, Maps, MapsError},
    namespace::Namespace,
    netlink::{FqOptions, Link, Netlink, NetlinkError},
    programs::{LoadError, LoadOptions, Pacer, Program, Programs},
    room::Room,
    user::{SpinBudget, UserPacer, UserPacerStats},
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
    /// The pacer's figures could not be told.
    #[error("writing map PACER_STATS: {0}")]
    PacerStats(aya::maps::MapError),
}

type Result<T> = std::result::Result<T, EmulationError>;

/// An interface under emulation.
pub struct Interface {
    namespace: Namespace,
    link: Link,
    captures: Vec<Attached>,
    clsact: Option<Clsact>,
    // Dropped last: packets that were captured find their way out until then.
    hold: Option<Box<dyn Hold>>,
    splitter: Option<Pair>,
    // Of lo; what is held needs it until it has left.
    relaxed: Option<Relaxed>,
    /// A socket to its namespace.
    netlink: Netlink,
    /// What the interface had dropped before.
    dropped_before: u64,
    losses: Losses,
}

/// Packets that devices dropped, and what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// By the hold device: TAP, veth, sch_fq.
    pub hold: u64,
    /// By the splitter.
    pub splitter: u64,
    /// By the emulated interface and its root qdisc since it is emulated: other traffic's too.
    pub interface: u64,
    /// Packets that wait in the hold device's qdisc.
    pub waiting: u64,
}

/// What an interface and its root qdisc have dropped.
fn dropped(netlink: &mut Netlink, index: u32) -> std::result::Result<u64, NetlinkError> {
    let drops = netlink.drops(index)?;
    let qdisc = netlink.root_qdisc(index)?;
    Ok(drops.transmit + drops.receive + u64::from(qdisc.drops))
}

impl Interface {
    /// The interface.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Whether its clsact qdisc was made for the emulation.
    #[must_use]
    pub fn made_clsact(&self) -> bool {
        self.clsact.as_ref().is_some_and(Clsact::made)
    }

    /// Packets that wait in its hold device.
    pub fn held(&self) -> Result<u64> {
        let Some(hold) = &self.hold else { return Ok(0) };
        self.namespace
            .enter(|| Ok(hold.held()?))
            .map_err(EmulationError::Namespace)?
    }

    /// What its devices have dropped; the last known figures once they are gone.
    fn losses(&mut self) -> Result<Losses> {
        let (Some(hold), Some(splitter)) = (&self.hold, &self.splitter) else {
            return Ok(self.losses);
        };
        let netlink = &mut self.netlink;
        let mut read = || {
            let qdisc = netlink.root_qdisc(hold.entrance())?;
            // Drops behind a veth count at both ends: at the near one here.
            Ok::<_, NetlinkError>(Losses {
                hold: netlink.drops(hold.entrance())?.transmit + u64::from(qdisc.drops),
                splitter: netlink.drops(splitter.near)?.transmit
                    + u64::from(netlink.root_qdisc(splitter.near)?.drops),
                interface: dropped(netlink, self.link.index)?.saturating_sub(self.dropped_before),
                waiting: qdisc.backlog.into(),
            })
        };
        match read() {
            Ok(losses) => self.losses = losses,
            Err(error) if error.is(libc::ENODEV) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.losses)
    }

    /// Stops capturing; what is held still leaves at its time.
    fn detach(&mut self) -> Result<()> {
        let captures = std::mem::take(&mut self.captures);
        let clsact = self.clsact.take();
        self.namespace
            .enter(move || {
                let mut first = Ok(());
                for capture in captures {
                    let done = capture.detach();
                    if first.is_ok() {
                        first = done.map_err(EmulationError::from);
                    }
                }
                first?;
                if let Some(clsact) = clsact {
                    clsact.remove(&mut Netlink::open()?)?;
                }
                Ok(())
            })
            .map_err(EmulationError::Namespace)?
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            let _ = writeln!(
                std::io::stderr(),
                "perturb: {error}; `perturb clear` will try again"
            );
        }
        let devices = (self.hold.take(), self.splitter.take(), self.relaxed.take());
        if let Err(error) = self.namespace.enter(move || drop(devices)) {
            let _ = writeln!(
                std::io::stderr(),
                "perturb: entering a network namespace: {error}; `perturb clear` will try again"
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
    horizon: Ticks,
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
}

impl Timekeeper {
    fn pacer(&self) -> Pacer {
        match self {
            Self::Fq(_) => Pacer::Fq,
            Self::User { .. } => Pacer::User,
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
            Timekeeper::Fq(_) => None,
            Timekeeper::User { spin, limit } => {
                let mut lead = Maps::of(&programs)?.lead;
                // A word that could not be written stays as it was: the lead is what it was, too.
                let tell = move |nanos| drop(lead.set(LEAD_WAKE_UP, nanos, 0));
                let pacer = UserPacer::start(spin, limit, Box::new(tell)).map_err(HoldError::from)?;
                Some(Arc::new(pacer))
            }
        };
        for program in [
            Program::Egress,
            Program::Ingress,
            Program::Release,
            Program::Stamp,
        ] {
            programs.program(program)?;
        }
        let mut loader = Loader::new(Maps::of(&programs)?)?;
        loader.load(tables)?;
        Ok(Self {
            interfaces: Vec::new(),
            loader,
            programs,
            pacer,
            horizon: tables.horizon,
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
                let splitter = hold::splitter(programs, &mut netlink, names)?;
                let hold = match (timekeeper, &*pacer) {
                    (Timekeeper::User { .. }, Some(pacer)) => {
                        hold::user(programs, &mut netlink, names, pacer)?
                    }
                    (Timekeeper::Fq(options), _) => hold::fq(programs, &mut netlink, names, *options)?,
                    (Timekeeper::User { .. }, None) => return Err(HoldError::NoPacer.into()),
                };
                let attachment = Attachment {
                    target: link.index,
                    hold: hold.entrance(),
                    split: splitter.near,
                    rank,
                };
                for index in [link.index, hold.exit(), splitter.far] {
                    maps.attach(index, attachment)?;
                }
                let clsact = Clsact::ensure(&mut netlink, link.index)?;
                let mut captures = Vec::new();
                for (program, side) in [(Program::Egress, Side::Egress), (Program::Ingress, Side::Ingress)] {
                    captures.push(Attached::new(programs, program, &link.name, side)?);
                }
                let before = dropped(&mut netlink, link.index)?;
                Ok::<_, EmulationError>((captures, clsact, hold, splitter, relaxed, netlink, before))
            })
            .map_err(EmulationError::Namespace)?;
        let (captures, clsact, hold, splitter, relaxed, netlink, dropped_before) = interface?;
        self.interfaces.push(Interface {
            namespace,
            link,
            captures,
            clsact: Some(clsact),
            hold: Some(hold),
            splitter: Some(splitter),
            relaxed,
            netlink,
            dropped_before,
            losses: Losses::default(),
        });
        Ok(())
    }

    /// Tells the figures of pacer and devices to those who read the maps.
    pub fn publish(&mut self) -> Result<()> {
        let mut losses = Losses::default();
        for interface in &mut self.interfaces {
            let more = interface.losses()?;
            losses.hold += more.hold;
            losses.splitter += more.splitter;
            losses.interface += more.interface;
            losses.waiting += more.waiting;
        }
        let UserPacerStats {
            held_packets,
            held_bytes,
            dropped,
            real_time,
            busy,
            stalls,
            stalled,
            longest_stall,
        } = self.pacer.as_ref().map(|pacer| pacer.stats()).unwrap_or_default();
        let held_packets = held_packets + losses.waiting;
        let map = &mut self.loader.maps_mut().pacer_stats;
        for (stat, value) in [
            (PacerStat::HeldPackets, held_packets),
            (PacerStat::HeldBytes, held_bytes),
            (PacerStat::Dropped, dropped),
            (PacerStat::RealTime, u64::from(real_time)),
            (PacerStat::Busy, busy),
            (PacerStat::Stalls, stalls),
            (PacerStat::StalledNanos, stalled),
            (PacerStat::LongestStall, longest_stall),
            (PacerStat::HoldDrops, losses.hold),
            (PacerStat::SplitterDrops, losses.splitter),
            (PacerStat::InterfaceDrops, losses.interface),
        ] {
            map.set(stat as u32, value, 0)
                .map_err(EmulationError::PacerStats)?;
        }
        Ok(())
    }

    /// Puts another profile in force, without touching what is held.
    pub fn update(&mut self, tables: &Tables) -> Result<()> {
        self.loader.load(tables)?;
        self.horizon = tables.horizon;
        Ok(())
    }

    /// The numbers of the maps, so that other processes can read counters and change the profile.
    pub fn map_ids(&self) -> Result<MapIds> {
        Ok(Maps::ids(&self.programs)?)
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

    /// The longest that a packet may be held.
    #[must_use]
    pub fn horizon(&self) -> Ticks {
        self.horizon
    }
}
