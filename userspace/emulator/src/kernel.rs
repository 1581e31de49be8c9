//! The machine: what a session needs of it, by way of perturb-dataplane.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    path::Path,
};

use anyhow::Context as _;
use perturb_common::tables::Tables;
use perturb_dataplane::{
    attach::Clsact,
    emulation::{Emulation, Interface, Timekeeper},
    hold::{self, DeviceNames},
    loader::{Loader, Slots},
    loopback, machine,
    maps::Maps,
    namespace::Namespace,
    netlink::{FqOptions, Link, Netlink, NetlinkError},
    programs::Programs,
    vitals::Vitals,
    watch::Fault,
};

use crate::{
    admission::admit,
    prepared::Prepared,
    privileges,
    registry::{self, InterfaceRecord, Record},
    seam::{Begun, Candidate, Emulated, Machine, Plane, Vital},
    setup::Target,
    status::Report,
    tables::Halves,
};

/// This machine.
pub(crate) struct Kernel;

impl Machine for Kernel {
    fn keep_needed(&self) -> anyhow::Result<()> {
        privileges::keep_needed().context("giving up capabilities")
    }

    fn raise(&self) -> anyhow::Result<()> {
        Ok(registry::raised::raise(&machine::BACKLOG)?)
    }

    fn describe(&self, target: &Target, names: &DeviceNames) -> anyhow::Result<InterfaceRecord> {
        let Target {
            namespace,
            link,
            host,
            container,
            ..
        } = target;
        let makes_clsact = || Clsact::is_missing(&mut Netlink::open()?, link.index);
        Ok(InterfaceRecord {
            name: link.name.clone(),
            index: link.index,
            host: host.clone(),
            container: container.clone(),
            namespace: namespace.inode()?,
            devices: names.iter().map(Into::into).collect(),
            made_clsact: namespace.enter(makes_clsact)??,
            settings: if link.loopback {
                namespace.enter(loopback::needed)??
            } else {
                Vec::new()
            },
            lost: false,
        })
    }

    fn begin(
        &self,
        time: &Timekeeper,
        verbose: bool,
        prepared: &Prepared,
        _: &Path,
    ) -> anyhow::Result<Begun> {
        let mut emulation = Emulation::new(time, verbose, &prepared.tables)?;
        Ok(Begun {
            maps: emulation.map_ids()?,
            slots: emulation.loader().slots().clone(),
            plane: Box::new(Own(emulation)),
        })
    }

    fn candidate(&self, namespace: &Namespace, name: &str) -> anyhow::Result<Option<Candidate>> {
        let find = || {
            let mut netlink = Netlink::open()?;
            let links = netlink.links()?;
            let found = links.iter().find(|link| link.name == name);
            Ok::<_, NetlinkError>(found.map(|link| Candidate {
                link: link.clone(),
                admitted: admit(&mut netlink, link, &links),
            }))
        };
        Ok(namespace.enter(find)??)
    }

    fn has(&self, namespace: &Namespace, name: &str, index: u32) -> anyhow::Result<bool> {
        let link = namespace.enter(|| Netlink::open()?.link_at(index))??;
        Ok(link.is_some_and(|link| link.name == name))
    }

    fn carried(&self) -> anyhow::Result<Vec<(u32, u64)>> {
        let links = Netlink::open()?.links()?.into_iter();
        Ok(links.map(|link| (link.index, link.packets)).collect())
    }
}

pub(crate) fn load(record: &Record, tables: &Tables, anew: bool) -> anyhow::Result<Slots> {
    let mut loader = resume(record)?;
    if anew {
        loader.restart_clock();
    }
    loader.load(tables)?;
    Ok(loader.slots().clone())
}

/// The tables of an emulation, whichever process has made or changed them.
pub(crate) fn resume(record: &Record) -> anyhow::Result<Loader> {
    let maps = Maps::by_id(&record.maps)?;
    Ok(Loader::resume(maps, record.in_force.slots.clone())?)
}

/// In the namespace of the interface.
fn set_fq(interface: &InterfaceRecord, options: FqOptions) -> anyhow::Result<()> {
    let mut netlink = Netlink::open()?;
    if let Some(device) = interface.devices.first()
        && let Some(link) = netlink.link(device)?
    {
        hold::set_fq(&mut netlink, link.index, link.queues, options)?;
    }
    Ok(())
}

