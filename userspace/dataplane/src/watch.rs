//! Whether the devices and programs of an emulation are still what they were when it began: others may delete, rename,
//! move, or set down interfaces, replace qdiscs, and detach programs. Notices of the kernel ([`Notices`]) say when to look.

use std::{collections::BTreeSet, fmt};

use crate::{
    attach::{AttachError, Side, programs_at},
    emulation::EmulationError,
    hold::DeviceNames,
    namespace::Namespace,
    netlink::{Link, Netlink, NetlinkError, Notices},
    programs::Program,
};

/// Looks in a row before an error counts: what is looked at may change meanwhile.
const LOOKS: usize = 3;

/// What has happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was deleted.
    Deleted,
    /// It has another name.
    Renamed(String),
    /// It is in another network namespace.
    Moved,
    /// It was set down.
    Down,
    /// Its root qdisc is another.
    Qdisc(Option<String>),
    /// A program of perturb's is not at this side any more.
    Detached(Program, Side),
    /// The thread that keeps the time cannot use its TAP any more.
    Dead,
}

/// Something that an emulation needs was changed by somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The interface under emulation.
    pub interface: String,
    /// The device: the interface itself, or one of perturb's.
    pub device: String,
    /// What has happened to it.
    pub change: Change,
}

impl Fault {
    /// Whether the interface itself is not there any more: another one may come under its name.
    #[must_use]
    pub fn is_loss_of_interface(&self) -> bool {
        self.device == self.interface
            && matches!(self.change, Change::Deleted | Change::Renamed(_) | Change::Moved)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            interface,
            device,
            change,
        } = self;
        let made_for = if device == interface {
            String::new()
        } else {
            format!(", which perturb made for {interface},")
        };
        match change {
            Change::Deleted => write!(f, "{device}{made_for} was deleted"),
            Change::Renamed(name) => write!(f, "{device}{made_for} was renamed to {name}"),
            Change::Moved => write!(f, "{device}{made_for} was moved to another network namespace"),
            Change::Down => write!(f, "{device}{made_for} was set down"),
            Change::Qdisc(Some(kind)) => write!(f, "{device}{made_for} has another root qdisc ({kind})"),
            Change::Qdisc(None) => write!(f, "{device}{made_for} has no root qdisc any more"),
            Change::Detached(program, side) => write!(
                f,
                "{device}{made_for} has lost the program {} from its {}",
                program.name(),
                side
            ),
            Change::Dead => write!(f, "{device}{made_for} cannot be read any more"),
        }
    }
}

/// A device as it was.
#[derive(Clone, Debug)]
struct Device {
    link: Link,
    programs: Vec<(Program, Side, u32)>,
}

impl Device {
    /// Notes a device of the current namespace, and which of `ours` are at it.
    fn note(netlink: &mut Netlink, link: Link, ours: &[(Program, u32)]) -> Result<Self, AttachError> {
        let mut programs = Vec::new();
        for side in Side::BOTH {
            let there = programs_at(netlink, &link, side)?;
            let those = ours.iter().filter(|(_, id)| there.contains(id));
            programs.extend(those.map(|&(program, id)| (program, side, id)));
        }
        Ok(Self { link, programs })
    }

    /// What has happened to it; `own`: it is one of perturb's devices, on which nothing may change.
    fn changed(&self, netlink: &mut Netlink, own: bool) -> Result<Option<Change>, AttachError> {
        let Some(now) = netlink.link_at(self.link.index)? else {
            return Ok(Some(Change::Deleted));
        };
        if now.name != self.link.name {
            return Ok(Some(Change::Renamed(now.name)));
        }
        if own && self.link.up && !now.up {
            return Ok(Some(Change::Down));
        }
        // Only sch_fq keeps the time; another qdisc on a TAP or a splitter drops at worst, and that is counted.
        let keeps_time = matches!(self.link.qdisc.as_deref(), Some("fq" | "mq"));
        if own && keeps_time && self.link.qdisc != now.qdisc {
            return Ok(Some(Change::Qdisc(now.qdisc)));
        }
        for side in Side::BOTH {
            let expected = || self.programs.iter().filter(|(_, at, _)| *at == side);
            if expected().next().is_none() {
                continue;
            }
            let there = programs_at(netlink, &now, side)?;
            if let Some(&(program, ..)) = expected().find(|(_, _, id)| !there.contains(id)) {
                // A device that is deleted loses its programs, and may have been there a moment ago.
                let is_there = netlink.link_at(self.link.index)?.is_some();
                return Ok(Some(if is_there {
                    Change::Detached(program, side)
                } else {
                    Change::Deleted
                }));
            }
        }
        Ok(None)
    }
}

