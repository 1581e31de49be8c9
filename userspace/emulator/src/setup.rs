//! Sets an emulation up on a set of interfaces: the record first, then devices and programs.

use std::{sync::Arc, time::SystemTime};

use anyhow::Context as _;
use perturb_clock::now;
use perturb_dataplane::{
    emulation::Timekeeper, hold::DeviceNames, loader::Slots, maps::MapIds, namespace::Namespace,
    netlink::Link, programs::Pacer, user::SpinBudget,
};

use crate::{
    conduct::Conduct,
    keeper::Keeper,
    prepared::Prepared,
    registry::{self, Contained, Process, Record, Registry, terms::Terms},
    running::Running,
    seam::{Begun, Machine, Plane},
};

/// An interface to be put under emulation.
pub struct Target {
    /// Its namespace.
    pub namespace: Namespace,
    /// The interface.
    pub link: Link,
    /// The private host that has it.
    pub host: Option<String>,
    /// The container that has it.
    pub container: Option<Contained>,
    /// [`perturb_common::abi::Attachment::rank`].
    pub rank: u32,
    /// Indices for its devices, or zeros.
    pub indices: [u32; 4],
}

/// Sets an emulation up; it begins interface by interface, under the lease.
pub(crate) fn set_up(
    machine: &Arc<dyn Machine>,
    registry: &Registry,
    id: &str,
    prepared: &Prepared,
    targets: Vec<Target>,
    conduct: Conduct,
) -> anyhow::Result<Running> {
    let pacer = conduct.pacing.choice.decide()?;
    if pacer == Pacer::Fq && conduct.pacing.spin != SpinBudget::default() {
        log::info!("--spin is for the pacers user and switch; with fq the kernel keeps the time");
    }
    let names: Vec<DeviceNames> = targets
        .iter()
        .map(|target| device_names(id, target.link.index, target.indices))
        .collect();
    let interfaces = targets.iter().zip(&names);
    let interfaces = interfaces.map(|(target, names)| machine.describe(target, names));
    let time = prepared.timekeeper(pacer, conduct.pacing.spin);
    let fq = match time {
        Timekeeper::Fq(options) => Some(options),
        Timekeeper::User { .. } | Timekeeper::Switch => None,
    };
    let mut record = Record {
        format: registry::FORMAT,
        id: id.into(),
        process: Process::current().context("asking the kernel which process this is")?,
        pacer: pacer.name().into(),
        ready: false,
        interfaces: interfaces.collect::<anyhow::Result<_>>()?,
        in_force: prepared.in_force(fq, Slots::default()),
        maps: MapIds::default(),
        since: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |time| time.as_secs()),
        updates: 0,
        spin: conduct.pacing.spin.0.as_nanos().try_into().unwrap_or(u64::MAX),
        detached: conduct.detached,
        terms: Terms::default(),
        root: registry.root().into(),
    };
    let claim = record.begin()?;
    machine.raise()?;
    let begun = machine.begin(&time, conduct.verbose, prepared, &record.directory())?;
    let (plane, keeper) = attach(&mut record, begun, targets, &names, &time, conduct)?;
    Ok(Running {
        keeper,
        plane,
        record,
        machine: Arc::clone(machine),
        time,
        lost: Vec::new(),
        claim,
    })
}

fn attach(
    record: &mut Record,
    begun: Begun,
    targets: Vec<Target>,
    names: &[DeviceNames],
    time: &Timekeeper,
    conduct: Conduct,
) -> anyhow::Result<(Box<dyn Plane>, Keeper)> {
    let Begun {
        mut plane,
        maps,
        slots,
    } = begun;
    record.maps = maps;
    record.in_force.slots = slots;
    // Whoever clears after a kill knows the filters by their maps.
    record.write()?;
    plane.set_lease(conduct.lease.until(now()))?;
    for ((target, names), recorded) in targets.into_iter().zip(names).zip(&mut record.interfaces) {
        recorded.made_clsact = plane.add(time, target, names)?;
    }
    let keeper = Keeper::start(plane.vital()?, conduct.lease, conduct.follow)?;
    record.ready = true;
    record.terms = conduct.terms();
    record.write()?;
    Ok((plane, keeper))
}

/// Names that say what they are and cannot clash between interfaces of a namespace.
pub(crate) fn device_names(id: &str, index: u32, indices: [u32; 4]) -> DeviceNames {
    let name = |what: &str| format!("pt{what}{index}");
    DeviceNames {
        hold: [name("hold"), name("out")],
        split: [name("split"), name("cut")],
        indices,
        alias: Record::alias(id),
    }
}
