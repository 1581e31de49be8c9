//! Another profile for an emulation that runs. Every option of `apply` is heeded or refused:
//!
//! ```text
//! profile, --coarse      the tables
//! --iface                must name the same interfaces
//! --pacer, --spin        refused unless they say what is so already: both are settled when the emulation begins
//! --lease, --for         from now on; without them it stays as it was
//! --follow               from now on
//! --confirm              the profile before comes back unless the new one is confirmed, and --lease, --for and --follow with it
//! --detach               refused unless the emulation is detached already
//! --verbose              refused: whoever began it gets the programs' messages
//! --quiet                there is no live line anyhow
//! ```

use anyhow::{bail, ensure};
use perturb_dataplane::{
    hold,
    loader::Loader,
    maps::Maps,
    netlink::{FqOptions, Netlink},
};
use perturb_emulator::{
    conduct::{PacerChoice, pacer_name},
    registry::{
        Record, Registry,
        terms::{Before, Confirm, after},
    },
};

use super::Request;

/// Changes the profile of a running emulation.
pub(super) fn update(_registry: &Registry, record: &Record, request: &Request) -> anyhow::Result<Record> {
    refuse(record, request)?;
    let tables = &request.prepared.tables;
    let mut loader = Loader::resume(Maps::by_id(&record.maps)?, record.slots.clone())?;
    let fq = record.fq.map(|old| (old, request.prepared.fq_options()));
    if let Some((old, new)) = fq {
        // Packets that the old tables stamped and those that the new ones stamp must both be admitted.
        set_fq(record, old.widest(new))?;
    }
    loader.load(tables)?;
    if let Some((_, new)) = fq {
        set_fq(record, new)?;
    }
    let mut record = record.clone();
    let before = Before {
        profile: std::mem::replace(&mut record.profile, request.prepared.profile.to_string()),
        classes: std::mem::replace(&mut record.classes, tables.class_names.clone()),
        servers: std::mem::replace(&mut record.servers, tables.server_names.clone()),
        slots: std::mem::replace(&mut record.slots, loader.slots().clone()),
        fq: std::mem::replace(&mut record.fq, fq.map(|(_, new)| new)),
        held: std::mem::replace(&mut record.held, request.prepared.tables.held),
        lease: record.terms.lease,
        ends: record.terms.ends,
        follow: record.terms.follow,
    };
    record.updates += 1;
    let terms = &mut record.terms;
    if let Some(lease) = request.lease {
        terms.lease = Some(lease.as_nanos().try_into().unwrap_or(u64::MAX));
    }
    if let Some(duration) = request.duration {
        terms.ends = Some(after(duration));
    }
    terms.follow |= request.follow;
    terms.confirm = request.confirm.map(|time| Confirm {
        by: after(time),
        before: Some(before),
    });
    record.write()?;
    Ok(record)
}

/// Refuses what cannot be changed while an emulation runs.
fn refuse(record: &Record, request: &Request) -> anyhow::Result<()> {
    let applied: Vec<&str> = record
        .interfaces
        .iter()
        .map(|interface| interface.name.as_str())
        .collect();
    ensure!(
        applied.len() == request.interfaces.len()
            && request
                .interfaces
                .iter()
                .all(|name| applied.contains(&name.as_str())),
        "{} is applied to {}; name the same interfaces to change its profile, or clear it first",
        record.id,
        applied.join(", ")
    );
    if let Some(lost) = record.interfaces.iter().find(|interface| interface.lost) {
        bail!(
            "{} is gone, and process {} waits for it (--follow); change the profile when it is back, or clear it first",
            lost.name,
            record.process.pid
        );
    }
    ensure!(
        record.terms.confirm.is_none(),
        "the last change is not confirmed yet; give `perturb confirm`, or wait until it is undone"
    );
    if let PacerChoice::Only(pacer) = request.pacer {
        ensure!(
            pacer_name(pacer) == record.pacer,
            "the pacer of a running emulation ({}) cannot be changed; clear it first",
            record.pacer
        );
    }
    if let Some(spin) = request.spin {
        ensure!(
            spin.0.as_nanos() == u128::from(record.spin),
            "how long the pacer polls cannot be changed while the emulation runs (--spin is {} ns now); clear it first",
            record.spin
        );
    }
    ensure!(
        !request.detach || record.detached,
        "process {} emulates in the foreground and cannot be detached from here; leave --detach away to change its \
         profile, or clear it first",
        record.process.pid
    );
    ensure!(
        !request.verbose,
        "the programs' own messages go to process {}, which began the emulation; leave --verbose away to change the \
         profile, or clear it first",
        record.process.pid
    );
    Ok(())
}

/// Sets the options of the hold devices' sch_fq.
pub(super) fn set_fq(record: &Record, options: FqOptions) -> anyhow::Result<()> {
    let mut netlink = Netlink::open()?;
    for interface in &record.interfaces {
        if let Some(device) = interface.devices.first()
            && let Some(link) = netlink.link(device)?
        {
            hold::set_fq(&mut netlink, link.index, link.queues, options)?;
        }
    }
    Ok(())
}
