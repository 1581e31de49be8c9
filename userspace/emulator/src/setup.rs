//! Sets an emulation up on a set of interfaces: the record first, then devices and programs.

use std::time::SystemTime;

use anyhow::Context as _;
use perturb_clock::now;
use perturb_dataplane::{
    attach::Clsact,
    emulation::{Emulation, Timekeeper},
    hold::DeviceNames,
    loader::Slots,
    loopback, machine,
    maps::MapIds,
    namespace::Namespace,
    netlink::{Link, Netlink},
};

use crate::{
    conduct::{Conduct, pacer_name},
    keeper::Keeper,
    prepared::Prepared,
    registry::{self, InterfaceRecord, Process, Record, Registry, terms::Terms},
    running::Running,
};

/// An interface to be put under emulation.
pub struct Target {
    /// Its namespace.
    pub namespace: Namespace,
    /// The interface.
    pub link: Link,
    /// The private host that has it.
    pub host: Option<String>,
    /// [`perturb_common::abi::Attachment::rank`].
    pub rank: u32,
    /// Indices for its devices, or zeros.
    pub indices: [u32; 4],
}

/// Sets an emulation up; it begins interface by interface, under the lease.
pub fn set_up(
    _registry: &Registry,
    id: &str,
    prepared: &Prepared,
    targets: Vec<Target>,
    conduct: Conduct,
) -> anyhow::Result<Running> {
    let pacer = conduct.pacing.choice.decide()?;
    let names: Vec<DeviceNames> = targets
        .iter()
        .map(|target| device_names(id, target.link.index, target.indices))
        .collect();
    let interfaces = targets.iter().zip(&names).map(|(target, names)| {
        let index = target.link.index;
        let makes_clsact = || Clsact::is_missing(&mut Netlink::open()?, index);
        Ok(InterfaceRecord {
            name: target.link.name.clone(),
            index,
            host: target.host.clone(),
            namespace: target.namespace.inode()?,
            devices: names.iter().map(Into::into).collect(),
            made_clsact: target.namespace.enter(makes_clsact)??,
            settings: if target.link.loopback {
                target.namespace.enter(loopback::needed)??
            } else {
                Vec::new()
            },
            lost: false,
        })
    });
    let timekeeper = prepared.timekeeper(pacer, conduct.pacing.spin);
    let mut record = Record {
        format: registry::FORMAT,
        id: id.into(),
        process: Process::current().context("asking the kernel which process this is")?,
        pacer: pacer_name(pacer).into(),
        ready: false,
        interfaces: interfaces.collect::<anyhow::Result<_>>()?,
        profile: prepared.profile.to_string(),
        classes: prepared.tables.class_names.clone(),
        servers: prepared.tables.server_names.clone(),
        slots: Slots::default(),
        maps: MapIds::default(),
        since: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |time| time.as_secs()),
        updates: 0,
        fq: match timekeeper {
            Timekeeper::Fq(options) => Some(options),
            Timekeeper::User { .. } => None,
        },
        spin: conduct.pacing.spin.0.as_nanos().try_into().unwrap_or(u64::MAX),
        held: prepared.tables.held,
        detached: conduct.detached,
        terms: Terms::default(),
    };
    let claim = record.begin()?;
    registry::raised::raise(&machine::BACKLOG)?;
    let (emulation, keeper) = attach(&mut record, prepared, targets, &names, &timekeeper, conduct)?;
    Ok(Running {
        keeper,
        emulation,
        record,
        timekeeper,
        lost: Vec::new(),
        claim,
    })
}

fn attach(
    record: &mut Record,
    prepared: &Prepared,
    targets: Vec<Target>,
    names: &[DeviceNames],
    timekeeper: &Timekeeper,
    conduct: Conduct,
) -> anyhow::Result<(Emulation, Keeper)> {
    let mut emulation = Emulation::new(timekeeper, conduct.verbose, &prepared.tables)?;
    record.maps = emulation.map_ids()?;
    record.slots = emulation.loader().slots().clone();
    // Whoever clears after a kill knows the filters by their maps.
    record.write()?;
    emulation.loader().set_lease(conduct.lease.until(now()))?;
    for (target, names) in targets.into_iter().zip(names) {
        emulation.add(timekeeper, target.namespace, target.link, target.rank, names)?;
    }
    for (recorded, interface) in record.interfaces.iter_mut().zip(emulation.interfaces()) {
        recorded.made_clsact = interface.made_clsact();
    }
    let keeper = Keeper::start(emulation.vitals()?, conduct.lease, conduct.follow)?;
    record.ready = true;
    record.terms = conduct.terms();
    record.write()?;
    Ok((emulation, keeper))
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