/// The emulation of another process, on interfaces of this namespace.
pub(crate) struct Others;

impl Halves for Others {
    fn load(&mut self, record: &Record, tables: &Tables, anew: bool) -> anyhow::Result<Slots> {
        load(record, tables, anew)
    }

    fn go_back(&mut self, record: &Record, slots: &Slots) -> anyhow::Result<()> {
        Ok(resume(record)?.go_back(slots.clone())?)
    }

    fn set_fq(&mut self, record: &Record, options: FqOptions) -> anyhow::Result<()> {
        let mut interfaces = record.interfaces.iter();
        interfaces.try_for_each(|interface| set_fq(interface, options))
    }
}

/// The emulation of this process.
struct Own(Emulation);

impl Own {
    fn find(&self, index: u32) -> Option<&Interface> {
        let mut interfaces = self.0.interfaces().iter();
        interfaces.find(|interface| interface.link().index == index)
    }
}

impl Halves for Own {
    fn load(&mut self, record: &Record, tables: &Tables, anew: bool) -> anyhow::Result<Slots> {
        load(record, tables, anew)
    }

    fn go_back(&mut self, record: &Record, slots: &Slots) -> anyhow::Result<()> {
        Ok(resume(record)?.go_back(slots.clone())?)
    }

    fn set_fq(&mut self, record: &Record, options: FqOptions) -> anyhow::Result<()> {
        for recorded in &record.interfaces {
            if let Some(interface) = self.find(recorded.index) {
                interface.namespace().enter(|| set_fq(recorded, options))??;
            }
        }
        Ok(())
    }
}

impl Plane for Own {
    fn set_lease(&mut self, until: u64) -> anyhow::Result<()> {
        Ok(self.0.loader().set_lease(until)?)
    }

    fn add(&mut self, time: &Timekeeper, target: Target, names: &DeviceNames) -> anyhow::Result<bool> {
        let index = target.link.index;
        self.0
            .add(time, target.namespace, target.link, target.rank, names)?;
        Ok(self.find(index).is_some_and(Interface::made_clsact))
    }

    fn remove(&mut self, index: u32) -> anyhow::Result<Option<Emulated>> {
        let gone = self.find(index).map(emulated).transpose()?;
        self.0.remove(index)?;
        Ok(gone)
    }

    fn interfaces(&self) -> anyhow::Result<Vec<Emulated>> {
        self.0.interfaces().iter().map(emulated).collect()
    }

    fn vital(&mut self) -> anyhow::Result<Box<dyn Vital>> {
        Ok(Box::new(self.0.vitals()?))
    }

    fn adopt(&mut self, time: &Timekeeper) {
        self.0.adopt(time);
    }

    fn report(&mut self, record: &Record) -> anyhow::Result<Option<Report>> {
        self.0.publish()?;
        Report::of(record)
    }

    fn detach(&mut self) -> anyhow::Result<()> {
        Ok(self.0.detach()?)
    }

    fn held(&self) -> anyhow::Result<u64> {
        Ok(self.0.held()?)
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        self.0.close().context("taking the emulation down")
    }

    fn programs(&mut self) -> Option<&mut Programs> {
        Some(self.0.programs())
    }
}

fn emulated(interface: &Interface) -> anyhow::Result<Emulated> {
    let Link { name, index, .. } = interface.link();
    Ok(Emulated {
        namespace: interface.namespace().try_clone()?,
        name: name.clone(),
        index: *index,
        rank: interface.rank(),
    })
}

impl Vital for Vitals {
    fn set_lease(&mut self, until: u64) -> anyhow::Result<()> {
        Ok(Self::set_lease(self, until)?)
    }

    fn publish(&mut self) -> anyhow::Result<()> {
        Ok(Self::publish(self)?)
    }

    fn listen(&mut self) -> anyhow::Result<()> {
        Ok(Self::listen(self).map(drop)?)
    }

    fn look(&mut self) -> anyhow::Result<Option<Fault>> {
        Ok(Self::look(self)?)
    }

    fn notices(&self) -> Vec<BorrowedFd<'_>> {
        Self::notices(self).map(|notices| notices.as_fd()).collect()
    }
}
