//! Removes what an emulation left whose owner was killed: devices, filters, record.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::Context as _;
use perturb_dataplane::{attach, namespace::Namespace, netlink::Netlink};

use crate::registry::{InterfaceRecord, RECORDS, Record, Registry};

/// Removes the remains of every emulation that has no owner any more.
pub fn recover(registry: &Registry) -> anyhow::Result<()> {
    for record in registry.records()? {
        if !record.has_owner()? {
            eprintln!(
                "perturb: removing what {} (pid {}) left behind",
                record.id, record.pid
            );
            remove(&record)?;
        }
    }
    sweep(registry)
}

/// Removes directories without a record: a command was killed while it made or removed one.
fn sweep(registry: &Registry) -> anyhow::Result<()> {
    let known: BTreeSet<String> = registry.records()?.into_iter().map(|record| record.id).collect();
    for entry in fs::read_dir(RECORDS).with_context(|| format!("reading {RECORDS}"))? {
        let entry = entry?;
        if entry.path().is_dir() && !known.contains(&*entry.file_name().to_string_lossy()) {
            fs::remove_dir_all(entry.path())
                .with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Takes an emulation down from outside.
pub fn remove(record: &Record) -> anyhow::Result<()> {
    for interface in &record.interfaces {
        // A namespace that is gone took its devices along.
        if let Some(namespace) = find_namespace(interface.namespace)? {
            namespace.enter(|| remove_devices(&record.id, interface))??;
        }
    }
    Ok(record.remove()?)
}

fn remove_devices(id: &str, interface: &InterfaceRecord) -> anyhow::Result<()> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links()?;
    let alive = links.iter().find(|link| link.index == interface.index);
    if let Some(link) = alive
        && !attach::has_tcx()
    {
        attach::remove_filters(&link.name)?;
        if interface.made_clsact && netlink.clsact_filters(link.index)? == 0 {
            netlink.delete_clsact(link.index)?;
        }
    }
    let alias = Record::alias(id);
    for link in links {
        // A device that was killed before it got its alias has none; its name was perturb's intent.
        let ours = link.alias.as_deref().is_none_or(|other| other == alias);
        if interface.devices.contains(&link.name) && ours {
            netlink.delete_link(link.index)?;
        }
    }
    Ok(())
}

/// A namespace by its inode: this one, a named one, or that of a process.
fn find_namespace(inode: u64) -> anyhow::Result<Option<Namespace>> {
    let current = Namespace::current()?;
    if current.inode()? == inode {
        return Ok(Some(current));
    }
    let named = fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    let processes = fs::read_dir("/proc")?
        .filter_map(Result::ok)
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .bytes()
                .all(|byte| byte.is_ascii_digit())
        })
        .map(|entry| entry.path().join("ns/net"));
    for path in named.chain(processes) {
        if matches(&path, inode) {
            return Ok(Some(Namespace::open(&path)?));
        }
    }
    Ok(None)
}

fn matches(path: &Path, inode: u64) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).is_ok_and(|metadata| metadata.ino() == inode)
}
