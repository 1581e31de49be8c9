//! An emulation that this process owns: it is changed, loses interfaces and gains them again, and ends.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use perturb_dataplane::{
    emulation::Timekeeper, netlink::Link, programs::Pacer, user::SpinBudget, watch::Fault,
};

pub use perturb_dataplane::programs::{ProcessorTime, Program, count_processor_time};

use crate::{
    conduct::Lease,
    confirm,
    keeper::Keeper,
    prepared::Prepared,
    registry::{Claim, InterfaceRecord, Record, Registry, RegistryError},
    seam::{Candidate, Emulated, Machine, Plane},
    setup::{Target, device_names},
    status::Report,
    tables::{Change, exchange},
    update::refuse_unsettled,
};

/// Wait for held packets when an emulation ends.
const DRAIN: Duration = Duration::from_secs(2);
/// How long packets may take from one device to the next.
const SETTLING: Duration = Duration::from_millis(500);

/// An emulation that this process owns. Dropping it takes it down: the parts are dropped in this order.
pub struct Running {
    /// What renews its lease, and finds out what others have changed.
    pub(crate) keeper: Keeper,
    /// Programs, tables and devices.
    pub(crate) plane: Box<dyn Plane>,
    /// Its record, as this process last saw it.
    pub record: Record,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) time: Timekeeper,
    pub(crate) lost: Vec<Lost>,
    pub(crate) claim: Claim,
}

/// An interface that is gone, and waited for.
pub(crate) struct Lost {
    gone: Emulated,
    /// Whether the record says so.
    is_noted: bool,
    /// An interface of that name that cannot be emulated.
    refused: Option<u32>,
}

impl Running {
    /// Puts another profile in force. It takes no lock of the registry: `clear`, which may wait for this process to end,
    /// holds that.
    pub fn put(&mut self, prepared: &Prepared) -> anyhow::Result<()> {
        self.refresh()?;
        let mut record = self.record.clone();
        exchange(&mut *self.plane, &mut record, Change::To(prepared))?;
        record.write()?;
        self.adopt(record);
        Ok(())
    }

    /// Puts another profile in force as `apply` does from another process, and is refused as that is; `false` if another command
    /// changes the emulation at this moment.
    pub fn change(&mut self, prepared: &Prepared) -> anyhow::Result<bool> {
        self.amend(|record, plane| {
            refuse_unsettled(record)?;
            exchange(plane, record, Change::To(prepared)).map(drop)
        })
    }

    /// Lets traffic pass untouched until it is to be emulated again; `false` as above.
    pub fn pause(&mut self, paused: bool) -> anyhow::Result<bool> {
        self.amend(|record, _| {
            record.terms.paused = paused;
            Ok(())
        })
    }

    /// Keeps what waits to be confirmed, whoever gave it; `false` as above.
    ///
    /// # Errors
    /// If it is too late.
    pub fn confirm(&mut self) -> anyhow::Result<bool> {
        self.amend(|record, _| confirm::keep(record).map(drop))
    }

    /// Undoes what nobody has confirmed, if that is due now: puts the profile before in force again. `true` if there was none:
    /// then everything is to be undone.
    pub(crate) fn undo(&mut self, is_due: impl FnOnce(&Record) -> bool) -> anyhow::Result<bool> {
        let mut is_all = false;
        // Under the registry's lock: it may be confirmed at this moment.
        self.amend(|record, plane| {
            if !is_due(record) {
                return Ok(());
            }
            match record.terms.confirm.take().and_then(|confirm| confirm.before) {
                None => is_all = true,
                Some(before) => {
                    exchange(plane, record, Change::Back(Box::new(before.in_force)))?;
                    record.terms.lease = before.lease;
                    record.terms.ends = before.ends;
                    record.terms.follow = before.follow;
                    log::info!("nobody has confirmed the change: the profile before is in force again");
                }
            }
            Ok(())
        })?;
        Ok(is_all)
    }

