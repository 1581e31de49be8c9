//! An emulation that this process owns: it is changed, loses interfaces and gains them again, and ends.

use std::time::Duration;

use anyhow::Context as _;
use perturb_dataplane::{
    attach::Clsact,
    emulation::{Emulation, Interface, Timekeeper},
    namespace::Namespace,
    netlink::{Link, Netlink, NetlinkError},
    programs::Pacer,
    user::SpinBudget,
    watch::Fault,
};

use crate::{
    admission::admit,
    conduct::Lease,
    keeper::Keeper,
    prepared::Prepared,
    registry::{Claim, InterfaceRecord, Record, Registry, RegistryError},
    setup::{Target, device_names},
};

/// Wait for held packets when an emulation ends.
const DRAIN: Duration = Duration::from_secs(2);

/// An emulation that this process owns. Dropping it takes it down: the parts are dropped in this order.
pub struct Running {
    /// What renews its lease, and finds out what others have changed.
    pub keeper: Keeper,
    /// Programs, tables and devices.
    pub emulation: Emulation,
    /// Its record, as this process last saw it.
    pub record: Record,
    pub(crate) timekeeper: Timekeeper,
    pub(crate) lost: Vec<Lost>,
    pub(crate) claim: Claim,
}

/// An interface that is gone, and waited for.
pub(crate) struct Lost {
    namespace: Namespace,
    name: String,
    index: u32,
    rank: u32,
    /// Whether the record says so.
    is_noted: bool,
    /// An interface of that name that cannot be emulated.
    refused: Option<u32>,
}

impl Running {
    /// Tells the pacer's figures to `perturb status`.
    pub fn publish(&mut self) -> anyhow::Result<()> {
        Ok(self.emulation.publish()?)
    }

