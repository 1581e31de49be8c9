//! A lab whose hosts a switch joins: what a session needs of it. The machine is left alone: what is emulated lies in this process.

use std::{os::fd::BorrowedFd, path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use perturb_common::{abi::Dimension, tables::Tables};
use perturb_dataplane::{
    emulation::Timekeeper,
    hold::DeviceNames,
    loader::Slots,
    namespace::Namespace,
    netlink::{FqOptions, Link, Netlink},
    programs::Programs,
    switch::{Switch, SwitchVitals, Switched},
    watch::Fault,
};

use crate::{
    kernel::{load, resume},
    prepared::Prepared,
    privileges,
    registry::{InterfaceRecord, Record},
    seam::{Begun, Candidate, Emulated, Machine, Plane, Vital},
    setup::Target,
    status::Report,
    tables::Halves,
};

/// The file of the tables, beside the record.
const TABLES: &str = "tables";

/// A switch sees frames, and has nobody's processor time.
#[derive(Debug, thiserror::Error)]
#[error(
    "the pacer switch cannot emulate this profile: {0}; leave it out, or run perturb as root with another pacer"
)]
pub struct Unfit(
    /// What it asks for, and why that cannot be.
    pub &'static str,
);

/// Whether a switch can emulate it.
///
/// # Errors
///
/// It asks for what a switch does not have.
pub fn fits(tables: &Tables) -> Result<(), Unfit> {
    let settings = &tables.settings;
    let burns = settings.overhead_send != 0 || settings.overhead_receive != 0;
    // Without a condition there is one boundary.
    let asks = |dimension: Dimension| {
        let mut directions = tables.classifier.iter();
        directions.any(|one| one.spans[dimension as usize].len > 1)
    };
    let what = if burns || tables.overheads.is_some() {
        "`overhead` is processor time of the sending and the receiving host, which it cannot take"
    } else if settings.cgroup_levels != 0 || asks(Dimension::Cgroup) {
        "a frame does not say which `cgroup` sent it"
    } else if asks(Dimension::Mark) {
        "a frame does not carry its `mark`"
    } else {
        return Ok(());
    };
    Err(Unfit(what))
}

/// The private hosts that a switch joins.
pub(crate) struct OnSwitch(pub(crate) Arc<Switch>);

impl Machine for OnSwitch {
    fn keep_needed(&self) -> anyhow::Result<()> {
        privileges::keep_needed().context("giving up capabilities")
    }

    fn raise(&self) -> anyhow::Result<()> {
        // Nothing waits in the backlogs of the machine's processors.
        Ok(())
    }

    fn describe(&self, target: &Target, _: &DeviceNames) -> anyhow::Result<InterfaceRecord> {
        Ok(InterfaceRecord {
            name: target.link.name.clone(),
            index: target.link.index,
            host: target.host.clone(),
            container: None,
            namespace: target.namespace.inode()?,
            devices: Vec::new(),
            made_clsact: false,
            settings: Vec::new(),
            lost: false,
        })
    }

    fn begin(
        &self,
        _: &Timekeeper,
        verbose: bool,
        prepared: &Prepared,
        directory: &Path,
    ) -> anyhow::Result<Begun> {
        fits(&prepared.tables)?;
        let mut switched = Switched::new(&self.0, &directory.join(TABLES), verbose, &prepared.tables)?;
        Ok(Begun {
            maps: switched.map_ids(),
            slots: switched.loader().slots().clone(),
            plane: Box::new(Own(switched)),
        })
    }

    fn candidate(&self, _: &Namespace, name: &str) -> anyhow::Result<Option<Candidate>> {
        bail!("{name} is a private host's interface: it goes with its host")
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

/// The emulation of this process.
struct Own(Switched);

impl Halves for Own {
    fn load(&mut self, record: &Record, tables: &Tables, anew: bool) -> anyhow::Result<Slots> {
        fits(tables)?;
        load(record, tables, anew)
    }

    fn go_back(&mut self, record: &Record, slots: &Slots) -> anyhow::Result<()> {
        Ok(resume(record)?.go_back(slots.clone())?)
    }

    fn set_fq(&mut self, _: &Record, _: FqOptions) -> anyhow::Result<()> {
        Ok(())
    }
}

fn emulated((namespace, link, rank): (&Namespace, &Link, u32)) -> anyhow::Result<Emulated> {
    Ok(Emulated {
        namespace: namespace.try_clone()?,
        name: link.name.clone(),
        index: link.index,
        rank,
    })
}

impl Plane for Own {
    fn set_lease(&mut self, until: u64) -> anyhow::Result<()> {
        Ok(self.0.loader().set_lease(until)?)
    }

    fn add(&mut self, _: &Timekeeper, target: Target, _: &DeviceNames) -> anyhow::Result<bool> {
        self.0.add(target.namespace, target.link, target.rank)?;
        Ok(false)
    }

    fn remove(&mut self, index: u32) -> anyhow::Result<Option<Emulated>> {
        let mut interfaces = self.0.interfaces();
        interfaces
            .find(|(_, link, _)| link.index == index)
            .map(emulated)
            .transpose()
    }

    fn interfaces(&self) -> anyhow::Result<Vec<Emulated>> {
        self.0.interfaces().map(emulated).collect()
    }

    fn vital(&mut self) -> anyhow::Result<Box<dyn Vital>> {
        Ok(Box::new(self.0.vitals()?))
    }

    fn adopt(&mut self, _: &Timekeeper) {
        // The programs look at the limit of what is held themselves.
    }

    fn report(&mut self, record: &Record) -> anyhow::Result<Option<Report>> {
        self.0.vitals()?.publish()?;
        Report::of(record)
    }

    fn detach(&mut self) -> anyhow::Result<()> {
        Ok(self.0.detach()?)
    }

    fn held(&self) -> anyhow::Result<u64> {
        Ok(self.0.held())
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        // What is left is memory.
        Ok(())
    }

    fn programs(&mut self) -> Option<&mut Programs> {
        None
    }
}

impl Vital for SwitchVitals {
    fn set_lease(&mut self, until: u64) -> anyhow::Result<()> {
        Ok(Self::set_lease(self, until)?)
    }

    fn publish(&mut self) -> anyhow::Result<()> {
        Ok(Self::publish(self)?)
    }

    fn listen(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn look(&mut self) -> anyhow::Result<Option<Fault>> {
        Ok(Self::look(self)?)
    }

    fn notices(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}
