//! The switch: private hosts' TAPs joined in this process, and the programs in between, without the kernel's help and without
//! privileges on the machine.
//!
//! ```text
//! h1:eth0 ──read──► egress program ──► departure queue ──at its time──► release program ──► ingress program ──write──► h2:eth0
//! ```
//!
//! The programs are the kernel's, compiled for this processor ([`crate::native`]), and see the same: interfaces, hold devices and
//! splitters have numbers here, too, though none of them is a device. The threads are those of the user pacer, and so are
//! their sleeps, their priority and their figures. A TAP has one queue, and one thread reads it: a flow keeps its order.
//! Without programs the switch is a wire, or a bridge.

mod crossing;
mod cut;
mod plane;

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use perturb_common::abi::{Attachment, LEAD_WAKE_UP};

use crate::{
    maps::{Array, MapsError},
    native::Tables,
    user::{Queue, SpinBudget, Tap, UserPacer, UserPacerError, UserPacerStats, usual_threads},
};
use crossing::Crossing;
pub use plane::{SwitchVitals, Switched};

/// Where a host's TAP is among the switch's.
#[derive(Debug)]
struct Port {
    /// Interface index, the programs' number for it.
    index: u32,
    address: [u8; 6],
    /// Writes to it.
    out: Queue,
}

impl Port {
    /// The number of its hold device,
    const fn hold(&self) -> u32 {
        self.index + 1
    }

    /// and those of its splitter, where packets go in
    const fn split(&self) -> u32 {
        self.index + 2
    }

    /// and where they come out.
    const fn parts(&self) -> u32 {
        self.index + 3
    }

    /// What the programs are told of it.
    const fn attachment(&self, rank: u32) -> Attachment {
        Attachment {
            target: self.index,
            hold: self.hold(),
            split: self.split(),
            rank,
        }
    }
}

/// The programs' tables while something is emulated.
#[derive(Default)]
struct Emulated {
    tables: Option<Arc<Tables>>,
    lead: Option<Array<u64>>,
}

/// What the threads share.
struct Ports {
    ports: Vec<Port>,
    emulated: Mutex<Emulated>,
    /// Counts the changes of `emulated`.
    changes: AtomicU64,
}

impl Ports {
    fn emulated(&self) -> MutexGuard<'_, Emulated> {
        self.emulated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port of an interface.
    fn of(&self, interface: u32) -> Option<usize> {
        self.ports.iter().position(|port| port.index == interface)
    }
}

/// The hosts' TAPs, and the threads that serve them. The devices go with it.
pub struct Switch {
    // Its threads read the TAPs.
    pacer: UserPacer,
    ports: Arc<Ports>,
}

/// Why a switch could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// Its threads.
    #[error("the switch's threads: {0}")]
    Pacer(#[from] UserPacerError),
    /// A TAP.
    #[error("the switch's TAPs: {0}")]
    Tap(#[from] io::Error),
}

impl Switch {
    /// Joins TAPs, each that of a host whose interface has this hardware address.
    pub fn new(taps: Vec<(Tap, [u8; 6])>, spin: SpinBudget) -> Result<Self, SwitchError> {
        let port = |(tap, address): &(Tap, [u8; 6])| {
            Ok(Port {
                index: tap.index(),
                address: *address,
                out: tap.writer()?,
            })
        };
        let ports = Arc::new(Ports {
            ports: taps.iter().map(port).collect::<io::Result<_>>()?,
            emulated: Mutex::default(),
            changes: AtomicU64::default(),
        });
        let told = Arc::clone(&ports);
        let tell = move |nanos| {
            if let Some(lead) = &mut told.emulated().lead {
                // A word that could not be written stays as it was: the lead is what it was, too.
                let _ = lead.set(LEAD_WAKE_UP, nanos, 0);
            }
        };
        // The programs look at the limit of what is held.
        let course = |number, figures: &_| Crossing::new(number, Arc::clone(&ports), Arc::clone(figures));
        let pacer = UserPacer::start_with(usual_threads(), spin, u64::MAX, Box::new(tell), course)?;
        for (tap, _) in taps {
            pacer.add(tap)?;
        }
        Ok(Self { pacer, ports })
    }

    /// How many threads run programs.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.pacer.threads()
    }

    /// Emulates with these tables from now on, or not at all.
    fn emulate(&self, tables: Option<Arc<Tables>>) -> Result<(), MapsError> {
        let lead = tables.as_ref().map(|tables| tables.maps()).transpose()?;
        let mut emulated = self.ports.emulated();
        emulated.tables = tables;
        emulated.lead = lead.map(|maps| maps.lead);
        self.ports.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> UserPacerStats {
        self.pacer.stats()
    }

    /// The index of a TAP that cannot be read any more, if there is one.
    #[must_use]
    pub fn dead(&self) -> Option<u32> {
        self.pacer.dead()
    }
}
