//! An emulation on a switch: its tables, and the hosts whose interfaces it emulates.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    sync::Arc,
};

use perturb_common::tables::Tables as Compiled;

use super::{Port, Switch};
use crate::{
    emulation::EmulationError,
    loader::{Loader, LoaderError},
    losses::{self, Losses},
    maps::{MapIds, Maps},
    namespace::Namespace,
    native::Tables,
    netlink::{Link, Netlink, NetlinkError},
    programs::LoadError,
    room::Room,
    vitals,
    watch::{Change, Fault},
};

type Result<T> = std::result::Result<T, EmulationError>;

/// A running emulation on a switch. Dropping it ends it: frames pass untouched then.
pub struct Switched {
    switch: Arc<Switch>,
    tables: Arc<Tables>,
    loader: Loader,
    file: PathBuf,
    hosts: Vec<Host>,
}

/// A host whose interface is emulated.
struct Host {
    namespace: Namespace,
    link: Link,
    rank: u32,
    /// What its TAP had dropped before.
    before: Dropped,
}

impl Host {
    /// A socket in its namespace.
    fn netlink(namespace: &Namespace) -> Result<Netlink> {
        let open = || Netlink::open().map_err(EmulationError::from);
        namespace.enter(open).map_err(EmulationError::Namespace)?
    }
}

impl Switched {
    /// Loads tables into a new file, which other processes may open; nothing is emulated until interfaces are added and a lease is
    /// set.
    pub fn new(switch: &Arc<Switch>, file: &Path, verbose: bool, compiled: &Compiled) -> Result<Self> {
        let mut options = OpenOptions::new();
        let opened = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(file);
        let opened = opened.map_err(LoadError::Tables)?;
        let tables = Tables::new(opened, &Room::of(compiled), switch.threads(), verbose)?;
        let mut loader = Loader::new(tables.maps()?)?;
        loader.load(compiled)?;
        let tables = Arc::new(tables);
        switch.emulate(Some(Arc::clone(&tables)))?;
        Ok(Self {
            switch: Arc::clone(switch),
            tables,
            loader,
            file: file.into(),
            hosts: Vec::new(),
        })
    }

    /// The tables.
    pub fn loader(&mut self) -> &mut Loader {
        &mut self.loader
    }

    /// How other processes find the maps.
    #[must_use]
    pub fn map_ids(&self) -> MapIds {
        MapIds::Memory {
            file: self.file.clone(),
        }
    }

    /// Puts a host's interface under emulation. `rank`: see `Attachment::rank`.
    pub fn add(&mut self, namespace: Namespace, link: Link, rank: u32) -> Result<()> {
        let ports = &self.switch.ports;
        let Some(at) = ports.of(link.index) else {
            return Err(EmulationError::NoPort(link.name));
        };
        let port: &Port = &ports.ports[at];
        for told in [port.index, port.hold(), port.parts()] {
            self.loader.maps_mut().attach(told, port.attachment(rank))?;
        }
        let before = dropped(&mut Host::netlink(&namespace)?, link.index)?;
        self.hosts.push(Host {
            namespace,
            link,
            rank,
            before,
        });
        Ok(())
    }

    /// The interfaces: their namespaces, themselves, and their ranks.
    pub fn interfaces(&self) -> impl Iterator<Item = (&Namespace, &Link, u32)> {
        self.hosts
            .iter()
            .map(|host| (&host.namespace, &host.link, host.rank))
    }

    /// What a thread of its own needs to keep the emulation alive.
    pub fn vitals(&self) -> Result<SwitchVitals> {
        let watch = |host: &Host| {
            Ok(Watched {
                netlink: Host::netlink(&host.namespace)?,
                index: host.link.index,
                name: host.link.name.clone(),
                before: host.before,
            })
        };
        Ok(SwitchVitals {
            switch: Arc::clone(&self.switch),
            maps: self.tables.maps()?,
            watched: self.hosts.iter().map(watch).collect::<Result<_>>()?,
        })
    }

    /// Packets that wait for their departure.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.switch.stats().held_packets
    }

    /// Stops capturing; what is held still leaves at its time.
    pub fn detach(&mut self) -> Result<()> {
        Ok(self.loader.set_lease(0)?)
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        // Without tables there is nothing that could fail.
        let _ = self.switch.emulate(None);
    }
}

/// The vital parts of an emulation on a switch.
pub struct SwitchVitals {
    switch: Arc<Switch>,
    maps: Maps,
    watched: Vec<Watched>,
}

/// A host's interface.
struct Watched {
    netlink: Netlink,
    index: u32,
    name: String,
    /// What it had dropped before.
    before: Dropped,
}

/// What a TAP has dropped.
#[derive(Clone, Copy)]
struct Dropped {
    /// Because this process did not read it in time.
    unread: u64,
    /// For whatever else.
    others: u64,
}

fn dropped(netlink: &mut Netlink, index: u32) -> std::result::Result<Dropped, NetlinkError> {
    let unread = netlink.drops(index)?.transmit;
    let all = losses::dropped(netlink, index)?;
    Ok(Dropped {
        unread,
        others: all.saturating_sub(unread),
    })
}

impl SwitchVitals {
    /// Lets the programs emulate until `until`, CLOCK_MONOTONIC ns; `u64::MAX` for ever, 0 no more.
    pub fn set_lease(&mut self, until: u64) -> std::result::Result<(), LoaderError> {
        self.maps.set_lease(until).map_err(|source| LoaderError::Map {
            map: "CONTROL",
            source,
        })
    }

    /// Tells the figures of threads and TAPs to those who read the maps.
    pub fn publish(&mut self) -> Result<()> {
        let mut losses = Losses::default();
        for watched in &mut self.watched {
            match dropped(&mut watched.netlink, watched.index) {
                Ok(now) => {
                    // They never came to where packets are counted, as what a splitter drops.
                    losses.splitter += now.unread.saturating_sub(watched.before.unread);
                    losses.interface += now.others.saturating_sub(watched.before.others);
                }
                // It has been deleted: `look` says so.
                Err(error) if error.is(libc::ENODEV) => {}
                Err(error) => return Err(error.into()),
            }
        }
        vitals::tell(&mut self.maps, &losses, &self.switch.stats())
    }

    /// Looks whether everything is as it was; the first fault found.
    pub fn look(&mut self) -> std::result::Result<Option<Fault>, NetlinkError> {
        let dead = self.switch.dead();
        let found = self.watched.iter().find(|watched| dead == Some(watched.index));
        Ok(found.map(|watched| Fault {
            interface: watched.name.clone(),
            device: watched.name.clone(),
            change: Change::Dead,
        }))
    }
}
