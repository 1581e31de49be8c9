//! What goes into tunnels to hosts on other machines and what comes out of them, counted packet by packet.

use aya::maps::{Array, HashMap, MapData, MapError};
use perturb_common::{ends::TunnelEnd, tables::Tables};
use serde::{Deserialize, Serialize};

use crate::{
    attach::{AttachError, Attached, Clsact, Side},
    maps::Wire,
    netlink::Netlink,
    programs::{LoadError, LoadOptions, Pacer, Program, Programs},
    room::Room,
};

/// Why packets in tunnels are not counted.
#[derive(Debug, thiserror::Error)]
pub enum TunnelsError {
    /// The programs do not load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// They cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// Reading or writing their map.
    #[error("counting packets in tunnels: {0}")]
    Map(#[from] MapError),
}

/// Packets that have passed an end of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// Into the tunnel.
    pub sent: u64,
    /// Out of it.
    pub received: u64,
}

/// The ends of tunnels at a machine.
pub struct Tunnels {
    programs: Programs,
    ends: HashMap<MapData, u32, Wire<TunnelEnd>>,
    closed: Array<MapData, u64>,
}

impl Tunnels {
    /// None yet.
    ///
    /// # Errors
    /// If the kernel does not take the programs.
    pub fn new() -> Result<Self, TunnelsError> {
        let mut programs = Programs::load(LoadOptions {
            pacer: Pacer::User,
            room: Room::of(&Tables::default()),
            verbose: false,
        })?;
        let mut map = |name| programs.take_map(name).ok_or(LoadError::Missing(name));
        let (ends, closed) = (map("ENDS")?, map("CLOSED")?);
        Ok(Self {
            programs,
            ends: ends.try_into()?,
            closed: closed.try_into()?,
        })
    }

    /// The programs, which whoever tests them runs.
    pub fn programs(&mut self) -> &mut Programs {
        &mut self.programs
    }

    /// Counts from now on at an interface of the current namespace, which is not up yet. `is_last`: its other end is there;
    /// else it sends nothing until something comes from it.
    ///
    /// # Errors
    /// If the kernel does not attach the programs.
    pub fn count(&mut self, interface: &str, index: u32, is_last: bool) -> Result<(), TunnelsError> {
        let end = TunnelEnd {
            is_heard: is_last.into(),
            ..TunnelEnd::default()
        };
        self.ends.insert(index, Wire(end), 0)?;
        let clsact = Netlink::open().and_then(|mut netlink| Clsact::ensure(&mut netlink, index));
        clsact.map_err(AttachError::from)?.forget();
        for (program, side) in [(Program::Sent, Side::Egress), (Program::Received, Side::Ingress)] {
            Attached::new(&mut self.programs, program, interface, side)?.leave();
        }
        Ok(())
    }

    /// Lets nothing more into the tunnels.
    ///
    /// # Errors
    /// If the map cannot be written.
    pub fn close(&mut self) -> Result<(), TunnelsError> {
        Ok(self.closed.set(0, 1, 0)?)
    }

    /// What has passed the end at an interface.
    ///
    /// # Errors
    /// If nothing is counted there.
    pub fn passed(&self, index: u32) -> Result<Passed, TunnelsError> {
        let end = self.ends.get(&index, 0)?.0;
        Ok(Passed {
            sent: end.sent,
            received: end.received,
        })
    }
}
