//! `perturb confirm`: keeps what `apply --confirm` would undo.

use anyhow::ensure;
use perturb_dataplane::namespace::Namespace;

use crate::{
    enter,
    registry::{InterfaceRecord, Record, terms::Due},
    told::Told,
};

/// Confirms what waits for it, on an interface or everywhere; says what there was. Nothing is no error.
pub fn confirm(interface: Option<&str>) -> anyhow::Result<Vec<Record>> {
    let registry = enter()?;
    let here = Namespace::current()?.inode()?;
    let chosen =
        |other: &InterfaceRecord| interface.is_none_or(|name| other.name == name && other.namespace == here);
    let mut confirmed = Vec::new();
    for mut record in registry.records()?.or_warn(&mut Told::default()) {
        if record.interfaces.iter().any(chosen) && keep(&mut record)? {
            record.write()?;
            confirmed.push(record);
        }
    }
    Ok(confirmed)
}

/// Keeps what waits; `false` if nothing does.
pub(crate) fn keep(record: &mut Record) -> anyhow::Result<bool> {
    let too_late = matches!(record.terms.due(), Some((left, Due::Confirm)) if left.is_zero());
    ensure!(
        !too_late,
        "it is too late: {} is being undone; apply it again",
        record.id
    );
    Ok(record.terms.confirm.take().is_some())
}
