//! What a session needs of the machine: traits, so that its course can be tested without root. `kernel` is the machine; `session/tests/fake.rs` stands in for it.

use std::{os::fd::BorrowedFd, path::Path};

use perturb_dataplane::{
    emulation::Timekeeper, hold::DeviceNames, loader::Slots, maps::MapIds, namespace::Namespace,
    netlink::Link, programs::Programs, survey::Caveat, watch::Fault,
};

use crate::{
    prepared::Prepared,
    registry::{InterfaceRecord, Record},
    setup::Target,
    status::Report,
    tables::Halves,
};

/// The machine on which an emulation begins.
pub(crate) trait Machine: Send + Sync {
    /// Gives up every capability that an emulation does not need.
    fn keep_needed(&self) -> anyhow::Result<()>;

    /// Raises what all emulations of the machine share.
    fn raise(&self) -> anyhow::Result<()>;

    /// What is recorded of an interface before anything is done to it.
    fn describe(&self, target: &Target, names: &DeviceNames) -> anyhow::Result<InterfaceRecord>;

    /// Loads programs and tables; nothing is emulated yet. Files that others are to find lie in `directory`.
    fn begin(
        &self,
        time: &Timekeeper,
        verbose: bool,
        prepared: &Prepared,
        directory: &Path,
    ) -> anyhow::Result<Begun>;

    /// The interface of a name, and whether it can be emulated, with what of its traffic is not.
    fn candidate(&self, namespace: &Namespace, name: &str) -> anyhow::Result<Option<Candidate>>;

    /// Whether a namespace still has an interface, under its name.
    fn has(&self, namespace: &Namespace, name: &str, index: u32) -> anyhow::Result<bool>;

    /// Index and packets, both ways, of the interfaces of this namespace.
    fn carried(&self) -> anyhow::Result<Vec<(u32, u64)>>;
}

/// An interface that may be emulated.
pub(crate) struct Candidate {
    /// Which.
    pub(crate) link: Link,
    /// Why not, or what of its traffic is not.
    pub(crate) admitted: anyhow::Result<Vec<Caveat>>,
}

/// Programs and tables that were loaded.
pub(crate) struct Begun {
    /// What they are.
    pub(crate) plane: Box<dyn Plane>,
    /// The maps.
    pub(crate) maps: MapIds,
    /// Where the servers are.
    pub(crate) slots: Slots,
}

/// An emulation of this process: programs, tables, devices. Dropping it takes it down.
pub(crate) trait Plane: Halves + Send {
    /// Lets the programs emulate until `until`, CLOCK_MONOTONIC ns; `u64::MAX` for ever.
    fn set_lease(&mut self, until: u64) -> anyhow::Result<()>;

    /// Puts an interface under emulation; whether its clsact qdisc was made for it.
    fn add(&mut self, time: &Timekeeper, target: Target, names: &DeviceNames) -> anyhow::Result<bool>;

    /// Lets go of an interface that is gone; what it was.
    fn remove(&mut self, index: u32) -> anyhow::Result<Option<Emulated>>;

    /// The interfaces.
    fn interfaces(&self) -> anyhow::Result<Vec<Emulated>>;

    /// What a thread of its own needs to keep it alive; it watches the interfaces that there are now.
    fn vital(&mut self) -> anyhow::Result<Box<dyn Vital>>;

    /// Takes notice of what the user pacer may hold from now on.
    fn adopt(&mut self, time: &Timekeeper);

    /// What it has done so far; nothing if it is gone.
    fn report(&mut self, record: &Record) -> anyhow::Result<Option<Report>>;

    /// Stops capturing; what is held still leaves at its time.
    fn detach(&mut self) -> anyhow::Result<()>;

    /// Packets that wait for their departure.
    fn held(&self) -> anyhow::Result<u64>;

    /// Takes everything down; what is still held is lost.
    fn close(self: Box<Self>) -> anyhow::Result<()>;

    /// The programs, where there are any.
    fn programs(&mut self) -> Option<&mut Programs>;
}

/// An interface under emulation.
pub(crate) struct Emulated {
    /// Its namespace.
    pub(crate) namespace: Namespace,
    /// Its name.
    pub(crate) name: String,
    /// Its index.
    pub(crate) index: u32,
    /// [`perturb_common::abi::Attachment::rank`].
    pub(crate) rank: u32,
}

/// What keeps an emulation alive, apart from the emulation itself: for a thread of its own.
pub(crate) trait Vital: Send {
    /// Lets the programs emulate until `until`, CLOCK_MONOTONIC ns; `u64::MAX` for ever, 0 no more.
    fn set_lease(&mut self, until: u64) -> anyhow::Result<()>;

    /// Tells the figures of pacer and devices to those who read the maps.
    fn publish(&mut self) -> anyhow::Result<()>;

    /// Takes what was heard of changes.
    fn listen(&mut self) -> anyhow::Result<()>;

    /// Looks whether everything is as it was; the first fault found.
    fn look(&mut self) -> anyhow::Result<Option<Fault>>;

    /// What to wait at for news of changes.
    fn notices(&self) -> Vec<BorrowedFd<'_>>;
}