    /// Fails if somebody else has changed what the emulation needs.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.keeper.trouble_now() {
            Some(trouble) => Err(trouble.into()),
            None => Ok(()),
        }
    }

    /// Changes the profile, which no other command does meanwhile.
    pub fn update(&mut self, prepared: &Prepared) -> anyhow::Result<()> {
        self.timekeeper = match self.timekeeper {
            Timekeeper::Fq(_) => Timekeeper::Fq(prepared.fq_options()),
            Timekeeper::User { spin, .. } => prepared.timekeeper(Pacer::User, spin),
        };
        Ok(self.emulation.update(&prepared.tables, &self.timekeeper)?)
    }

    /// Takes notice of what other commands have written into the record.
    pub fn refresh(&mut self) -> anyhow::Result<()> {
        let Some(record) = Record::read(&self.record.id)? else {
            return Ok(());
        };
        if record.terms != self.record.terms {
            self.keeper.set_lease(lease(&record));
            self.keeper.set_outlive(record.terms.follow);
        }
        self.timekeeper = match record.fq {
            Some(options) => Timekeeper::Fq(options),
            None => Timekeeper::User {
                spin: SpinBudget(Duration::from_nanos(record.spin)),
                limit: record.held,
            },
        };
        self.emulation.adopt(&self.timekeeper);
        self.record = record;
        Ok(())
    }

    /// Changes the record, as it is now on disk; `false` if another command is changing it now.
    pub fn amend(&mut self, change: impl FnOnce(&mut Record)) -> anyhow::Result<bool> {
        let Some(_registry) = try_registry()? else {
            return Ok(false);
        };
        self.refresh()?;
        let mut record = self.record.clone();
        change(&mut record);
        if record != self.record {
            record.write()?;
            self.refresh()?;
        }
        Ok(true)
    }

    /// Lets go of an interface that is gone, and waits for another one of its name.
    pub fn lose(&mut self, fault: &Fault) -> anyhow::Result<()> {
        let gone = |interface: &&Interface| interface.link().name == fault.interface;
        if let Some(interface) = self.emulation.interfaces().iter().find(gone) {
            let index = interface.link().index;
            self.let_go(index)?;
        }
        self.watch_again()?;
        self.note_losses()
    }

    fn let_go(&mut self, index: u32) -> anyhow::Result<()> {
        let gone = |interface: &&Interface| interface.link().index == index;
        if let Some(interface) = self.emulation.interfaces().iter().find(gone) {
            self.lost.push(Lost {
                namespace: interface.namespace().try_clone()?,
                name: interface.link().name.clone(),
                index,
                rank: interface.rank(),
                is_noted: false,
                refused: None,
            });
        }
        Ok(self.emulation.remove(index)?)
    }

    /// Writes into the record what is lost: whoever reads it compares indices. Another command that changes the registry may
    /// be waiting for this process to end; then it is to be tried again.
    fn note_losses(&mut self) -> anyhow::Result<()> {
        let lost: Vec<u32> = self
            .lost
            .iter()
            .filter(|lost| !lost.is_noted)
            .map(|lost| lost.index)
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        let noted = self.amend(|record| {
            for interface in &mut record.interfaces {
                interface.lost |= lost.contains(&interface.index);
            }
        })?;
        for lost in &mut self.lost {
            lost.is_noted |= noted;
        }
        Ok(())
    }

    /// Emulates on the interfaces that have come back.
    pub fn regain(&mut self) -> anyhow::Result<()> {
        self.note_losses()?;
        for lost in std::mem::take(&mut self.lost) {
            self.regain_one(lost)?;
        }
        Ok(())
    }

    /// Emulates on the interface of a lost one's name, if there is one that can be emulated, and goes on waiting otherwise:
    /// also if it goes again meanwhile.
    fn regain_one(&mut self, mut lost: Lost) -> anyhow::Result<()> {
        if !lost.is_noted {
            self.lost.push(lost);
            return Ok(());
        }
        let Some(link) = lost.successor()? else {
            self.lost.push(lost);
            return Ok(());
        };
        let Some(_registry) = try_registry()? else {
            self.lost.push(lost);
            return Ok(());
        };
        self.refresh()?;
        let (name, index) = (link.name.clone(), link.index);
        if let Err(error) = self.emulate_again(&lost, link) {
            if lost.is_there(index)? {
                return Err(error);
            }
            self.lost.push(lost);
            return Ok(());
        }
        self.watch_again()?;
        if self
            .emulation
            .interfaces()
            .iter()
            .any(|interface| interface.link().index == index)
        {
            if let Some(interface) = self
                .record
                .interfaces
                .iter_mut()
                .find(|interface| interface.index == index)
            {
                interface.lost = false;
            }
            self.record.write()?;
            log::info!("there is an interface {name} again; emulating on it");
        }
        Ok(())
    }

    fn emulate_again(&mut self, lost: &Lost, link: Link) -> anyhow::Result<()> {
        let target = Target {
            namespace: lost.namespace.try_clone()?,
            link,
            host: None,
            rank: lost.rank,
            indices: [0; 4],
        };
        let index = target.link.index;
        let names = device_names(&self.record.id, index, target.indices);
        let makes_clsact = || Clsact::is_missing(&mut Netlink::open()?, index);
        let made_clsact = lost.namespace.enter(makes_clsact)??;
        let is_it = |interface: &&mut InterfaceRecord| interface.lost && interface.name == lost.name;
        if let Some(interface) = self.record.interfaces.iter_mut().find(is_it) {
            interface.index = index;
            interface.devices = names.iter().map(Into::into).collect();
            interface.made_clsact = made_clsact;
        }
        // Before the first device is made: whoever clears after a kill must know it.
        self.record.write()?;
        Ok(self.emulation.add(
            &self.timekeeper,
            target.namespace,
            target.link,
            target.rank,
            &names,
        )?)
    }

    /// Watches what is emulated now; lets go of what goes meanwhile.
    fn watch_again(&mut self) -> anyhow::Result<()> {
        loop {
            let error = match self.emulation.vitals() {
                Ok(vitals) => {
                    self.keeper = Keeper::start(vitals, lease(&self.record), self.record.terms.follow)?;
                    return Ok(());
                }
                Err(error) => error,
            };
            let mut gone = None;
            for interface in self.emulation.interfaces() {
                let Link { name, index, .. } = interface.link();
                if !is_there(interface.namespace(), name, *index)? {
                    gone = Some(*index);
                }
            }
            match gone {
                Some(index) if self.record.terms.follow => self.let_go(index)?,
                _ => return Err(error.into()),
            }
        }
    }

    /// Takes the emulation down: captures first, then waits for what is held (at most 2 s), then
    /// removes devices and record. Says how many packets were lost with the devices.
    pub fn take_down(mut self) -> anyhow::Result<u64> {
        self.emulation.detach()?;
        let start = std::time::Instant::now();
        let lost = loop {
            let held = self.emulation.held()?;
            if held == 0 || start.elapsed() > DRAIN {
                break held;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        self.abandon()?;
        Ok(lost)
    }

    /// Takes the emulation down without waiting for what is held.
    pub fn abandon(self) -> anyhow::Result<()> {
        let Self {
            emulation,
            keeper,
            claim,
            ..
        } = self;
        drop(keeper);
        let closed = emulation.close();
        claim.end()?;
        closed.context("taking the emulation down")
    }
}

impl Lost {
    /// An interface of its name that can be emulated.
    fn successor(&mut self) -> anyhow::Result<Option<Link>> {
        let find = || {
            let mut netlink = Netlink::open()?;
            let links = netlink.links()?;
            let Some(link) = links.iter().find(|link| link.name == self.name) else {
                return Ok(None);
            };
            if self.refused == Some(link.index) {
                return Ok(None);
            }
            Ok::<_, NetlinkError>(Some((link.clone(), admit(&mut netlink, link, &links))))
        };
        let Some((link, admitted)) = self.namespace.enter(find)?? else {
            return Ok(None);
        };
        match admitted {
            Ok(caveats) => {
                for caveat in caveats {
                    log::warn!("{}: {caveat}", link.name);
                }
                Ok(Some(link))
            }
            // What it cannot be asked any more is no reason.
            Err(_) if !self.is_there(link.index)? => Ok(None),
            Err(error) => {
                self.refused = Some(link.index);
                log::info!(
                    "there is an interface {} again, but {error:#}; waiting for another one",
                    link.name
                );
                Ok(None)
            }
        }
    }

    fn is_there(&self, index: u32) -> anyhow::Result<bool> {
        is_there(&self.namespace, &self.name, index)
    }
}

/// Whether a namespace still has an interface, under its name.
fn is_there(namespace: &Namespace, name: &str, index: u32) -> anyhow::Result<bool> {
    let link = namespace.enter(|| Netlink::open()?.link_at(index))??;
    Ok(link.is_some_and(|link| link.name == name))
}

/// The registry, unless another command changes it now.
fn try_registry() -> anyhow::Result<Option<Registry>> {
    match Registry::open(Duration::from_millis(200)) {
        Ok(registry) => Ok(Some(registry)),
        Err(RegistryError::Busy { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The lease that a record asks for.
fn lease(record: &Record) -> Lease {
    match record.terms.lease {
        Some(length) => Lease::For(Duration::from_nanos(length)),
        None => Lease::Never,
    }
}