    /// Takes notice of what other commands have written into the record.
    pub(crate) fn refresh(&mut self) -> anyhow::Result<()> {
        if let Some(record) = self.record.again()? {
            self.adopt(record);
        }
        Ok(())
    }

    fn adopt(&mut self, record: Record) {
        if record.terms != self.record.terms {
            self.keeper.set_lease(lease(&record));
            self.keeper.set_outlive(record.terms.follow);
        }
        self.time = match record.in_force.fq {
            Some(options) => Timekeeper::Fq(options),
            None if record.pacer == Pacer::Switch.name() => Timekeeper::Switch,
            None => Timekeeper::User {
                spin: SpinBudget(Duration::from_nanos(record.spin)),
                limit: record.in_force.held,
            },
        };
        self.plane.adopt(&self.time);
        self.record = record;
    }

    /// Changes the record, as it is now on disk; `false` if another command is changing it now.
    pub(crate) fn amend(
        &mut self,
        change: impl FnOnce(&mut Record, &mut dyn Plane) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        let Some(_registry) = try_registry(&self.record)? else {
            return Ok(false);
        };
        self.refresh()?;
        let mut record = self.record.clone();
        change(&mut record, &mut *self.plane)?;
        if record != self.record {
            record.write()?;
            self.refresh()?;
        }
        Ok(true)
    }

    /// Lets go of an interface that is gone, and waits for another one of its name.
    pub(crate) fn lose(&mut self, fault: &Fault) -> anyhow::Result<()> {
        let mut interfaces = self.plane.interfaces()?.into_iter();
        if let Some(gone) = interfaces.find(|interface| interface.name == fault.interface) {
            self.let_go(gone.index)?;
        }
        self.watch_again()?;
        self.note_losses()
    }

    fn let_go(&mut self, index: u32) -> anyhow::Result<()> {
        if let Some(gone) = self.plane.remove(index)? {
            self.lost.push(Lost {
                gone,
                is_noted: false,
                refused: None,
            });
        }
        Ok(())
    }

    /// Writes into the record what is lost: whoever reads it compares indices. Another command that changes the registry may
    /// be waiting for this process to end; then it is to be tried again.
    fn note_losses(&mut self) -> anyhow::Result<()> {
        let lost: Vec<u32> = self
            .lost
            .iter()
            .filter(|lost| !lost.is_noted)
            .map(|lost| lost.gone.index)
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        let noted = self.amend(|record, _| {
            for interface in &mut record.interfaces {
                interface.lost |= lost.contains(&interface.index);
            }
            Ok(())
        })?;
        for lost in &mut self.lost {
            lost.is_noted |= noted;
        }
        Ok(())
    }

    /// Emulates on the interfaces that have come back.
    pub(crate) fn regain(&mut self) -> anyhow::Result<()> {
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
        let Some(link) = lost.successor(&*self.machine)? else {
            self.lost.push(lost);
            return Ok(());
        };
        let Some(_registry) = try_registry(&self.record)? else {
            self.lost.push(lost);
            return Ok(());
        };
        self.refresh()?;
        let (name, index) = (link.name.clone(), link.index);
        if let Err(error) = self.emulate_again(&lost, link) {
            if self.machine.has(&lost.gone.namespace, &name, index)? {
                return Err(error);
            }
            self.lost.push(lost);
            return Ok(());
        }
        self.watch_again()?;
        let emulated = self.plane.interfaces()?;
        if emulated.iter().any(|interface| interface.index == index) {
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
            namespace: lost.gone.namespace.try_clone()?,
            link,
            host: None,
            container: None,
            rank: lost.gone.rank,
            indices: [0; 4],
        };
        let names = device_names(&self.record.id, target.link.index, target.indices);
        let described = self.machine.describe(&target, &names)?;
        let is_it = |interface: &&mut InterfaceRecord| interface.lost && interface.name == described.name;
        if let Some(interface) = self.record.interfaces.iter_mut().find(is_it) {
            interface.index = described.index;
            interface.devices = described.devices;
            interface.made_clsact = described.made_clsact;
        }
        // Before the first device is made: whoever clears after a kill must know it.
        self.record.write()?;
        self.plane.add(&self.time, target, &names).map(drop)
    }

