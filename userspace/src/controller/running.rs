//! An emulation that this process owns: it is changed, loses interfaces and gains them again, and ends.

use std::time::Duration;

use anyhow::Context as _;
use perturb_dataplane::{
    attach::Clsact,
    emulation::{Emulation, Interface, Timekeeper},
    namespace::Namespace,
    netlink::Netlink,
    programs::Pacer,
    user::SpinBudget,
    watch::Fault,
};

use super::{
    Lease,
    keeper::Keeper,
    setup::{Prepared, Target, device_names},
};
use crate::registry::{InterfaceRecord, Lock, Record, Registry, RegistryError};

/// Wait for held packets when an emulation ends.
const DRAIN: Duration = Duration::from_secs(2);

/// An emulation that this process owns.
pub struct Running {
    /// Programs, tables and devices.
    pub emulation: Emulation,
    /// Its record, as this process last saw it.
    pub record: Record,
    /// What renews its lease, and finds out what others have changed.
    pub keeper: Keeper,
    pub(super) timekeeper: Timekeeper,
    pub(super) lost: Vec<Lost>,
    pub(super) _owner: Lock,
}

/// An interface that is gone, and waited for.
pub(super) struct Lost {
    namespace: Namespace,
    name: String,
    rank: u32,
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
        let interface = self
            .emulation
            .interfaces()
            .iter()
            .find(gone)
            .context("an interface was lost that is not emulated")?;
        let index = interface.link().index;
        self.lost.push(Lost {
            namespace: interface.namespace().try_clone()?,
            name: fault.interface.clone(),
            rank: interface.rank(),
        });
        self.emulation.remove(index)?;
        self.watch_again()?;
        // Whoever reads the record meanwhile compares indices.
        while !self.amend(|record| {
            for interface in &mut record.interfaces {
                interface.lost |= interface.index == index;
            }
        })? {}
        Ok(())
    }

    /// Emulates on the interfaces that have come back; their names.
    pub fn regain(&mut self) -> anyhow::Result<Vec<String>> {
        let mut regained = Vec::new();
        for lost in std::mem::take(&mut self.lost) {
            if self.regain_one(&lost)? {
                regained.push(lost.name);
            } else {
                self.lost.push(lost);
            }
        }
        Ok(regained)
    }

    fn regain_one(&mut self, lost: &Lost) -> anyhow::Result<bool> {
        let Some(link) = lost.namespace.enter(|| Netlink::open()?.link(&lost.name))?? else {
            return Ok(false);
        };
        let Some(_registry) = try_registry()? else {
            return Ok(false);
        };
        self.refresh()?;
        let target = Target {
            namespace: lost.namespace.try_clone()?,
            link,
            host: None,
            rank: lost.rank,
            indices: [0; 4],
        };
        let index = target.link.index;
        let names = device_names(&self.record.id, &target);
        let makes_clsact = || Clsact::is_missing(&mut Netlink::open()?, index);
        let made_clsact = lost.namespace.enter(makes_clsact)??;
        let is_it = |interface: &InterfaceRecord| interface.lost && interface.name == lost.name;
        if let Some(interface) = self
            .record
            .interfaces
            .iter_mut()
            .find(|interface| is_it(interface))
        {
            interface.index = index;
            interface.devices = names.iter().map(Into::into).collect();
            interface.made_clsact = made_clsact;
        }
        // Before the first device is made: whoever clears after a kill must know it.
        self.record.write()?;
        self.emulation.add(
            &self.timekeeper,
            target.namespace,
            target.link,
            target.rank,
            &names,
        )?;
        self.watch_again()?;
        if let Some(interface) = self
            .record
            .interfaces
            .iter_mut()
            .find(|interface| is_it(interface))
        {
            interface.lost = false;
        }
        self.record.write()?;
        Ok(true)
    }

    fn watch_again(&mut self) -> anyhow::Result<()> {
        self.keeper = Keeper::start(
            self.emulation.vitals()?,
            lease(&self.record),
            self.record.terms.follow,
        )?;
        Ok(())
    }

    /// Takes the emulation down: captures first, then waits for what is held (at most 2 s), then
    /// removes devices and record. Says how many packets were lost with the devices.
    pub fn take_down(mut self) -> anyhow::Result<u64> {
        self.emulation.detach()?;
        let start = std::time::Instant::now();
        let lost = loop {
            let mut held = 0;
            for interface in self.emulation.interfaces() {
                held += interface.held()?;
            }
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
            record,
            keeper,
            ..
        } = self;
        drop(keeper);
        drop(emulation);
        Ok(record.remove()?)
    }
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
