//! One emulation: programs, tables, and the interfaces they are attached to.

use std::path::{Path, PathBuf};

use perturb_common::{
    abi::Attachment,
    tables::Tables,
    units::Ticks,
};

use crate::{
    attach::{AttachError, Attached, Clsact, Side},
    hold::{self, DeviceNames, HoldError, Pair},
    loader::{Loader, LoaderError},
    maps::{Maps, MapsError, Wire},
    namespace::Namespace,
    netlink::{FqOptions, Link, Netlink, NetlinkError},
    programs::{LoadError, LoadOptions, Program, Programs},
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
    /// A namespace could not be entered.
    #[error("entering a network namespace: {0}")]
    Namespace(std::io::Error),
    /// An attachment could not be told to the programs.
    #[error("writing map ATTACHMENTS: {0}")]
    Attachments(#[from] aya::maps::MapError),
    /// A directory for pins.
    #[error("making {path}: {source}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

type Result<T> = std::result::Result<T, EmulationError>;

/// An interface under emulation.
pub struct Interface {
    namespace: Namespace,
    link: Link,
    captures: Vec<Attached>,
    clsact: Option<Clsact>,
    // Dropped last: packets that were captured find their way out until then.
    pairs: Vec<Pair>,
    hold: u32,
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
    pub fn held(&self) -> Result<u32> {
        let index = self.hold;
        self.namespace
            .enter(move || Ok(Netlink::open()?.root_qdisc(index)?.backlog))
            .map_err(EmulationError::Namespace)?
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
            eprintln!("perturb: {error}; `perturb clear` will try again");
        }
        let pairs = std::mem::take(&mut self.pairs);
        if let Err(error) = self.namespace.enter(move || drop(pairs)) {
            eprintln!("perturb: entering a network namespace: {error}; `perturb clear` will try again");
        }
    }
}

/// A running emulation. Dropping it takes it down.
pub struct Emulation {
    interfaces: Vec<Interface>,
    loader: Loader,
    programs: Programs,
    horizon: Ticks,
}

impl Emulation {
    /// Loads programs and tables; nothing is emulated until interfaces are added and a lease is set.
    pub fn new(options: LoadOptions, tables: &Tables) -> Result<Self> {
        let mut programs = Programs::load(options)?;
        for program in [Program::Egress, Program::Ingress, Program::Release, Program::Stamp] {
            programs.program(program)?;
        }
        let mut loader = Loader::new(Maps::of(&programs)?)?;
        loader.load(tables)?;
        Ok(Self { interfaces: Vec::new(), loader, programs, horizon: tables.horizon })
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

    /// Puts an interface of a namespace under emulation, with sch_fq as pacer. `rank`: see
    /// [`Attachment::rank`].
    pub fn add_fq(
        &mut self,
        namespace: Namespace,
        link: Link,
        rank: u32,
        names: &DeviceNames,
        fq: FqOptions,
    ) -> Result<()> {
        let Self { programs, loader, .. } = self;
        let attachments = &mut loader.maps_mut().attachments;
        let interface = namespace
            .enter(|| {
                let mut netlink = Netlink::open()?;
                let splitter = hold::splitter(programs, &mut netlink, names)?;
                let hold = hold::fq(programs, &mut netlink, names, fq)?;
                let attachment =
                    Attachment { target: link.index, hold: hold.near, split: splitter.near, rank };
                for index in [link.index, hold.far, splitter.far] {
                    attachments.insert(index, Wire(attachment), 0)?;
                }
                let clsact = Clsact::ensure(&mut netlink, link.index)?;
                let near = hold.near;
                let mut captures = Vec::new();
                for (program, side) in [(Program::Egress, Side::Egress), (Program::Ingress, Side::Ingress)] {
                    captures.push(Attached::new(programs, program, &link.name, side)?);
                }
                Ok::<_, EmulationError>((captures, clsact, vec![hold, splitter], near))
            })
            .map_err(EmulationError::Namespace)?;
        let (captures, clsact, pairs, hold) = interface?;
        self.interfaces.push(Interface { namespace, link, captures, clsact: Some(clsact), pairs, hold });
        Ok(())
    }

    /// Puts another profile in force, without touching what is held.
    pub fn update(&mut self, tables: &Tables) -> Result<()> {
        self.loader.load(tables)?;
        self.horizon = tables.horizon;
        Ok(())
    }

    /// Makes the emulation outlive this process: maps and links are pinned in `directory`, devices
    /// stay.
    pub fn persist(mut self, directory: &Path) -> Result<()> {
        for interface in &mut self.interfaces {
            let links = directory.join(format!("links-{}", interface.link.index));
            std::fs::create_dir_all(&links)
                .map_err(|source| EmulationError::Directory { path: links.clone(), source })?;
            let mut number = 0;
            let mut keep = |attached: Attached| {
                number += 1;
                attached.persist(&links.join(number.to_string()))
            };
            std::mem::take(&mut interface.captures).into_iter().try_for_each(&mut keep)?;
            for pair in std::mem::take(&mut interface.pairs) {
                pair.persist(&mut keep)?;
            }
            if let Some(clsact) = interface.clsact.take() {
                clsact.forget();
            }
        }
        Ok(())
    }

    /// Pins the maps in `directory`, so that other processes can read counters and change the profile.
    pub fn pin_maps(&self, directory: &Path) -> Result<()> {
        Ok(Maps::pin(&self.programs, directory)?)
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
