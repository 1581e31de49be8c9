//! A machine in memory, for tests of a session's course without root. It notes what is done to it, in order, and does what a
//! test has prepared: interference, packets that get lost, interfaces that come back.

use std::{
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use perturb_common::tables::Tables;
use perturb_dataplane::{
    emulation::Timekeeper,
    hold::DeviceNames,
    loader::Slots,
    maps::MapIds,
    namespace::Namespace,
    netlink::{FqOptions, Link},
    programs::Programs,
    watch::Fault,
};

use crate::{
    prepared::Prepared,
    registry::{InterfaceRecord, Record},
    seam::{Begun, Candidate, Emulated, Machine, Plane, Vital},
    setup::Target,
    status::Report,
    tables::Halves,
};

/// The machine; its clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Fake(Arc<Mutex<State>>);

/// What it is, and what was done to it.
#[derive(Default)]
pub(super) struct State {
    /// What was done, in order, renewals of the lease and looks apart.
    pub(super) done: Vec<&'static str>,
    /// Until when the programs emulate.
    pub(super) lease: u64,
    /// What somebody else does next.
    pub(super) fault: Option<Fault>,
    /// The interface that is there again.
    pub(super) back: Option<u32>,
    /// Reports until the balance comes out.
    pub(super) unsettled: u32,
    /// Packets that the pacer has dropped.
    pub(super) dropped: u64,
    /// Packets that wait.
    pub(super) held: u64,
    /// Interfaces: name and index.
    interfaces: Vec<(String, u32)>,
}

impl Fake {
    /// Its state.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: &'static str) {
        self.state().done.push(what);
    }

    /// Whether nothing emulates any more.
    pub(super) fn is_down(&self) -> bool {
        self.state().done.last() == Some(&"close")
    }
}

/// An interface of this process's namespace, made up.
pub(super) fn link(name: &str, index: u32) -> Link {
    Link {
        index,
        name: name.into(),
        alias: None,
        mtu: 1500,
        ethernet: true,
        loopback: false,
        up: true,
        qdisc: None,
        kind: None,
        queues: 1,
        lower: None,
        external: false,
        offloads_macsec: false,
        xdp: None,
        switch_port: false,
        packets: 0,
    }
}

impl Machine for Fake {
    fn keep_needed(&self) -> anyhow::Result<()> {
        Ok(())
    }

    fn raise(&self) -> anyhow::Result<()> {
        Ok(())
    }

    fn describe(&self, target: &Target, names: &DeviceNames) -> anyhow::Result<InterfaceRecord> {
        Ok(InterfaceRecord {
            name: target.link.name.clone(),
            index: target.link.index,
            host: None,
            container: None,
            namespace: target.namespace.inode()?,
            devices: names.iter().map(Into::into).collect(),
            made_clsact: false,
            settings: Vec::new(),
            lost: false,
        })
    }

    fn begin(&self, _: &Timekeeper, _: bool, _: &Prepared, _: &std::path::Path) -> anyhow::Result<Begun> {
        self.note("begin");
        Ok(Begun {
            plane: Box::new(self.clone()),
            maps: MapIds::default(),
            slots: Slots::default(),
        })
    }

    fn candidate(&self, _: &Namespace, name: &str) -> anyhow::Result<Option<Candidate>> {
        Ok(self.state().back.map(|index| Candidate {
            link: link(name, index),
            admitted: Ok(Vec::new()),
        }))
    }

    fn has(&self, _: &Namespace, _: &str, _: u32) -> anyhow::Result<bool> {
        Ok(true)
    }

    fn carried(&self) -> anyhow::Result<Vec<(u32, u64)>> {
        Ok(Vec::new())
    }
}

impl Halves for Fake {
    fn load(&mut self, _: &Record, _: &Tables, _: bool) -> anyhow::Result<Slots> {
        self.note("load");
        Ok(Slots::default())
    }

    fn go_back(&mut self, _: &Record, _: &Slots) -> anyhow::Result<()> {
        self.note("go back");
        Ok(())
    }

    fn set_fq(&mut self, _: &Record, _: FqOptions) -> anyhow::Result<()> {
        self.note("set fq");
        Ok(())
    }
}

impl Plane for Fake {
    fn set_lease(&mut self, until: u64) -> anyhow::Result<()> {
        self.state().lease = until;
        Ok(())
    }

    fn add(&mut self, _: &Timekeeper, target: Target, _: &DeviceNames) -> anyhow::Result<bool> {
        self.note("add");
        let interface = (target.link.name, target.link.index);
        self.state().interfaces.push(interface);
        Ok(false)
    }

    fn remove(&mut self, index: u32) -> anyhow::Result<Option<Emulated>> {
        self.note("remove");
        let mut interfaces = self.interfaces()?.into_iter();
        let gone = interfaces.find(|interface| interface.index == index);
        self.state().interfaces.retain(|(_, other)| *other != index);
        Ok(gone)
    }

    fn interfaces(&self) -> anyhow::Result<Vec<Emulated>> {
        let state = self.state();
        let interfaces = state.interfaces.iter().map(|(name, index)| {
            Ok(Emulated {
                namespace: Namespace::current()?,
                name: name.clone(),
                index: *index,
                rank: 0,
            })
        });
        interfaces.collect()
    }

    fn vital(&mut self) -> anyhow::Result<Box<dyn Vital>> {
        Ok(Box::new(Pulse(self.clone())))
    }

    fn adopt(&mut self, _: &Timekeeper) {}

    fn report(&mut self, record: &Record) -> anyhow::Result<Option<Report>> {
        let mut state = self.state();
        let mut report = Report {
            id: record.id.clone(),
            updates: record.updates,
            ..Report::default()
        };
        report.unintended.pacer = state.dropped;
        if state.unsettled > 0 {
            state.unsettled -= 1;
            report.balance.unaccounted = 1;
        } else {
            state.done.push("settled");
        }
        Ok(Some(report))
    }

    fn detach(&mut self) -> anyhow::Result<()> {
        self.note("detach");
        Ok(())
    }

    fn held(&self) -> anyhow::Result<u64> {
        let mut state = self.state();
        state.held = state.held.saturating_sub(1);
        Ok(state.held)
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        self.note("close");
        Ok(())
    }

    fn programs(&mut self) -> Option<&mut Programs> {
        None
    }
}

/// What the keeper's thread has.
struct Pulse(Fake);

impl Vital for Pulse {
    fn set_lease(&mut self, until: u64) -> anyhow::Result<()> {
        self.0.state().lease = until;
        Ok(())
    }

    fn publish(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn listen(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn look(&mut self) -> anyhow::Result<Option<Fault>> {
        Ok(self.0.state().fault.take())
    }

    fn notices(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}
