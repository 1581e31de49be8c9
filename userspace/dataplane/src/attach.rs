//! Attaching programs: by TCX where the kernel has it (6.6), else by the clsact qdisc.

use std::{
    fmt,
    io::{self, ErrorKind, Write as _},
    mem,
};

use aya::{
    programs::{
        ProgramError, ProgramInfo, SchedClassifier, TcAttachType,
        links::{Link as _, LinkOrder},
        loaded_programs,
        tc::{NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle},
    },
    util::KernelVersion,
};

use crate::{
    maps::MapIds,
    netlink::{Hook, Link, Netlink, NetlinkError},
    programs::{LoadError, Program, Programs},
};

/// Priority of perturb's clsact filters, unless others have a lower one: perturb comes before them.
pub const FILTER_PRIORITY: u16 = 0x7065; // "pe"
/// Handle of perturb's clsact filters.
pub const FILTER_HANDLE: u32 = 1;

/// Why a program could not be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// It did not load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel would not attach or detach it.
    #[error("attaching or detaching {program} at {interface}: {source}")]
    Attach {
        program: &'static str,
        /// Where to.
        interface: String,
        /// The kernel's answer.
        source: ProgramError,
    },
    /// The clsact qdisc.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The kernel's list of programs.
    #[error("listing the loaded programs: {0}")]
    Programs(ProgramError),
}

/// The kernel's numbers of the programs at a side of an interface of the current namespace, by the way in which
/// this kernel attaches perturb's.
pub fn programs_at(netlink: &mut Netlink, link: &Link, side: Side) -> Result<Vec<u32>, AttachError> {
    if has_tcx() {
        let (_, programs) =
            SchedClassifier::query_tcx(&link.name, side.into()).map_err(AttachError::Programs)?;
        return Ok(programs.iter().map(ProgramInfo::id).collect());
    }
    let filters = netlink.bpf_filters(link.index, side.into())?;
    Ok(filters.iter().map(|filter| filter.program).collect())
}

/// Which side of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What it sends.
    Egress,
    /// What it receives.
    Ingress,
}

impl Side {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Egress, Self::Ingress];
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        })
    }
}

impl From<Side> for TcAttachType {
    fn from(side: Side) -> Self {
        match side {
            Side::Egress => Self::Egress,
            Side::Ingress => Self::Ingress,
        }
    }
}

impl From<Side> for Hook {
    fn from(side: Side) -> Self {
        match side {
            Side::Egress => Self::Egress,
            Side::Ingress => Self::Ingress,
        }
    }
}

/// Programs and filters of others at a side of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Those that perturb comes before.
    pub after: Vec<String>,
    /// Those that come before perturb all the same: filters of the lowest priority, where TCX is missing.
    pub before: Vec<String>,
}

impl Others {
    /// Those at an interface of the current namespace where perturb is not yet.
    pub fn at(netlink: &mut Netlink, link: &Link, side: Side) -> Result<Self, AttachError> {
        let mut others = Self::default();
        if has_tcx() {
            let (_, programs) =
                SchedClassifier::query_tcx(&link.name, side.into()).map_err(AttachError::Programs)?;
            let name = |program: &ProgramInfo| format!("program {}", program.name_as_str().unwrap_or("?"));
            others.after.extend(programs.iter().map(name));
        }
        for (kind, priority) in netlink.filters(link.index, side.into())? {
            let list = if priority <= LEAST_PRIORITY && !has_tcx() {
                &mut others.before
            } else {
                &mut others.after
            };
            list.push(format!("filter {kind} pref {priority}"));
        }
        Ok(others)
    }
}

/// Of clsact filters; 0 lets the kernel choose.
const LEAST_PRIORITY: u16 = 1;

/// A priority of a clsact filter that comes before all others at an interface, if there is one. One that is as low as need be
/// and not lower: the kernel gives filters without a priority the next one below.
fn first_priority(interface: &str, side: Side) -> Result<u16, AttachError> {
    let mut netlink = Netlink::open()?;
    let Some(link) = netlink.link(interface)? else {
        return Ok(FILTER_PRIORITY);
    };
    let filters = netlink.filters(link.index, side.into())?;
    let lowest = filters.iter().map(|&(_, priority)| priority).min();
    Ok(match lowest {
        Some(lowest) if lowest > LEAST_PRIORITY => FILTER_PRIORITY.min(lowest - 1),
        _ => FILTER_PRIORITY,
    })
}

/// Whether this kernel has TCX.
pub fn has_tcx() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0))
}

/// An attached program; dropping it detaches.
pub struct Attached {
    program: Program,
    interface: String,
    side: Side,
    id: u32,
    link: Option<SchedClassifierLink>,
}

impl Attached {
    /// Attaches a program to an interface of the current namespace, before all that are there. Without TCX the interface must
    /// have a clsact qdisc.
    pub fn new(
        programs: &mut Programs,
        program: Program,
        interface: &str,
        side: Side,
    ) -> Result<Self, AttachError> {
        let classifier: &mut SchedClassifier = programs.program(program)?;
        let id = classifier.info().map_err(AttachError::Programs)?.id();
        let options = if has_tcx() {
            TcAttachOptions::TcxOrder(LinkOrder::first())
        } else {
            TcAttachOptions::Netlink(NlOptions {
                priority: first_priority(interface, side)?,
                handle: TcHandle::from(FILTER_HANDLE),
                ..NlOptions::default()
            })
        };
        let link = classifier
            .attach_with_options(interface, side.into(), options)
            .and_then(|id| classifier.take_link(id))
            .map_err(|source| AttachError::Attach {
                program: program.name(),
                interface: interface.into(),
                source,
            })?;
        Ok(Self {
            program,
            interface: interface.into(),
            side,
            id,
            link: Some(link),
        })
    }

