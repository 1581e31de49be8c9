//! Removes what an emulation left whose owner was killed: devices, filters, record.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use perturb_dataplane::{attach, loopback, namespace::Namespace, netlink::Netlink, programs::Pacer};

use crate::{
    privileges,
    registry::{InterfaceRecord, Record, Recorded, Registry, place, remove_directory},
};

/// Removes the remains of every emulation that has no owner any more.
pub(crate) fn recover(registry: &Registry) -> anyhow::Result<()> {
    for record in registry.records()?.records {
        if !record.has_owner()? {
            log::info!(
                "removing what {} (process {}, which has ended) left behind",
                record.id,
                record.process.pid
            );
            match take_down(&record)? {
                TakeDown::Done => {}
                TakeDown::Hidden(namespace) => log::warn!("{}", hidden(&record, namespace)),
            }
        }
    }
    sweep(registry)
}

/// Removes directories without a record: a command was killed while it made or removed one.
fn sweep(registry: &Registry) -> anyhow::Result<()> {
    let Recorded { records, unreadable } = registry.records()?;
    let readable = records.into_iter().map(|record| record.id);
    let known: BTreeSet<String> = readable
        .chain(unreadable.into_iter().map(|record| record.id))
        .collect();
    for entry in fs::read_dir(place()).with_context(|| format!("reading {}", place().display()))? {
        let entry = entry?;
        if entry.path().is_dir() && !known.contains(&*entry.file_name().to_string_lossy()) {
            remove_directory(&entry.path())?;
        }
    }
    Ok(())
}

/// Takes an emulation down from outside.
pub(crate) fn remove(record: &Record) -> anyhow::Result<()> {
    match take_down(record)? {
        TakeDown::Done => Ok(()),
        TakeDown::Hidden(namespace) => bail!(hidden(record, namespace)),
    }
}

fn hidden(record: &Record, namespace: u64) -> String {
    format!(
        "{} (process {}) has ended, but what it left in the network namespace {namespace} stays: this user may not look into all \
         processes, and one of them may keep that namespace; `perturb clear` as root removes it",
        record.id, record.process.pid
    )
}

/// How a taking down ended.
enum TakeDown {
    Done,
    /// The namespace with this inode may be one that this user cannot see; the record stays.
    Hidden(u64),
}

fn take_down(record: &Record) -> anyhow::Result<TakeDown> {
    if record.pacer == Pacer::Switch.name() {
        // Its devices went with its process.
        record.remove()?;
        return Ok(TakeDown::Done);
    }
    for interface in &record.interfaces {
        match find_namespace(interface.namespace)? {
            Found::Here(namespace) => namespace.enter(|| remove_devices(record, interface))??,
            // It took its devices along.
            Found::Gone => {}
            Found::Hidden => return Ok(TakeDown::Hidden(interface.namespace)),
        }
    }
    record.remove()?;
    Ok(TakeDown::Done)
}

fn remove_devices(record: &Record, interface: &InterfaceRecord) -> anyhow::Result<()> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links()?;
    let alive = links.iter().find(|link| link.index == interface.index);
    if let Some(link) = alive
        && !attach::has_tcx()
    {
        attach::remove_filters(&mut netlink, link.index, &record.maps)?;
        let is_ours = interface.made_clsact && netlink.has_clsact(link.index)?;
        if is_ours && netlink.clsact_filters(link.index)? == 0 {
            netlink.delete_clsact(link.index)?;
        }
    }
    let alias = Record::alias(&record.id);
    for link in links {
        // A device that was killed before it got its alias has none; its name was perturb's intent.
        let ours = link.alias.as_deref().is_none_or(|other| other == alias);
        if interface.devices.contains(&link.name) && ours {
            netlink.delete_link(link.index)?;
        }
    }
    Ok(loopback::restore(&interface.settings)?)
}

/// What became of a namespace.
enum Found {
    Here(Namespace),
    Gone,
    /// It is not among those that may be looked at, and some may not be.
    Hidden,
}

/// A namespace by its inode: this one, or one that a name, a mount, a process or a file descriptor keeps.
fn find_namespace(inode: u64) -> anyhow::Result<Found> {
    let current = Namespace::current()?;
    if current.inode()? == inode {
        return Ok(Found::Here(current));
    }
    let link = format!("net:[{inode}]");
    let mut denied = false;
    let mut is_it = |path: &PathBuf| match fs::read_link(path) {
        Ok(target) => target == Path::new(&link),
        Err(error) => {
            denied |= error.kind() == io::ErrorKind::PermissionDenied;
            false
        }
    };
    // Cheap places first: usually the namespace is named or has a process.
    let found = mounted(&link)
        .or_else(|| processes().map(|process| process.join("ns/net")).find(&mut is_it))
        .or_else(|| {
            processes()
                .flat_map(|process| entries(&process.join("fd")))
                .find(&mut is_it)
        });
    Ok(match found {
        Some(path) => Found::Here(Namespace::open(&path)?),
        // What is closed to a user with that capability is another user namespace's, or this machine's owner's.
        None if denied && !privileges::sees_processes()? => Found::Hidden,
        None => Found::Gone,
    })
}

/// Where a namespace is mounted: `ip netns` and container engines name it so.
fn mounted(link: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
    // number, parent, device, root, mount point, ...
    let of = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        (fields.next()? == link).then(|| fields.next().map(PathBuf::from))?
    };
    mounts.lines().find_map(of)
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let is_number = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    };
    entries(Path::new("/proc")).filter(is_number)
}

/// What a directory holds; nothing if it is gone or closed to us.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .map(|entry| entry.path())
}