/// An interface under emulation, its devices, and what is heard of them.
pub struct Watched {
    namespace: Namespace,
    /// The interface first, then perturb's devices.
    devices: Vec<Device>,
    notices: Notices,
    moved: BTreeSet<u32>,
}

impl Watched {
    /// Begins to watch an interface, in its namespace. `names` are those of perturb's devices, `ours` its programs.
    pub fn begin(
        namespace: Namespace,
        link: &Link,
        names: &DeviceNames,
        ours: &[(Program, u32)],
    ) -> Result<Self, AttachError> {
        // What happens from now on is heard.
        let notices = Notices::open()?;
        let mut netlink = Netlink::open()?;
        let mut devices = vec![Device::note(&mut netlink, link.clone(), ours)?];
        for name in names.iter() {
            // The TAP has no far end.
            if let Some(link) = netlink.link(name)? {
                devices.push(Device::note(&mut netlink, link, ours)?);
            }
        }
        Ok(Self {
            namespace,
            devices,
            notices,
            moved: BTreeSet::new(),
        })
    }

    /// Where notices come from, to wait for them.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Takes what was heard; whether there was anything.
    pub fn listen(&mut self) -> Result<bool, NetlinkError> {
        let heard = self.notices.take()?;
        self.moved.extend(heard.moved);
        Ok(heard.any)
    }

    /// Looks at every device; the first fault found. Blocks for some system calls.
    pub fn look(&mut self) -> Result<Option<Fault>, EmulationError> {
        let Some(mut fault) = self.first_fault()? else {
            return Ok(None);
        };
        if fault.change == Change::Deleted {
            // An interface that moves is out of sight in one namespace before the notice says so.
            self.listen()?;
            let gone = self
                .devices
                .iter()
                .find(|device| device.link.name == fault.device);
            if gone.is_some_and(|device| self.moved.contains(&device.link.index)) {
                fault.change = Change::Moved;
            }
        }
        Ok(Some(fault))
    }

    fn first_fault(&self) -> Result<Option<Fault>, EmulationError> {
        let look = || -> Result<Option<Fault>, AttachError> {
            let mut netlink = Netlink::open()?;
            let Some(interface) = self.devices.first() else {
                return Ok(None);
            };
            for (place, device) in self.devices.iter().enumerate() {
                let mut looks = 1;
                let changed = loop {
                    match device.changed(&mut netlink, place != 0) {
                        Err(_) if looks < LOOKS => looks += 1,
                        changed => break changed?,
                    }
                };
                if let Some(change) = changed {
                    return Ok(Some(Fault {
                        interface: interface.link.name.clone(),
                        device: device.link.name.clone(),
                        change,
                    }));
                }
            }
            Ok(None)
        };
        Ok(self.namespace.enter(look).map_err(EmulationError::Namespace)??)
    }

    /// The fault of a device that its pacer cannot use any more; `None` if it belongs to another interface.
    #[must_use]
    pub fn dead(&self, index: u32) -> Option<Fault> {
        let device = self.devices.iter().find(|device| device.link.index == index)?;
        Some(Fault {
            interface: self.devices.first()?.link.name.clone(),
            device: device.link.name.clone(),
            change: Change::Dead,
        })
    }
}