    /// Detaches it from the interface with this index, and says whether that worked. It may be gone already: others can
    /// take it off, or delete the interface.
    pub fn detach(mut self, index: u32) -> Result<(), AttachError> {
        let Some(Err(source)) = self.link.take().map(SchedClassifierLink::detach) else {
            return Ok(());
        };
        let mut netlink = Netlink::open()?;
        match netlink.link_at(index)? {
            Some(link) if programs_at(&mut netlink, &link, self.side)?.contains(&self.id) => {
                Err(AttachError::Attach {
                    program: self.program.name(),
                    interface: self.interface,
                    source,
                })
            }
            _ => Ok(()),
        }
    }

    /// Leaves it where it is: it goes with the interface, or, by TCX, with this process.
    pub(crate) fn leave(self) {
        mem::forget(self.link);
    }
}

/// The clsact qdisc of an interface, where TCX is missing. Dropping it removes the qdisc if it was
/// made here and nothing else uses it; it must happen in the interface's namespace.
pub struct Clsact {
    index: u32,
    made: bool,
}

impl Clsact {
    /// Whether [`Self::ensure`] would make it.
    pub fn is_missing(netlink: &mut Netlink, index: u32) -> Result<bool, NetlinkError> {
        Ok(!has_tcx() && !netlink.has_clsact(index)?)
    }

    /// Sees to it that the interface has one.
    pub fn ensure(netlink: &mut Netlink, index: u32) -> Result<Self, NetlinkError> {
        let made = !has_tcx() && netlink.add_clsact(index)?;
        Ok(Self { index, made })
    }

    /// Whether it was made here.
    #[must_use]
    pub fn made(&self) -> bool {
        self.made
    }

    /// Removes it if it was made here and carries no filter.
    pub fn remove(&mut self) -> Result<(), NetlinkError> {
        if !mem::take(&mut self.made) {
            return Ok(());
        }
        let mut netlink = Netlink::open()?;
        // Others may have deleted it, or its interface.
        if netlink.has_clsact(self.index)? && netlink.clsact_filters(self.index)? == 0 {
            netlink.delete_clsact(self.index)?;
        }
        Ok(())
    }

    /// Leaves it where it is.
    pub fn forget(mut self) {
        self.made = false;
    }
}

impl Drop for Clsact {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            let _ = writeln!(
                io::stderr(),
                "perturb: {error}; `tc qdisc del dev NAME clsact` deletes what is left at interface {}, if nobody else uses it",
                self.index
            );
        }
    }
}

/// Drops what a far end of the current namespace gets when `perturb_release` is gone. TCX links end with their process; a
/// clsact filter does not, and it runs after them. Without TCX, or where the kernel has no clsact, there is nothing to do
/// or nothing that can be done.
pub fn discard_the_rest(
    programs: &mut Programs,
    netlink: &mut Netlink,
    far: &str,
) -> Result<(), AttachError> {
    if !has_tcx() {
        return Ok(());
    }
    let Some(link) = netlink.link(far)? else {
        return Ok(());
    };
    match netlink.add_clsact(link.index) {
        Err(error) if error.is(libc::ENOENT) => return Ok(()),
        done => done?,
    };
    let failed = |source| AttachError::Attach {
        program: Program::Discard.name(),
        interface: far.into(),
        source,
    };
    let classifier = programs.program(Program::Discard)?;
    let options = TcAttachOptions::Netlink(NlOptions {
        priority: FILTER_PRIORITY,
        handle: TcHandle::from(FILTER_HANDLE),
        ..NlOptions::default()
    });
    let link = classifier
        .attach_with_options(far, TcAttachType::Ingress, options)
        .and_then(|id| classifier.take_link(id))
        .map_err(failed)?;
    // It goes with the device.
    mem::forget(link);
    Ok(())
}

/// Removes the clsact filters of an emulation from an interface: those whose programs use its maps. Their
/// names would not tell: aya gives none where the kernel has no tracepoints to try it with.
pub fn remove_filters(netlink: &mut Netlink, index: u32, maps: &MapIds) -> Result<(), AttachError> {
    for hook in [Hook::Ingress, Hook::Egress] {
        for filter in netlink.bpf_filters(index, hook)? {
            if uses(filter.program, maps).map_err(AttachError::Programs)? {
                netlink.delete_filter(index, hook, &filter)?;
            }
        }
    }
    Ok(())
}

/// Whether a program uses any of the maps.
fn uses(program: u32, maps: &MapIds) -> Result<bool, ProgramError> {
    for loaded in loaded_programs() {
        let loaded = match loaded {
            // It went while the list was read.
            Err(ProgramError::SyscallError(error)) if error.io_error.kind() == ErrorKind::NotFound => {
                continue;
            }
            other => other?,
        };
        if loaded.id() == program {
            let used = loaded.map_ids()?.unwrap_or_default();
            return Ok(used.iter().any(|&id| maps.contains(id)));
        }
    }
    Ok(false)
}
