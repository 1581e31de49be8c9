//! One profile takes the place of another while an emulation goes on. Whoever wants that (its own process, another command,
//! a change that nobody has confirmed) comes here:
//!
//! ```text
//! sch_fq admits what both stamp ──► the other half of the tables is in force ──► sch_fq as the new ones need it ──► record
//! ```

use std::{mem, path::PathBuf};

use perturb_common::tables::Tables;
use perturb_dataplane::{loader::Slots, netlink::FqOptions};

use serde::{Deserialize, Serialize};

use crate::{hosts::Hosts, prepared::Prepared, registry::Record};

/// What the profile that is in force determines: it changes as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// The normalized profile.
    pub profile: String,
    /// Names of the classes, in order.
    pub classes: Vec<String>,
    /// Names of the servers, in order.
    pub servers: Vec<String>,
    /// Where the servers' state and counters are.
    pub slots: Slots,
    /// Options of sch_fq, if it keeps the time.
    #[serde(default)]
    pub fq: Option<FqOptions>,
    /// Memory that held packets may take, bytes.
    #[serde(default)]
    pub held: u64,
    /// Hosts that its classes name.
    #[serde(default)]
    pub hosts: Hosts,
    /// What its files' names are relative to.
    #[serde(default)]
    pub directory: Option<PathBuf>,
    /// Whether a packet's whole path is folded at once.
    #[serde(default)]
    pub coarse: bool,
}

/// Where the tables of an emulation are, and what holds its packets.
pub(crate) trait Halves {
    /// Puts tables in force, whose timeline begins `anew` or goes on; where their servers are.
    fn load(&mut self, record: &Record, tables: &Tables, anew: bool) -> anyhow::Result<Slots>;

    /// Puts the tables before in force again, whose servers were there.
    fn go_back(&mut self, record: &Record, slots: &Slots) -> anyhow::Result<()>;

    /// Sets the options of the hold devices' sch_fq.
    fn set_fq(&mut self, record: &Record, options: FqOptions) -> anyhow::Result<()>;
}

/// What is to be in force.
pub(crate) enum Change<'a> {
    /// This profile. Its timeline goes on.
    To(&'a Prepared),
    /// This profile. Its timeline begins anew.
    Anew(&'a Prepared),
    /// What was in force before: it is in the other half of the maps.
    Back(Box<InForce>),
}

/// Puts other tables in force, and says so in `record`, which the caller writes. What was in force before.
pub(crate) fn exchange(
    halves: &mut (impl Halves + ?Sized),
    record: &mut Record,
    change: Change<'_>,
) -> anyhow::Result<InForce> {
    let fq = match &change {
        Change::To(prepared) | Change::Anew(prepared) => record.in_force.fq.map(|_| prepared.fq_options()),
        Change::Back(before) => before.fq,
    };
    if let (Some(old), Some(new)) = (record.in_force.fq, fq) {
        // Packets that the old tables stamped and those that the new ones stamp must both be admitted.
        halves.set_fq(record, old.widest(new))?;
    }
    let anew = matches!(change, Change::Anew(_));
    let new = match change {
        Change::To(prepared) | Change::Anew(prepared) => {
            let slots = halves.load(record, &prepared.tables, anew)?;
            prepared.in_force(fq, slots)
        }
        Change::Back(before) => {
            halves.go_back(record, &before.slots)?;
            *before
        }
    };
    if let Some(fq) = fq {
        halves.set_fq(record, fq)?;
    }
    record.updates += 1;
    Ok(mem::replace(&mut record.in_force, new))
}