    /// Watches what is emulated now; lets go of what goes meanwhile.
    fn watch_again(&mut self) -> anyhow::Result<()> {
        loop {
            let error = match self.plane.vital() {
                Ok(vital) => {
                    self.keeper = Keeper::start(vital, lease(&self.record), self.record.terms.follow)?;
                    return Ok(());
                }
                Err(error) => error,
            };
            let mut gone = None;
            for interface in self.plane.interfaces()? {
                let Emulated {
                    namespace,
                    name,
                    index,
                    ..
                } = interface;
                if !self.machine.has(&namespace, &name, index)? {
                    gone = Some(index);
                }
            }
            match gone {
                Some(index) if self.record.terms.follow => self.let_go(index)?,
                _ => return Err(error),
            }
        }
    }

    /// What it has done, once no packet is between its devices; after half a second at the latest. Whoever measures is to look
    /// at its [`Report::faults`].
    pub fn settled(&mut self) -> anyhow::Result<Option<Report>> {
        let start = Instant::now();
        loop {
            let Some(mut report) = self.plane.report(&self.record)? else {
                return Ok(None);
            };
            if report.balance.unaccounted == 0 || start.elapsed() > SETTLING {
                report.faults = Some(report.faults());
                return Ok(Some(report));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What its program at a place has cost the processors so far, where the kernel counts it.
    pub fn processor_time(&mut self, program: Program) -> Option<ProcessorTime> {
        self.plane.programs()?.processor_time(program).ok()
    }

    /// Stops capturing, and waits for what is held, at most 2 s. How many packets are still held then: they are lost.
    pub(crate) fn drain(&mut self) -> anyhow::Result<u64> {
        self.plane.detach()?;
        let start = Instant::now();
        loop {
            let held = self.plane.held()?;
            if held == 0 || start.elapsed() > DRAIN {
                return Ok(held);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Takes the emulation down without waiting for what is held.
    pub fn abandon(self) -> anyhow::Result<()> {
        let Self {
            plane, keeper, claim, ..
        } = self;
        drop(keeper);
        let closed = plane.close();
        claim.end()?;
        closed
    }
}

impl Lost {
    /// An interface of its name that can be emulated.
    fn successor(&mut self, machine: &dyn Machine) -> anyhow::Result<Option<Link>> {
        let Emulated { namespace, name, .. } = &self.gone;
        let Some(Candidate { link, admitted }) = machine.candidate(namespace, name)? else {
            return Ok(None);
        };
        if self.refused == Some(link.index) {
            return Ok(None);
        }
        match admitted {
            Ok(caveats) => {
                for caveat in caveats {
                    log::warn!("{name}: {caveat}");
                }
                Ok(Some(link))
            }
            // What it cannot be asked any more is no reason.
            Err(_) if !machine.has(namespace, name, link.index)? => Ok(None),
            Err(error) => {
                self.refused = Some(link.index);
                log::info!("there is an interface {name} again, but {error:#}; waiting for another one");
                Ok(None)
            }
        }
    }
}

/// The registry, unless another command changes it now.
fn try_registry(record: &Record) -> anyhow::Result<Option<Registry>> {
    match Registry::at(&record.root, Duration::from_millis(200)) {
        Ok(registry) => Ok(Some(registry)),
        Err(RegistryError::Busy { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The lease that a record asks for.
fn lease(record: &Record) -> Lease {
    match record.terms.lease {
        _ if record.terms.paused => Lease::Paused,
        Some(length) => Lease::For(Duration::from_nanos(length)),
        None => Lease::Never,
    }
}
